/* The driver's functions. See fake_cuda.h. */
#include "fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_driver.h"
#include "grid.h"
#include "memory.h"

#define EXPORT __attribute__((visibility("default")))

enum {
  INVALID_VALUE = 1,
  NOT_INITIALIZED = 3,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NO_BINARY_FOR_GPU = 209,
  INVALID_PTX = 218,
  UNSUPPORTED_PTX_VERSION = 222,
  INVALID_HANDLE = 400,
  NOT_FOUND = 500,
  ILLEGAL_ADDRESS = 700,
  LAUNCH_OUT_OF_RESOURCES = 701,
  CONTEXT_IS_DESTROYED = 709
};
enum { MAX_DEVICES = 4, MAX_PARAMS = 4096 / 8, MAX_PUSHED = 16 };

struct cu_context_ {
  int retained;
};
struct cu_module_ {
  uint32_t magic;
  void *library;
  const ptx_module *code;
  struct cu_function_ *functions;
};
struct cu_function_ {
  const ptx_kernel *kernel;
  cu_module module;
};

enum kind { COPY_IN, COPY_OUT, COPY_WITHIN, SET, FREE, LAUNCH };
typedef struct operation {
  struct operation *next;
  enum kind kind;
  uint64_t dst, src;
  void *host;
  const void *from;
  size_t size;
  unsigned value;
  cu_function function;
  uint32_t grid[3], block[3];
  uint64_t params[MAX_PARAMS];
} operation;
struct cu_stream_ {
  uint32_t magic;
  cu_context context;
  operation *first, **last;
  struct cu_stream_ *next;
};

