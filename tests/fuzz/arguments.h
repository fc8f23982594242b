/* Arguments of a call made up from its signature, bent by a script. */
#ifndef NVM_FUZZ_ARGUMENTS_H
#define NVM_FUZZ_ARGUMENTS_H

#include "nvm_api.h"

enum { MAX_ARGS = 96, MAX_SHAPE = 12, MAX_BYTES = 4096, MAX_RANK = 8 };

typedef struct script {
  const uint8_t *at, *end;
} script;

static inline uint32_t script_next(script *s) { return s->at < s->end ? *s->at++ : 0; }

typedef struct arguments {
  const nvm_program *program;
  script *script;
  nvm_handle *handle; /* of an earlier result, for function and ref types; NULL: none */
  void *storage;      /* block of an earlier result, to be given away; NULL: none */
  const void *moved;  /* its first element */
  int32_t moved_dtype;
  uint32_t moved_rank;
  int64_t moved_shape[MAX_RANK];
  uint32_t salt, sizes; /* sizes: what dim slots are made of */
  nvm_arg args[MAX_ARGS];
  int64_t shapes[MAX_ARGS][MAX_SHAPE], strides[MAX_ARGS][MAX_SHAPE];
  uint32_t released[MAX_ARGS]; /* calls of `release` */
  size_t n;
  _Alignas(64) char data[2 * MAX_BYTES];
} arguments;

/* Append a value of a type in postorder; 0 if none can be made. */
int arguments_add(arguments *a, uint32_t type);
/* Whether every `release` was called once. */
int arguments_released(const arguments *a);

#endif
