/* What a device backend provides: one const vtable. A backend is one C file plus its kernels
 * (docs/device.md).
 *
 * All entries return nvm_status and are synchronous unless they say otherwise. Queued work of one
 * device runs in the order in which it was queued. Pointers into device memory are opaque to the
 * host unless `host_accessible` is set, but the host adds byte offsets to them and compares them.
 * An entry marked (optional) may be NULL; its default is stated. A device is used by one thread at
 * a time, not always the same one; `free` alone may be called from any thread at any time. Faults
 * of a driver are NVM_DEVICE_ERROR with the driver's own text.
 */
#ifndef NVM_DEVICE_H
#define NVM_DEVICE_H

#include "nvm_api.h"
#include "nvm_kernel.h"

#define NVM_DEVICE_API_VERSION 3u

typedef struct nvm_device nvm_device;

/* Kinds of a file's sections that backends get (docs/format.md). */
enum { NVM_SECTION_DEVICE = 4 /* generated code */, NVM_SECTION_EXTERNAL = 5 };

/* Code for a backend: a section of the file, good until the module is unloaded. */
typedef struct nvm_device_section {
  uint32_t kind;
  const char *target; /* of the section: "opencl", "cuda:sm_70" */
  const void *code;
  size_t size;
} nvm_device_section;

/* The kernels of a file. find: name and signature of one; NULL if there is none of that index. */
typedef struct nvm_device_kernels {
  const void *program;
  const nvm_signature *(*find)(const void *program, uint32_t index, const char **out_name);
} nvm_device_kernels;

typedef struct nvm_device_vtable {
  uint32_t api_version;    /* NVM_DEVICE_API_VERSION */
  const char *name;        /* "cpu", "null", ...; no comma and no colon */
  uint8_t host_accessible; /* memory can be read and written by the host directly */
  uint8_t host_code;       /* launch runs the host function `fn`; else it needs device code */
  uint32_t dl_device_type; /* DLPack's number */

  /* Open device `ordinal` of this kind. out_device: owned, closed by `close`. Errors: DEVICE_ERROR
   * if there is none. */
  nvm_status (*open)(int32_t ordinal, nvm_device **out_device);
  void (*close)(nvm_device *device);

  /* size > 0 bytes, aligned to `alignment` (a power of two <= 4096). Errors: NVM_OUT_OF_MEMORY. */
  nvm_status (*alloc)(nvm_device *device, size_t size, size_t alignment, void **out_memory);
  /* Queued work may still use the memory. */
  void (*free)(nvm_device *device, void *memory, size_t size);

  /* Copies of size bytes; the memories do not overlap. May be queued, but `src` in host memory has
   * been read on return, and copy_to_host has waited for the bytes. It and `sync` also report what
   * kernels queued before had to report (see nvm_kernel_fault); the device works on afterwards. */
  nvm_status (*copy_from_host)(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                               size_t size);
  nvm_status (*copy_to_host)(nvm_device *device, void *dst, const void *src, size_t src_offset,
                             size_t size);
  nvm_status (*copy_within)(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                            size_t src_offset, size_t size);
  /* Wait for all queued work; called at the end of each run too. */
  nvm_status (*sync)(nvm_device *device);

  /* (optional, default NVM_UNSUPPORTED) Load code of the file that was made for this backend.
   * out_module: owned, freed by unload_module. Errors: NVM_UNSUPPORTED (not for this device;
   * another section may be), NVM_INVALID_EXECUTABLE (malformed), NVM_DEVICE_ERROR. */
  nvm_status (*load_module)(nvm_device *device, const nvm_device_section *section,
                            void **out_module);
  void (*unload_module)(nvm_device *device, void *module);
  /* (with load_module) The code of kernel `index` of the program, kept by the VM so that a launch
   * looks nothing up. name and signature live as long as the module; out_code belongs to it.
   * Errors: NVM_UNSUPPORTED (it has none), others refuse the module. */
  nvm_status (*find_kernel)(nvm_device *device, void *module, uint32_t index, const char *name,
                            const nvm_signature *signature, const void **out_code);
  /* Run a kernel whose operands have been checked. fn: the host function; code: what find_kernel
   * gave, NULL with host_code. May be queued; ctx->poll, asked before each part, says whether to go
   * on, and what is queued is kept so short that waiting for it takes no longer than a kernel may.
   */
  nvm_status (*launch)(nvm_device *device, const nvm_kernel_ctx *ctx, nvm_kernel_fn fn,
                       const void *code, void *const *bufs, int64_t *dims);

  /* (optional, default: load_module finds out) Is a section well formed, as far as that needs no
   * device? Called when a file is opened, before anything has a device. Errors: INVALID_EXECUTABLE,
   * OUT_OF_MEMORY. */
  nvm_status (*check_code)(const nvm_device_section *section, const nvm_device_kernels *kernels);
} nvm_device_vtable;

struct nvm_device {
  const nvm_device_vtable *vtable; /* first member of every backend's own struct */
};

/* Record the fault that a kernel reported, as CallKernel does for the host: ctx->fail's arguments.
 * Returns the status to return. */
nvm_status nvm_kernel_fault(const char *kernel, nvm_status code, int32_t operand, int64_t index,
                            int64_t bound);

/* registry.c: the backends built in. NULL if there is none of that name. */
const nvm_device_vtable *nvm_device_find(const char *name);
size_t nvm_device_count(void);
const nvm_device_vtable *nvm_device_at(size_t index);
/* Whether code for that target, as "cuda" or "cuda:sm_70", is for this backend. */
int nvm_device_is_target(const nvm_device_vtable *vtable, const char *target);
/* check_code of the backend that the section is for, NVM_OK if this build has none. */
nvm_status nvm_device_check_code(const nvm_device_section *section,
                                 const nvm_device_kernels *kernels);

/* --- external code on the host (nvm_api.h, nvm_external_runtime) --- */

/* One kernel of a VM. */
typedef struct nvm_external {
  const nvm_external_runtime *runtime;
  void *instance;
} nvm_external;

/* external.c: the runtime that takes sections of that target. None: DEVICE_ERROR, or NULL with
 * `fallback`. */
nvm_status nvm_external_find(const char *name, int fallback,
                             const nvm_external_runtime **out_runtime);

#endif
