#include "run_one.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arguments.h"
#include "call.h"
#include "device_code.h"
#include "dim_program.h"
#include "generated/nvm_dtype.h"
#include "nvm_api.h"
#include "program.h"
#include "sha256.h"

enum { FIXED = 96, SEALED = 64, MAX_FUNCTIONS = 6, MAX_KERNELS = 4 };

#define REQUIRE(condition)                                                    \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: %s (%d: %s)\n", __FILE__, __LINE__, #condition, \
              nvm_last_error()->code, nvm_last_error()->message);             \
      abort();                                                                \
    }                                                                         \
  } while (0)

static uint64_t little64(const uint8_t *at) {
  uint64_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

/* --- digests ---------------------------------------------------------------------------------- */

/* Behind the value at `at`; SIZE_MAX if it goes beyond the header. */
static size_t skip(const uint8_t *data, size_t size, size_t at, int64_t *out_int,
                   uint32_t *out_count) {
  if (at >= size) return SIZE_MAX;
  const uint8_t byte = data[at++];
  uint32_t extra = 0;
  uint64_t value = 0;
  *out_count = 0;
  *out_int = byte;
  if (byte >= 0x80 && byte <= 0x9f) {
    *out_count = (byte & 15u) * (byte <= 0x8f ? 2u : 1u);
  } else if (byte >= 0xa0 && byte <= 0xbf) {
    return at + (byte & 31u);
  } else if (byte >= 0xc4 && byte <= 0xd3) {
    static const uint8_t lengths[] = {1, 2, 4, 0, 0, 0, 0, 0, 1, 2, 4, 8, 1, 2, 4, 8};
    extra = lengths[byte - 0xc4];
  } else if (byte >= 0xd9 && byte <= 0xdf) {
    static const uint8_t lengths[] = {1, 2, 4, 2, 4, 2, 4};
    extra = lengths[byte - 0xd9];
  }
  if (extra > size - at) return SIZE_MAX;
  for (uint32_t i = 0; i < extra; i++) value = value << 8 | data[at++];
  if (extra) *out_int = (int64_t)value;
  if (byte >= 0xdc) *out_count = byte > 0xdf ? 0 : (uint32_t)value * (byte >= 0xde ? 2u : 1u);
  if ((byte <= 0xc6 && byte >= 0xc4) || (byte >= 0xd9 && byte <= 0xdb))
    return value > size - at ? SIZE_MAX : at + (size_t)value;
  return at;
}

/* Digests of sections stand in the header's second table, behind a map of strings. */
static void repair_sections(uint8_t *file, size_t size, size_t header_size) {
  uint8_t *header = file + FIXED;
  const size_t first = (FIXED + header_size + 63) / 64 * 64;
  int64_t value;
  uint32_t count, rows;
  size_t at = skip(header, header_size, 0, &value, &count);
  at = skip(header, header_size, at, &value, &count); /* "producer" */
  at = skip(header, header_size, at, &value, &count);
  for (uint32_t i = count; i > 0 && at != SIZE_MAX; i--)
    at = skip(header, header_size, at, &value, &count);
  at = skip(header, header_size, at, &value, &count); /* "sections" */
  at = skip(header, header_size, at, &value, &rows);
  for (; rows > 0 && at != SIZE_MAX; rows--) {
    int64_t offset, length;
    at = skip(header, header_size, at, &value, &count);
    at = skip(header, header_size, at, &value, &count);
    at = skip(header, header_size, at, &offset, &count);
    at = skip(header, header_size, at, &length, &count);
    const size_t digest = at;
    at = skip(header, header_size, at, &value, &count);
    if (at == SIZE_MAX || at > header_size || at - digest != 34 || header[digest] != 0xc4) return;
    if (first <= size && offset >= 0 && (uint64_t)offset <= size - first && length >= 0 &&
        (uint64_t)length <= size - first - (uint64_t)offset) {
      nvm_sha256(file + first + offset, (size_t)length, header + digest + 2);
    }
    at = skip(header, header_size, at, &value, &count); /* target */
  }
}

static void repair_digests(uint8_t *file, size_t size) {
  if (size < FIXED) return;
  const uint64_t header_size = little64(file + 16);
  if (header_size <= size - FIXED) {
    repair_sections(file, size, (size_t)header_size);
    nvm_sha256(file + FIXED, (size_t)header_size, file + 32);
  }
  nvm_sha256(file, SEALED, file + SEALED);
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Arguments and what one call leaves for the next. */
typedef struct session {
  nvm_program *program;
  nvm_vm *vm;
  nvm_vm_stats before; /* of calls */
  script script;
  run_one_counts *counts;
  arguments *arguments;
} session;

static void touch(const void *memory, size_t size) {
  volatile const char *bytes = memory;
  if (size) (void)bytes[0], (void)bytes[size - 1];
}

/* Values must be readable and fit together. */
static void check_result(const nvm_result *result) {
  size_t depth = 0;
  for (size_t i = 0; i < nvm_result_count(result); i++) {
    const nvm_out *out = &nvm_result_values(result)[i];
    if (out->kind == NVM_OUT_TENSOR) {
      size_t bytes = nvm_dtypes[out->dtype].itemsize;
      REQUIRE(out->rank <= MAX_RANK);
      for (uint32_t k = 0; k < out->rank; k++) bytes *= (size_t)out->shape[k];
      if (out->dl_device_type == 1) touch(out->data, bytes);
    } else if (out->kind == NVM_OUT_ADT) {
      REQUIRE(out->n_fields <= depth);
      depth -= out->n_fields;
    }
    depth++;
  }
  REQUIRE(depth == 1);
}

/* Keep a handle and a block for later calls. */
static void keep(arguments *a, const nvm_result *result) {
  for (size_t i = 0; i < nvm_result_count(result); i++) {
    const nvm_out *out = &nvm_result_values(result)[i];
    if (out->kind == NVM_OUT_HANDLE && !a->handle) {
      nvm_handle_retain(out->handle);
      a->handle = out->handle;
    } else if (out->kind == NVM_OUT_TENSOR && out->storage && !a->storage) {
      nvm_storage_retain_handle(out->storage);
      a->storage = out->storage;
      a->moved = out->data;
      a->moved_dtype = out->dtype;
      a->moved_rank = out->rank;
      if (out->rank) memcpy(a->moved_shape, out->shape, out->rank * sizeof *a->moved_shape);
    }
  }
}

static void drop_kept(arguments *a) {
  if (a->handle) nvm_handle_release(a->handle);
  if (a->storage) nvm_storage_release_handle(a->storage);
  a->handle = NULL;
  a->storage = NULL;
}

static void call(session *s, uint32_t function, uint32_t n_params, uint32_t salt) {
  arguments *a = s->arguments;
  a->n = 0;
  a->salt = salt;
  memset(a->released, 0, sizeof a->released);
  for (uint32_t i = 0; i < n_params; i++) {
    nvm_param_info param;
    if (nvm_program_param(s->program, function, i, &param) != NVM_OK ||
        !arguments_add(a, param.type)) {
      return;
    }
  }
  nvm_result *result = NULL;
  const void *given = NULL;
  for (size_t i = 0; i < a->n; i++)
    if (a->args[i].kind == NVM_ARG_TENSOR && a->args[i].storage) given = a->args[i].storage;
  s->counts->calls++;
  const nvm_status status = nvm_vm_invoke(s->vm, function, a->args, a->n, &result);
  REQUIRE((status == NVM_OK) == (result != NULL));
  REQUIRE(status >= NVM_OK && status <= NVM_WEIGHTS_NOT_BOUND && status != NVM_INTERNAL);
  if (status == NVM_OK) {
    s->counts->returned++;
    check_result(result);
    if (given) drop_kept(a);
    keep(a, result);
  }
  nvm_result_free(result);
}

/* A C kernel on operands of its signature's sizes, bent by the script. (A loop-IR kernel outside of
 * a VM has no limits.) */
static void call_kernel(session *s, uint32_t index) {
  const nvm_kernel *kernel = &s->program->kernels[index];
  const nvm_signature *sig = &kernel->signature;
  if (kernel->kind != 1) return;
  static int64_t shapes[NVM_MAX_OPERANDS][MAX_SHAPE];
  static char *memory[NVM_MAX_OPERANDS]; /* of their exact sizes */
  nvm_arg operands[NVM_MAX_OPERANDS];
  size_t sizes[NVM_MAX_OPERANDS];
  int64_t dims[NVM_MAX_DIMS] = {0};
  for (uint32_t i = 0; i < sig->n_dims; i++) dims[i] = script_next(&s->script) % 5;
  for (uint32_t i = 0; i < sig->n_attrs; i++) dims[sig->n_dims + i] = sig->attrs[i];
  for (uint32_t i = 0; i < sig->n_operands; i++) {
    const nvm_operand *operand = &sig->operands[i];
    int64_t bytes = nvm_dtypes[operand->dtype].itemsize;
    for (uint32_t k = 0; k < operand->rank; k++) {
      const nvm_axis *axis = &operand->axes[k];
      int64_t *size = &shapes[i][k];
      *size = axis->kind == NVM_AXIS_DIM ? dims[axis->value] : axis->value;
      if (axis->kind == NVM_AXIS_EXPR &&
          nvm_dim_program(sig->exprs + axis->value, sig->n_expr_words - (size_t)axis->value, dims,
                          (size_t)sig->n_dims + sig->n_attrs, size) != NVM_OK) {
        return;
      }
      if (script_next(&s->script) > 240) *size = script_next(&s->script) % 5;
      if (*size < 0 || *size > MAX_BYTES || (bytes *= *size) > MAX_BYTES) return;
    }
    sizes[i] = (size_t)bytes;
  }
  for (uint32_t i = 0; i < sig->n_operands; i++) {
    memory[i] = malloc(sizes[i] ? sizes[i] : 1);
    memset(memory[i], (int)script_next(&s->script), sizes[i]);
    operands[i] = (nvm_arg){.kind = script_next(&s->script) == 255 ? NVM_ARG_INT : NVM_ARG_TENSOR,
                            .dtype = sig->operands[i].dtype,
                            .rank = sig->operands[i].rank,
                            .dl_device_type = 1,
                            .data = memory[i],
                            .shape = shapes[i]};
    if (script_next(&s->script) > 240) operands[i].dtype = (int32_t)(script_next(&s->script) % 16);
  }
  s->counts->calls++;
  s->counts->returned += nvm_kernel_call(s->program, index, operands, sig->n_operands, dims,
                                         (size_t)sig->n_dims + sig->n_out_dims) == NVM_OK;
  for (uint32_t i = 0; i < sig->n_operands; i++) free(memory[i]);
}

/* Everything that can be asked about a program, beyond the last index too. */
static void ask(const nvm_program *p) {
  int32_t i32;
  uint32_t u32, more, last;
  size_t size;
  const uint32_t *words;
  const int64_t *dims;
  const char *text;
  for (uint32_t i = 0; i <= nvm_program_function_count(p); i++) {
    nvm_function_info info;
    nvm_param_info param;
    if (nvm_program_function(p, i, &info) != NVM_OK) continue;
    REQUIRE(nvm_program_find(p, info.name, &u32) == NVM_OK && u32 == i);
    touch(info.code, info.n_words * sizeof *info.code);
    for (uint32_t k = 0; k <= info.n_params; k++) (void)nvm_program_param(p, i, k, &param);
    for (uint32_t k = 0; k <= info.n_dims; k++) (void)nvm_program_dim(p, i, k, &i32);
    for (uint32_t k = 0; k <= info.n_checked; k++) (void)nvm_program_checked(p, i, k);
    (void)nvm_program_span(p, i, (uint32_t)info.n_words / 2, &text, &u32, &more);
  }
  (void)nvm_program_find(p, "no such function", &u32);
  for (uint32_t i = 0; i <= nvm_program_type_count(p); i++) (void)nvm_program_type(p, i, &size);
  for (uint32_t i = 0; i <= nvm_program_adt_count(p); i++)
    (void)nvm_program_adt(p, i, &u32, &more, &last);
  for (uint32_t i = 0; i <= nvm_program_constructor_count(p); i++)
    (void)nvm_program_constructor(p, i, &i32, &u32, &more, &words);
  for (uint32_t i = 0; i <= nvm_program_constant_count(p); i++) {
    const void *data = nvm_program_constant(p, i, &i32, &u32, &dims);
    size = data ? nvm_dtypes[i32].itemsize : 0;
    for (uint32_t k = 0; data && k < u32; k++) size *= (size_t)dims[k];
    touch(data, size);
  }
  for (uint32_t i = 0; i <= nvm_program_kernel_count(p); i++) {
    int32_t native;
    (void)nvm_program_kernel(p, i, &i32, &native);
  }
  for (uint32_t i = 0; i <= nvm_program_section_count(p); i++) {
    const void *data = nvm_program_section(p, i, &i32, &text, &size);
    touch(data, data ? size : 0);
  }
  for (uint32_t i = 0; i < 3; i++) (void)nvm_program_note(p, i);
  for (uint32_t i = 0; i <= nvm_program_function_count(p); i++) {
    char signature[200];
    (void)nvm_program_signature(p, i, signature, 1 + i % sizeof signature);
  }
  (void)nvm_program_signature_block(p, &size);
  (void)nvm_program_weights_file(p);
  (void)nvm_program_producer(p, "target");
  (void)nvm_program_warning(p);
  touch(nvm_program_header(p, &size), 1);
}

/* --- a file ----------------------------------------------------------------------------------- */

static int file_of(const uint8_t *data, size_t size) {
  const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  REQUIRE(fd >= 0 && write(fd, data, size) == (ssize_t)size);
  return fd;
}

static nvm_status open_file(const uint8_t *data, size_t size, uint32_t flags, nvm_program **out) {
  char path[32];
  const int fd = file_of(data, size);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const nvm_status status = nvm_program_open(path, flags, out);
  close(fd);
  if (flags & NVM_LOAD_COPY) { /* what is no file at all */
    nvm_program *none = NULL;
    REQUIRE(nvm_program_open("/nonexistent", 0, &none) == NVM_FILE_ERROR && none == NULL);
    REQUIRE(nvm_program_open("/", 0, &none) == NVM_FILE_ERROR && none == NULL);
  }
  return status;
}

static int32_t accept(void *context, const uint8_t *key_id, const uint8_t *message,
                      size_t message_size, const uint8_t *signature, size_t signature_size) {
  (void)context;
  touch(key_id, 32);
  if (key_id[0] == 255) return 0;
  touch(message, message_size);
  touch(signature, signature_size);
  return 1;
}

/* Weights for what the program wants, bent by the script. */
static void bind(session *s) {
  static const char zeros[MAX_BYTES];
  nvm_weights *weights = NULL;
  nvm_program *bound = NULL;
  if (nvm_program_weight_count(s->program) == 0 || nvm_weights_create(&weights) != NVM_OK) return;
  for (uint32_t i = 0; i < nvm_program_weight_count(s->program); i++) {
    nvm_weight_info want;
    int64_t dims[MAX_SHAPE], bytes;
    REQUIRE(nvm_program_weight(s->program, i, &want) == NVM_OK);
    if (script_next(&s->script) == 255) continue;
    if (script_next(&s->script) > 240)
      want.dtype = (int32_t)(script_next(&s->script) % NVM_DTYPE_COUNT);
    bytes = nvm_dtypes[want.dtype].itemsize;
    for (uint32_t k = 0; k < want.rank && k < MAX_SHAPE; k++) {
      dims[k] = script_next(&s->script) > 250 ? script_next(&s->script) % 7 : want.dims[k];
      if (dims[k] < 0 || __builtin_mul_overflow(bytes, dims[k], &bytes)) bytes = INT64_MAX;
    }
    if (bytes > MAX_BYTES) continue;
    (void)nvm_weights_add(weights, want.name, want.dtype, want.rank, dims, zeros, 0);
  }
  if (nvm_program_bind(s->program, weights, 0, &bound) == NVM_OK) {
    nvm_program_release(s->program);
    s->program = bound;
  }
  nvm_weights_release(weights);
}

/* A safetensors file: what it says it has must be there. */
/* A section of device code by itself, and its launches for a kernel that has anything. */
static void read_device_code(const uint8_t *data, size_t size) {
  nvm_arena *arena = NULL;
  nvm_device_code code;
  if (nvm_arena_create(&arena) != NVM_OK) return;
  const nvm_status status = nvm_device_code_read(data, size, arena, &code);
  REQUIRE(status == NVM_OK || status == NVM_INVALID_EXECUTABLE);
  const nvm_signature any = {.n_operands = NVM_MAX_OPERANDS, .n_dims = 200, .n_pitches = 312};
  int64_t dims[200];
  for (int i = 0; i < 200; i++) dims[i] = (int64_t)data[(size_t)i % size] - 3;
  for (uint32_t k = 0; status == NVM_OK && k < code.n_kernels; k++) {
    const nvm_device_kernel *kernel = &code.kernels[k];
    REQUIRE(nvm_device_code_find(&code, kernel->index) == kernel);
    if (nvm_device_code_check(kernel, "fuzzed", &any) != NVM_OK) continue;
    for (uint32_t i = 0; i < kernel->n_launches; i++) {
      uint32_t groups[3];
      if (nvm_device_grid(&kernel->launches[i], &any, dims, groups) == NVM_OK)
        REQUIRE((groups[0] == 0) == (groups[1] == 0 || groups[2] == 0));
    }
  }
  nvm_arena_destroy(arena);
}

static void read_weights(const uint8_t *data, size_t size) {
  nvm_weights *weights = NULL;
  const int fd = file_of(data, size);
  const nvm_status status = nvm_weights_read(fd, "fuzz", size & 1 ? NVM_LOAD_COPY : 0, &weights);
  REQUIRE((status == NVM_OK) == (weights != NULL));
  for (uint32_t i = 0; weights && i <= nvm_weights_count(weights); i++) {
    nvm_weight_info info;
    if (nvm_weights_get(weights, i, &info) == NVM_OK) touch(info.data, info.size);
  }
  nvm_weights_release(weights);
  close(fd);
}

/* Whether a file may hold code that is trusted: for the CPU, a device or a runtime. */
static int has_code(const uint8_t *file, size_t size) {
  static const char *const marks[] = {"\177ELF", "opencl", "cuda", "vta", "blas"};
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (memmem(file, size, marks[i], strlen(marks[i])) != NULL) return 1;
  return 0;
}

static nvm_status load(const uint8_t *file, size_t size, uint32_t how, nvm_program **out) {
  uint32_t flags = NVM_LOAD_NO_NATIVE;
  if (how == RUN_NATIVE && !has_code(file, size)) flags = NVM_LOAD_VERIFY_FULL;
  if (how == RUN_FILE_COPY) flags |= NVM_LOAD_COPY | NVM_LOAD_VERIFY_FULL;
  if (how == RUN_VERIFY_FULL) flags |= NVM_LOAD_VERIFY_FULL;
  if (how == RUN_BORROW) flags |= NVM_LOAD_BORROW;
  static const nvm_signature_check check = {.verify = accept};
  if (how == RUN_SIGNED) return nvm_program_load_signed(file, size, flags, &check, out);
  return how == RUN_FILE || how == RUN_FILE_COPY ? open_file(file, size, flags, out)
                                                 : nvm_program_load(file, size, flags, out);
}

static nvm_vm *make_vm(session *s, uint32_t flags) {
  static const nvm_limits limits[] = {{2000, 1 << 20, 500, 60, 0}, {60, 1 << 20, 500, 60, 0},
                                      {2000, 400, 500, 60, 0},     {2000, 1 << 20, 6, 60, 0},
                                      {2000, 1 << 20, 500, 3, 0},  {2000, 1 << 20, 500, 60, 1}};
  static const char *const devices[] = {NULL, "cpu", "null", "nothing"};
  const uint32_t chosen = script_next(&s->script);
  nvm_vm_options options = {.size = sizeof options, .threads = 1, .limits = limits[chosen % 6]};
  options.device = devices[chosen / 6 % 4];
  if (options.limits.nanoseconds == 0) options.limits.nanoseconds = 50000000;
  if (flags & RUN_PROFILE) options.profile = NVM_PROFILE_INSTRUCTIONS;
  nvm_vm *vm = NULL;
  const nvm_status status = nvm_vm_create(s->program, &options, &vm);
  REQUIRE(status == NVM_OK || status == NVM_OUT_OF_MEMORY || status == NVM_DEVICE_ERROR ||
          status == NVM_MEMORY_LIMIT || !nvm_program_is_bound(s->program));
  if (vm != NULL) REQUIRE(nvm_vm_stats_get(vm, &s->before) == NVM_OK);
  return vm;
}

static void run_functions(session *s) {
  const uint32_t n = nvm_program_function_count(s->program);
  for (uint32_t i = 0, ran = 0; i < n && ran < MAX_FUNCTIONS; i++) {
    nvm_function_info info;
    if (nvm_program_function(s->program, i, &info) != NVM_OK || !info.is_public) continue;
    ran++;
    const int more = s->script.at < s->script.end;
    call(s, i, info.n_params, 0);
    if (more || info.n_params) call(s, i, info.n_params, 77);
  }
}

/* Nothing may be left of the calls, whatever became of them. */
static void finish(session *s) {
  nvm_vm_stats stats;
  drop_kept(s->arguments);
  if (s->vm == NULL) return;
  REQUIRE(nvm_vm_trim(s->vm) == NVM_OK); /* a dropped handle may have held a cycle of refs */
  REQUIRE(nvm_vm_stats_get(s->vm, &stats) == NVM_OK);
  REQUIRE(stats.live_objects == s->before.live_objects); /* constants on devices */
  REQUIRE(stats.live_bytes == s->before.live_bytes);
  REQUIRE(arguments_released(s->arguments));
  nvm_vm_destroy(s->vm);
}

static void run_program(session *s, uint32_t flags) {
  ask(s->program);
  bind(s);
  s->arguments->program = s->program;
  s->vm = make_vm(s, flags);
  if (s->vm != NULL) run_functions(s);
  if (s->script.at < s->script.end)
    for (uint32_t i = 0; i < nvm_program_kernel_count(s->program) && i < MAX_KERNELS; i++)
      call_kernel(s, i);
  finish(s);
}

#ifdef NVM_TEST
int64_t nvm_test_fail_allocation(int64_t n);
#else
static int64_t nvm_test_fail_allocation(int64_t n) { return 0 * n; }
#endif

void run_one(const uint8_t *data, size_t size, run_one_counts *counts) {
  static arguments room;
  counts->files++;
  if (size >= 9 && memcmp(data, "\x82\xa6source", 8) == 0) {
    read_device_code(data, size);
    return;
  }
  if (size >= 9 && data[0] != 0x89) {
    read_weights(data, size);
    return;
  }
  const uint64_t said = size < FIXED ? size : little64(data + 24);
  const size_t file_size = said >= FIXED && said < size ? (size_t)said : size;
  session s = {.counts = counts, .script = {data + file_size, data + size}, .arguments = &room};
  uint8_t *file = malloc(file_size ? file_size : 1); /* of its exact size */
  if (file_size) memcpy(file, data, file_size);
  const uint32_t flags = script_next(&s.script);
  if ((flags & RUN_HOW) != RUN_KEEP_DIGESTS) repair_digests(file, file_size);
  if (!room.data[0]) /* the first time: inputs are not written */
    for (size_t i = 0; i < sizeof room.data; i++) room.data[i] = (char)(i % 3 == 0);
  room.script = &s.script;
  if (flags & RUN_FAIL_ALLOC) (void)nvm_test_fail_allocation(1 + script_next(&s.script));
  const nvm_status status = load(file, file_size, flags & RUN_HOW, &s.program);
  counts->past_structure += nvm_load_stage() >= 1;
  counts->past_code += nvm_load_stage() >= 2;
  REQUIRE((status == NVM_OK) == (s.program != NULL));
  room.program = s.program;
  if (status == NVM_OK) {
    run_program(&s, flags);
  } else {
    counts->refused++;
    REQUIRE(status == NVM_INVALID_EXECUTABLE || status == NVM_UNSUPPORTED_VERSION ||
            status == NVM_OUT_OF_MEMORY || status == NVM_SIGNATURE_MISSING ||
            status == NVM_SIGNATURE_MALFORMED || status == NVM_SIGNATURE_MISMATCH ||
            (status == NVM_FILE_ERROR && flags & RUN_FAIL_ALLOC)); /* open or mmap was refused */
  }
  (void)nvm_test_fail_allocation(0);
  nvm_program_release(s.program);
  free(file);
}
