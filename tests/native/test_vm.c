/* The interpreter on programs built by hand: calls, data, limits, kernels, errors. */
#include <pthread.h>
#include <unistd.h>

#include "programs.h"

static uint64_t live(nvm_vm *vm) {
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  return stats.live_objects;
}

static void test_calls(void) {
  new_program(0);
  uint32_t sum = add_tail_sum(), depth = add_depth(), fib = add_fib(), loop = add_loop();
  nvm_vm *vm = new_vm(NULL);
  CHECK(run_int(vm, sum, (nvm_arg[]){int_arg(1000000), int_arg(0)}, 2) == 500000500000);
  CHECK(run_int(vm, depth, (nvm_arg[]){int_arg(100000)}, 1) == 100000);
  CHECK(run_int(vm, fib, (nvm_arg[]){int_arg(20)}, 1) == 6765);
  CHECK(run_int(vm, loop, (nvm_arg[]){int_arg(100000)}, 1) == 100000);
  CHECK(live(vm) == 0);
  nvm_vm_destroy(vm);
}

static void test_lists(void) {
  new_program(0);
  uint32_t list = add_list_length();
  nvm_vm *vm = new_vm(NULL);
  CHECK(run_int(vm, list, (nvm_arg[]){int_arg(300000)}, 1) == 300000);
  CHECK(live(vm) == 0);
  /* A list out and in again, 1,000 deep. */
  nvm_arg args[] = {int_arg(1000), {.kind = NVM_ARG_ADT, .ctor = CTOR_NIL}};
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, 0, args, 2, &result), NVM_OK);
  if (result) {
    const nvm_out *out = nvm_result_values(result);
    CHECK(nvm_result_count(result) == 2001);
    CHECK(out[2000].kind == NVM_OUT_ADT && out[2000].ctor == CTOR_CONS && out[2000].n_fields == 2);
    CHECK(*(const int64_t *)out[0].data == 1);
  }
  nvm_result_free(result);
  CHECK(live(vm) == 0);
  nvm_vm_destroy(vm);
}

static void test_cycles(void) {
  new_program(0);
  uint32_t cycles = add_cycles();
  nvm_vm *vm = new_vm(NULL);
  CHECK(run_int(vm, cycles, (nvm_arg[]){int_arg(1000)}, 1) == 0);
  CHECK(live(vm) == 0);
  CHECK(run_int(vm, cycles, (nvm_arg[]){int_arg(200000)}, 1) == 0);
  CHECK(live(vm) == 0);
  nvm_limits limits = {.objects = 1000}; /* reached many times, and each time cycles make room */
  CHECK_STATUS(nvm_vm_set_limits(vm, &limits), NVM_OK);
  CHECK(run_int(vm, cycles, (nvm_arg[]){int_arg(20000)}, 1) == 0);
  CHECK(live(vm) == 0);
  nvm_vm_destroy(vm);
}

static void *cancel_soon(void *vm) {
  usleep(20000);
  nvm_vm_cancel(vm);
  return NULL;
}

static int32_t interrupt(void *context) { return ++*(int *)context >= 2; }

static void expect(nvm_vm *vm, uint32_t function, int64_t n, nvm_limits limits, nvm_status status) {
  nvm_result *result = NULL;
  nvm_arg args[] = {int_arg(n), {.kind = NVM_ARG_ADT, .ctor = CTOR_NIL}};
  CHECK_STATUS(nvm_vm_set_limits(vm, &limits), NVM_OK);
  size_t n_args = program.functions[function].n_params;
  CHECK_STATUS(nvm_vm_invoke(vm, function, args, n_args, &result), status);
  nvm_result_free(result);
  CHECK(live(vm) == 0);
}

