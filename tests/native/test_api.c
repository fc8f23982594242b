/* What nvm_api.h adds to plain runs: wants (buffers, handles), values of a result as arguments,
 * calls by name, DLPack, texts of types. Under NVM_TEST also with the n-th allocation failing. */
#include "programs.h"

enum { LONG = 300 }; /* floats: more than what is copied because it is small */

static float data[2 * LONG];
static const int64_t long_shape[] = {LONG}, other_shape[] = {LONG - 1};
static nvm_vm *vm;
static uint32_t vector, pairs, lists, append, two, closure, unboxed;
static uint32_t by_name[16];
static int released;

static void on_release(void *owner) { *(int *)owner += 1; }

static uint32_t identity(const char *name, uint32_t type) {
  return add_function(name, (params){1, {PARAM("x", type, 0)}}, type, 0, 0, 1,
                      WORDS(NVM_OP_Ret, 0));
}

static nvm_arg lent(const int64_t *shape) {
  nvm_arg arg = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, shape, data);
  arg.release = on_release;
  arg.owner = &released;
  return arg;
}

static void expect(nvm_status got, nvm_status status, const char *message) {
  CHECK_STATUS(got, status);
  if (message) CHECK_MESSAGE(message);
}

static uint64_t copied(void) {
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  return stats.copied_bytes;
}

/* --- buffers ---------------------------------------------------------------------------------- */

static void test_buffers(void) {
  float floats[LONG] = {0};
  int64_t number = 0;
  nvm_result *result = NULL;
  const nvm_arg args[] = {nvm_arg_int(7), nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data),
                          nvm_arg_tuple(2)};
  nvm_want wants[] = {nvm_want_buffer(NVM_DTYPE_INT64, &number, sizeof number),
                      nvm_want_buffer(NVM_DTYPE_FLOAT32, floats, sizeof floats)};
  CHECK_STATUS(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_OK);
  const nvm_out *root = nvm_result_root(result);
  CHECK(root->n_fields == 2 && root->n_values == 3 && nvm_result_count(result) == 3);
  CHECK(nvm_out_field(root, 0)->data == &number && nvm_out_field(root, 1)->data == floats);
  CHECK(nvm_out_field(root, 1)->storage == NULL && nvm_out_field(root, 1)->shape[0] == LONG);
  CHECK(nvm_out_field(root, 2) == NULL && nvm_out_field(root + 0, 0)->n_values == 1);
  CHECK(number == 7 && memcmp(floats, data, sizeof floats) == 0);
  struct DLManagedTensor *managed;
  expect(nvm_out_dlpack(nvm_out_field(root, 1), &managed), NVM_INVALID_INPUT, "only a tensor that");
  nvm_result_free(result);

  wants[1].shape = other_shape;
  wants[1].rank = 1;
  number = -1;
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_SHAPE_MISMATCH,
         "result 1 is (300,) float32, the buffer for it (299,) float32");
  CHECK(number == -1); /* nothing is written unless all fits */
  wants[1].shape = NULL;
  wants[1].bytes = LONG * 4 - 1;
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_SHAPE_MISMATCH,
         "1200 bytes; the buffer for it has room for 1199");
  CHECK(number == -1 && result == NULL);
  wants[1] = nvm_want_buffer(NVM_DTYPE_FLOAT32, floats, sizeof floats);
  wants[0].data = &floats[LONG - 2];
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_INVALID_INPUT,
         "results 0 and 1 share memory");
  wants[0].data = &number;
  wants[1].data = NULL;
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_INVALID_INPUT, "NULL");
  wants[1] = nvm_want_buffer(NVM_DTYPE_FLOAT16, floats, sizeof floats);
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_INVALID_INPUT,
         "result 1 of @pairs is of dtype float32, the buffer for it of float16");
  wants[1].dtype = 99;
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_INVALID_INPUT, "number 99");
  wants[1].kind = 9;
  expect(nvm_vm_invoke_into(vm, pairs, args, 3, wants, 2, &result), NVM_INVALID_INPUT, "kind 9");
  released = 0;
  const nvm_arg owned = lent(long_shape);
  expect(nvm_vm_invoke_into(vm, vector, &owned, 1, wants, 2, &result), NVM_INVALID_INPUT,
         "@vector returns 1 value, got wants for 2");
  CHECK(released == 1);
}

