/* Arguments: every refusal names the parameter, what was expected and what came; and what is
 * accepted arrives. */
#include <math.h>

#include "programs.h"

static nvm_vm *vm;
static float data[1000];
static int released;

static void on_release(void *owner) { *(int *)owner += 1; }

static void expect(uint32_t function, const nvm_arg *args, size_t n_args, nvm_status status,
                   const char *message) {
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, function, args, n_args, &result), status);
  if (message) CHECK_MESSAGE(message);
  nvm_result_free(result);
}

static uint32_t identity(const char *name, uint32_t type) {
  return add_function(name, (params){1, {PARAM("x", type, 0)}}, type, 0, 0, 1,
                      WORDS(NVM_OP_Ret, 0));
}

static void test_tensors(uint32_t vector, uint32_t two) {
  int64_t shape[] = {300, 1}, other[] = {200}, negative[] = {-1};
  nvm_arg arg = vector_arg(data, shape);
  expect(vector, &arg, 1, NVM_OK, NULL);
  arg.dtype = NVM_DTYPE_FLOAT64;
  expect(vector, &arg, 1, NVM_INVALID_INPUT_TYPE,
         "parameter %x of @vector: expected dtype float32, got float64; convert it first");
  arg = vector_arg(data, shape);
  arg.rank = 2;
  expect(vector, &arg, 1, NVM_INVALID_INPUT,
         "parameter %x of @vector: expected rank 1, got rank 2");
  arg = vector_arg(data, negative);
  expect(vector, &arg, 1, NVM_INVALID_INPUT, "negative size -1");
  expect(vector, NULL, 0, NVM_INVALID_INPUT, "@vector takes 1 arguments, got 0");
  nvm_arg pair[] = {vector_arg(data, shape), vector_arg(data, shape)};
  expect(vector, pair, 2, NVM_INVALID_INPUT, "@vector takes 1 arguments, got 2");
  expect(two, pair, 2, NVM_OK, NULL);
  pair[1].shape = other;
  expect(two, pair, 2, NVM_INVALID_INPUT,
         "parameter %y of @two: axis 0: expected 300 (?n, from parameter %x), got 200");
  arg = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_NIL};
  expect(vector, &arg, 1, NVM_INVALID_INPUT_TYPE,
         "expected a tensor of float32, rank 1, got Nil of List");
}

static void test_strides(uint32_t vector) {
  int64_t shape[] = {100}, strides[] = {-3};
  for (int i = 0; i < 1000; i++) data[i] = (float)i;
  nvm_arg arg = vector_arg(data + 400, shape);
  arg.strides = strides;
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, vector, &arg, 1, &result), NVM_OK);
  const float *out = nvm_result_values(result)->data;
  for (int i = 0; i < 100; i++) CHECK(out[i] == (float)(400 - 3 * i));
  nvm_result_free(result);
}

/* A copy asks in its middle whether to go on: with its time over before it starts, a run whose code
 * is too short for a check ends there. */
static void test_copies_ask(uint32_t vector) {
  enum { N = 1 << 20, BYTES = 40 << 20 };
  char *memory = calloc(1, BYTES);
  int64_t shape[] = {N}, few[] = {3}, strides[] = {2}, large[] = {BYTES / 4 - 1};
  const nvm_limits none = {0}, over = {.nanoseconds = 1};
  nvm_arg strided = vector_arg((float *)(void *)memory, shape), small = strided, odd = strided;
  strided.strides = small.strides = strides;
  small.shape = few;
  odd.data = memory + 1; /* compact, but to be copied */
  odd.shape = large;
  CHECK_STATUS(nvm_vm_set_limits(vm, &over), NVM_OK);
#ifndef NVM_TEST
  expect(vector, &small, 1, NVM_OK, NULL);
#endif
  expect(vector, &strided, 1, NVM_TIME_LIMIT, "longer than its limit");
  expect(vector, &odd, 1, NVM_TIME_LIMIT, "longer than its limit");
  CHECK_STATUS(nvm_vm_set_limits(vm, &none), NVM_OK);
  expect(vector, &strided, 1, NVM_OK, NULL);
  expect(vector, &odd, 1, NVM_OK, NULL);
  free(memory);
}

