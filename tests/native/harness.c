#include "harness.h"

int failures;
nvm_program program;

enum { MAX_FUNCTIONS = 64, MAX_KERNELS = 16 };
static nvm_function functions[MAX_FUNCTIONS];
static nvm_param function_params[MAX_FUNCTIONS][6];
static nvm_kernel kernels[MAX_KERNELS];
static uint32_t *codes[MAX_FUNCTIONS];

static const int64_t words_i64[] = {0, NVM_DTYPE_INT64},
                     words_vector[] = {0, NVM_DTYPE_FLOAT32, -1}, words_list[] = {2, 0, T_VAR0},
                     words_function[] = {3, T_VECTOR}, words_ref[] = {4, T_I64},
                     words_var0[] = {5, 0}, words_pair[] = {1, T_I64, T_VECTOR},
                     words_n[] = {0, NVM_DTYPE_FLOAT32, -2}, words_list_of[] = {2, 0, T_VECTOR},
                     words_list_self[] = {2, 0, T_VAR0}, words_bool[] = {0, NVM_DTYPE_BOOL},
                     words_f16[] = {0, NVM_DTYPE_FLOAT16};
#define TYPE(words) {words, COUNT(words)}
static const nvm_type types[T_COUNT] = {
    TYPE(words_i64),     TYPE(words_vector),    TYPE(words_list), TYPE(words_function),
    TYPE(words_ref),     TYPE(words_var0),      TYPE(words_pair), TYPE(words_n),
    TYPE(words_list_of), TYPE(words_list_self), TYPE(words_bool), TYPE(words_f16)};
static const nvm_adt_def adts[] = {{"List", 1, 1, 2}};
static const uint32_t cons_fields[] = {T_VAR0, T_LIST_SELF};
static const nvm_ctor ctors[] = {
    {"", -1, 0, 0, NULL}, {"Nil", 0, 0, 0, NULL}, {"Cons", 0, 1, 2, cons_fields}};
static const nvm_note notes[] = {{"", -1, 0, 0}, {"width of %x", -1, 0, 0}};
static const char *const sources[] = {"test.rly"};
static const char *const devices[] = {"cpu"};
static const char *const producer[] = {NULL};
static const nvm_section sections[3]; /* empty */

static union {
  nvm_tensor tensor;
  char room[sizeof(nvm_tensor) + 64];
} constant;
static float constant_data[4] = {1, 2, 3, 4};
static nvm_tensor *constants[1];

void new_program(uint32_t flags) {
  for (uint32_t i = 0; i < program.n_functions; i++) free(codes[i]);
  constant.tensor.header = (nvm_object){.refcount = 1,
                                        .kind = NVM_KIND_TENSOR,
                                        .flags = NVM_FLAG_IMMORTAL,
                                        .extra = NVM_DTYPE_FLOAT32};
  constant.tensor.rank = 1;
  constant.tensor.dims[0] = 4;
  constant.tensor.bytes = sizeof constant_data;
  constant.tensor.data = (char *)constant_data;
  constants[0] = &constant.tensor;
  memset(&program, 0, sizeof program);
  atomic_init(&program.refcount, 1u << 30); /* never freed */
  program.flags = flags;
  program.n_types = T_COUNT;
  program.types = types;
  program.n_adts = 1;
  program.adts = adts;
  program.n_ctors = 3;
  program.ctors = ctors;
  program.n_constants = 1;
  program.constants = constants;
  program.n_notes = 2;
  program.notes = notes;
  program.n_sources = 1;
  program.sources = sources;
  program.n_devices = 1;
  program.devices = devices;
  program.functions = functions;
  program.kernels = kernels;
  program.producer = producer;
  program.sections = sections;
  program.n_sections = COUNT(sections);
  program.warning = "";
}

uint32_t add_function(const char *name, params list, uint32_t result_type, int result_kind,
                      uint32_t n_ints, uint32_t n_objs, const uint32_t *code, size_t n_words) {
  static const nvm_dim_slot slots[] = {{"n", 0, NULL, 0}};
  uint32_t index = program.n_functions++, n_int = 0;
  codes[index] = malloc(n_words * sizeof *code);
  memcpy(codes[index], code, n_words * sizeof *code);
  memcpy(function_params[index], list.items, sizeof list.items);
  for (uint32_t i = 0; i < list.n; i++) n_int += list.items[i].kind;
  functions[index] = (nvm_function){.name = name,
                                    .is_public = 1,
                                    .result_kind = (uint8_t)result_kind,
                                    .n_params = list.n,
                                    .params = function_params[index],
                                    .n_int_params = n_int,
                                    .n_obj_params = list.n - n_int,
                                    .result_type = result_type,
                                    .n_ints = n_ints,
                                    .n_objs = n_objs,
                                    .code = codes[index],
                                    .n_words = (uint32_t)n_words,
                                    .n_dims = 1,
                                    .dims = slots};
  return index;
}

uint32_t add_kernel(const nvm_kernel *kernel) {
  kernels[program.n_kernels] = *kernel;
  return program.n_kernels++;
}

nvm_vm *new_vm(const nvm_limits *limits) {
  nvm_vm_options options = {.size = sizeof options, .threads = 1};
  if (limits) options.limits = *limits;
  nvm_vm *vm = NULL;
  CHECK_STATUS(nvm_vm_create(&program, &options, &vm), NVM_OK);
  return vm;
}

nvm_arg int_arg(int64_t value) {
  return (nvm_arg){.kind = NVM_ARG_INT, .dtype = -1, .int_value = value};
}

nvm_arg vector_arg(const float *data, const int64_t *shape) {
  return (nvm_arg){.kind = NVM_ARG_TENSOR,
                   .dtype = NVM_DTYPE_FLOAT32,
                   .rank = 1,
                   .dl_device_type = 1,
                   .data = data,
                   .shape = shape};
}

int64_t run_int(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args) {
  nvm_result *result = NULL;
  CHECK_STATUS(nvm_vm_invoke(vm, function, args, n_args, &result), NVM_OK);
  if (!result) return INT64_MIN;
  CHECK(nvm_result_count(result) == 1);
  const nvm_out *out = nvm_result_values(result);
  CHECK(out->kind == NVM_OUT_TENSOR && out->rank == 0 && out->dtype == NVM_DTYPE_INT64);
  int64_t value;
  memcpy(&value, out->data, sizeof value);
  nvm_result_free(result);
  return value;
}
