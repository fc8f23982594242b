/* What a device backend provides: one const vtable. A backend is one C file plus its kernels.
 *
 * All entries return nvm_status and are synchronous unless they say otherwise. Pointers into device
 * memory are opaque to the host unless `host_accessible` is set. An entry marked (optional) may be
 * NULL; its default is stated.
 */
#ifndef NVM_DEVICE_H
#define NVM_DEVICE_H

#include "nvm_kernel.h"

#define NVM_DEVICE_API_VERSION 1u

typedef struct nvm_device nvm_device;

typedef struct nvm_device_vtable {
  uint32_t api_version;    /* NVM_DEVICE_API_VERSION */
  const char *name;        /* "cpu", "null", ... */
  uint8_t host_accessible; /* memory can be read and written by the host directly */
  uint32_t dl_device_type; /* DLPack's number */

  /* Open device `ordinal` of this kind. out_device: owned, closed by `close`. */
  nvm_status (*open)(int32_t ordinal, nvm_device **out_device);
  void (*close)(nvm_device *device);

  /* size > 0 bytes, aligned to `alignment` (a power of two <= 4096). Errors: NVM_OUT_OF_MEMORY. */
  nvm_status (*alloc)(nvm_device *device, size_t size, size_t alignment, void **out_memory);
  void (*free)(nvm_device *device, void *memory, size_t size);

  /* Copies of size bytes; the memories do not overlap. May be queued; `sync` waits. */
  nvm_status (*copy_from_host)(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                               size_t size);
  nvm_status (*copy_to_host)(nvm_device *device, void *dst, const void *src, size_t src_offset,
                             size_t size);
  nvm_status (*copy_within)(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                            size_t src_offset, size_t size);
  /* Wait for all queued work. */
  nvm_status (*sync)(nvm_device *device);

  /* (optional, default NVM_UNSUPPORTED) Load device code; out_module owned, freed by unload_module.
   */
  nvm_status (*load_module)(nvm_device *device, const void *code, size_t size, void **out_module);
  void (*unload_module)(nvm_device *device, void *module);
  /* Run a kernel. fn is the host function (cpu) or NULL; module and name identify device code. May
   * be queued. */
  nvm_status (*launch)(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                       void *module, const char *name, void *const *bufs, int64_t *dims);
  /* (optional, default 0) Can this device run that kernel? */
  int (*supports)(nvm_device *device, const char *kernel, const nvm_signature *signature);
} nvm_device_vtable;

struct nvm_device {
  const nvm_device_vtable *vtable; /* first member of every backend's own struct */
};

/* registry.c: the backends built in. NULL if there is none of that name. */
const nvm_device_vtable *nvm_device_find(const char *name);
size_t nvm_device_count(void);
const nvm_device_vtable *nvm_device_at(size_t index);

#endif