static void test_numbers(uint32_t number, uint32_t flag, uint32_t half, uint32_t unboxed) {
  nvm_arg arg = int_arg(5);
  expect(number, &arg, 1, NVM_OK, NULL);
  expect(unboxed, &arg, 1, NVM_OK, NULL);
  expect(flag, &arg, 1, NVM_INVALID_INPUT_TYPE, "expected a scalar of bool, got the integer 5");
  arg.dtype = NVM_DTYPE_BOOL;
  arg.int_value = 1;
  expect(flag, &arg, 1, NVM_OK, NULL);
  expect(number, &arg, 1, NVM_INVALID_INPUT_TYPE, "expected a scalar of int64, got bool");
  arg = (nvm_arg){.kind = NVM_ARG_FLOAT, .dtype = -1, .float_value = 1.5};
  expect(number, &arg, 1, NVM_INVALID_INPUT_TYPE, "got the float 1.5");
  arg.float_value = 2;
  expect(number, &arg, 1, NVM_INVALID_INPUT_TYPE, "got the float 2.0");
  expect(unboxed, &arg, 1, NVM_INVALID_INPUT_TYPE, "parameter %x of @unboxed");
  expect(half, &arg, 1, NVM_OK, NULL);
  arg.float_value = 65519;
  expect(half, &arg, 1, NVM_OK, NULL);
  arg.float_value = 65520;
  expect(half, &arg, 1, NVM_INVALID_INPUT, "65520 is out of range for float16");
  arg.float_value = INFINITY;
  expect(half, &arg, 1, NVM_OK, NULL);
  int64_t cell = -9;
  nvm_arg scalar = {
      .kind = NVM_ARG_TENSOR, .dtype = NVM_DTYPE_INT64, .dl_device_type = 1, .data = &cell};
  expect(number, &scalar, 1, NVM_OK, NULL);
  CHECK(run_int(vm, unboxed, &scalar, 1) == -9);
}

static uint16_t half_of(uint32_t half, double value) {
  nvm_arg arg = {.kind = NVM_ARG_FLOAT, .dtype = -1, .float_value = value};
  nvm_result *result = NULL;
  uint16_t bits = 0;
  CHECK_STATUS(nvm_vm_invoke(vm, half, &arg, 1, &result), NVM_OK);
  memcpy(&bits, nvm_result_values(result)->data, 2);
  nvm_result_free(result);
  return bits;
}

static void test_half(uint32_t half) {
  CHECK(half_of(half, 1.0) == 0x3c00 && half_of(half, -2.0) == 0xc000);
  CHECK(half_of(half, 65504) == 0x7bff && half_of(half, 0x1p-24) == 1 &&
        half_of(half, 0x1p-25) == 0);
  CHECK(half_of(half, 1 + 0x1p-11) == 0x3c00 && half_of(half, 1 + 3 * 0x1p-11) == 0x3c02);
  CHECK(half_of(half, 0x1p-14) == 0x0400 && half_of(half, 2047.9999) == 0x6800);
}

