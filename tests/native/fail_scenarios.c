#include "fail_scenarios.h"

#include <dlfcn.h>
#include <stdatomic.h>

#include "../fuzz/arguments.h"
#include "generated/nvm_dtype.h"
#include "threads.h"

static float data[4096];
static int64_t vector_shape[] = {64}, large_shape[] = {4096};

/* --- a run of a program ----------------------------------------------------------------------- */

/* Invoke; if memory was missing, the same VM must do it now. */
static nvm_status invoke(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args,
                         outputs *out) {
  nvm_result *result = NULL;
  const nvm_status status = nvm_vm_invoke(vm, function, args, n_args, &result);
  CHECK((status == NVM_OK) == (result != NULL));
  if (status == NVM_OUT_OF_MEMORY)
    CHECK_STATUS(nvm_vm_invoke(vm, function, args, n_args, &result), NVM_OK);
  if (status != NVM_OK && status != NVM_OUT_OF_MEMORY)
    fprintf(stderr, "status %d: %s\n", status, nvm_last_error()->message);
  if (result != NULL) read_outputs(result, out);
  nvm_result_free(result);
  return status;
}

/* Nothing is alive but constants on devices, as before the calls. */
static void check_empty(nvm_vm *vm, const nvm_vm_stats *before) {
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_trim(vm), NVM_OK);
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.live_objects == before->live_objects && stats.live_bytes == before->live_bytes);
}

static nvm_status with_vm(const scenario *s, nvm_program *p, uint32_t function, const nvm_arg *args,
                          size_t n_args, outputs *out) {
  nvm_vm *vm = NULL;
  const int events = s->profile == NVM_PROFILE_EVENTS;
  nvm_vm_options options = {.size = sizeof options,
                            .threads = 2,
                            .profile = events ? NVM_PROFILE_OFF : s->profile,
                            .device = s->device};
  nvm_status status = nvm_vm_create(p, &options, &vm);
  CHECK((status == NVM_OK) == (vm != NULL));
  if (status != NVM_OK) return status;
  nvm_vm_stats before;
  CHECK_STATUS(nvm_vm_stats_get(vm, &before), NVM_OK);
  if (events) status = nvm_vm_profile_start(vm, NVM_PROFILE_EVENTS, 100);
  for (int turn = 0; turn < 2; turn++) {
    const nvm_status again = invoke(vm, function, args, n_args, out);
    if (status == NVM_OK) status = again;
  }
  check_empty(vm, &before);
  nvm_vm_destroy(vm);
  return status;
}

/* --- models ----------------------------------------------------------------------------------- */

static int make_arguments(nvm_program *p, uint32_t function, arguments *a) {
  static script nothing;
  static const int32_t ints[] = {3, 1, 2, 5, 0, 4, 1, 1};
  nvm_function_info info;
  CHECK_STATUS(nvm_program_function(p, function, &info), NVM_OK);
  *a = (arguments){.program = p, .script = &nothing, .salt = 3};
  for (uint32_t i = 0; i < info.n_params; i++) {
    nvm_param_info param;
    CHECK_STATUS(nvm_program_param(p, function, i, &param), NVM_OK);
    if (!arguments_add(a, param.type)) return 0;
  }
  for (size_t i = 0; i < a->n; i++) {
    if (a->args[i].kind != NVM_ARG_TENSOR) continue;
    a->args[i].data = a->args[i].dtype == NVM_DTYPE_INT32 ? (const void *)ints : data;
  }
  return 1;
}

static uint32_t main_of(nvm_program *p) {
  uint32_t function = 0;
  if (nvm_program_find(p, "main", &function) != NVM_OK) function = 0;
  return function;
}

