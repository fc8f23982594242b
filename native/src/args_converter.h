/* What the conversion of arguments and its messages share. */
#ifndef NVM_ARGS_CONVERTER_H
#define NVM_ARGS_CONVERTER_H

#include "vm.h"

/* Any value will do. */
#define NVM_ANY_TYPE UINT32_MAX

/* A type in the environment of the ADT application that it stands in (0: none). */
typedef struct nvm_typed {
  uint32_t type, env;
} nvm_typed;

/* What an argument must be, and of which parameter it is a part. */
typedef struct nvm_expected {
  nvm_typed type;
  uint32_t param;
} nvm_expected;

/* One call's arguments on their way into registers. */
typedef struct nvm_converter {
  nvm_vm *vm;
  const nvm_program *program;
  const nvm_function *function;
  const nvm_arg *args;
  size_t n_args;
  nvm_expected *expect;  /* by argument */
  nvm_expected *pending; /* the backward pass's stack */
  nvm_object **values;   /* the forward pass's stack, owned; NULL for an unboxed integer */
  int64_t *ints;         /* registers of the integers to come */
  size_t n_values;
  size_t n_envs;         /* entries in use */
  int64_t *slots;        /* dims of the function's signature, -1 unbound */
  int64_t *binder;       /* the parameter that bound each */
  const nvm_arg *placed; /* the last tensor that is used where it lies, or NULL */
  size_t bytes;          /* of it */
} nvm_converter;

/* --- messages (args_text.c) ------------------------------------------------------------------- */

/* An error about argument value i, which starts with the place where it stands. */
NVM_NODISCARD nvm_status nvm_arg_fail(const nvm_converter *c, size_t i, nvm_status code,
                                      const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));
/* The error that value i is not of the expected type. */
NVM_NODISCARD NVM_COLD nvm_status nvm_arg_wrong(const nvm_converter *c, size_t i);
/* What came and what a type is, in words; both return `text`. */
NVM_COLD const char *nvm_arg_describe(const nvm_converter *c, const nvm_arg *arg, char *text,
                                      size_t size);
NVM_COLD const char *nvm_arg_describe_type(const nvm_converter *c, uint32_t type, char *text,
                                           size_t size);
/* The name of an argument's dtype, whatever number the caller gave. */
const char *nvm_arg_dtype_name(int32_t dtype);

#endif