/* List[float32 (?,)] of two vectors, postorder. */
static void test_adts(uint32_t lists, uint32_t pairs) {
  int64_t shape[] = {50};
  nvm_arg args[] = {vector_arg(data, shape),
                    vector_arg(data, shape),
                    {.kind = NVM_ARG_ADT, .ctor = CTOR_NIL},
                    {.kind = NVM_ARG_ADT, .ctor = CTOR_CONS, .n_fields = 2},
                    {.kind = NVM_ARG_ADT, .ctor = CTOR_CONS, .n_fields = 2}};
  expect(lists, args, 5, NVM_OK, NULL);
  args[1].dtype = NVM_DTYPE_INT32;
  expect(lists, args, 5, NVM_INVALID_INPUT_TYPE,
         "parameter %x of @lists, at .Cons[1].Cons[0]: expected dtype float32, got int32; convert "
         "it first");
  args[1].dtype = NVM_DTYPE_FLOAT32;
  args[2] = vector_arg(data, shape);
  expect(lists, args, 5, NVM_INVALID_INPUT_TYPE, ".Cons[1].Cons[1]: expected a value of type List");
  args[2] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_TUPLE};
  expect(lists, args, 5, NVM_INVALID_INPUT, "expected a value of type List, got a tuple of 0");
  nvm_arg pair[] = {int_arg(1),
                    vector_arg(data, shape),
                    {.kind = NVM_ARG_ADT, .ctor = CTOR_TUPLE, .n_fields = 2}};
  expect(pairs, pair, 3, NVM_OK, NULL);
  pair[1] = int_arg(2);
  expect(pairs, pair, 3, NVM_INVALID_INPUT, "parameter %x of @pairs, at [1]: expected rank 1");
  nvm_arg wrong[] = {int_arg(1), {.kind = NVM_ARG_ADT, .ctor = CTOR_TUPLE, .n_fields = 1}};
  expect(pairs, wrong, 2, NVM_INVALID_INPUT, "expected a tuple of 2, got a tuple of 1");
  nvm_arg broken = {.kind = NVM_ARG_ADT, .ctor = CTOR_CONS, .n_fields = 2};
  expect(lists, &broken, 1, NVM_INVALID_INPUT, "takes 2 fields");
}

/* A list of 20,000 vectors in and out, and its path in an error. */
static void test_deep(uint32_t lists) {
  enum { N = 20000 };
  int64_t shape[] = {1};
  nvm_arg *args = calloc(2 * N + 1, sizeof *args);
  for (int i = 0; i < N; i++) args[i] = vector_arg(data, shape);
  args[N] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_NIL};
  for (int i = 0; i < N; i++)
    args[N + 1 + i] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_CONS, .n_fields = 2};
  expect(lists, args, 2 * N + 1, NVM_OK, NULL);
  CHECK(vm->args[3].capacity < 4096); /* one environment serves the whole list */
  args[N - 1].dtype = NVM_DTYPE_INT8;
  expect(lists, args, 2 * N + 1, NVM_INVALID_INPUT_TYPE, "Cons[1]....Cons[1].Cons[1]");
  free(args);
}

static void test_release(uint32_t vector, uint32_t two) {
  int64_t shape[] = {300}, other[] = {200};
  nvm_arg args[] = {vector_arg(data, shape), vector_arg(data, shape)};
  for (int i = 0; i < 2; i++) args[i].release = on_release, args[i].owner = &released;
  expect(two, args, 2, NVM_OK, NULL);
  CHECK(released == 2);
  args[1].shape = other;
  expect(two, args, 2, NVM_INVALID_INPUT, NULL);
  CHECK(released == 4);
  expect(vector, args, 2, NVM_INVALID_INPUT, NULL);
  CHECK(released == 6);
  expect(1000, args, 2, NVM_FUNCTION_NOT_FOUND, NULL);
  CHECK(released == 8);
}

