/* OpenCL devices: opencl.py's kernels in one in-order queue, memory as buffers of the driver.
 *
 * A buffer of OpenCL is a handle and no address, while the VM adds offsets to memory. So each
 * buffer gets a reserved range of addresses that nobody may touch; a sorted table leads from an
 * address to the buffer and the offset in it, which kernels get as two arguments. */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc.h"
#include "gpu.h"
#include "opencl_api.h"

#define STAGED_BYTES ((size_t)1 << 16) /* copies up to this size do not wait for the queue */
#define STAGED_TOTAL ((size_t)1 << 24) /* staged bytes after which they do */
enum { FLUSH_EVERY = 16 };

typedef struct range {
  char *begin;
  size_t size;
  cl_mem buffer;
} range;

typedef struct staged {
  struct staged *next;
} staged;

typedef struct opencl_device {
  nvm_gpu gpu;
  const nvm_opencl *cl;
  cl_device_id device;
  cl_context context;
  cl_command_queue queue;
  cl_mem fault; /* an nvm_device_fault */
  uint32_t launches;
  staged *staged; /* host memory that queued copies read */
  size_t staged_bytes;
  pthread_mutex_t lock;
  range *ranges; /* by address, under lock, as all below */
  size_t n_ranges, capacity;
} opencl_device;

static const nvm_device_vtable vtable;

static opencl_device *of(nvm_device *device) { return (opencl_device *)device; }

/* --- memory ----------------------------------------------------------------------------------- */

