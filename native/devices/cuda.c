/* CUDA devices: ptx.py's kernels in one stream, through the driver alone (cuda_driver.h).
 *
 * Each device of a VM retains the GPU's primary context, which other libraries of the process use
 * too, and makes it current for each call, since a VM may run on any thread. What is queued runs in
 * the order of its stream. A driver's error is the status of the call that met it, or of a later
 * one; after errors that it calls sticky (an illegal address, an ECC error) each call gives one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "cuda_driver.h"
#include "gpu.h"
#include "nvm_api.h"

enum {
  ALIGNMENT = 256,      /* of what the driver allocates */
  STAGING = 1 << 18,    /* pinned bytes that copies from the host go through */
  MAX_STAGED = 1 << 15, /* larger copies wait until they are done instead */
  MAX_GROUPS_YZ = 65535,
  LOG_BYTES = 2048
};

/* A block of a larger alignment than the driver's: it begins within one of the driver's. */
typedef struct inner_block {
  struct inner_block *next;
  cu_address address, outer;
} inner_block;

typedef struct cuda_device {
  nvm_gpu gpu;
  const nvm_cuda_driver *cu;
  cu_device device;
  int retained, pools, capability; /* capability: 10 major + minor */
  char name[96];
  cu_context context;
  cu_stream stream;
  cu_address fault;        /* an nvm_device_fault */
  nvm_device_fault *found; /* pinned: where the record is read to */
  char *staging;           /* pinned, behind it */
  size_t staged;           /* bytes of it that queued copies may still read */
  pthread_mutex_t lock;    /* of `inner`: blocks are freed by any thread */
  inner_block *inner;
} cuda_device;

static const nvm_device_vtable vtable;

static cuda_device *of(nvm_device *device) { return (cuda_device *)device; }

static cu_address address_of(const void *memory, size_t offset) {
  return (cu_address)(uintptr_t)memory + offset;
}

/* --- the context ------------------------------------------------------------------------------ */

static nvm_status failed(const cuda_device *d, cu_result result, const char *what) {
  return nvm_cuda_failed(d->cu, result, what);
}

/* Make the context current for this thread; `end` gives back what was. */
static nvm_status begin(const cuda_device *d) {
  if (nvm_cuda_forked())
    NVM_FAIL(NVM_DEVICE_ERROR,
             "cuda: this VM was opened before fork(), and CUDA works in no child process");
  const cu_result result = d->cu->context_push(d->context);
  return result == CU_SUCCESS ? NVM_OK : failed(d, result, "making the context current");
}

static void end(const cuda_device *d) {
  cu_context was;
  (void)d->cu->context_pop(&was);
}

/* --- memory ----------------------------------------------------------------------------------- */

static cu_result take(const cuda_device *d, size_t size, cu_address *out_address) {
  return d->pools ? d->cu->alloc_async(out_address, size, d->stream)
                  : d->cu->alloc(out_address, size);
}

/* In the stream's order, else once the device has nothing to do. */
static void give(const cuda_device *d, cu_address address) {
  (void)(d->pools ? d->cu->free_async(address, d->stream) : d->cu->free(address));
}

static nvm_status take_inner(cuda_device *d, size_t size, size_t alignment,
                             cu_address *out_address) {
  inner_block *block = nvm_malloc(sizeof *block);
  if (!block) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a block's place");
  const cu_result result = take(d, size + alignment, &block->outer);
  if (result != CU_SUCCESS) {
    nvm_free(block);
    return failed(d, result, "allocating memory");
  }
  block->address = (block->outer + alignment - 1) & ~(cu_address)(alignment - 1);
  pthread_mutex_lock(&d->lock);
  block->next = d->inner;
  d->inner = block;
  pthread_mutex_unlock(&d->lock);
  *out_address = block->address;
  return NVM_OK;
}

