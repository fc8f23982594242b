/* The host: memory from the C library, kernels called in place. */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "nvm_device.h"

static const nvm_device_vtable vtable;
static nvm_device device = {&vtable};

static nvm_status cpu_open(int32_t ordinal, nvm_device **out_device) {
  if (ordinal != 0) NVM_FAIL(NVM_DEVICE_ERROR, "there is one cpu device, 0; asked for %d", ordinal);
  *out_device = &device;
  return NVM_OK;
}

static void cpu_close(nvm_device *self) { (void)self; }

static nvm_status cpu_alloc(nvm_device *self, size_t size, size_t alignment, void **out_memory) {
  (void)self;
  size_t rounded = (size + alignment - 1) & ~(alignment - 1);
  void *memory = nvm_allocation_allowed() ? aligned_alloc(alignment, rounded) : NULL;
  if (!memory) NVM_FAIL(NVM_OUT_OF_MEMORY, "the system gave no memory for %zu bytes", size);
  *out_memory = memory;
  return NVM_OK;
}

static void cpu_free(nvm_device *self, void *memory, size_t size) {
  (void)self;
  (void)size;
  free(memory);
}

static nvm_status cpu_copy_in(nvm_device *self, void *dst, size_t dst_offset, const void *src,
                              size_t size) {
  (void)self;
  memcpy((char *)dst + dst_offset, src, size);
  return NVM_OK;
}

static nvm_status cpu_copy_out(nvm_device *self, void *dst, const void *src, size_t src_offset,
                               size_t size) {
  (void)self;
  memcpy(dst, (const char *)src + src_offset, size);
  return NVM_OK;
}

static nvm_status cpu_copy_within(nvm_device *self, void *dst, size_t dst_offset, const void *src,
                                  size_t src_offset, size_t size) {
  (void)self;
  memcpy((char *)dst + dst_offset, (const char *)src + src_offset, size);
  return NVM_OK;
}

static nvm_status cpu_sync(nvm_device *self) {
  (void)self;
  return NVM_OK;
}

static nvm_status cpu_launch(nvm_device *self, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                             const void *code, void *const *bufs, int64_t *dims) {
  (void)self;
  (void)code;
  return fn(ctx, bufs, dims);
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "cpu",
                                         .host_accessible = 1,
                                         .host_code = 1,
                                         .dl_device_type = 1,
                                         .open = cpu_open,
                                         .close = cpu_close,
                                         .alloc = cpu_alloc,
                                         .free = cpu_free,
                                         .copy_from_host = cpu_copy_in,
                                         .copy_to_host = cpu_copy_out,
                                         .copy_within = cpu_copy_within,
                                         .sync = cpu_sync,
                                         .launch = cpu_launch};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_cpu;
const nvm_device_vtable *const nvm_device_cpu = &vtable;
