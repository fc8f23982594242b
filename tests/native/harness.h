/* A tiny C test kit: CHECK instead of assert (it works in every build), and programs built by hand.
 */
#ifndef NVM_HARNESS_H
#define NVM_HARNESS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"
#include "program.h"
#include "tensor.h"
#include "vm.h"

extern int failures;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      failures++;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)

/* The status that was expected, with what was recorded otherwise. */
#define CHECK_STATUS(call, expected)                                                             \
  do {                                                                                           \
    nvm_status got_ = (call);                                                                    \
    if (got_ != (expected)) {                                                                    \
      failures++;                                                                                \
      fprintf(stderr, "%s:%d: %s: expected status %d, got %d (%s)\n", __FILE__, __LINE__, #call, \
              (expected), got_, nvm_last_error()->message);                                      \
    }                                                                                            \
  } while (0)

#define CHECK_MESSAGE(text)                                                         \
  do {                                                                              \
    if (!strstr(nvm_last_error()->message, text)) {                                 \
      failures++;                                                                   \
      fprintf(stderr, "%s:%d: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, text, \
              nvm_last_error()->message);                                           \
    }                                                                               \
  } while (0)

#define I(n)         (NVM_INT_BIT | (n)) /* int register of an ANY or DIM word */
#define WORDS(...)   (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4
#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Type indices of every program here. */
enum {
  T_I64,       /* scalar int64 */
  T_VECTOR,    /* float32 (?,) */
  T_LIST,      /* List, an ADT: Nil = 1, Cons(value: T_ANY0, List) = 2 */
  T_FUNCTION,  /* fn () -> float32 (?,) */
  T_REF,       /* ref of int64 */
  T_VAR0,      /* type variable 0 */
  T_PAIR,      /* (int64, float32 (?,)) */
  T_N,         /* float32 (?n,), n = dim slot 0 */
  T_LIST_OF,   /* List[float32 (?,)] */
  T_LIST_SELF, /* List[A] inside List's own definition */
  T_BOOL,      /* scalar bool */
  T_F16,       /* scalar float16 */
  T_COUNT
};
enum { CTOR_TUPLE, CTOR_NIL, CTOR_CONS };

typedef struct params {
  uint32_t n;
  nvm_param items[6];
} params;

/* Append a function; returns its index. Code is copied. */
uint32_t add_function(const char *name, params list, uint32_t result_type, int result_kind,
                      uint32_t n_ints, uint32_t n_objs, const uint32_t *code, size_t n_words);
#define PARAMS0                 ((params){0})
#define PARAM(name, type, kind) {name, type, kind}
uint32_t add_kernel(const nvm_kernel *kernel);
/* Start anew: no functions, no kernels, the types above. */
void new_program(uint32_t flags);
extern nvm_program program;

nvm_vm *new_vm(const nvm_limits *limits);

nvm_arg int_arg(int64_t value);
nvm_arg vector_arg(const float *data, const int64_t *shape);
/* Invoke and return the only value of an integer result; failures are counted. */
int64_t run_int(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args);

#endif
