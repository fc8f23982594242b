/* Errors about arguments: where a value stands, what was expected, what came. */
#include <stdarg.h>
#include <stdio.h>

#include "args_converter.h"

enum { PATH_ENDS = 8, PLACE_BYTES = 512 };

typedef struct place_text {
  char text[PLACE_BYTES];
} place_text;

/* Parents and field numbers of all values; NULL without memory. */
NVM_COLD static uint32_t *parents_of(const nvm_converter *c) {
  uint32_t *parent = nvm_malloc(c->n_args * 3 * sizeof *parent);
  if (!parent) return NULL;
  uint32_t *field = parent + c->n_args, *stack = field + c->n_args;
  size_t depth = 0;
  for (size_t i = 0; i < c->n_args; i++) {
    parent[i] = UINT32_MAX;
    if (c->args[i].kind == NVM_ARG_ADT) {
      depth -= c->args[i].n_fields;
      for (uint32_t k = 0; k < c->args[i].n_fields; k++) {
        parent[stack[depth + k]] = (uint32_t)i;
        field[stack[depth + k]] = k;
      }
    }
    stack[depth++] = (uint32_t)i;
  }
  return parent;
}

NVM_COLD static void append_step(const nvm_converter *c, place_text *place, uint32_t node,
                                 uint32_t field) {
  size_t used = strlen(place->text);
  uint32_t ctor = c->args[node].ctor;
  const char *name = ctor && ctor < c->program->n_ctors ? c->program->ctors[ctor].name : "";
  snprintf(place->text + used, PLACE_BYTES - used, "%s%.40s[%u]", *name ? "." : "", name, field);
}

/* "parameter %x of @main, at .Node[1].Leaf[0]" */
NVM_COLD static const char *place(const nvm_converter *c, size_t i, place_text *place_out) {
  const nvm_function *function = c->function;
  snprintf(place_out->text, PLACE_BYTES, "parameter %%%.80s of @%.80s",
           function->params[c->expect[i].param].name, function->name);
  if (i > UINT32_MAX / 4) return place_out->text;
  uint32_t *parent = parents_of(c);
  if (!parent) return place_out->text;
  const uint32_t *field = parent + c->n_args;
  size_t depth = 0;
  uint32_t path[2 * PATH_ENDS]; /* nodes whose field is the next step: the last ones, then the first
                                   ones */
  for (uint32_t at = (uint32_t)i; parent[at] != UINT32_MAX; at = parent[at]) depth++;
  if (depth) strcat(place_out->text, ", at ");
  size_t position = depth, n_path = 0;
  for (uint32_t at = (uint32_t)i; parent[at] != UINT32_MAX; at = parent[at]) {
    position--;
    if (position < PATH_ENDS || position + PATH_ENDS >= depth) path[n_path++] = at;
  }
  for (size_t k = n_path; k-- > 0;) {
    if (depth > 2 * PATH_ENDS && k + 1 == PATH_ENDS) strcat(place_out->text, "...");
    append_step(c, place_out, parent[path[k]], field[path[k]]);
  }
  nvm_free(parent);
  return place_out->text;
}

nvm_status nvm_arg_fail(const nvm_converter *c, size_t i, nvm_status code, const char *format,
                        ...) {
  place_text where;
  char text[512];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return nvm_fail(code, "%s: %s", place(c, i, &where), text);
}

const char *nvm_arg_dtype_name(int32_t dtype) {
  return (uint32_t)dtype < NVM_DTYPE_COUNT ? nvm_dtypes[dtype].name : "an unknown dtype";
}

/* Numbers that %.9g would write like an integer. */
static int is_short_whole(double number) {
  return number > -1e9 && number < 1e9 && number == (double)(int32_t)number;
}

const char *nvm_arg_describe(const nvm_converter *c, const nvm_arg *arg, char *text, size_t size) {
  switch (arg->kind) {
    case NVM_ARG_TENSOR:
      snprintf(text, size, "a tensor of %s, rank %u", nvm_arg_dtype_name(arg->dtype), arg->rank);
      break;
    case NVM_ARG_INT:
      snprintf(text, size, arg->dtype == NVM_DTYPE_BOOL ? "a bool" : "the integer %lld",
               (long long)arg->int_value);
      break;
    case NVM_ARG_FLOAT:
      snprintf(text, size, is_short_whole(arg->float_value) ? "the float %.1f" : "the float %.9g",
               arg->float_value);
      break;
    case NVM_ARG_ADT:
      if (arg->ctor == 0)
        snprintf(text, size, "a tuple of %u", arg->n_fields);
      else if (arg->ctor < c->program->n_ctors)
        snprintf(text, size, "%.60s of %.60s with %u field%s", c->program->ctors[arg->ctor].name,
                 c->program->adts[c->program->ctors[arg->ctor].adt].name, arg->n_fields,
                 arg->n_fields == 1 ? "" : "s");
      else
        snprintf(text, size, "unknown constructor %u", arg->ctor);
      break;
    default:
      snprintf(text, size, "a handle");
      break;
  }
  return text;
}

const char *nvm_arg_describe_type(const nvm_converter *c, uint32_t index, char *text, size_t size) {
  if (index == NVM_ANY_TYPE) {
    snprintf(text, size, "any value");
    return text;
  }
  const nvm_type *type = &c->program->types[index];
  switch (type->words[0]) {
    case 0:
      snprintf(text, size, "a tensor of %s, rank %u", nvm_dtypes[type->words[1]].name,
               type->n_words - 2);
      break;
    case 1:
      snprintf(text, size, "a tuple of %u", type->n_words - 1);
      break;
    case 2:
      snprintf(text, size, "a value of type %.80s", c->program->adts[type->words[1]].name);
      break;
    case 3:
      snprintf(text, size, "a handle of a function");
      break;
    default:
      snprintf(text, size, "a handle of a ref");
      break;
  }
  return text;
}

nvm_status nvm_arg_wrong(const nvm_converter *c, size_t i) {
  char want[160], got[160];
  const nvm_arg *arg = &c->args[i];
  uint32_t type = c->expect[i].type.type;
  int same_kind = type != NVM_ANY_TYPE && arg->kind == NVM_ARG_ADT &&
                  (c->program->types[type].words[0] == 1 || c->program->types[type].words[0] == 2);
  return nvm_arg_fail(c, i, same_kind ? NVM_INVALID_INPUT : NVM_INVALID_INPUT_TYPE,
                      "expected %s, got %s", nvm_arg_describe_type(c, type, want, sizeof want),
                      nvm_arg_describe(c, arg, got, sizeof got));
}