enum { MODULE = 0x4d4f4455, STREAM = 0x53545245 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fake_cuda_state counts;
static char violations[1 << 16], trace[1 << 16], folder[4096];
static int initialised, sticky, failure_result, failure_sticky, async_error, devices = 2, pools = 1;
static int capability[2] = {7, 0};
static int64_t failure_at, memory_limit = (int64_t)1 << 34;
static char failure_function[64];
static pid_t owner;
static struct cu_context_ contexts[MAX_DEVICES];
static struct cu_stream_ *streams;
static _Thread_local cu_context pushed[MAX_PUSHED];
static _Thread_local int n_pushed;

typedef struct pinned {
  struct pinned *next;
  char *memory;
  size_t size;
} pinned;
static pinned *all_pinned;

static void append(char *text, size_t capacity, const char *line) {
  const size_t used = strlen(text);
  if (used + strlen(line) + 2 < capacity) {
    memcpy(text + used, line, strlen(line));
    memcpy(text + used + strlen(line), "\n", 2);
  }
}

__attribute__((format(printf, 1, 2))) static void violation(const char *format, ...) {
  char line[256];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  counts.violations++;
  append(violations, sizeof violations, line);
}

/* What the call is to give before it does anything: an injected failure, or a sticky error. */
static cu_result enter(const char *function) {
  pthread_mutex_lock(&lock);
  counts.calls++;
  append(trace, sizeof trace, function);
  if (owner && owner != getpid()) {
    violation("%s: called in a child of fork", function);
    return NOT_INITIALIZED;
  }
  if (failure_at > 0 && (!failure_function[0] || strcmp(failure_function, function) == 0) &&
      --failure_at == 0) {
    if (failure_sticky) sticky = failure_result;
    return failure_result;
  }
  if (sticky) return sticky;
  if (!initialised && strcmp(function, "cuInit") != 0) return NOT_INITIALIZED;
  return CU_SUCCESS;
}

static cu_result leave(cu_result result) {
  pthread_mutex_unlock(&lock);
  return result;
}

#define ENTER(name)                                   \
  do {                                                \
    const cu_result entered = enter(name);            \
    if (entered != CU_SUCCESS) return leave(entered); \
  } while (0)

static cu_context current(const char *function) {
  if (n_pushed && pushed[n_pushed - 1] && pushed[n_pushed - 1]->retained)
    return pushed[n_pushed - 1];
  violation("%s: no context is current", function);
  return NULL;
}

#define ENTER_CONTEXT(name) \
  ENTER(name);              \
  if (!current(name)) return leave(INVALID_CONTEXT)

/* --- control by tests --- */

EXPORT void fake_cuda_reset(void) {
  pthread_mutex_lock(&lock);
  counts = (fake_cuda_state){.live_pinned = counts.live_pinned,
                             .modules = counts.modules,
                             .streams = counts.streams,
                             .queued = counts.queued,
                             .most_queued = counts.queued};
  violations[0] = trace[0] = failure_function[0] = 0;
  failure_at = sticky = async_error = 0;
  memory_limit = (int64_t)1 << 34;
  capability[0] = 7, capability[1] = 0;
  devices = 2, pools = 1;
  pthread_mutex_unlock(&lock);
}
EXPORT void fake_cuda_forget(void) {
  pthread_mutex_lock(&lock);
  for (cu_stream stream = streams; stream; stream = stream->next) {
    stream->magic = 0;
    stream->first = NULL;
  }
  streams = NULL, all_pinned = NULL;
  fake_memory_forget();
  memset(contexts, 0, sizeof contexts);
  memset(&counts, 0, sizeof counts);
  n_pushed = 0;
  pthread_mutex_unlock(&lock);
}
EXPORT void fake_cuda_state_get(fake_cuda_state *out) {
  pthread_mutex_lock(&lock);
  if (fake_memory_damaged()) violation("memory behind a block was written");
  counts.live_blocks = fake_memory_blocks(), counts.live_bytes = fake_memory_bytes();
  *out = counts;
  out->pushed = n_pushed;
  out->contexts = 0;
  for (int i = 0; i < MAX_DEVICES; i++) out->contexts += contexts[i].retained;
  pthread_mutex_unlock(&lock);
}
EXPORT const char *fake_cuda_violations(void) { return violations; }
EXPORT const char *fake_cuda_trace(void) { return trace; }
EXPORT void fake_cuda_fail(const char *function, int64_t n, int32_t result, int32_t is_sticky) {
  snprintf(failure_function, sizeof failure_function, "%s", function ? function : "");
  failure_at = n, failure_result = result, failure_sticky = is_sticky;
}
EXPORT void fake_cuda_set_modules(const char *path) { snprintf(folder, sizeof folder, "%s", path); }
EXPORT void fake_cuda_set_memory(int64_t bytes) { memory_limit = bytes; }
EXPORT void fake_cuda_set_capability(int32_t major, int32_t minor) {
  capability[0] = major, capability[1] = minor;
}
EXPORT void fake_cuda_set_devices(int32_t count) { devices = count; }
EXPORT void fake_cuda_set_pools(int32_t supported) { pools = supported; }

/* --- devices and contexts --- */

EXPORT cu_result cuInit(unsigned flags) {
  ENTER("cuInit");
  if (flags) return leave(INVALID_VALUE);
  if (devices == 0) return leave(NO_DEVICE);
  initialised = 1, owner = getpid();
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDriverGetVersion(int *out) {
  ENTER("cuDriverGetVersion");
  *out = 12040;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuGetErrorName(cu_result result, const char **out) {
  switch (result) {
    case CU_ERROR_OUT_OF_MEMORY:
      *out = "CUDA_ERROR_OUT_OF_MEMORY";
      break;
    case ILLEGAL_ADDRESS:
      *out = "CUDA_ERROR_ILLEGAL_ADDRESS";
      break;
    case INVALID_PTX:
      *out = "CUDA_ERROR_INVALID_PTX";
      break;
    case NO_DEVICE:
      *out = "CUDA_ERROR_NO_DEVICE";
      break;
    case CONTEXT_IS_DESTROYED:
      *out = "CUDA_ERROR_CONTEXT_IS_DESTROYED";
      break;
    case 9999:
      *out = NULL;
      return INVALID_VALUE;
    default:
      *out = "CUDA_ERROR_OF_A_TEST";
  }
  return CU_SUCCESS;
}
EXPORT cu_result cuGetErrorString(cu_result result, const char **out) {
  *out = result == 9999 ? NULL : "text of the fake driver";
  return result == 9999 ? INVALID_VALUE : CU_SUCCESS;
}
EXPORT cu_result cuDeviceGetCount(int *out) {
  ENTER("cuDeviceGetCount");
  *out = devices;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDeviceGet(cu_device *out, int ordinal) {
  ENTER("cuDeviceGet");
  if (ordinal < 0 || ordinal >= devices) return leave(INVALID_DEVICE);
  *out = ordinal;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDeviceGetName(char *out, int size, cu_device device) {
  ENTER("cuDeviceGetName");
  snprintf(out, (size_t)size, "Fake GPU %d", device);
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDeviceGetAttribute(int *out, int attribute, cu_device device) {
  ENTER("cuDeviceGetAttribute");
  if (device < 0 || device >= devices) return leave(INVALID_DEVICE);
  switch (attribute) {
    case CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *out = capability[0];
      break;
    case CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *out = capability[1];
      break;
    case CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *out = pools;
      break;
    case CU_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *out = 1024;
      break;
    default:
      violation("cuDeviceGetAttribute: attribute %d", attribute);
      return leave(INVALID_VALUE);
  }
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDevicePrimaryCtxRetain(cu_context *out, cu_device device) {
  ENTER("cuDevicePrimaryCtxRetain");
  if (device < 0 || device >= devices) return leave(INVALID_DEVICE);
  contexts[device].retained++;
  *out = &contexts[device];
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuDevicePrimaryCtxRelease_v2(cu_device device) {
  ENTER("cuDevicePrimaryCtxRelease_v2");
  if (device < 0 || device >= MAX_DEVICES || !contexts[device].retained)
    return leave(INVALID_CONTEXT);
  contexts[device].retained--;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuCtxPushCurrent_v2(cu_context context) {
  ENTER("cuCtxPushCurrent_v2");
  if (!context || !context->retained) return leave(INVALID_CONTEXT);
  if (n_pushed == MAX_PUSHED) {
    violation("cuCtxPushCurrent_v2: contexts pile up");
    return leave(INVALID_CONTEXT);
  }
  pushed[n_pushed++] = context;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuCtxPopCurrent_v2(cu_context *out) {
  /* Even with a sticky error: the stack is this library's. */
  pthread_mutex_lock(&lock);
  append(trace, sizeof trace, "cuCtxPopCurrent_v2");
  if (!n_pushed) {
    violation("cuCtxPopCurrent_v2: nothing was pushed");
    return leave(INVALID_CONTEXT);
  }
  *out = pushed[--n_pushed];
  return leave(sticky);
}

/* --- streams and what is queued --- */

static void run_one(operation *op) {
  char *dst = op->dst ? fake_memory_find(op->dst, op->size) : NULL;
  char *src = op->src ? fake_memory_find(op->src, op->size) : NULL;
  switch (op->kind) {
    case COPY_IN:
      if (dst)
        memcpy(dst, op->from, op->size);
      else
        violation("a queued copy into memory that was freed");
      break;
    case COPY_OUT:
      if (src)
        memcpy(op->host, src, op->size);
      else
        violation("a queued copy from memory that was freed");
      break;
    case COPY_WITHIN:
      if (src && dst)
        memcpy(dst, src, op->size);
      else
        violation("a queued copy within memory that was freed");
      break;
    case SET:
      if (!dst) {
        violation("a queued memset of memory that was freed");
        break;
      }
      for (size_t i = 0; i < op->size / 4; i++) memcpy(dst + 4 * i, &op->value, 4);
      break;
    case FREE:
      if (!fake_memory_free(op->dst)) violation("cuMemFreeAsync of no block");
      break;
    case LAUNCH:
      counts.threads_run += (int64_t)op->grid[0] * op->grid[1] * op->grid[2] * op->block[0] *
                            op->block[1] * op->block[2];
      switch (
          fake_grid_run(op->function->kernel, op->params, op->grid, op->block, fake_memory_find)) {
        case GRID_ILLEGAL_ADDRESS:
          violation("%s accesses memory outside of blocks", op->function->kernel->name);
          async_error = ILLEGAL_ADDRESS;
          break;
        case GRID_NO_MEMORY:
          async_error = CU_ERROR_OUT_OF_MEMORY;
          break;
        default:
          break;
      }
      break;
  }
}

static void drain(cu_stream stream) {
  while (stream->first) {
    operation *op = stream->first;
    stream->first = op->next;
    if (!stream->first) stream->last = &stream->first;
    if (!async_error) run_one(op);
    counts.queued--;
    free(op);
  }
}

static operation *queue(cu_stream stream, enum kind kind) {
  operation *op = calloc(1, sizeof *op);
  op->kind = kind;
  *stream->last = op;
  stream->last = &op->next;
  if (++counts.queued > counts.most_queued) counts.most_queued = counts.queued;
  return op;
}

static int valid(cu_stream stream, const char *function) {
  if (stream && stream->magic == STREAM && stream->context == current(function)) return 1;
  violation("%s: no stream of the current context", function);
  return 0;
}

EXPORT cu_result cuStreamCreate(cu_stream *out, unsigned flags) {
  ENTER_CONTEXT("cuStreamCreate");
  if (flags > 1) return leave(INVALID_VALUE);
  cu_stream stream = calloc(1, sizeof *stream);
  *stream =
      (struct cu_stream_){.magic = STREAM, .context = current("cuStreamCreate"), .next = streams};
  stream->last = &stream->first;
  streams = stream;
  counts.streams++;
  *out = stream;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuStreamDestroy_v2(cu_stream stream) {
  ENTER_CONTEXT("cuStreamDestroy_v2");
  if (!valid(stream, "cuStreamDestroy_v2")) return leave(INVALID_HANDLE);
  drain(stream);
  for (cu_stream *at = &streams; *at; at = &(*at)->next)
    if (*at == stream) {
      *at = stream->next;
      break;
    }
  stream->magic = 0;
  free(stream);
  counts.streams--;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuStreamSynchronize(cu_stream stream) {
  ENTER_CONTEXT("cuStreamSynchronize");
  if (!valid(stream, "cuStreamSynchronize")) return leave(INVALID_HANDLE);
  counts.syncs++;
  drain(stream);
  if (async_error) sticky = async_error;
  return leave(async_error);
}

/* --- memory --- */

static cu_result allocate(cu_address *out, size_t size) {
  if (!size) return INVALID_VALUE;
  *out = fake_memory_alloc(size, memory_limit);
  return *out ? CU_SUCCESS : CU_ERROR_OUT_OF_MEMORY;
}
EXPORT cu_result cuMemAlloc_v2(cu_address *out, size_t size) {
  ENTER_CONTEXT("cuMemAlloc_v2");
  return leave(allocate(out, size));
}
EXPORT cu_result cuMemFree_v2(cu_address address) {
  ENTER_CONTEXT("cuMemFree_v2");
  for (cu_stream stream = streams; stream; stream = stream->next)
    drain(stream); /* it waits for the device */
  if (fake_memory_free(address)) return leave(async_error);
  violation("cuMemFree_v2 of no block");
  return leave(INVALID_VALUE);
}
EXPORT cu_result cuMemAllocAsync(cu_address *out, size_t size, cu_stream stream) {
  ENTER_CONTEXT("cuMemAllocAsync");
  if (!pools) {
    violation("cuMemAllocAsync on a device without pools");
    return leave(INVALID_VALUE);
  }
  if (!valid(stream, "cuMemAllocAsync")) return leave(INVALID_HANDLE);
  cu_result result = allocate(out, size);
  if (result == CU_ERROR_OUT_OF_MEMORY) { /* what is queued may free some */
    drain(stream);
    result = allocate(out, size);
  }
  return leave(result);
}
EXPORT cu_result cuMemFreeAsync(cu_address address, cu_stream stream) {
  ENTER_CONTEXT("cuMemFreeAsync");
  if (!valid(stream, "cuMemFreeAsync")) return leave(INVALID_HANDLE);
  const fake_block *block = fake_memory_block(address, 1);
  if (!block || block->address != address) {
    violation("cuMemFreeAsync of no block");
    return leave(INVALID_VALUE);
  }
  queue(stream, FREE)->dst = address;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuMemHostAlloc(void **out, size_t size, unsigned flags) {
  ENTER_CONTEXT("cuMemHostAlloc");
  if (!size || flags > 7) return leave(INVALID_VALUE);
  pinned *row = malloc(sizeof *row);
  *row = (pinned){all_pinned, malloc(size), size};
  all_pinned = row;
  counts.live_pinned++;
  *out = row->memory;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuMemFreeHost(void *memory) {
  ENTER_CONTEXT("cuMemFreeHost");
  for (cu_stream stream = streams; stream; stream = stream->next) drain(stream);
  for (pinned **at = &all_pinned; *at; at = &(*at)->next)
    if ((*at)->memory == memory) {
      pinned *row = *at;
      *at = row->next;
      free(row->memory), free(row);
      counts.live_pinned--;
      return leave(CU_SUCCESS);
    }
  violation("cuMemFreeHost of no block");
  return leave(INVALID_VALUE);
}
static int block_holds(uint64_t address, size_t size, const char *function) {
  if (size && fake_memory_block(address, size)) return 1;
  violation("%s: %zu bytes outside of a live block", function, size);
  return 0;
}
EXPORT cu_result cuMemcpyHtoDAsync_v2(cu_address dst, const void *src, size_t size,
                                      cu_stream stream) {
  ENTER_CONTEXT("cuMemcpyHtoDAsync_v2");
  if (!valid(stream, "cuMemcpyHtoDAsync_v2")) return leave(INVALID_HANDLE);
  if (!block_holds(dst, size, "cuMemcpyHtoDAsync_v2")) return leave(INVALID_VALUE);
  operation *op = queue(stream, COPY_IN);
  op->dst = dst, op->from = src, op->size = size;
  counts.copies_in++;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuMemcpyDtoHAsync_v2(void *dst, cu_address src, size_t size, cu_stream stream) {
  ENTER_CONTEXT("cuMemcpyDtoHAsync_v2");
  if (!valid(stream, "cuMemcpyDtoHAsync_v2")) return leave(INVALID_HANDLE);
  if (!block_holds(src, size, "cuMemcpyDtoHAsync_v2")) return leave(INVALID_VALUE);
  operation *op = queue(stream, COPY_OUT);
  op->src = src, op->host = dst, op->size = size;
  counts.copies_out++;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuMemcpyDtoDAsync_v2(cu_address dst, cu_address src, size_t size,
                                      cu_stream stream) {
  ENTER_CONTEXT("cuMemcpyDtoDAsync_v2");
  if (!valid(stream, "cuMemcpyDtoDAsync_v2")) return leave(INVALID_HANDLE);
  if (!block_holds(src, size, "cuMemcpyDtoDAsync_v2") ||
      !block_holds(dst, size, "cuMemcpyDtoDAsync_v2"))
    return leave(INVALID_VALUE);
  if (dst < src + size && src < dst + size) violation("cuMemcpyDtoDAsync_v2: the memories overlap");
  operation *op = queue(stream, COPY_WITHIN);
  op->src = src, op->dst = dst, op->size = size;
  counts.copies_within++;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuMemsetD32Async(cu_address dst, unsigned value, size_t count, cu_stream stream) {
  ENTER_CONTEXT("cuMemsetD32Async");
  if (!valid(stream, "cuMemsetD32Async")) return leave(INVALID_HANDLE);
  if (dst % 4 || !block_holds(dst, 4 * count, "cuMemsetD32Async")) return leave(INVALID_VALUE);
  operation *op = queue(stream, SET);
  op->dst = dst, op->size = 4 * count, op->value = value;
  return leave(CU_SUCCESS);
}

/* --- modules --- */

static void write_log(unsigned count, const int *options, void **values, const char *text) {
  char *buffer = NULL;
  size_t size = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = values[i];
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = (size_t)(uintptr_t)values[i];
  }
  if (buffer && size) snprintf(buffer, size, "%s", text);
}

static ptx_module *find_code(const char *ptx, void **out_library) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char *at = ptx; *at; at++) hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
  char path[4200];
  snprintf(path, sizeof path, "%s/%016llx.so", folder, (unsigned long long)hash);
  *out_library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  return *out_library ? dlsym(*out_library, "ptx_exported") : NULL;
}

EXPORT cu_result cuModuleLoadDataEx(cu_module *out, const void *image, unsigned count, int *options,
                                    void **values) {
  ENTER_CONTEXT("cuModuleLoadDataEx");
  const char *ptx = image, *target = strstr(ptx, ".target sm_");
  if (!target || !strstr(ptx, ".version ")) {
    write_log(count, options, values, "ptxas fatal: no .target or .version");
    return leave(INVALID_PTX);
  }
  if (atoi(target + 11) > 10 * capability[0] + capability[1]) return leave(NO_BINARY_FOR_GPU);
  void *library = NULL;
  const ptx_module *code = find_code(ptx, &library);
  if (!code) {
    write_log(count, options, values, "fake driver: no translation of this PTX in its folder");
    if (library) dlclose(library);
    return leave(INVALID_PTX);
  }
  cu_module module = calloc(1, sizeof *module);
  *module =
      (struct cu_module_){MODULE, library, code, calloc(code->count, sizeof *module->functions)};
  for (uint32_t i = 0; i < code->count; i++)
    module->functions[i] = (struct cu_function_){&code->kernels[i], module};
  counts.modules++;
  *out = module;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuModuleUnload(cu_module module) {
  ENTER_CONTEXT("cuModuleUnload");
  if (!module || module->magic != MODULE) {
    violation("cuModuleUnload of no module");
    return leave(INVALID_HANDLE);
  }
  for (cu_stream stream = streams; stream; stream = stream->next) drain(stream);
  module->magic = 0;
  dlclose(module->library);
  free(module->functions), free(module);
  counts.modules--;
  return leave(CU_SUCCESS);
}
EXPORT cu_result cuModuleGetFunction(cu_function *out, cu_module module, const char *name) {
  ENTER_CONTEXT("cuModuleGetFunction");
  if (!module || module->magic != MODULE) {
    violation("cuModuleGetFunction of no module");
    return leave(INVALID_HANDLE);
  }
  for (uint32_t i = 0; i < module->code->count; i++)
    if (strcmp(module->code->kernels[i].name, name) == 0) {
      *out = &module->functions[i];
      return leave(CU_SUCCESS);
    }
  return leave(NOT_FOUND);
}

EXPORT cu_result cuLaunchKernel(cu_function function, unsigned gx, unsigned gy, unsigned gz,
                                unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                                cu_stream stream, void **params, void **extra) {
  ENTER_CONTEXT("cuLaunchKernel");
  if (!valid(stream, "cuLaunchKernel") || !function || function->module->magic != MODULE)
    return leave(INVALID_HANDLE);
  const ptx_kernel *kernel = function->kernel;
  const uint32_t block[3] = {bx, by, bz}, grid[3] = {gx, gy, gz};
  if (extra || shared_bytes || !gx || !gy || !gz || gx > 0x7fffffffu || gy > 65535 || gz > 65535) {
    violation("cuLaunchKernel of %s: grid %u %u %u, %u bytes", kernel->name, gx, gy, gz,
              shared_bytes);
    return leave(INVALID_VALUE);
  }
  if ((uint64_t)bx * by * bz > 1024 || memcmp(block, kernel->reqntid, sizeof block) != 0) {
    violation("cuLaunchKernel of %s: block %u %u %u", kernel->name, bx, by, bz);
    return leave(INVALID_VALUE);
  }
  operation *op = queue(stream, LAUNCH);
  op->function = function;
  memcpy(op->grid, grid, sizeof grid), memcpy(op->block, block, sizeof block);
  for (uint32_t i = 0; i < kernel->n_params && i < MAX_PARAMS; i++)
    memcpy(&op->params[i], params[i], 8);
  counts.launches++;
  return leave(CU_SUCCESS);
}
