#include "handle_type.h"

enum { MOST_WAITING = 64, MOST_STEPS = 1024 };
enum { TENSOR, TUPLE, ADT, FUNC, REF, VAR };

/* Pairs still to be compared: of two types, or (object set) of a value and a type. */
typedef struct pair {
  const nvm_object *object;
  uint32_t have, want;
} pair;

typedef struct comparison {
  const nvm_program *program;
  pair waiting[MOST_WAITING];
  uint32_t count;
} comparison;

static void later(comparison *c, const nvm_object *object, uint32_t have, uint32_t want) {
  if (c->count < MOST_WAITING) c->waiting[c->count++] = (pair){object, have, want};
}

/* Two types, dims aside. A type variable stands for anything. */
static int types_agree(comparison *c, uint32_t have, uint32_t want) {
  if (have == want) return 1;
  const nvm_type *a = &c->program->types[have], *b = &c->program->types[want];
  if (a->words[0] == VAR || b->words[0] == VAR) return 1;
  if (a->words[0] != b->words[0] || a->n_words != b->n_words) return 0;
  if (a->words[0] == TENSOR) return a->words[1] == b->words[1];
  uint32_t first = a->words[0] == ADT ? 2 : 1;
  if (first == 2 && a->words[1] != b->words[1]) return 0;
  for (uint32_t i = first; i < a->n_words; i++)
    later(c, NULL, (uint32_t)a->words[i], (uint32_t)b->words[i]);
  return 1;
}

/* The result and the parameters after the captured ones, against a function type. */
static int closure_agrees(comparison *c, const nvm_closure *closure, const nvm_type *type) {
  const nvm_function *function = &c->program->functions[closure->func];
  uint32_t n = function->n_params - closure->n_captures;
  if (type->n_words != n + 2) return 0;
  for (uint32_t i = 0; i < n; i++)
    later(c, NULL, function->params[closure->n_captures + i].type, (uint32_t)type->words[2 + i]);
  later(c, NULL, function->result_type, (uint32_t)type->words[1]);
  return 1;
}

static int tuple_agrees(comparison *c, const nvm_adt *tuple, const nvm_type *type) {
  if (tuple->ctor != 0 || tuple->n_fields + 1 != type->n_words) return 0;
  for (uint32_t i = 0; i < tuple->n_fields; i++)
    later(c, tuple->fields[i], 0, (uint32_t)type->words[1 + i]);
  return 1;
}

static int value_agrees(comparison *c, const nvm_object *object, uint32_t want) {
  const nvm_type *type = &c->program->types[want];
  switch (type->words[0]) {
    case TENSOR:
      return object->kind == NVM_KIND_TENSOR && object->extra == type->words[1] &&
             ((const nvm_tensor *)object)->rank + 2u == type->n_words;
    case TUPLE:
      return object->kind == NVM_KIND_ADT && tuple_agrees(c, (const nvm_adt *)object, type);
    case ADT:
      return object->kind == NVM_KIND_ADT &&
             c->program->ctors[((const nvm_adt *)object)->ctor].adt == type->words[1];
    case FUNC:
      return object->kind == NVM_KIND_CLOSURE &&
             closure_agrees(c, (const nvm_closure *)object, type);
    case REF:
      if (object->kind != NVM_KIND_REF) return 0;
      if (((const nvm_ref *)object)->value)
        later(c, ((const nvm_ref *)object)->value, 0, (uint32_t)type->words[1]);
      return 1;
    default:
      return 1;
  }
}

int nvm_handle_fits(const nvm_program *program, const nvm_object *object, uint32_t type) {
  comparison c = {.program = program};
  later(&c, object, 0, type);
  for (uint32_t step = 0; c.count > 0 && step < MOST_STEPS; step++) {
    pair next = c.waiting[--c.count];
    int fits = next.object ? value_agrees(&c, next.object, next.want)
                           : types_agree(&c, next.have, next.want);
    if (!fits) return 0;
  }
  return 1;
}
