/* Values of a program as JSON text; what this writes, values.c reads. Nothing recurses. */
#include <stdio.h>
#include <string.h>

#include "tool.h"

/* A composite whose parts are being written. */
typedef struct open_value {
  const nvm_out *value; /* of a list: the cell at hand */
  uint32_t next;
  int is_list;
} open_value;

typedef struct writer {
  FILE *file;
  const nvm_program *program;
  size_t elements, limit, written;
  open_value *open;
  size_t depth, capacity;
} writer;

static void put(writer *w, const char *text) {
  w->written += strlen(text);
  fputs(text, w->file);
}

static void put_string(writer *w, const char *text) {
  put(w, "\"");
  for (; *text; text++) {
    char piece[8] = {*text};
    if (*text == '"' || *text == '\\')
      snprintf(piece, sizeof piece, "\\%c", *text);
    else if ((unsigned char)*text < 0x20)
      snprintf(piece, sizeof piece, "\\u%04x", (unsigned)*text);
    put(w, piece);
  }
  put(w, "\"");
}

static void put_element(writer *w, int32_t dtype, const char *from) {
  char text[NUMBER_BYTES];
  uint64_t bits = 0;
  if (is_float(dtype)) {
    put(w, double_text(read_float(dtype, from), text));
    return;
  }
  memcpy(&bits, from, dtype_size(dtype)); /* little-endian */
  if (dtype == NVM_DTYPE_BOOL) {
    put(w, bits ? "true" : "false");
    return;
  }
  const unsigned width = 8 * (unsigned)dtype_size(dtype);
  if (nvm_dtypes[dtype].is_signed && bits >> (width - 1))
    snprintf(text, sizeof text, "-%llu",
             (unsigned long long)(width == 64 ? 0 - bits : (UINT64_C(1) << width) - bits));
  else
    snprintf(text, sizeof text, "%llu", (unsigned long long)bits);
  put(w, text);
}

static void put_shape(writer *w, const nvm_out *tensor) {
  char text[24];
  for (uint32_t a = 0; a < tensor->rank; a++) {
    snprintf(text, sizeof text, "%s%lld", a ? ", " : "", (long long)tensor->shape[a]);
    put(w, text);
  }
}

static void put_tensor(writer *w, const nvm_out *tensor) {
  const size_t count = shape_count(tensor->dtype, tensor->rank, tensor->shape, "the result");
  const char *from = tensor->data;
  int64_t index[MAX_RANK] = {0};
  uint32_t depth = 0;
  if (count > w->elements) {
    put(w, "\"Tensor[(");
    put_shape(w, tensor);
    put(w, "), ");
    put(w, dtype_name(tensor->dtype));
    put(w, "]\"");
    return;
  }
  if (count == 0 && tensor->rank > 1) { /* nested arrays would not tell the shape */
    put(w, "{\"dtype\": \"");
    put(w, dtype_name(tensor->dtype));
    put(w, "\", \"shape\": [");
    put_shape(w, tensor);
    put(w, "], \"data\": []}");
    return;
  }
  if (count == 0) {
    put(w, "[]");
    return;
  }
  for (;;) {
    for (; depth < tensor->rank; depth++) {
      put(w, "[");
      index[depth] = 0;
    }
    put_element(w, tensor->dtype, from);
    from += dtype_size(tensor->dtype);
    while (depth > 0 && ++index[depth - 1] == tensor->shape[depth - 1]) {
      put(w, "]");
      depth--;
    }
    if (depth == 0) return;
    put(w, ", ");
    if (w->written > w->limit) return;
  }
}

static const char *constructor_of(const writer *w, const nvm_out *value, const char **out_adt) {
  int32_t adt;
  uint32_t tag, n_fields, n_params, first, count;
  const uint32_t *fields;
  const char *name =
      nvm_program_constructor(w->program, value->ctor, &adt, &tag, &n_fields, &fields);
  *out_adt = nvm_program_adt(w->program, (uint32_t)adt, &n_params, &first, &count);
  return name;
}

/* Write a leaf, or open a composite. */
static void begin(writer *w, const nvm_out *value) {
  if (value->kind == NVM_OUT_HANDLE) {
    if (w->limit == SIZE_MAX)
      mistake("the result holds a function or a reference, which can't be written to a file");
    put(w, "\"a function or a reference\"");
    return;
  }
  if (value->kind == NVM_OUT_TENSOR) {
    put_tensor(w, value);
    return;
  }
  open_value made = {.value = value};
  if (value->ctor == 0) {
    put(w, "[");
  } else {
    const char *adt, *name = constructor_of(w, value, &adt);
    const int is_cons = strcmp(name, "Cons") == 0, is_nil = strcmp(name, "Nil") == 0;
    made.is_list = (is_cons || is_nil) && strcmp(adt, "List") == 0;
    if (made.is_list) {
      put(w, "[");
    } else if (value->n_fields == 0) {
      put_string(w, name);
      return;
    } else {
      put(w, "{\"constructor\": ");
      put_string(w, name);
      put(w, ", \"fields\": [");
    }
  }
  PUSH(w->open, w->depth, w->capacity, made);
}

/* The next part of the innermost composite; NULL: it has none left. */
static const nvm_out *next_part(writer *w) {
  open_value *top = &w->open[w->depth - 1];
  if (!top->is_list) {
    if (top->next == top->value->n_fields) return NULL;
    if (top->next) put(w, ", ");
    return nvm_out_field(top->value, top->next++);
  }
  if (top->next++) { /* the head is written: go on with the tail */
    top->value = nvm_out_field(top->value, 1);
    if (top->value->kind != NVM_OUT_ADT)
      mistake("the result holds a reference, which can't be written to a file");
    if (top->value->n_fields) put(w, ", ");
  }
  return top->value->n_fields ? nvm_out_field(top->value, 0) : NULL;
}

void write_value(void *file, const nvm_program *program, const nvm_out *value, size_t elements,
                 size_t limit) {
  writer w = {.file = file, .program = program, .elements = elements, .limit = limit};
  begin(&w, value);
  while (w.depth) {
    if (w.written > w.limit) {
      put(&w, " ...");
      return;
    }
    const nvm_out *part = next_part(&w);
    if (part) {
      begin(&w, part);
      continue;
    }
    const open_value *top = &w.open[--w.depth];
    put(&w, top->is_list || top->value->ctor == 0 ? "]" : "]}");
  }
}