/* The number of the first range behind `address`. */
static size_t behind(const opencl_device *d, const char *address) {
  size_t low = 0, high = d->n_ranges;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (d->ranges[middle].begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* The buffer that an address lies in. NULL, offset 0: none, as for tensors of no bytes. */
static cl_mem lookup(opencl_device *d, const void *address, size_t *out_offset) {
  cl_mem found = NULL;
  *out_offset = 0;
  pthread_mutex_lock(&d->lock);
  const size_t at = behind(d, address);
  if (at > 0) {
    const range *r = &d->ranges[at - 1];
    const size_t offset = (size_t)((const char *)address - r->begin);
    if (offset < r->size) {
      found = r->buffer;
      *out_offset = offset;
    }
  }
  pthread_mutex_unlock(&d->lock);
  return found;
}

static nvm_status add_range(opencl_device *d, range added) {
  nvm_status status = NVM_OK;
  pthread_mutex_lock(&d->lock);
  if (d->n_ranges == d->capacity) {
    const size_t capacity = d->capacity ? 2 * d->capacity : 64;
    range *grown = nvm_realloc(d->ranges, capacity * sizeof *grown);
    if (grown) {
      d->ranges = grown;
      d->capacity = capacity;
    } else {
      status = nvm_fail(NVM_OUT_OF_MEMORY, "no memory for a table of buffers");
    }
  }
  if (status == NVM_OK) {
    const size_t at = behind(d, added.begin);
    memmove(&d->ranges[at + 1], &d->ranges[at], (d->n_ranges - at) * sizeof added);
    d->ranges[at] = added;
    d->n_ranges++;
  }
  pthread_mutex_unlock(&d->lock);
  return status;
}

static size_t reserved(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (size + page - 1) / page * page;
}

static nvm_status opencl_alloc(nvm_device *device, size_t size, size_t alignment,
                               void **out_memory) {
  opencl_device *d = of(device);
  (void)alignment; /* ranges begin with a page, the driver's buffers at its own largest alignment */
  NVM_TRY(nvm_opencl_check_process());
  if (!nvm_allocation_allowed())
    NVM_FAIL(NVM_OUT_OF_MEMORY, "opencl: no memory for %zu bytes", size);
  int32_t error = 0;
  cl_mem buffer = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, size, NULL, &error);
  if (!buffer) return nvm_opencl_fail(error, "a buffer");
  char *begin =
      mmap(NULL, reserved(size), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  nvm_status status = NVM_OK;
  if (begin == MAP_FAILED)
    status = nvm_fail(NVM_OUT_OF_MEMORY, "opencl: no addresses for %zu bytes", size);
  else
    status = add_range(d, (range){begin, size, buffer});
  if (status != NVM_OK) {
    if (begin != MAP_FAILED) munmap(begin, reserved(size));
    d->cl->ReleaseMemObject(buffer);
    return status;
  }
  *out_memory = begin;
  return NVM_OK;
}

/* The driver keeps a released buffer until what is queued has used it. */
static void opencl_free(nvm_device *device, void *memory, size_t size) {
  opencl_device *d = of(device);
  cl_mem buffer = NULL;
  if (nvm_opencl_forked()) return; /* another thread may have had the lock */
  pthread_mutex_lock(&d->lock);
  const size_t at = behind(d, memory);
  if (at > 0 && d->ranges[at - 1].begin == (char *)memory) {
    buffer = d->ranges[at - 1].buffer;
    d->n_ranges--;
    memmove(&d->ranges[at - 1], &d->ranges[at], (d->n_ranges - (at - 1)) * sizeof *d->ranges);
  }
  pthread_mutex_unlock(&d->lock);
  if (!buffer) return;
  munmap(memory, reserved(size));
  d->cl->ReleaseMemObject(buffer);
}

/* --- the queue -------------------------------------------------------------------------------- */

/* Once everything queued has run. */
static void drop_staged(opencl_device *d) {
  while (d->staged) {
    staged *next = d->staged->next;
    nvm_free(d->staged);
    d->staged = next;
  }
  d->staged_bytes = 0;
}

/* What kernels reported since the last time; everything queued has run. */
static nvm_status check_faults(opencl_device *d) {
  drop_staged(d);
  d->gpu.queued = 0;
  if (!d->gpu.may_have_fault) return NVM_OK;
  nvm_device_fault found, none = {0};
  int32_t error =
      d->cl->EnqueueReadBuffer(d->queue, d->fault, 1, 0, sizeof found, &found, 0, NULL, NULL);
  if (error == 0 && found.code != 0)
    error = d->cl->EnqueueWriteBuffer(d->queue, d->fault, 1, 0, sizeof none, &none, 0, NULL, NULL);
  if (error != 0) return nvm_opencl_fail(error, "reading the fault record");
  return nvm_gpu_report(&d->gpu, &found);
}

static nvm_status opencl_sync(nvm_device *device) {
  opencl_device *d = of(device);
  NVM_TRY(nvm_opencl_check_process());
  const int32_t error = d->cl->Finish(d->queue);
  if (error != 0) return nvm_opencl_fail(error, "waiting for queued work");
  return check_faults(d);
}

static nvm_status no_buffer(const char *what) {
  NVM_FAIL(NVM_DEVICE_ERROR, "opencl: %s: the address is none of this device", what);
}

/* Bytes that a queued copy may read after the caller has gone on. NULL: copy at once. */
static const void *stage(opencl_device *d, const void *src, size_t size) {
  if (size > STAGED_BYTES || d->staged_bytes > STAGED_TOTAL) return NULL;
  staged *block = nvm_malloc(sizeof *block + size);
  if (!block) return NULL;
  memcpy(block + 1, src, size);
  block->next = d->staged;
  d->staged = block;
  d->staged_bytes += size;
  return block + 1;
}

static nvm_status opencl_copy_in(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                                 size_t size) {
  opencl_device *d = of(device);
  size_t offset = 0;
  if (size == 0) return NVM_OK;
  NVM_TRY(nvm_opencl_check_process());
  cl_mem buffer = lookup(d, (char *)dst + dst_offset, &offset);
  if (!buffer) return no_buffer("a copy to it");
  const void *copy = stage(d, src, size);
  const int32_t error = d->cl->EnqueueWriteBuffer(d->queue, buffer, copy == NULL, offset, size,
                                                  copy ? copy : src, 0, NULL, NULL);
  return error == 0 ? NVM_OK : nvm_opencl_fail(error, "a copy to the device");
}

static nvm_status opencl_copy_out(nvm_device *device, void *dst, const void *src, size_t src_offset,
                                  size_t size) {
  opencl_device *d = of(device);
  size_t offset = 0;
  if (size == 0) return opencl_sync(device);
  NVM_TRY(nvm_opencl_check_process());
  cl_mem buffer = lookup(d, (const char *)src + src_offset, &offset);
  if (!buffer) return no_buffer("a copy from it");
  const int32_t error =
      d->cl->EnqueueReadBuffer(d->queue, buffer, 1, offset, size, dst, 0, NULL, NULL);
  if (error != 0) return nvm_opencl_fail(error, "a copy from the device");
  return check_faults(d);
}

static nvm_status opencl_copy_within(nvm_device *device, void *dst, size_t dst_offset,
                                     const void *src, size_t src_offset, size_t size) {
  opencl_device *d = of(device);
  size_t from = 0, to = 0;
  if (size == 0) return NVM_OK;
  NVM_TRY(nvm_opencl_check_process());
  cl_mem source = lookup(d, (const char *)src + src_offset, &from);
  cl_mem target = lookup(d, (char *)dst + dst_offset, &to);
  if (!source || !target) return no_buffer("a copy within it");
  const int32_t error =
      d->cl->EnqueueCopyBuffer(d->queue, source, target, from, to, size, 0, NULL, NULL);
  return error == 0 ? NVM_OK : nvm_opencl_fail(error, "a copy within the device");
}

/* --- devices ---------------------------------------------------------------------------------- */

static void opencl_close(nvm_device *device) {
  opencl_device *d = of(device);
  const int ours = !nvm_opencl_forked();
  if (ours && d->queue) (void)d->cl->Finish(d->queue);
  drop_staged(d);
  for (size_t i = 0; i < d->n_ranges; i++) {
    munmap(d->ranges[i].begin, reserved(d->ranges[i].size));
    if (ours) d->cl->ReleaseMemObject(d->ranges[i].buffer);
  }
  nvm_free(d->ranges);
  if (ours && d->fault) d->cl->ReleaseMemObject(d->fault);
  if (ours && d->queue) d->cl->ReleaseCommandQueue(d->queue);
  if (ours && d->context) d->cl->ReleaseContext(d->context);
  pthread_mutex_destroy(&d->lock);
  nvm_free(d);
}

static nvm_status set_up(opencl_device *d, int32_t ordinal) {
  const nvm_device_fault none = {0};
  int32_t error = 0;
  NVM_TRY(nvm_opencl_get(&d->cl));
  NVM_TRY(nvm_opencl_device(d->cl, ordinal, &d->device));
  d->context = d->cl->CreateContext(NULL, 1, &d->device, NULL, NULL, &error);
  if (!d->context) return nvm_opencl_fail(error, "a context");
  d->queue = d->cl->CreateCommandQueue(d->context, d->device, 0, &error);
  if (!d->queue) return nvm_opencl_fail(error, "a queue");
  d->fault = d->cl->CreateBuffer(d->context, CL_MEM_READ_WRITE, sizeof none, NULL, &error);
  if (!d->fault) return nvm_opencl_fail(error, "a buffer");
  error = d->cl->EnqueueWriteBuffer(d->queue, d->fault, 1, 0, sizeof none, &none, 0, NULL, NULL);
  return error == 0 ? NVM_OK : nvm_opencl_fail(error, "a copy to the device");
}

static nvm_status opencl_open(int32_t ordinal, nvm_device **out_device) {
  NVM_TRY(nvm_opencl_check_process()); /* before a lock that another thread may have had */
  opencl_device *d = nvm_calloc(sizeof *d);
  if (!d) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for an opencl device");
  d->gpu.base.vtable = &vtable;
  pthread_mutex_init(&d->lock, NULL);
  /* Drivers start when their devices are first asked for; PoCL's can't do that twice at once. */
  static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&opening);
  const nvm_status status = set_up(d, ordinal);
  pthread_mutex_unlock(&opening);
  if (status != NVM_OK) {
    opencl_close(&d->gpu.base);
    return status;
  }
  *out_device = &d->gpu.base;
  return NVM_OK;
}

/* --- code ------------------------------------------------------------------------------------- */

static void opencl_unload(nvm_device *device, void *module) {
  opencl_device *d = of(device);
  nvm_gpu_module *m = module;
  const int ours = !nvm_opencl_forked();
  if (ours) (void)d->cl->Finish(d->queue);
  for (uint32_t k = 0; ours && k < m->code.n_kernels; k++) {
    const nvm_gpu_kernel *kernel = &m->kernels[k];
    for (uint32_t i = 0; i < kernel->code->n_launches; i++)
      if (kernel->entries[i]) d->cl->ReleaseKernel(kernel->entries[i]);
  }
  if (ours && m->program) d->cl->ReleaseProgram(m->program);
  nvm_gpu_module_destroy(&d->gpu, m);
}

/* One entry of the program, if the device can run it. */
static nvm_status find_entry(nvm_gpu *gpu, const nvm_gpu_module *m, const nvm_device_launch *launch,
                             void **out_entry) {
  const opencl_device *d = of(&gpu->base);
  char name[128];
  int32_t error = 0;
  size_t most = 0;
  const size_t threads = (size_t)launch->block[0] * launch->block[1] * launch->block[2];
  nvm_opencl_text(d->cl, d->device, CL_DEVICE_NAME, name, sizeof name);
  *out_entry = d->cl->CreateKernel(m->program, launch->entry, &error);
  if (error == CL_INVALID_KERNEL_NAME)
    NVM_FAIL(NVM_UNSUPPORTED, "opencl: %s has no doubles (cl_khr_fp64), which the file's %s needs",
             name, launch->entry);
  if (!*out_entry) return nvm_opencl_fail(error, launch->entry);
  error = d->cl->GetKernelWorkGroupInfo(*out_entry, d->device, CL_KERNEL_WORK_GROUP_SIZE,
                                        sizeof most, &most, NULL);
  if (error != 0) return nvm_opencl_fail(error, launch->entry);
  if (threads > most)
    NVM_FAIL(NVM_UNSUPPORTED, "opencl: %s can't run %zu threads of %s together, only %zu", name,
             threads, launch->entry, most);
  const uint64_t memory = nvm_opencl_number(d->cl, d->device, CL_DEVICE_LOCAL_MEM_SIZE, 8);
  if (launch->shared_bytes > memory)
    NVM_FAIL(NVM_UNSUPPORTED, "opencl: %s has %llu bytes of local memory, %s needs %u", name,
             (unsigned long long)memory, launch->entry, launch->shared_bytes);
  return NVM_OK;
}

static nvm_status build(opencl_device *d, nvm_gpu_module *m) {
  cl_program program = NULL;
  NVM_TRY(nvm_opencl_build(d->cl, d->context, d->device, m->code.source, m->code.source_size,
                           &program));
  m->program = program;
  return nvm_gpu_find_entries(&d->gpu, m, find_entry);
}

static nvm_status opencl_load(nvm_device *device, const nvm_device_section *section,
                              void **out_module) {
  opencl_device *d = of(device);
  nvm_gpu_module *m = NULL;
  NVM_TRY(nvm_gpu_module_create(&d->gpu, section, &m));
  const nvm_status status = build(d, m);
  if (status != NVM_OK) {
    opencl_unload(device, m);
    return status;
  }
  *out_module = m;
  return NVM_OK;
}

/* --- launches --------------------------------------------------------------------------------- */

static int32_t set_args(opencl_device *d, const nvm_device_launch *launch, cl_kernel entry,
                        void *const *bufs, const int64_t *dims) {
  uint32_t at = 0;
  int32_t error = 0;
  for (uint32_t i = 0; i < launch->n_operands && error == 0; i++) {
    size_t offset = 0;
    const cl_mem buffer = lookup(d, bufs[launch->operands[i]], &offset);
    const int64_t bytes = (int64_t)offset;
    error = d->cl->SetKernelArg(entry, at++, sizeof buffer, &buffer);
    if (error == 0) error = d->cl->SetKernelArg(entry, at++, sizeof bytes, &bytes);
  }
  if (launch->can_fail && error == 0)
    error = d->cl->SetKernelArg(entry, at++, sizeof d->fault, &d->fault);
  for (uint32_t i = 0; i < launch->n_dims && error == 0; i++)
    error = d->cl->SetKernelArg(entry, at++, sizeof *dims, &dims[launch->dims[i]]);
  return error;
}

static nvm_status opencl_launch(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                                const void *code, void *const *bufs, int64_t *dims) {
  opencl_device *d = of(device);
  const nvm_gpu_kernel *kernel = code;
  (void)fn;
  NVM_TRY(nvm_opencl_check_process());
  for (uint32_t i = 0; i < kernel->code->n_launches; i++) {
    const nvm_device_launch *launch = &kernel->code->launches[i];
    uint32_t groups[3];
    size_t whole[3], local[3];
    NVM_TRY(nvm_device_grid(launch, kernel->signature, dims, groups));
    if (!groups[0]) continue;
    NVM_TRY(nvm_gpu_admit(&d->gpu, ctx));
    for (int axis = 0; axis < 3; axis++) {
      local[axis] = launch->block[axis];
      whole[axis] = local[axis] * groups[axis];
    }
    int32_t error = set_args(d, launch, kernel->entries[i], bufs, dims);
    if (error == 0)
      error = d->cl->EnqueueNDRangeKernel(d->queue, kernel->entries[i], 3, NULL, whole, local, 0,
                                          NULL, NULL);
    if (error != 0) return nvm_opencl_fail(error, kernel->name);
    d->gpu.may_have_fault |= launch->can_fail;
    if (++d->launches % FLUSH_EVERY == 0) (void)d->cl->Flush(d->queue);
  }
  return NVM_OK;
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "opencl",
                                         .host_accessible = 0,
                                         .host_code = 0,
                                         .dl_device_type = 4,
                                         .open = opencl_open,
                                         .close = opencl_close,
                                         .alloc = opencl_alloc,
                                         .free = opencl_free,
                                         .copy_from_host = opencl_copy_in,
                                         .copy_to_host = opencl_copy_out,
                                         .copy_within = opencl_copy_within,
                                         .sync = opencl_sync,
                                         .load_module = opencl_load,
                                         .unload_module = opencl_unload,
                                         .find_kernel = nvm_gpu_find_kernel,
                                         .launch = opencl_launch,
                                         .check_code = nvm_gpu_check_code};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_opencl;
const nvm_device_vtable *const nvm_device_opencl = &vtable;