/* A buffer on memory that the run reads, also memory that was given to it for good. */
static void test_buffers_on_arguments(void) {
  float swapped[LONG];
  nvm_result *result = NULL, *first = NULL;
  memcpy(swapped, data, sizeof swapped);
  const nvm_arg arg = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, swapped);
  const nvm_want want = nvm_want_buffer(NVM_DTYPE_FLOAT32, swapped, sizeof swapped);
  CHECK_STATUS(nvm_vm_invoke_into(vm, vector, &arg, 1, &want, 1, &result), NVM_OK);
  CHECK(memcmp(swapped, data, sizeof swapped) == 0);
  nvm_result_free(result);
  CHECK_STATUS(nvm_vm_call(vm, "vector", &arg, 1, &first), NVM_OK);
  nvm_arg moved;
  CHECK(nvm_move(nvm_result_root(first), &moved) == 1 && moved.storage);
  const nvm_want same = nvm_want_buffer(NVM_DTYPE_FLOAT32, nvm_result_root(first)->data, LONG * 4);
  CHECK_STATUS(nvm_vm_invoke_into(vm, vector, &moved, 1, &same, 1, &result), NVM_OK);
  CHECK(memcmp(nvm_result_root(result)->data, data, LONG * 4) == 0);
  nvm_result_free(result);
  nvm_result_free(first);
}

/* --- handles ---------------------------------------------------------------------------------- */

static nvm_handle *keep(uint32_t function, const nvm_arg *args, size_t n_args) {
  const nvm_want want = nvm_want_handle();
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke_into(vm, function, args, n_args, &want, 1, &result), NVM_OK);
  if (!result) return NULL;
  nvm_handle *handle = nvm_result_root(result)->handle;
  CHECK(nvm_result_count(result) == 1 && nvm_result_root(result)->kind == NVM_OUT_HANDLE);
  nvm_handle_retain(handle);
  nvm_result_free(result);
  return handle;
}

static void test_handles(void) {
  float mine[LONG];
  nvm_result *result = NULL;
  memcpy(mine, data, sizeof mine);
  nvm_arg arg = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, mine);
  nvm_handle *state = keep(vector, &arg, 1);
  memset(mine, 0, sizeof mine); /* the handle has its own memory */
  for (int i = 0; i < 8; i++) { /* a cache that grows */
    const nvm_arg pair[] = {nvm_arg_handle(state),
                            nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data)};
    const uint64_t before = copied();
    nvm_handle *next = keep(append, pair, 2);
    CHECK(i < 1 || copied() - before <= (uint64_t)(i & (i - 1) ? LONG * 4 : (i + 2) * LONG * 4));
    nvm_handle_release(state);
    state = next;
  }
  CHECK_STATUS(nvm_vm_read(vm, state, &result), NVM_OK);
  CHECK(nvm_result_root(result)->shape[0] == 9 * LONG);
  const float *all = nvm_result_root(result)->data;
  for (int i = 0; i < 9; i++) CHECK(memcmp(all + i * LONG, data, LONG * 4) == 0);
  nvm_result_free(result);
  const nvm_arg mixed[] = {nvm_arg_handle(state),
                           nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data)};
  expect(nvm_vm_invoke(vm, two, mixed, 2, &result), NVM_INVALID_INPUT,
         "parameter %y of @two: axis 0: expected 2700 (?n, from parameter %x), got 300");
  arg = nvm_arg_handle(state);
  expect(nvm_vm_invoke(vm, lists, &arg, 1, &result), NVM_INVALID_INPUT_TYPE,
         "expected a value of type List, got a handle of a tensor");
  expect(nvm_vm_invoke(vm, unboxed, &arg, 1, &result), NVM_INVALID_INPUT_TYPE, "got a handle");
  expect(nvm_vm_read(vm, NULL, &result), NVM_INVALID_INPUT, "another VM");
  nvm_handle_release(state);
  nvm_handle_release(NULL);

  arg = nvm_arg_int(5);
  state = keep(unboxed, &arg, 1);
  arg = nvm_arg_handle(state);
  CHECK(run_int(vm, unboxed, &arg, 1) == 5); /* into an int register */
  nvm_handle_release(state);
  state = keep(closure, NULL, 0);
  CHECK_STATUS(nvm_vm_read(vm, state, &result), NVM_OK);
  CHECK(nvm_result_root(result)->kind == NVM_OUT_HANDLE);
  nvm_result_free(result);
  nvm_handle_release(state);
}