static void test_limits(void) {
  new_program(0);
  uint32_t depth = add_depth(), list = add_list_length(), build = depth + 1, loop = add_loop();
  nvm_vm *vm = new_vm(NULL);
  expect(vm, loop, 1000000, (nvm_limits){.instructions = 100000}, NVM_INSTRUCTION_LIMIT);
  expect(vm, loop, 10000, (nvm_limits){.instructions = 100000}, NVM_OK);
  expect(vm, depth, 1000, (nvm_limits){.frames = 1000}, NVM_FRAME_LIMIT);
  expect(vm, depth, 999, (nvm_limits){.frames = 1000}, NVM_OK);
  expect(vm, depth, 1000000, (nvm_limits){.bytes = 1 << 20}, NVM_MEMORY_LIMIT);
  expect(vm, list, 10000, (nvm_limits){.objects = 1000}, NVM_OBJECT_LIMIT);
  expect(vm, list, 10000, (nvm_limits){.bytes = 100000}, NVM_MEMORY_LIMIT);
  expect(vm, build, 100, (nvm_limits){.objects = 1000}, NVM_OK);
  expect(vm, loop, INT64_MAX, (nvm_limits){.nanoseconds = 10000000}, NVM_TIME_LIMIT);
  CHECK(nvm_last_error()->function[0] == 0); /* the record is the thread's latest call's */
  pthread_t thread;
  pthread_create(&thread, NULL, cancel_soon, vm);
  expect(vm, loop, INT64_MAX, (nvm_limits){0}, NVM_CANCELLED);
  pthread_join(thread, NULL);
  int polls = 0;
  vm->poll = interrupt;
  vm->poll_context = &polls;
  expect(vm, loop, INT64_MAX, (nvm_limits){0}, NVM_INTERRUPTED);
  vm->poll = NULL;
  expect(vm, loop, 1000, (nvm_limits){0}, NVM_OK);
  nvm_vm_destroy(vm);
}

static void test_busy(void) {
  new_program(0);
  uint32_t loop = add_loop();
  nvm_vm *vm = new_vm(NULL);
  atomic_store(&vm->busy, 1);
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, loop, (nvm_arg[]){int_arg(1)}, 1, &result), NVM_VM_BUSY);
  atomic_store(&vm->busy, 0);
  CHECK(run_int(vm, loop, (nvm_arg[]){int_arg(1)}, 1) == 1);
  nvm_vm_destroy(vm);
}

static void test_kernels(void) {
  new_program(0);
  uint32_t kernels = add_kernel_loop();
  nvm_vm *vm = new_vm(NULL);
  static float data[100];
  for (int i = 0; i < 100; i++) data[i] = (float)i;
  int64_t shape[] = {100};
  nvm_arg args[] = {vector_arg(data, shape), int_arg(3)};
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, kernels, args, 2, &result), NVM_OK);
  if (result) {
    const nvm_out *out = nvm_result_values(result);
    CHECK(out->shape[0] == 100 && ((const float *)out->data)[7] == 56);
    CHECK(out->data != data);
  }
  nvm_result *kept = result;
  args[1] = int_arg(0); /* returns the input: a copy */
  CHECK_STATUS(nvm_vm_invoke(vm, kernels, args, 2, &result), NVM_OK);
  CHECK(result && nvm_result_values(result)->data != data);
  nvm_result_free(result);
  CHECK(live(vm) == 0);
  nvm_vm_destroy(vm);
  CHECK(((const float *)nvm_result_values(kept)->data)[7] == 56); /* results outlive the VM */
  void *storage = nvm_result_values(kept)->storage;
  nvm_storage_retain_handle(storage);
  nvm_result_free(kept);
  nvm_storage_release_handle(storage);
}

/* Kernel 0 with operands (a, b, out): run with what `prepare` put into r0..r2. */
static void expect_operands(const uint32_t *prepare, size_t n_words, uint32_t a, uint32_t b,
                            uint32_t out, int64_t n, nvm_status status, const char *message) {
  uint32_t code[128];
  memcpy(code, prepare, n_words * 4);
  const uint32_t call[] = {NVM_OP_CallKernel, 0, 3, a, b, out, 1, (uint32_t)n, 0, NVM_OP_Ret, out};
  memcpy(code + n_words, call, sizeof call);
  uint32_t f = add_function("f", PARAMS0, T_VECTOR, 0, 1, 4, code, n_words + COUNT(call));
  nvm_vm *vm = new_vm(NULL);
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, f, NULL, 0, &result), status);
  if (message) CHECK_MESSAGE(message);
  nvm_result_free(result);
  CHECK(live(vm) == 0);
  nvm_vm_destroy(vm);
}