static nvm_status cuda_alloc(nvm_device *device, size_t size, size_t alignment, void **out_memory) {
  cuda_device *d = of(device);
  cu_address address = 0;
  if (!nvm_allocation_allowed()) NVM_FAIL(NVM_OUT_OF_MEMORY, "cuda: no memory for %zu bytes", size);
  NVM_TRY(begin(d));
  nvm_status status = NVM_OK;
  if (alignment > ALIGNMENT) {
    status = take_inner(d, size, alignment, &address);
  } else {
    const cu_result result = take(d, size, &address);
    if (result != CU_SUCCESS) status = failed(d, result, "allocating memory");
  }
  end(d);
  if (status == NVM_OK) *out_memory = (void *)(uintptr_t)address;
  return status;
}

static void cuda_free(nvm_device *device, void *memory, size_t size) {
  cuda_device *d = of(device);
  cu_address address = address_of(memory, 0);
  (void)size;
  if (nvm_cuda_forked()) return; /* another thread may have had the lock */
  pthread_mutex_lock(&d->lock);
  inner_block **at = &d->inner;
  while (*at && (*at)->address != address) at = &(*at)->next;
  inner_block *block = *at;
  if (block) *at = block->next;
  pthread_mutex_unlock(&d->lock);
  if (block) address = block->outer;
  nvm_free(block);
  if (d->cu->context_push(d->context) != CU_SUCCESS) return;
  give(d, address);
  end(d);
}

/* --- the stream ------------------------------------------------------------------------------- */

/* What kernels reported since the last time; the record was read. */
static nvm_status report(cuda_device *d) {
  const nvm_device_fault found = *d->found;
  cu_result result = CU_SUCCESS;
  if (found.code != 0)
    result = d->cu->set32(d->fault, 0, sizeof found / sizeof(uint32_t), d->stream);
  if (result != CU_SUCCESS) return failed(d, result, "clearing the fault record");
  return nvm_gpu_report(&d->gpu, &found);
}

/* Wait for the stream, and for the faults of what it ran. */
static nvm_status finish(cuda_device *d) {
  const int reads = d->gpu.may_have_fault;
  cu_result result = CU_SUCCESS;
  if (reads) result = d->cu->copy_out(d->found, d->fault, sizeof *d->found, d->stream);
  if (result != CU_SUCCESS) return failed(d, result, "reading the fault record");
  result = d->cu->stream_sync(d->stream);
  if (result != CU_SUCCESS) return failed(d, result, "waiting for queued work");
  d->staged = 0;
  d->gpu.queued = 0;
  return reads ? report(d) : NVM_OK;
}

static nvm_status cuda_sync(nvm_device *device) {
  cuda_device *d = of(device);
  NVM_TRY(begin(d));
  const nvm_status status = finish(d);
  end(d);
  return status;
}

/* Only pinned memory can be read later than the call, and whether `src` is pinned is not for us to
 * say. */
static nvm_status copy_staged(cuda_device *d, cu_address dst, const void *src, size_t size) {
  if (size > STAGING - d->staged) {
    const cu_result result = d->cu->stream_sync(d->stream);
    if (result != CU_SUCCESS) return failed(d, result, "waiting for queued work");
    d->staged = 0;
  }
  char *place = d->staging + d->staged;
  memcpy(place, src, size);
  const cu_result result = d->cu->copy_in(dst, place, size, d->stream);
  if (result != CU_SUCCESS) return failed(d, result, "copying to the device");
  d->staged += (size + 63) & ~(size_t)63;
  if (d->staged > STAGING) d->staged = STAGING;
  return NVM_OK;
}

static nvm_status copy_in(cuda_device *d, cu_address dst, const void *src, size_t size) {
  if (size <= MAX_STAGED) return copy_staged(d, dst, src, size);
  cu_result result = d->cu->copy_in(dst, src, size, d->stream);
  if (result == CU_SUCCESS) result = d->cu->stream_sync(d->stream);
  if (result != CU_SUCCESS) return failed(d, result, "copying to the device");
  d->staged = 0;
  return NVM_OK;
}