/* Values that are given away go into a handle, and stay readable for who retained their memory. */
static void test_moved_into_handle(void) {
  nvm_result *first = NULL, *second = NULL;
  const nvm_arg arg = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data);
  CHECK_STATUS(nvm_vm_call(vm, "vector", &arg, 1, &first), NVM_OK);
  void *storage = nvm_result_root(first)->storage;
  const float *kept = nvm_result_root(first)->data;
  nvm_storage_retain_handle(storage);
  nvm_arg pair[] = {arg, arg};
  CHECK(nvm_move(nvm_result_root(first), pair) == 1);
  nvm_handle *state = keep(append, pair, 2);
  nvm_result_free(first);
  CHECK(memcmp(kept, data, LONG * 4) == 0);
  nvm_storage_release_handle(storage);
  CHECK_STATUS(nvm_vm_read(vm, state, &second), NVM_OK);
  CHECK(nvm_result_root(second)->shape[0] == 2 * LONG);
  CHECK(memcmp(nvm_result_root(second)->data, data, LONG * 4) == 0);
  nvm_result_free(second);
  nvm_handle_release(state);
}

/* --- values of results as arguments ----------------------------------------------------------- */

static void test_lend_and_move(void) {
  nvm_result *first = NULL, *second = NULL;
  const nvm_arg leaf = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data);
  const nvm_arg list[] = {leaf, leaf, nvm_arg_adt(CTOR_NIL, 0), nvm_arg_adt(CTOR_CONS, 2),
                          nvm_arg_adt(CTOR_CONS, 2)};
  CHECK_STATUS(nvm_vm_call(vm, "lists", list, 5, &first), NVM_OK);
  const nvm_out *root = nvm_result_root(first), *tail = nvm_out_field(root, 1);
  CHECK(root->n_values == 5 && tail->n_values == 3 && nvm_out_field(tail, 1)->n_values == 1);
  CHECK(nvm_out_field(root, 0)->kind == NVM_OUT_TENSOR && nvm_out_field(tail, 1)->ctor == CTOR_NIL);
  nvm_arg args[5];
  CHECK(nvm_lend(tail, args) == 3);
  CHECK_STATUS(nvm_vm_call(vm, "lists", args, 3, &second), NVM_OK);
  CHECK(nvm_result_root(second)->n_values == 3);
  nvm_result_free(second);
  CHECK(nvm_move(root, args) == 5);
  const uint64_t before = copied();
  CHECK_STATUS(nvm_vm_call(vm, "lists", args, 5, &second), NVM_OK);
  CHECK(copied() == before); /* in and out again on the same memory */
  CHECK(memcmp(nvm_out_field(nvm_result_root(second), 0)->data, data, LONG * 4) == 0);
  nvm_result_free(first);
  nvm_result_free(second);
}

/* --- by name ---------------------------------------------------------------------------------- */