/* Weights from a file, and one more by hand. */
static nvm_status bind_weights(const scenario *s, nvm_program **p) {
  nvm_weights *weights = NULL;
  nvm_program *bound = NULL;
  nvm_status status = nvm_weights_open(s->weights, 0, &weights);
  if (status == NVM_OK)
    status = nvm_weights_add(weights, "extra", NVM_DTYPE_FLOAT32, 1, vector_shape, data, 0);
  if (status == NVM_OK) status = nvm_program_bind(*p, weights, NVM_BIND_ALLOW_EXTRA, &bound);
  nvm_weights_release(weights);
  if (status != NVM_OK) return status;
  nvm_program_release(*p);
  *p = bound;
  return nvm_weights_create(&weights) == NVM_OK ? (nvm_weights_release(weights), NVM_OK)
                                                : NVM_OUT_OF_MEMORY;
}

static nvm_status run_model(const scenario *s, outputs *out) {
  static arguments a;
  nvm_program *p = NULL;
  nvm_status status = nvm_program_open(s->path, s->flags, &p);
  CHECK((status == NVM_OK) == (p != NULL));
  if (status != NVM_OK) return status;
  if (s->weights[0] != 0) status = bind_weights(s, &p);
  if (status == NVM_OK) {
    const uint32_t function = main_of(p);
    CHECK(make_arguments(p, function, &a));
    status = with_vm(s, p, function, a.args, a.n, out);
  }
  nvm_program_release(p);
  return status;
}

/* Loaded from memory, with a copy. */
static nvm_status run_memory(const scenario *s, outputs *out) {
  static char bytes[1 << 20];
  static arguments a;
  FILE *file = fopen(s->path, "rb");
  const size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  nvm_program *p = NULL;
  nvm_status status = nvm_program_load(bytes, size, s->flags, &p);
  if (status != NVM_OK) return status;
  const uint32_t function = main_of(p);
  CHECK(make_arguments(p, function, &a));
  status = with_vm(s, p, function, a.args, a.n, out);
  nvm_program_release(p);
  return status;
}

/* --- programs built by hand ------------------------------------------------------------------- */

static nvm_status run_hand(const scenario *s, outputs *out) {
  return with_vm(s, &program, s->function, s->args, s->n_args, out);
}

/* A handle is kept over runs; its memory becomes the VM's own. */
static nvm_status run_handles(const scenario *s, outputs *out) {
  nvm_vm *vm = NULL;
  nvm_status status = nvm_vm_create(&program, NULL, &vm);
  if (status != NVM_OK) return status;
  nvm_result *first = NULL, *second = NULL;
  status = nvm_vm_invoke(vm, s->function, s->args, 1, &first);
  if (status == NVM_OK) {
    nvm_arg handle = {.kind = NVM_ARG_HANDLE, .handle = nvm_result_values(first)[0].handle};
    status = nvm_vm_invoke(vm, s->function + 1, &handle, 1, &second);
  }
  if (status == NVM_OK) read_outputs(second, out);
  nvm_result_free(second);
  nvm_result_free(first);
  check_empty(vm, &(nvm_vm_stats){0});
  nvm_vm_destroy(vm);
  return status;
}

/* A wrong value deep in a list: the message's path needs memory, the error does not. */
static nvm_status run_refused(const scenario *s, outputs *out) {
  nvm_vm *vm = NULL;
  const nvm_status made = nvm_vm_create(&program, NULL, &vm);
  if (made != NVM_OK) return made;
  nvm_result *result = NULL;
  const nvm_status status = nvm_vm_invoke(vm, s->function, s->args, s->n_args, &result);
  CHECK(result == NULL && status != NVM_OK);
  *out = (outputs){.n = 1, .values = {1}};
  nvm_vm_destroy(vm);
  return status == NVM_OUT_OF_MEMORY ? status : NVM_OK;
}

static nvm_status add_range(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  (void)ctx;
  atomic_fetch_add((atomic_llong *)closure, (end - begin) * (begin + end - 1) / 2);
  return NVM_OK;
}

/* A parallel loop, which is done serially where there are no threads. */
static nvm_status run_threads(const scenario *s, outputs *out) {
  static const nvm_kernel_ctx ctx;
  atomic_llong sum = 0;
  (void)s;
  const nvm_status status = nvm_threads_run(4, &ctx, 1000, 1000000, add_range, &sum, 0);
  CHECK(sum == 499500);
  *out = (outputs){.n = 1, .values = {1}};
  return status;
}

