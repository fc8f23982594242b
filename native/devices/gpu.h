/* What the backends of GPUs have in common beside their drivers: modules of generated code
 * (device_code.h), the kernels of each with the driver's own handles, and what kernels report.
 *
 * A backend's device begins with an nvm_gpu. All pointers to handles are the driver's, which its
 * backend makes and releases. */
#ifndef NVM_GPU_H
#define NVM_GPU_H

#include "device_code.h"
#include "nvm_device.h"

/* One kernel of a module: what find_kernel gives, and launch gets. */
typedef struct nvm_gpu_kernel {
  const char *name; /* NULL: find_kernel did not ask for it */
  const nvm_device_kernel *code;
  const nvm_signature *signature;
  void **entries; /* handles, code->n_launches; NULL: not made yet */
} nvm_gpu_kernel;

typedef struct nvm_gpu_module {
  struct nvm_gpu_module *next;
  nvm_arena *arena;
  nvm_device_code code;
  void *program;           /* handle; NULL: not made yet */
  nvm_gpu_kernel *kernels; /* code.n_kernels */
} nvm_gpu_module;

typedef struct nvm_gpu {
  nvm_device base;
  nvm_gpu_module *modules; /* all that are loaded: for names in faults */
  int may_have_fault;      /* a kernel that can fail was queued since the record was read */
  uint32_t queued;         /* launches since the queue was waited for */
} nvm_gpu;

/* The most launches that stand in a device's queue: a run that is cancelled waits for these.
 * Waiting costs a driver some 10 us, so once in that many launches it is nothing. */
enum { NVM_GPU_QUEUE = 256 };

/* A section read and checked, without handles. out_module: owned, freed by nvm_gpu_module_destroy.
 * Errors: UNSUPPORTED (no generated code), INVALID_EXECUTABLE, OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_gpu_module_create(nvm_gpu *gpu, const nvm_device_section *section,
                                               nvm_gpu_module **out_module);
/* consumed. Its handles have been released. */
void nvm_gpu_module_destroy(nvm_gpu *gpu, nvm_gpu_module *module);

/* The driver's handle of one entry of a module's program; owned by whoever unloads the module. */
typedef nvm_status (*nvm_gpu_find_entry)(nvm_gpu *gpu, const nvm_gpu_module *module,
                                         const nvm_device_launch *launch, void **out_entry);
/* Fill all `entries` of a module that has its program. Errors: those of `find`; what it found
 * before stays. */
NVM_NODISCARD nvm_status nvm_gpu_find_entries(nvm_gpu *gpu, nvm_gpu_module *module,
                                              nvm_gpu_find_entry find);

/* The vtable's check_code: all launches of all kernels. */
nvm_status nvm_gpu_check_code(const nvm_device_section *section, const nvm_device_kernels *kernels);

/* The vtable's find_kernel: an nvm_gpu_kernel. */
nvm_status nvm_gpu_find_kernel(nvm_device *device, void *module, uint32_t index, const char *name,
                               const nvm_signature *signature, const void **out_code);

/* Before each launch: may the run go on? Waits (vtable->sync) for what is queued if that is too
 * much. Errors: those of `sync`, CANCELLED, TIME_LIMIT, INTERRUPTED. */
NVM_NODISCARD nvm_status nvm_gpu_admit(nvm_gpu *gpu, const nvm_kernel_ctx *ctx);

/* What `found`, the device's record, says; the backend has set that to 0 if it said something.
 * Errors: NVM_OK if there is none, else the kernel's (nvm_kernel_fault). */
NVM_NODISCARD nvm_status nvm_gpu_report(nvm_gpu *gpu, const nvm_device_fault *found);

#endif