#define ALLOC(r, n) NVM_OP_AllocTensor, r, NVM_NO_REGISTER, 0, 1, n, NVM_DTYPE_FLOAT32, 0
static void test_operands(void) {
  new_program(NVM_LOAD_NO_NATIVE);
  add_kernel_loop();
  expect_operands(WORDS(ALLOC(0, 4), ALLOC(1, 4), ALLOC(2, 4)), 0, 1, 2, 4, NVM_OK, NULL);
  expect_operands(WORDS(ALLOC(0, 4), ALLOC(1, 4), ALLOC(2, 4)), 0, 1, 0, 4, NVM_OK, NULL);
  expect_operands(WORDS(ALLOC(0, 4), ALLOC(1, 4)), 0, 1, 1, 4, NVM_OPERAND_MISMATCH,
                  "shares memory");
  expect_operands(WORDS(ALLOC(0, 5), ALLOC(1, 4)), 0, 1, 1, 4, NVM_OPERAND_MISMATCH,
                  "operand 0 (input), axis 0: expected size 4, got 5");
  expect_operands(WORDS(ALLOC(0, 4), NVM_OP_LoadConst, 1, 0), 0, 0, 1, 4, NVM_OPERAND_MISMATCH,
                  "can't be written");
  expect_operands(WORDS(ALLOC(0, 8), NVM_OP_View, 1, 0, 2, 1, 4, NVM_OP_View, 2, 0, 0, 1, 4), 2, 2,
                  1, 4, NVM_OPERAND_MISMATCH, "shares memory");
  expect_operands(WORDS(ALLOC(0, 4), NVM_OP_View, 1, 0, 2, 1, 4), 0, 0, 1, 4,
                  NVM_INDEX_OUT_OF_RANGE, "reaches outside");
  expect_operands(WORDS(ALLOC(0, 4)), 0, 3, 0, 4, NVM_NULL_VALUE, "r3 holds nothing");
  expect_operands(WORDS(NVM_OP_AllocTensor, 0, NVM_NO_REGISTER, 0, 1, 4, NVM_DTYPE_INT32, 0), 0, 0,
                  0, 4, NVM_OPERAND_MISMATCH,
                  "expected float32 of rank 1, got a tensor (4,) int32");
  expect_operands(WORDS(NVM_OP_AllocStorage, 3, 16, 64, 0, NVM_OP_AllocTensor, 0, 3, 4, 1, 4,
                        NVM_DTYPE_FLOAT32, 0),
                  0, 0, 0, 4, NVM_INDEX_OUT_OF_RANGE, "does not fit");
  expect_operands(WORDS(NVM_OP_LoadConsti, 0, 0xFFFFFFFF, 0x7FFFFFFF, NVM_OP_AllocTensor, 0,
                        NVM_NO_REGISTER, 0, 2, I(0), I(0), NVM_DTYPE_FLOAT32, 0),
                  0, 0, 0, 4, NVM_DIM_OVERFLOW, "too large");
  expect_operands(WORDS(NVM_OP_CheckDim, 3, 4, 1), 0, 0, 0, 4, NVM_SHAPE_MISMATCH,
                  "dim mismatch: width of %x: expected 4, got 3");
}

static void test_zeroed(void) {
  new_program(NVM_LOAD_NO_NATIVE);
  uint32_t leak =
      add_function("leak", PARAMS0, T_VECTOR, 0, 0, 1, WORDS(ALLOC(0, 64), NVM_OP_Ret, 0));
  nvm_vm *vm = new_vm(NULL);
  for (int run = 0; run < 3; run++) {
    nvm_result *result = NULL;
    CHECK_STATUS(nvm_vm_invoke(vm, leak, NULL, 0, &result), NVM_OK);
    float *data = nvm_result_values(result)->data;
    for (int i = 0; i < 64; i++) {
      CHECK(data[i] == 0);
      data[i] = 7;
    }
    nvm_result_free(result);
  }
  nvm_vm_destroy(vm);
}

static void test_trace(void) {
  new_program(0);
  uint32_t inner = add_function("inner", PARAMS0, T_I64, 1, 1, 0,
                                WORDS(NVM_OP_IntDiv, 0, 0, 0, NVM_DTYPE_INT64, NVM_OP_Ret, I(0)));
  uint32_t outer = add_function("outer", PARAMS0, T_I64, 1, 1, 0,
                                WORDS(NVM_OP_Invoke, I(0), inner, 0, NVM_OP_Ret, I(0)));
  nvm_vm *vm = new_vm(NULL);
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, outer, NULL, 0, &result), NVM_DIVISION_BY_ZERO);
  const nvm_error *error = nvm_last_error();
  CHECK(strcmp(error->function, "inner") == 0);
  CHECK(strstr(error->trace, "@inner at word 0\n@outer at word 0\n") != NULL);
  nvm_vm_destroy(vm);
}