/* A handle keeps an argument: its memory is copied when it is good for the call only. */
static void test_handles(void) {
  uint32_t id = identity("id", T_VECTOR);
  uint32_t close = add_function("close", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_FUNCTION, 0, 0,
                                2, WORDS(NVM_OP_AllocClosure, 1, id, 1, 0, NVM_OP_Ret, 1));
  uint32_t open = add_function("open", (params){1, {PARAM("f", T_FUNCTION, 0)}}, T_VECTOR, 0, 0, 1,
                               WORDS(NVM_OP_InvokeClosureTail, 0, 0));
  float *memory = malloc(300 * sizeof *memory);
  for (int i = 0; i < 300; i++) memory[i] = (float)i;
  int64_t shape[] = {300};
  nvm_arg arg = vector_arg(memory, shape);
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, close, &arg, 1, &result), NVM_OK);
  nvm_handle *handle = nvm_result_values(result)->handle;
  nvm_handle_retain(handle);
  nvm_result_free(result);
  free(memory);
  arg = (nvm_arg){.kind = NVM_ARG_HANDLE, .handle = handle};
  for (int run = 0; run < 3; run++) {
    CHECK_STATUS(nvm_vm_invoke(vm, open, &arg, 1, &result), NVM_OK);
    CHECK(((float *)nvm_result_values(result)->data)[299] == 299);
    ((float *)nvm_result_values(result)->data)[299] = 0; /* the closure's copy is its own */
    nvm_result_free(result);
  }
  expect(id, &arg, 1, NVM_INVALID_INPUT_TYPE, "got a handle");
  nvm_vm *another = new_vm(NULL);
  CHECK_STATUS(nvm_vm_invoke(another, open, &arg, 1, &result), NVM_INVALID_INPUT);
  CHECK_MESSAGE("belongs to another VM");
  nvm_vm_destroy(another);
  nvm_vm_destroy(vm);
  vm = NULL;
  nvm_handle_release(handle); /* after its VM is gone */
}

/* An argument on the block of an earlier result. */
static nvm_arg given_arg(const nvm_out *out, const int64_t *shape) {
  nvm_arg arg = vector_arg(out->data, shape);
  arg.storage = out->storage;
  return arg;
}

static void test_given_away(uint32_t vector, uint32_t two, uint32_t append) {
  int64_t shape[] = {300}, long_shape[] = {301};
  nvm_arg arg = vector_arg(data, shape);
  nvm_result *first = NULL, *second = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, vector, &arg, 1, &first), NVM_OK);
  const nvm_out *out = nvm_result_values(first);
  nvm_arg pair[] = {given_arg(out, shape), given_arg(out, shape)};
  expect(two, pair, 2, NVM_INVALID_INPUT, "parameter %y of @two: the tensor is given away twice");
  arg = given_arg(out, long_shape);
  expect(vector, &arg, 1, NVM_INDEX_OUT_OF_RANGE, "does not fit a storage block");
  pair[1] = vector_arg(data + 5, shape);
  CHECK_STATUS(nvm_vm_invoke(vm, append, pair, 2, &second), NVM_OK);
  const nvm_out *grown = nvm_result_values(second);
  CHECK(grown->shape[0] == 600 && memcmp(grown->data, data, 300 * sizeof *data) == 0);
  CHECK(memcmp((float *)grown->data + 300, data + 5, 300 * sizeof *data) == 0);
  /* Its block has no room yet; the next one has, and is handed out again. */
  for (int64_t size = 600; size < 1500; size += 300) {
    nvm_result *third = NULL;
    int64_t grown_shape[] = {size};
    pair[0] = given_arg(nvm_result_values(second), grown_shape);
    CHECK_STATUS(nvm_vm_invoke(vm, append, pair, 2, &third), NVM_OK);
    CHECK((nvm_result_values(third)->data == pair[0].data) == (size >= 900));
    CHECK(memcmp(nvm_result_values(third)->data, data, 300 * sizeof *data) == 0);
    nvm_result_free(second);
    second = third;
  }
  nvm_result_free(second);
  nvm_result_free(first);
}

