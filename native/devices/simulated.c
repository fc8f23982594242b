/* A device that is the host in disguise: memory of its own at addresses that the host can't read (a
 * pointer used directly faults), kernels run as host functions on it. For tests of where values
 * live: what takes device memory for its own crashes, and what copies is counted (nvm_vm_stats). */
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "call.h"
#include "nvm_device.h"

static const nvm_device_vtable vtable;

/* No address of a program has this bit, on x86-64 or aarch64. */
#define HIDDEN ((uintptr_t)1 << 52)

static void *hide(void *memory) { return (void *)((uintptr_t)memory | HIDDEN); }

static char *shown(const void *memory) { return (char *)((uintptr_t)memory & ~HIDDEN); }

static nvm_status simulated_open(int32_t ordinal, nvm_device **out_device) {
  if (ordinal != 0)
    NVM_FAIL(NVM_DEVICE_ERROR, "there is one simulated device, 0; asked for %d", ordinal);
  nvm_device *self = nvm_malloc(sizeof *self);
  if (!self) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a simulated device");
  self->vtable = &vtable;
  *out_device = self;
  return NVM_OK;
}

static void simulated_close(nvm_device *self) { nvm_free(self); }

static nvm_status simulated_alloc(nvm_device *self, size_t size, size_t alignment,
                                  void **out_memory) {
  (void)self;
  size_t rounded = (size + alignment - 1) & ~(alignment - 1);
  void *memory = nvm_allocation_allowed() ? aligned_alloc(alignment, rounded) : NULL;
  if (!memory) NVM_FAIL(NVM_OUT_OF_MEMORY, "the system gave no memory for %zu bytes", size);
  *out_memory = hide(memory);
  return NVM_OK;
}

static void simulated_free(nvm_device *self, void *memory, size_t size) {
  (void)self;
  (void)size;
  free(shown(memory));
}

static nvm_status simulated_copy_in(nvm_device *self, void *dst, size_t dst_offset, const void *src,
                                    size_t size) {
  (void)self;
  memcpy(shown(dst) + dst_offset, src, size);
  return NVM_OK;
}

static nvm_status simulated_copy_out(nvm_device *self, void *dst, const void *src,
                                     size_t src_offset, size_t size) {
  (void)self;
  memcpy(dst, shown(src) + src_offset, size);
  return NVM_OK;
}

static nvm_status simulated_copy_within(nvm_device *self, void *dst, size_t dst_offset,
                                        const void *src, size_t src_offset, size_t size) {
  (void)self;
  memcpy(shown(dst) + dst_offset, shown(src) + src_offset, size);
  return NVM_OK;
}

static nvm_status simulated_sync(nvm_device *self) {
  (void)self;
  return NVM_OK;
}

static nvm_status simulated_launch(nvm_device *self, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                                   const void *code, void *const *bufs, int64_t *dims) {
  (void)self;
  (void)code;
  void *real[NVM_MAX_OPERANDS];
  const uint32_t count = ((const nvm_call *)ctx)->kernel->signature.n_operands;
  for (uint32_t i = 0; i < count; i++) real[i] = shown(bufs[i]);
  return fn(ctx, real, dims);
}

static const nvm_device_vtable vtable = {.api_version = NVM_DEVICE_API_VERSION,
                                         .name = "simulated",
                                         .host_code = 1,
                                         .dl_device_type = 12, /* kDLExtDev */
                                         .open = simulated_open,
                                         .close = simulated_close,
                                         .alloc = simulated_alloc,
                                         .free = simulated_free,
                                         .copy_from_host = simulated_copy_in,
                                         .copy_to_host = simulated_copy_out,
                                         .copy_within = simulated_copy_within,
                                         .sync = simulated_sync,
                                         .launch = simulated_launch};

/* registry.c */
extern const nvm_device_vtable *const nvm_device_simulated;
const nvm_device_vtable *const nvm_device_simulated = &vtable;
