/* Types and signatures of a program as Relay text. Types of hostile files may be deep, or share
 * parts so that their text would be huge: this keeps a stack of its own and stops where the text
 * ends. */
#include <stdio.h>
#include <string.h>

#include "program.h"
#include "status.h"

enum { MOST_OPEN = 256 }; /* deeper types are cut */

typedef struct text {
  char *at, *end; /* end: where the closing NUL may stand at the latest */
  int full;
} text;

static void add(text *out, const char *piece) {
  size_t length = strlen(piece), room = (size_t)(out->end - out->at);
  if (out->full) return;
  if (length > room) {
    out->full = 1;
    length = room;
  }
  memcpy(out->at, piece, length);
  out->at += length;
}

/* Close the text; what did not fit is shown by dots. Returns the length. */
static size_t finish(text *out, const char *start) {
  if (out->full) {
    size_t dots = (size_t)(out->at - start) < 3 ? (size_t)(out->at - start) : 3;
    memset(out->at - dots, '.', dots);
  }
  *out->at = 0;
  return (size_t)(out->at - start);
}

static void add_number(text *out, int64_t number) {
  char digits[24];
  snprintf(digits, sizeof digits, "%lld", (long long)number);
  add(out, digits);
}

static void add_tensor(text *out, const nvm_program *program, uint32_t function,
                       const nvm_type *type) {
  const nvm_function *f = function < program->n_functions ? &program->functions[function] : NULL;
  if (type->n_words == 2) {
    add(out, nvm_dtypes[type->words[1]].name);
    return;
  }
  add(out, "Tensor[(");
  for (uint32_t a = 2; a < type->n_words; a++) {
    int64_t dim = type->words[a];
    if (a > 2) add(out, ", ");
    if (dim < 0) add(out, "?");
    if (dim >= 0)
      add_number(out, dim);
    else if (dim != -1 && f && -2 - dim < (int64_t)f->n_dims)
      add(out, f->dims[-2 - dim].name);
    else if (dim != -1)
      add_number(out, -2 - dim);
  }
  add(out, "), ");
  add(out, nvm_dtypes[type->words[1]].name);
  add(out, "]");
}

/* A composite type whose parts are being written. */
typedef struct open_type {
  const nvm_type *type;
  uint32_t next; /* word of the next part */
} open_type;

/* What stands before the part at word `next`, or (next = n_words) at the end. */
static const char *before(const nvm_type *type, uint32_t next) {
  const int64_t kind = type->words[0];
  const int end = next == type->n_words;
  switch (kind) {
    case NVM_TYPE_TUPLE:
      return end ? (type->n_words == 2 ? ",)" : ")") : next > 1 ? ", " : "";
    case NVM_TYPE_ADT:
      return end ? (type->n_words > 2 ? "]" : "") : next > 2 ? ", " : "[";
    case NVM_TYPE_FUNCTION: /* the result is written last, see part_at */
      return end ? "" : next == type->n_words - 1 ? ") -> " : next > 1 ? ", " : "";
    default:
      return end ? ")" : "";
  }
}

/* The type index at a place: a function's result comes after its parameters. */
static uint32_t part_at(const nvm_type *type, uint32_t next) {
  if (type->words[0] != NVM_TYPE_FUNCTION) return (uint32_t)type->words[next];
  return (uint32_t)type->words[next == type->n_words - 1 ? 1 : next + 1];
}

static void add_type(text *out, const nvm_program *program, uint32_t function, uint32_t index) {
  open_type open[MOST_OPEN];
  uint32_t depth = 0;
  for (;;) {
    const nvm_type *type = &program->types[index];
    switch (type->words[0]) {
      case NVM_TYPE_TENSOR:
        add_tensor(out, program, function, type);
        break;
      case NVM_TYPE_VARIABLE:
        add(out, "T");
        add_number(out, type->words[1]);
        break;
      default:
        if (depth == MOST_OPEN) {
          add(out, "...");
          break;
        }
        if (type->words[0] == NVM_TYPE_ADT)
          add(out, program->adts[type->words[1]].name);
        else
          add(out, type->words[0] == NVM_TYPE_TUPLE      ? "("
                   : type->words[0] == NVM_TYPE_FUNCTION ? "fn ("
                                                         : "ref(");
        open[depth++] = (open_type){type, type->words[0] == NVM_TYPE_ADT ? 2 : 1};
    }
    for (;;) {
      if (depth == 0 || out->full) return;
      open_type *top = &open[depth - 1];
      add(out, before(top->type, top->next));
      if (top->next < top->type->n_words) {
        index = part_at(top->type, top->next++);
        break;
      }
      depth--;
    }
  }
}

NVM_EXPORT size_t nvm_program_type_text(const nvm_program *program, uint32_t function,
                                        uint32_t type, char *out_text, size_t size) {
  if (size == 0) return 0;
  text out = {out_text, out_text + size - 1, 0};
  if (type < program->n_types) add_type(&out, program, function, type);
  return finish(&out, out_text);
}

NVM_EXPORT size_t nvm_program_signature(const nvm_program *program, uint32_t function,
                                        char *out_text, size_t size) {
  if (size == 0) return 0;
  text out = {out_text, out_text + size - 1, 0};
  if (function < program->n_functions) {
    const nvm_function *f = &program->functions[function];
    add(&out, "@");
    add(&out, f->name);
    add(&out, "(");
    for (uint32_t p = 0; p < f->n_params && !out.full; p++) {
      add(&out, p ? ", %" : "%");
      add(&out, f->params[p].name);
      add(&out, ": ");
      add_type(&out, program, function, f->params[p].type);
    }
    add(&out, ") -> ");
    add_type(&out, program, function, f->result_type);
  }
  return finish(&out, out_text);
}