/* --- external code ---------------------------------------------------------------------------- */

static nvm_status external_create(void *context, const void *blob, size_t size, const char *kernel,
                                  const nvm_signature *signature, void **out_instance) {
  (void)blob, (void)size, (void)kernel, (void)signature;
  *out_instance = context;
  return NVM_OK;
}

static nvm_status external_run(void *instance, const nvm_kernel_ctx *ctx, void *const *bufs,
                               int64_t *dims) {
  (void)instance, (void)ctx;
  const float *x = bufs[0], *y = bufs[1];
  for (int64_t i = 0; i < dims[0]; i++) ((float *)bufs[2])[i] = x[i] + y[i];
  return NVM_OK;
}

static void external_destroy(void *instance) { (void)instance; }

/* The program's only kernel as external code, of a runtime that is registered anew. */
static nvm_status run_external(const scenario *s, outputs *out) {
  static const uint8_t blobs[] = {0x81, 0, 0xc4, 1, 0}; /* {0: one byte} */
  static const nvm_section sections[4] = {
      [3] = {.kind = 5, .target = "adds", .data = blobs, .size = sizeof blobs}};
  const nvm_external_runtime runtime = {.size = sizeof runtime,
                                        .name = "adds",
                                        .create = external_create,
                                        .run = external_run,
                                        .destroy = external_destroy};
  nvm_program own = program;
  nvm_kernel kernel = program.kernels[0];
  kernel.kind = 2, kernel.fn = NULL;
  own.version = 2, own.kernels = &kernel, own.sections = sections, own.n_sections = COUNT(sections);
  nvm_status status = nvm_external_register(&runtime);
  if (status != NVM_OK) return status;
  status = with_vm(s, &own, s->function, s->args, s->n_args, out);
  CHECK(nvm_external_unregister("adds") == 1);
  return status;
}

static void hand(scenario *s, const char *name, uint32_t function,
                 nvm_status (*run)(const scenario *, outputs *)) {
  *s = (scenario){.function = function, .run = run};
  snprintf(s->name, sizeof s->name, "%s", name);
}

/* keep(x) = a closure of x, which comes out as a handle; open(f) = f() */
static uint32_t add_closure_pair(void) {
  const uint32_t same = add_function("same", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_VECTOR, 0, 0,
                                     1, WORDS(NVM_OP_Ret, 0));
  const uint32_t keep =
      add_function("keep", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_FUNCTION, 0, 0, 2,
                   WORDS(NVM_OP_AllocClosure, 1, same, 1, 0, NVM_OP_Ret, 1));
  add_function("open", (params){1, {PARAM("f", T_FUNCTION, 0)}}, T_VECTOR, 0, 0, 2,
               WORDS(NVM_OP_InvokeClosure, 1, 0, 0, NVM_OP_Ret, 1));
  return keep;
}

/* Many arguments, so that a tail call's transfer grows; a block of its own alignment; an append. */
static uint32_t add_blocks(void) {
  const uint32_t join = add_function(
      "join", (params){2, {PARAM("a", T_VECTOR, 0), PARAM("b", T_VECTOR, 0)}}, T_VECTOR, 0, 1, 6,
      WORDS(NVM_OP_AllocStorage, 2, 256, 4096, 0,                     /* 0 */
            NVM_OP_AllocTensor, 3, 2, 0, 1, 64, NVM_DTYPE_FLOAT32, 0, /* 5 */
            NVM_OP_Append, 4, 0, 1, 0, NVM_OP_Append, 4, 4, 1, 0,     /* 13 */
            NVM_OP_Append, 4, 4, 1, 0, NVM_OP_Append, 4, 4, 1, 0,     /* 23 */
            NVM_OP_ShapeOf, 5, 4, NVM_DTYPE_INT64, NVM_OP_ReadInt, 0, 5, 0, NVM_OP_Ret, 4));
  return add_function("twice", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_VECTOR, 0, 0, 1,
                      WORDS(NVM_OP_InvokeTail, join, 2, 0, 0));
}