static void test_names(void) {
  nvm_result *result = NULL;
  const nvm_arg x = lent(long_shape),
                y = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 1, long_shape, data + LONG);
  const nvm_named_arg named[] = {{"y", &y, 1}, {"x", &x, 1}, {"x", &x, 1}, {"z", &x, 1}};
  released = 0;
  CHECK_STATUS(nvm_vm_run(vm, "two", named, 2, NULL, 0, &result), NVM_OK);
  CHECK(memcmp(nvm_result_root(result)->data, data + LONG, LONG * 4) == 0 && released == 1);
  nvm_result_free(result);
  expect(nvm_vm_run(vm, "two", named, 3, NULL, 0, &result), NVM_INVALID_INPUT,
         "@two: parameter %x was given twice");
  CHECK(released == 3);
  expect(nvm_vm_run(vm, "two", named + 2, 2, NULL, 0, &result), NVM_INVALID_INPUT,
         "@two has no parameter %z");
  expect(nvm_vm_run(vm, "two", named, 1, NULL, 0, &result), NVM_INVALID_INPUT,
         "@two: missing argument for %x");
  expect(nvm_vm_run(vm, "no", named + 1, 1, NULL, 0, &result), NVM_FUNCTION_NOT_FOUND, "@no");
  expect(nvm_vm_call(vm, "no", &x, 1, &result), NVM_FUNCTION_NOT_FOUND, "@no");
  CHECK(released == 7);
  nvm_arg list[81]; /* more than fit on the stack of nvm_vm_run */
  for (int i = 0; i < 40; i++) list[i] = x;
  list[40] = nvm_arg_adt(CTOR_NIL, 0);
  for (int i = 41; i < 81; i++) list[i] = nvm_arg_adt(CTOR_CONS, 2);
  const nvm_named_arg all = {"x", list, 81};
  released = 0;
  CHECK_STATUS(nvm_vm_run(vm, "lists", &all, 1, NULL, 0, &result), NVM_OK);
  CHECK(nvm_result_count(result) == 81);
  nvm_result_free(result);
  CHECK(released == 40);
  uint32_t found = 0;
  CHECK_STATUS(nvm_program_find_constructor(&program, "List.Cons", &found), NVM_OK);
  CHECK(found == CTOR_CONS);
  CHECK_STATUS(nvm_program_find_constructor(&program, "Nil", &found), NVM_OK);
  CHECK(found == CTOR_NIL);
  expect(nvm_program_find_constructor(&program, "List.", &found), NVM_INVALID_INPUT,
         "no constructor is named List.; the executable has List.Nil, List.Cons");
}

/* The record is that of the last call that can fail, getters too: one that went well clears it. */
static void test_record(void) {
  nvm_function_info function;
  nvm_param_info param;
  nvm_type_info type;
  nvm_backend_info backend;
  nvm_weights *weights = NULL;
  nvm_weight_info weight;
  uint32_t found;
#define CLEARS(call)                                                                \
  do {                                                                              \
    CHECK_STATUS(nvm_program_find(&program, "no", &found), NVM_FUNCTION_NOT_FOUND); \
    CHECK(nvm_last_error()->code == NVM_FUNCTION_NOT_FOUND);                        \
    CHECK_STATUS(call, NVM_OK);                                                     \
    CHECK(nvm_last_error()->code == NVM_OK && nvm_last_error()->message[0] == 0);   \
  } while (0)
  CLEARS(nvm_program_find(&program, "two", &found));
  CLEARS(nvm_program_function(&program, two, &function));
  CLEARS(nvm_program_param(&program, two, 0, &param));
  CLEARS(nvm_program_type_info(&program, 0, &type));
  CLEARS(nvm_program_find_constructor(&program, "Nil", &found));
  CLEARS(nvm_backend_info_get(0, &backend));
  CLEARS(nvm_weights_create(&weights));
  CLEARS(nvm_weights_add(weights, "w", NVM_DTYPE_FLOAT32, 1, long_shape, data, 0));
  CLEARS(nvm_weights_get(weights, 0, &weight));
#undef CLEARS
  nvm_weights_release(weights);
}

/* --- DLPack ----------------------------------------------------------------------------------- */

/* As dlpack.h has it. */
typedef struct DLManagedTensor {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
  void *context;
  void (*deleter)(struct DLManagedTensor *self);
} managed;

static void count_deleted(managed *self) { *(int *)self->context += 1; }