static void test_integers(void) {
  new_program(0);
  static const struct {
    uint32_t op, dtype;
    int64_t a, b, expected;
  } cases[] = {{NVM_OP_IntAdd, NVM_DTYPE_INT8, 127, 1, -128},
               {NVM_OP_IntMul, NVM_DTYPE_INT32, 1 << 20, 1 << 12, 0},
               {NVM_OP_IntSub, NVM_DTYPE_UINT8, 0, 1, 255},
               {NVM_OP_IntDiv, NVM_DTYPE_INT64, INT64_MIN, -1, INT64_MIN},
               {NVM_OP_IntMod, NVM_DTYPE_INT64, INT64_MIN, -1, 0},
               {NVM_OP_IntDiv, NVM_DTYPE_INT64, -7, 2, -3},
               {NVM_OP_IntMod, NVM_DTYPE_INT64, -7, 2, -1},
               {NVM_OP_IntFloorDiv, NVM_DTYPE_INT64, -7, 2, -4},
               {NVM_OP_IntFloorMod, NVM_DTYPE_INT64, -7, 2, 1},
               {NVM_OP_IntFloorMod, NVM_DTYPE_INT64, 7, -2, -1},
               {NVM_OP_IntMax, NVM_DTYPE_INT64, -7, 2, 2}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    uint32_t f =
        add_function("f", (params){2, {PARAM("a", T_I64, 1), PARAM("b", T_I64, 1)}}, T_I64, 1, 3, 0,
                     WORDS(cases[i].op, 2, 0, 1, cases[i].dtype, NVM_OP_Ret, I(2)));
    nvm_vm *vm = new_vm(NULL);
    CHECK(run_int(vm, f, (nvm_arg[]){int_arg(cases[i].a), int_arg(cases[i].b)}, 2) ==
          cases[i].expected);
    nvm_vm_destroy(vm);
  }
}

/* Found by fuzzing: b * floor(a / b) may be below INT64_MIN. */
static void test_dim_arithmetic(void) {
  new_program(0);
  static const struct {
    uint32_t op;
    int64_t a, b, expected;
  } cases[] = {{NVM_OP_DimFloorMod, INT64_MIN + 1, 3, 2},
               {NVM_OP_DimFloorMod, INT64_MAX, -2, -1},
               {NVM_OP_DimFloorMod, INT64_MIN, INT64_MAX, INT64_MAX - 1},
               {NVM_OP_DimFloorMod, INT64_MIN, -1, 0},
               {NVM_OP_DimFloorDiv, INT64_MIN + 1, 3, INT64_MIN / 3 - 1},
               {NVM_OP_DimFloorDiv, -7, 2, -4}};
  for (size_t i = 0; i < COUNT(cases); i++) {
    uint32_t f = add_function("f", (params){2, {PARAM("a", T_I64, 1), PARAM("b", T_I64, 1)}}, T_I64,
                              1, 3, 0, WORDS(cases[i].op, 2, I(0), I(1), NVM_OP_Ret, I(2)));
    nvm_vm *vm = new_vm(NULL);
    CHECK(run_int(vm, f, (nvm_arg[]){int_arg(cases[i].a), int_arg(cases[i].b)}, 2) ==
          cases[i].expected);
    nvm_vm_destroy(vm);
  }
}

/* A long copy looks at the clock too, and leaves the block that it grew as it was. */
static void test_copies_stop(void) {
#ifdef NVM_TEST
  new_program(0);
  static float values[4096];
  const int64_t shape[] = {4096};
  const uint32_t f = add_function("twice", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_VECTOR, 0, 0,
                                  2, WORDS(NVM_OP_Append, 1, 0, 0, 0, NVM_OP_Ret, 1));
  const nvm_limits limits = {.nanoseconds = 1};
  nvm_vm *vm = new_vm(&limits);
  nvm_result *result = NULL;
  const nvm_arg x = vector_arg(values, shape);
  CHECK_STATUS(nvm_vm_invoke(vm, f, &x, 1, &result), NVM_TIME_LIMIT);
  CHECK(live(vm) == 0);
  CHECK_STATUS(nvm_vm_set_limits(vm, &(nvm_limits){0}), NVM_OK);
  CHECK_STATUS(nvm_vm_invoke(vm, f, &x, 1, &result), NVM_OK);
  nvm_result_free(result);
  nvm_vm_destroy(vm);
#endif
}

int main(void) {
  test_calls();
  test_lists();
  test_cycles();
  test_limits();
  test_busy();
  test_kernels();
  test_operands();
  test_zeroed();
  test_trace();
  test_integers();
  test_dim_arithmetic();
  test_copies_stop();
  if (failures) fprintf(stderr, "%d checks failed\n", failures);
  return failures != 0;
}