static size_t by_hand(scenario *s) {
  size_t n = 0;
  new_program(0);
  const uint32_t list = add_list_length(), build = 0, cycles = add_cycles(), depth = add_depth();
  const uint32_t kernels = add_kernel_loop(), keep = add_closure_pair(), blocks = add_blocks();
  const uint32_t take = add_function("take", (params){1, {PARAM("l", T_LIST_OF, 0)}}, T_LIST_OF, 0,
                                     0, 1, WORDS(NVM_OP_Ret, 0));
  hand(&s[n], "list", list, run_hand);
  s[n].args[0] = int_arg(200), s[n++].n_args = 1;
  hand(&s[n], "list, null device", list, run_hand);
  s[n] = s[n - 1], s[n].device = "null";
  snprintf(s[n++].name, sizeof s->name, "list, null device");
  hand(&s[n], "build", build, run_hand);
  s[n].args[0] = int_arg(200), s[n].args[1] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_NIL};
  s[n++].n_args = 2;
  hand(&s[n], "cycles", cycles, run_hand);
  s[n].args[0] = int_arg(200), s[n++].n_args = 1;
  hand(&s[n], "depth", depth, run_hand);
  s[n].args[0] = int_arg(5000), s[n++].n_args = 1;
  hand(&s[n], "kernels", kernels, run_hand);
  s[n].args[0] = vector_arg(data, vector_shape), s[n].args[1] = int_arg(4), s[n++].n_args = 2;
  s[n] = s[n - 1], s[n].profile = NVM_PROFILE_KERNELS;
  snprintf(s[n++].name, sizeof s->name, "kernels, profiled");
  hand(&s[n], "external code", kernels, run_external);
  s[n].args[0] = vector_arg(data, vector_shape), s[n].args[1] = int_arg(4), s[n++].n_args = 2;
  hand(&s[n++], "threads", 0, run_threads);
  hand(&s[n], "handles", keep, run_handles);
  s[n].args[0] = vector_arg(data, vector_shape), s[n++].n_args = 1;
  hand(&s[n], "blocks", blocks, run_hand);
  s[n].args[0] = vector_arg(data, large_shape), s[n++].n_args = 1;
  static int64_t square[] = {8, 8};
  hand(&s[n], "refused", take, run_refused);
  s[n].args[0] = vector_arg(data, square), s[n].args[0].rank = 2;
  s[n].args[1] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_NIL};
  s[n].args[2] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = CTOR_CONS, .n_fields = 2};
  s[n++].n_args = 3;
  return n;
}

size_t make_scenarios(scenario *s, char **paths, int n_paths) {
  size_t n = 0;
  for (size_t i = 0; i < COUNT(data); i++) data[i] = (float)(int)(i % 17) / 16.0f - 0.5f;
  for (int i = 0; i < n_paths; i++) {
    const char *base = strrchr(paths[i], '/');
    base = base ? base + 1 : paths[i];
    const size_t length = strlen(paths[i]);
    static const char *const names[] = {"machine code", "profiled", "IR", "IR, from memory"};
    if (length > 12 && strcmp(paths[i] + length - 12, ".safetensors") == 0) {
      snprintf(s[n - 1].weights, sizeof s->weights, "%s", paths[i]); /* of the file before */
      continue;
    }
    const int whole = i + 1 == n_paths || strstr(paths[i + 1], ".safetensors") == NULL;
    for (int how = 0; how < (whole ? 4 : 1); how++) {
      s[n] = (scenario){.path = paths[i], .run = how < 3 ? run_model : run_memory};
      s[n].flags = how < 2 ? 0 : NVM_LOAD_NO_NATIVE;
      s[n].profile = how == 1 ? NVM_PROFILE_EVENTS : NVM_PROFILE_OFF;
      snprintf(s[n++].name, sizeof s->name, "%s, %s", base, names[how]);
    }
  }
  return n + by_hand(s + n);
}
