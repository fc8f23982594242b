#include "programs.h"

uint32_t add_tail_sum(void) {
  uint32_t self = program.n_functions;
  return add_function("sum", (params){2, {PARAM("n", T_I64, 1), PARAM("acc", T_I64, 1)}}, T_I64, 1,
                      4, 0,
                      WORDS(NVM_OP_If, 0, 18,                                 /* 0 */
                            NVM_OP_IntAdd, 1, 1, 0, NVM_DTYPE_INT64,          /* 3 */
                            NVM_OP_LoadConsti, 2, (uint32_t)-1, (uint32_t)-1, /* 8 */
                            NVM_OP_Goto, 20,                                  /* 12 */
                            NVM_OP_Goto, 20, NVM_OP_Goto, 20,                 /* 14 */
                            NVM_OP_Ret, I(1),                                 /* 18 */
                            NVM_OP_IntAdd, 0, 0, 2, NVM_DTYPE_INT64,          /* 20 */
                            NVM_OP_InvokeTail, self, 2, I(0), I(1)));         /* 25 */
}

uint32_t add_depth(void) {
  uint32_t self = program.n_functions;
  return add_function("depth", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 3, 0,
                      WORDS(NVM_OP_If, 0, 26,                               /* 0 */
                            NVM_OP_LoadConsti, 1, 1, 0,                     /* 3 */
                            NVM_OP_IntSub, 2, 0, 1, NVM_DTYPE_INT64,        /* 7 */
                            NVM_OP_Invoke, I(2), self, 1, I(2),             /* 12 */
                            NVM_OP_IntAdd, 2, 2, 1, NVM_DTYPE_INT64,        /* 17 */
                            NVM_OP_Ret, I(2), NVM_OP_Goto, 26,              /* 22 */
                            NVM_OP_LoadConsti, 2, 0, 0, NVM_OP_Ret, I(2))); /* 26 */
}

uint32_t add_fib(void) {
  uint32_t self = program.n_functions;
  return add_function("fib", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 4, 0,
                      WORDS(NVM_OP_LoadConsti, 1, 2, 0,              /* 0 */
                            NVM_OP_IntLt, 2, 0, 1,                   /* 4 */
                            NVM_OP_If, 2, 13,                        /* 8 */
                            NVM_OP_Ret, I(0),                        /* 11 */
                            NVM_OP_IntSub, 2, 0, 1, NVM_DTYPE_INT64, /* 13 */
                            NVM_OP_Invoke, I(2), self, 1, I(2),      /* 18 */
                            NVM_OP_LoadConsti, 1, 1, 0,              /* 23 */
                            NVM_OP_IntSub, 3, 0, 1, NVM_DTYPE_INT64, /* 27 */
                            NVM_OP_Invoke, I(3), self, 1, I(3),      /* 32 */
                            NVM_OP_IntAdd, 2, 2, 3, NVM_DTYPE_INT64, /* 37 */
                            NVM_OP_Ret, I(2)));                      /* 42 */
}

uint32_t add_build_list(void) {
  uint32_t self = program.n_functions;
  return add_function("build", (params){2, {PARAM("n", T_I64, 1), PARAM("list", T_LIST, 0)}},
                      T_LIST, 0, 2, 3,
                      WORDS(NVM_OP_If, 0, 27,                        /* 0 */
                            NVM_OP_Box, 1, 0, NVM_DTYPE_INT64,       /* 3 */
                            NVM_OP_AllocADT, 2, CTOR_CONS, 2, 1, 0,  /* 7 */
                            NVM_OP_LoadConsti, 1, 1, 0,              /* 13 */
                            NVM_OP_IntSub, 0, 0, 1, NVM_DTYPE_INT64, /* 17 */
                            NVM_OP_InvokeTail, self, 2, I(0), 2,     /* 22 */
                            NVM_OP_Ret, 0));                         /* 27 */
}

uint32_t add_list_length(void) {
  uint32_t build = add_build_list(), length = program.n_functions;
  add_function("length", (params){2, {PARAM("list", T_LIST, 0), PARAM("acc", T_I64, 1)}}, T_I64, 1,
               2, 2,
               WORDS(NVM_OP_GetTag, 1, 0,                     /* 0 */
                     NVM_OP_If, 1, 24,                        /* 3 */
                     NVM_OP_LoadConsti, 1, 1, 0,              /* 6 */
                     NVM_OP_IntAdd, 0, 0, 1, NVM_DTYPE_INT64, /* 10 */
                     NVM_OP_GetField, 1, 0, 1,                /* 15 */
                     NVM_OP_InvokeTail, length, 2, 1, I(0),   /* 19 */
                     NVM_OP_Ret, I(0)));                      /* 24 */
  return add_function("list", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 2, 1,
                      WORDS(NVM_OP_AllocADT, 0, CTOR_NIL, 0, NVM_OP_Invoke, 0, build, 2, I(0), 0,
                            NVM_OP_LoadConsti, 1, 0, 0, NVM_OP_InvokeTail, length, 2, 0, I(1)));
}