static nvm_status cuda_copy_in(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                               size_t size) {
  cuda_device *d = of(device);
  if (size == 0) return NVM_OK;
  NVM_TRY(begin(d));
  const nvm_status status = copy_in(d, address_of(dst, dst_offset), src, size);
  end(d);
  return status;
}

static nvm_status cuda_copy_out(nvm_device *device, void *dst, const void *src, size_t src_offset,
                                size_t size) {
  cuda_device *d = of(device);
  NVM_TRY(begin(d));
  cu_result result = CU_SUCCESS;
  if (size) result = d->cu->copy_out(dst, address_of(src, src_offset), size, d->stream);
  const nvm_status status =
      result == CU_SUCCESS ? finish(d) : failed(d, result, "copying from the device");
  end(d);
  return status;
}

static nvm_status cuda_copy_within(nvm_device *device, void *dst, size_t dst_offset,
                                   const void *src, size_t src_offset, size_t size) {
  cuda_device *d = of(device);
  if (size == 0) return NVM_OK;
  NVM_TRY(begin(d));
  const cu_result result =
      d->cu->copy_within(address_of(dst, dst_offset), address_of(src, src_offset), size, d->stream);
  end(d);
  return result == CU_SUCCESS ? NVM_OK : failed(d, result, "copying within the device");
}

/* --- devices ---------------------------------------------------------------------------------- */

/* Give back what `open` got. Errors stay unsaid: there is nobody to tell, and nothing to do about
 * them. */
static void cuda_close(nvm_device *device) {
  cuda_device *d = of(device);
  if (d->retained && !nvm_cuda_forked()) {
    const int current = d->cu->context_push(d->context) == CU_SUCCESS;
    if (current && d->stream) (void)d->cu->stream_sync(d->stream);
    if (current && d->fault) (void)d->cu->free(d->fault);
    if (current && d->found) (void)d->cu->host_free(d->found);
    if (current && d->stream) (void)d->cu->stream_destroy(d->stream);
    if (current) end(d);
    (void)d->cu->context_release(d->device);
  }
  while (d->inner) {
    inner_block *next = d->inner->next;
    nvm_free(d->inner);
    d->inner = next;
  }
  pthread_mutex_destroy(&d->lock);
  nvm_free(d);
}

static cu_result attribute(const cuda_device *d, int number, int *out_value) {
  *out_value = 0;
  return d->cu->device_attribute(out_value, number, d->device);
}

/* What the GPU is. */
static nvm_status describe(cuda_device *d, int32_t ordinal) {
  int count = 0, major = 0, minor = 0;
  cu_result result = d->cu->device_count(&count);
  if (result != CU_SUCCESS) return failed(d, result, "counting devices");
  if (ordinal < 0 || ordinal >= count)
    NVM_FAIL(NVM_DEVICE_ERROR, "cuda: there is no device %d: this machine has %d, from 0", ordinal,
             count);
  result = d->cu->device_get(&d->device, ordinal);
  if (result == CU_SUCCESS) result = d->cu->device_name(d->name, (int)sizeof d->name, d->device);
  if (result == CU_SUCCESS) result = attribute(d, CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major);
  if (result == CU_SUCCESS) result = attribute(d, CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor);
  if (result != CU_SUCCESS) return failed(d, result, "asking for a device");
  d->name[sizeof d->name - 1] = 0;
  d->capability = 10 * major + minor;
  /* Drivers before CUDA 11.2 know no pools, nor this attribute. */
  if (d->cu->alloc_async && d->cu->free_async &&
      attribute(d, CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &d->pools) != CU_SUCCESS)
    d->pools = 0;
  return NVM_OK;
}

