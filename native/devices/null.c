/* Records calls and computes nothing: the skeleton to clone for a new backend, and a target for
 * tests that only compile. Memory is real and zeroed, so that whole programs run; kernels leave
 * their outputs as they are. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "nvm_api.h"
#include "nvm_device.h"
#include "status.h"

#include "null.h"

static const nvm_device_vtable vtable;

typedef struct null_device {
  nvm_device base;
  nvm_null_counts *counts;
} null_device;

/* Counts of the whole process: a test reads differences. */
static nvm_null_counts totals;

const nvm_null_counts *nvm_null_totals(void) { return &totals; }

NVM_EXPORT void nvm_null_record_get(nvm_null_record *out_record) {
  *out_record = (nvm_null_record){.allocs = atomic_load(&totals.allocs),
                                  .frees = atomic_load(&totals.frees),
                                  .copies = atomic_load(&totals.copies),
                                  .syncs = atomic_load(&totals.syncs),
                                  .launches = atomic_load(&totals.launches)};
}

static void count(atomic_ullong *counter) {
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static nvm_status null_open(int32_t ordinal, nvm_device **out_device) {
  (void)ordinal;
  null_device *self = nvm_malloc(sizeof *self);
  if (!self) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a null device");
  self->base.vtable = &vtable;
  self->counts = &totals;
  *out_device = &self->base;
  return NVM_OK;
}

static void null_close(nvm_device *device) { nvm_free(device); }

static nvm_status null_alloc(nvm_device *device, size_t size, size_t alignment, void **out_memory) {
  count(&((null_device *)device)->counts->allocs);
  size_t rounded = (size + alignment - 1) & ~(alignment - 1);
  void *memory = nvm_allocation_allowed() ? aligned_alloc(alignment, rounded) : NULL;
  if (!memory) NVM_FAIL(NVM_OUT_OF_MEMORY, "the system gave no memory for %zu bytes", size);
  memset(memory, 0, rounded);
  *out_memory = memory;
  return NVM_OK;
}

static void null_free(nvm_device *device, void *memory, size_t size) {
  (void)size;
  count(&((null_device *)device)->counts->frees);
  free(memory);
}

static nvm_status null_copy_in(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                               size_t size) {
  count(&((null_device *)device)->counts->copies);
  memcpy((char *)dst + dst_offset, src, size);
  return NVM_OK;
}

static nvm_status null_copy_out(nvm_device *device, void *dst, const void *src, size_t src_offset,
                                size_t size) {
  count(&((null_device *)device)->counts->copies);
  memcpy(dst, (const char *)src + src_offset, size);
  return NVM_OK;
}

static nvm_status null_copy_within(nvm_device *device, void *dst, size_t dst_offset,
                                   const void *src, size_t src_offset, size_t size) {
  count(&((null_device *)device)->counts->copies);
  memcpy((char *)dst + dst_offset, (const char *)src + src_offset, size);
  return NVM_OK;
}

static nvm_status null_sync(nvm_device *device) {
  count(&((null_device *)device)->counts->syncs);
  return NVM_OK;
}

static nvm_status null_launch(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                              const void *code, void *const *bufs, int64_t *dims) {
  (void)ctx;
  (void)fn;
  (void)code;
  (void)bufs;
  (void)dims;
  count(&((null_device *)device)->counts->launches);
  return NVM_OK;
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "null",
                                         .host_accessible = 1,
                                         .host_code = 1,
                                         .dl_device_type = 1,
                                         .open = null_open,
                                         .close = null_close,
                                         .alloc = null_alloc,
                                         .free = null_free,
                                         .copy_from_host = null_copy_in,
                                         .copy_to_host = null_copy_out,
                                         .copy_within = null_copy_within,
                                         .sync = null_sync,
                                         .launch = null_launch};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_null;
const nvm_device_vtable *const nvm_device_null = &vtable;