static void test_dlpack(void) {
  int deleted = 0;
  int64_t shape[] = {100}, strides[] = {3};
  nvm_result *result = NULL;
  nvm_arg arg;
  managed in = {.data = data,
                .device_type = 1,
                .ndim = 1,
                .code = 2,
                .bits = 32,
                .lanes = 1,
                .shape = shape,
                .strides = strides,
                .byte_offset = 8,
                .context = &deleted,
                .deleter = count_deleted};
  CHECK_STATUS(nvm_arg_dlpack(&in, &arg), NVM_OK);
  CHECK_STATUS(nvm_vm_call(vm, "vector", &arg, 1, &result), NVM_OK);
  CHECK(deleted == 1);
  for (int i = 0; i < 100; i++)
    CHECK(((float *)nvm_result_root(result)->data)[i] == data[2 + 3 * i]);

  managed *out = NULL;
  CHECK_STATUS(nvm_out_dlpack(nvm_result_root(result), &out), NVM_OK);
  nvm_result_free(result);
  CHECK(out->ndim == 1 && out->shape[0] == 100 && out->strides[0] == 1 && out->code == 2);
  CHECK(out->bits == 32 && out->lanes == 1 && ((float *)out->data)[1] == data[5]);
  CHECK_STATUS(nvm_arg_dlpack(out, &arg), NVM_OK); /* and in again */
  CHECK_STATUS(nvm_vm_call(vm, "vector", &arg, 1, &result), NVM_OK);
  CHECK(((float *)nvm_result_root(result)->data)[99] == data[2 + 3 * 99]);
  nvm_result_free(result);
  in.lanes = 4;
  expect(nvm_arg_dlpack(&in, &arg), NVM_INVALID_INPUT_TYPE, "4 lanes");
  in.lanes = 1;
  in.device_type = 2;
  expect(nvm_arg_dlpack(&in, &arg), NVM_INVALID_INPUT, "device type 2");
  in.ndim = 9;
  expect(nvm_arg_dlpack(&in, &arg), NVM_INVALID_INPUT, "9 axes");
  CHECK(deleted == 1);
}

/* --- texts ------------------------------------------------------------------------------------ */

static void test_texts(void) {
  char text[100];
  nvm_type_info info;
  CHECK(nvm_program_signature(&program, pairs, text, sizeof text) == strlen(text));
  CHECK(
      !strcmp(text, "@pairs(%x: (int64, Tensor[(?), float32])) -> (int64, Tensor[(?), float32])"));
  for (size_t size = 0; size < 40; size++) {
    memset(text, 'x', sizeof text);
    size_t length = nvm_program_type_text(&program, UINT32_MAX, T_LIST_OF, text, size);
    CHECK(size == 0 ? length == 0 && text[0] == 'x' : length < size && text[length] == 0);
    CHECK(size < 5 || size > 26 || !strcmp(text + length - 3, "..."));
    CHECK(size < 27 || !strcmp(text, "List[Tensor[(?), float32]]"));
  }
  nvm_program_type_text(&program, 0, T_N, text, sizeof text);
  CHECK(!strcmp(text, "Tensor[(?n), float32]"));
  nvm_program_type_text(&program, UINT32_MAX, T_N, text, sizeof text);
  CHECK(!strcmp(text, "Tensor[(?0), float32]"));
  nvm_program_type_text(&program, 0, T_FUNCTION, text, sizeof text);
  CHECK(!strcmp(text, "fn () -> Tensor[(?), float32]"));
  CHECK(nvm_program_type_text(&program, 0, 999, text, sizeof text) == 0);
  CHECK_STATUS(nvm_program_type_info(&program, T_PAIR, &info), NVM_OK);
  CHECK(info.kind == NVM_TYPE_TUPLE && info.n_parts == 2 && info.parts[1] == T_VECTOR);
  CHECK_STATUS(nvm_program_type_info(&program, T_N, &info), NVM_OK);
  CHECK(info.kind == NVM_TYPE_TENSOR && info.rank == 1 && info.dims[0] == -2);
  expect(nvm_program_type_info(&program, 999, &info), NVM_INVALID_INPUT, "no type 999");
  CHECK(!strcmp(nvm_status_name(NVM_VM_BUSY), "VM_BUSY") &&
        !strcmp(nvm_status_name(-1), "UNKNOWN"));
  CHECK(strlen(nvm_status_text(NVM_OK)) && strlen(nvm_status_text(12345)));
}

/* --- the n-th allocation fails ---------------------------------------------------------------- */