uint32_t add_cycles(void) {
  uint32_t thunk = add_function("thunk", (params){1, {PARAM("r", T_REF, 0)}}, T_REF, 0, 0, 1,
                                WORDS(NVM_OP_Ret, 0));
  uint32_t self = program.n_functions;
  return add_function("cycles", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 2, 3,
                      WORDS(NVM_OP_If, 0, 32,                              /* 0 */
                            NVM_OP_Box, 0, 0, NVM_DTYPE_INT64,             /* 3 */
                            NVM_OP_AllocRef, 1, 0,                         /* 7 */
                            NVM_OP_AllocClosure, 2, thunk, 1, 1,           /* 10 */
                            NVM_OP_WriteRef, 1, 2,                         /* 15 */
                            NVM_OP_LoadConsti, 1, 1, 0,                    /* 18 */
                            NVM_OP_IntSub, 0, 0, 1, NVM_DTYPE_INT64,       /* 22 */
                            NVM_OP_InvokeTail, self, 1, I(0), NVM_OP_Goto, /* 27 */
                            NVM_OP_Ret, I(0)));                            /* 32 */
}

static nvm_status add_vectors(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  const float *a = bufs[0], *b = bufs[1];
  float *c = bufs[2];
  (void)ctx;
  for (int64_t i = 0; i < dims[0]; i++) c[i] = a[i] + b[i];
  return NVM_OK;
}

static const nvm_operand add_operands[] = {
    {NVM_DTYPE_FLOAT32, NVM_ROLE_IN, 1, 0, {{NVM_AXIS_DIM, 0, 0}}},
    {NVM_DTYPE_FLOAT32, NVM_ROLE_IN, 1, 0, {{NVM_AXIS_DIM, 0, 0}}},
    {NVM_DTYPE_FLOAT32, NVM_ROLE_OUT, 1, 1, {{NVM_AXIS_DIM, 0, 0}}}};
static const nvm_kernel add_entry = {
    .name = "add_vectors",
    .kind = 1,
    .signature = {.n_operands = 3, .n_in = 2, .n_out = 1, .n_dims = 1, .operands = add_operands},
    .fn = add_vectors};

uint32_t add_vector_kernel(void) { return add_kernel(&add_entry); }

uint32_t add_kernel_loop(void) {
  uint32_t kernel = add_vector_kernel(), self = program.n_functions;
  return add_function(
      "kernels", (params){2, {PARAM("x", T_VECTOR, 0), PARAM("times", T_I64, 1)}}, T_VECTOR, 0, 3,
      2,
      WORDS(NVM_OP_If, 0, 39,                                                         /* 0 */
            NVM_OP_DimOf, 1, 0, 0,                                                    /* 3 */
            NVM_OP_AllocTensor, 1, NVM_NO_REGISTER, 0, 1, I(1), NVM_DTYPE_FLOAT32, 0, /* 7 */
            NVM_OP_CallKernel, kernel, 3, 0, 0, 1, 1, I(1), 0,                        /* 15 */
            NVM_OP_LoadConsti, 1, 1, 0,                                               /* 24 */
            NVM_OP_IntSub, 0, 0, 1, NVM_DTYPE_INT64,                                  /* 28 */
            NVM_OP_InvokeTail, self, 2, 1, I(0), NVM_OP_Goto,                         /* 33 */
            NVM_OP_Ret, 0));                                                          /* 39 */
}

uint32_t add_loop(void) {
  return add_function("loop", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 4, 0,
                      WORDS(NVM_OP_LoadConsti, 1, 1, 0,              /* 0 */
                            NVM_OP_IntLt, 3, 2, 0,                   /* 4 */
                            NVM_OP_If, 3, 18,                        /* 8 */
                            NVM_OP_IntAdd, 2, 2, 1, NVM_DTYPE_INT64, /* 11 */
                            NVM_OP_Goto, 4,                          /* 16 */
                            NVM_OP_Ret, I(2)));                      /* 18 */
}