static nvm_status make_stream(cuda_device *d) {
  void *pinned = NULL;
  cu_result result = d->cu->stream_create(&d->stream, CU_STREAM_NON_BLOCKING);
  if (result != CU_SUCCESS) return failed(d, result, "making a stream");
  result = d->cu->host_alloc(&pinned, STAGING + sizeof *d->found, 0);
  if (result != CU_SUCCESS) return failed(d, result, "allocating pinned memory");
  d->found = pinned;
  d->staging = (char *)(d->found + 1);
  result = d->cu->alloc(&d->fault, sizeof *d->found);
  if (result == CU_SUCCESS)
    result = d->cu->set32(d->fault, 0, sizeof *d->found / sizeof(uint32_t), d->stream);
  return result == CU_SUCCESS ? NVM_OK : failed(d, result, "allocating the fault record");
}

static nvm_status set_up(cuda_device *d, int32_t ordinal) {
  NVM_TRY(nvm_cuda_driver_get(&d->cu));
  NVM_TRY(describe(d, ordinal));
  const cu_result result = d->cu->context_retain(&d->context, d->device);
  if (result != CU_SUCCESS) return failed(d, result, "retaining the primary context");
  d->retained = 1;
  NVM_TRY(begin(d));
  const nvm_status status = make_stream(d);
  end(d);
  return status;
}

static nvm_status cuda_open(int32_t ordinal, nvm_device **out_device) {
  cuda_device *d = nvm_calloc(sizeof *d);
  if (!d) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a cuda device");
  d->gpu.base.vtable = &vtable;
  pthread_mutex_init(&d->lock, NULL);
  const nvm_status status = set_up(d, ordinal);
  if (status != NVM_OK) {
    cuda_close(&d->gpu.base);
    return status;
  }
  *out_device = &d->gpu.base;
  return NVM_OK;
}

/* --- code ------------------------------------------------------------------------------------- */

/* Close without a driver call that fails leaving anything else undone. */
static void cuda_unload(nvm_device *device, void *module) {
  cuda_device *d = of(device);
  nvm_gpu_module *m = module;
  if (m->program && !nvm_cuda_forked() && d->cu->context_push(d->context) == CU_SUCCESS) {
    (void)d->cu->stream_sync(d->stream);
    (void)d->cu->module_unload(m->program);
    end(d);
  }
  nvm_gpu_module_destroy(&d->gpu, m);
}

/* PTX says which GPUs it is for: ".target sm_70" is compute capability 7.0 and all later ones. */
static nvm_status check_capability(const cuda_device *d, const char *ptx) {
  const char *target = strstr(ptx, ".target sm_");
  const long least = target ? strtol(target + strlen(".target sm_"), NULL, 10) : 0;
  if (d->capability < least)
    NVM_FAIL(NVM_UNSUPPORTED,
             "cuda: the file's code needs compute capability %ld.%ld or later, %s has %d.%d",
             least / 10, least % 10, d->name, d->capability / 10, d->capability % 10);
  return NVM_OK;
}

/* PTX -> machine code of the GPU, with what the driver's compiler says if it does not like it. */
static nvm_status compile(const cuda_device *d, const char *ptx, void **out_program) {
  char text[LOG_BYTES] = "", what[LOG_BYTES + 256];
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {text, (void *)(uintptr_t)sizeof text};
  cu_module loaded = NULL;
  const cu_result result = d->cu->module_load(&loaded, ptx, 2, options, values);
  if (result == CU_SUCCESS) {
    *out_program = loaded;
    return NVM_OK;
  }
  text[sizeof text - 1] = 0;
  int version = 0;
  (void)d->cu->driver_version(&version);
  snprintf(what, sizeof what, "compiling the file's PTX for %s (driver of CUDA %d.%d)%s%s", d->name,
           version / 1000, version % 1000 / 10, *text ? ": " : "", text);
  return failed(d, result, what);
}

static nvm_status find_entry(nvm_gpu *gpu, const nvm_gpu_module *m, const nvm_device_launch *launch,
                             void **out_entry) {
  const cuda_device *d = of(&gpu->base);
  cu_function entry = NULL;
  const cu_result result = d->cu->module_function(&entry, m->program, launch->entry);
  if (result != CU_SUCCESS) return failed(d, result, launch->entry);
  *out_entry = entry;
  return NVM_OK;
}