/* Two roots: a value of (tensor, value of (tensor), left) and a tensor; breadth first. */
static void test_fill(void) {
  const int64_t vectors = NVM_DTYPE_FLOAT32 | 1 << 8, alike = vectors | 1 << 16;
  int64_t codes[] = {-1 - (7 + ((int64_t)3 << 32)), 0, 0, -1 - (9 + ((int64_t)1 << 32)), 1, 0};
  int64_t tensors[] = {vectors, vectors, NVM_DTYPE_INT8 | 2 << 8}, places[12];
  int64_t shapes[] = {4, 6, 2, 3};
  void *blocks[] = {data, NULL, data + 100};
  nvm_arg args[6] = {0};
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places), NVM_OK);
  const int64_t want[] = {4, 5, 0, 2, 3, 1};
  CHECK(memcmp(places, want, sizeof want) == 0);
  CHECK(args[4].kind == NVM_ARG_ADT && args[4].ctor == 7 && args[4].n_fields == 3);
  CHECK(args[2].kind == NVM_ARG_ADT && args[2].ctor == 9 && args[2].n_fields == 1);
  CHECK(args[5].kind == NVM_ARG_TENSOR && args[5].data == data && args[5].shape[0] == 4);
  CHECK(args[0].data == data + 4 && args[0].rank == 1 && args[0].shape[0] == 6);
  CHECK(args[1].data == data + 100 && args[1].dtype == NVM_DTYPE_INT8 && args[1].shape[1] == 3);
  CHECK(args[3].kind == 0);
  tensors[0] = alike;
  blocks[2] = NULL;
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places), NVM_OK);
  CHECK(args[1].data == data + 8 && args[1].dtype == NVM_DTYPE_FLOAT32 && args[1].shape == shapes);
  CHECK_STATUS(nvm_args_fill(NULL, 0, 0, NULL, NULL, NULL, NULL, NULL), NVM_OK);
  const size_t wrong[][2] = {{5, 2}, {6, 1}, {6, 3}, {1, 2}, {6, 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    CHECK_STATUS(
        nvm_args_fill(args, wrong[i][0], wrong[i][1], codes, tensors, blocks, shapes, places),
        NVM_INVALID_INPUT);
  codes[4] = 2;
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places),
               NVM_INVALID_INPUT);
  codes[4] = INT64_MIN;
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places),
               NVM_INVALID_INPUT);
  codes[4] = 1;
  tensors[0] = 200 | 1 << 8;
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places),
               NVM_INVALID_INPUT);
  tensors[0] = vectors;
  shapes[0] = -1;
  CHECK_STATUS(nvm_args_fill(args, 6, 2, codes, tensors, blocks, shapes, places), NVM_DIM_OVERFLOW);
}

int main(void) {
  new_program(0);
  uint32_t vector = identity("vector", T_VECTOR), lists = identity("lists", T_LIST_OF);
  uint32_t pairs = identity("pairs", T_PAIR), number = identity("number", T_I64);
  uint32_t flag = identity("flag", T_BOOL), half = identity("half", T_F16);
  uint32_t two = add_function("two", (params){2, {PARAM("x", T_N, 0), PARAM("y", T_N, 0)}}, T_N, 0,
                              0, 2, WORDS(NVM_OP_Ret, 1));
  uint32_t unboxed = add_function("unboxed", (params){1, {PARAM("x", T_I64, 1)}}, T_I64, 1, 1, 0,
                                  WORDS(NVM_OP_Ret, I(0)));
  uint32_t append =
      add_function("append", (params){2, {PARAM("x", T_VECTOR, 0), PARAM("y", T_VECTOR, 0)}},
                   T_VECTOR, 0, 0, 2, WORDS(NVM_OP_Append, 0, 0, 1, 0, NVM_OP_Ret, 0));
  vm = new_vm(NULL);
  test_tensors(vector, two);
  test_strides(vector);
  test_copies_ask(vector);
  test_numbers(number, flag, half, unboxed);
  test_half(half);
  test_adts(lists, pairs);
  test_deep(lists);
  test_release(vector, two);
  test_given_away(vector, two, append);
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
  test_handles();
  test_fill();
  return failures != 0;
}