#ifdef NVM_TEST
static void exhaust(void) {
  float floats[2 * LONG];
  nvm_status status = NVM_OUT_OF_MEMORY;
  int n = 0;
  while (status != NVM_OK && n < 2000) {
    nvm_result *result = NULL, *read = NULL;
    const nvm_arg pair[] = {lent(long_shape), lent(long_shape)};
    const nvm_named_arg named[] = {{"y", &pair[1], 1}, {"x", &pair[0], 1}};
    const nvm_want handle = nvm_want_handle();
    const nvm_want buffer = nvm_want_buffer(NVM_DTYPE_FLOAT32, floats, sizeof floats);
    vm = NULL;
    released = 0;
    nvm_test_fail_allocation(++n);
    status = nvm_vm_create(&program, NULL, &vm);
    if (status == NVM_OK) {
      status = nvm_vm_run(vm, "append", named, 2, &handle, 1, &result);
      CHECK(released == 2 || result);
    }
    if (status == NVM_OK) {
      const nvm_arg again[] = {nvm_arg_handle(nvm_result_root(result)->handle), pair[1]};
      status = nvm_vm_read(vm, again[0].handle, &read);
      nvm_result_free(read);
      nvm_result *more = NULL;
      if (status == NVM_OK) status = nvm_vm_invoke_into(vm, append, again, 2, &handle, 1, &more);
      nvm_result_free(more);
    }
    nvm_test_fail_allocation(0);
    CHECK(status == NVM_OK || status == NVM_OUT_OF_MEMORY);
    nvm_result_free(result);
    if (vm) {
      CHECK_STATUS(nvm_vm_run(vm, "append", named, 2, &buffer, 1, &result), NVM_OK);
      CHECK(memcmp(floats + LONG, data, LONG * 4) == 0);
      nvm_result_free(result);
      nvm_vm_stats stats;
      CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
      CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
    }
    nvm_vm_destroy(vm);
  }
  CHECK(n > 5 && n < 2000);
}
#else
static void exhaust(void) {}
#endif

static int by_text(const void *a, const void *b) {
  return strcmp(program.functions[*(const uint32_t *)a].name,
                program.functions[*(const uint32_t *)b].name);
}

int main(void) {
  for (int i = 0; i < 2 * LONG; i++) data[i] = (float)i;
  new_program(0);
  vector = identity("vector", T_VECTOR);
  pairs = identity("pairs", T_PAIR);
  lists = identity("lists", T_LIST_OF);
  two = add_function("two", (params){2, {PARAM("x", T_N, 0), PARAM("y", T_N, 0)}}, T_N, 0, 0, 2,
                     WORDS(NVM_OP_Ret, 1));
  append = add_function("append", (params){2, {PARAM("x", T_VECTOR, 0), PARAM("y", T_VECTOR, 0)}},
                        T_VECTOR, 0, 0, 2, WORDS(NVM_OP_Append, 0, 0, 1, 0, NVM_OP_Ret, 0));
  unboxed = add_function("unboxed", (params){1, {PARAM("x", T_I64, 1)}}, T_I64, 1, 1, 0,
                         WORDS(NVM_OP_Ret, I(0)));
  uint32_t constant = add_function("constant", (params){0}, T_VECTOR, 0, 0, 1,
                                   WORDS(NVM_OP_LoadConst, 0, 0, NVM_OP_Ret, 0));
  closure = add_function("closure", (params){0}, T_FUNCTION, 0, 0, 1,
                         WORDS(NVM_OP_AllocClosure, 0, constant, 0, NVM_OP_Ret, 0));
  for (uint32_t i = 0; i < program.n_functions; i++) by_name[i] = i;
  qsort(by_name, program.n_functions, sizeof *by_name, by_text);
  program.by_name = by_name;
  vm = new_vm(NULL);
  test_buffers();
  test_buffers_on_arguments();
  test_handles();
  test_moved_into_handle();
  test_lend_and_move();
  test_names();
  test_record();
  test_dlpack();
  test_texts();
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
  nvm_vm_destroy(vm);
  exhaust();
  return failures != 0;
}