static nvm_status build(cuda_device *d, nvm_gpu_module *m) {
  NVM_TRY(check_capability(d, m->code.source));
  NVM_TRY(begin(d));
  nvm_status status = compile(d, m->code.source, &m->program);
  if (status == NVM_OK) status = nvm_gpu_find_entries(&d->gpu, m, find_entry);
  end(d);
  return status;
}

static nvm_status cuda_load(nvm_device *device, const nvm_device_section *section,
                            void **out_module) {
  cuda_device *d = of(device);
  nvm_gpu_module *m = NULL;
  NVM_TRY(nvm_gpu_module_create(&d->gpu, section, &m));
  const nvm_status status = build(d, m);
  if (status != NVM_OK) {
    cuda_unload(device, m);
    return status;
  }
  *out_module = m;
  return NVM_OK;
}

static nvm_status launch_one(cuda_device *d, const nvm_kernel_ctx *ctx,
                             const nvm_gpu_kernel *kernel, uint32_t number, void *const *bufs,
                             int64_t *dims) {
  const nvm_device_launch *launch = &kernel->code->launches[number];
  void *parameters[NVM_MAX_OPERANDS + 1 + NVM_MAX_LAUNCH_DIMS];
  uint32_t groups[3], n = 0;
  NVM_TRY(nvm_device_grid(launch, kernel->signature, dims, groups));
  if (groups[0] == 0) return NVM_OK;
  if (groups[1] > MAX_GROUPS_YZ || groups[2] > MAX_GROUPS_YZ)
    NVM_FAIL(NVM_UNSUPPORTED,
             "cuda: %s needs a grid of %u x %u x %u groups, at most %d along y and z",
             launch->entry, groups[0], groups[1], groups[2], MAX_GROUPS_YZ);
  NVM_TRY(nvm_gpu_admit(&d->gpu, ctx));
  /* Each points to 8 bytes, which the driver copies; it writes to none. */
  for (uint32_t i = 0; i < launch->n_operands; i++)
    parameters[n++] = (void *)(uintptr_t)&bufs[launch->operands[i]];
  if (launch->can_fail) parameters[n++] = &d->fault;
  for (uint32_t i = 0; i < launch->n_dims; i++) parameters[n++] = &dims[launch->dims[i]];
  const cu_result result =
      d->cu->launch(kernel->entries[number], groups[0], groups[1], groups[2], launch->block[0],
                    launch->block[1], launch->block[2], 0, d->stream, parameters, NULL);
  if (result != CU_SUCCESS) return failed(d, result, launch->entry);
  d->gpu.may_have_fault |= launch->can_fail;
  return NVM_OK;
}

static nvm_status cuda_launch(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                              const void *code, void *const *bufs, int64_t *dims) {
  cuda_device *d = of(device);
  const nvm_gpu_kernel *kernel = code;
  (void)fn;
  NVM_TRY(begin(d));
  nvm_status status = NVM_OK;
  for (uint32_t i = 0; i < kernel->code->n_launches && status == NVM_OK; i++)
    status = launch_one(d, ctx, kernel, i, bufs, dims);
  end(d);
  return status;
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "cuda",
                                         .dl_device_type = 2,
                                         .open = cuda_open,
                                         .close = cuda_close,
                                         .alloc = cuda_alloc,
                                         .free = cuda_free,
                                         .copy_from_host = cuda_copy_in,
                                         .copy_to_host = cuda_copy_out,
                                         .copy_within = cuda_copy_within,
                                         .sync = cuda_sync,
                                         .load_module = cuda_load,
                                         .unload_module = cuda_unload,
                                         .find_kernel = nvm_gpu_find_kernel,
                                         .launch = cuda_launch,
                                         .check_code = nvm_gpu_check_code};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_cuda;
const nvm_device_vtable *const nvm_device_cuda = &vtable;
