/* The door to all kernels: every operand is checked against the signature, then the device
 * launches. */
#ifndef NVM_CALL_H
#define NVM_CALL_H

#include "alloc.h"
#include "program.h"

/* What a kernel call asks of the VM that makes it. */
typedef struct nvm_call_host {
  /* A kernel asks whether to go on; turns: of the loops of an interpreted kernel, else 0. Any
   * thread. */
  nvm_status (*poll)(struct nvm_vm *vm, uint64_t turns);
  /* Record why a run ends early inside of a kernel; returns `code`. */
  nvm_status (*stopped)(const struct nvm_vm *vm, nvm_status code, const char *kernel);
  /* What began at `since` (cycles) has ended; only where calls are timed. */
  void (*kernel_ended)(struct nvm_vm *vm, const nvm_kernel *kernel, const int64_t *dims,
                       uint64_t since);
  void (*piece_ended)(struct nvm_vm *vm, const nvm_kernel *kernel, uint64_t since);
} nvm_call_host;

/* What a kernel's ctx points into. One a VM, and a copy for each piece that a thread runs: so a
 * fault is noted by one thread only. Kernel calls of one VM do not overlap. */
typedef struct nvm_call {
  nvm_kernel_ctx ctx; /* first: kernels hand it back */
  struct nvm_vm *vm;
  const nvm_call_host *host; /* NULL: a call outside of a VM */
  const nvm_kernel *kernel;
  const nvm_external *external; /* external code on the host that runs in place of the kernel */
  int32_t threads;
  int profiled;     /* calls are timed */
  int interpreted;  /* the kernel's IR runs on the host */
  uint32_t regions; /* how often the kernel has called parallel_for */
  /* The first fault reported through ctx->fail. */
  nvm_status code; /* NVM_OK: none */
  int32_t operand;
  int64_t index, bound;
} nvm_call;

/* host and vm: NULL for a call outside of a VM. */
void nvm_call_init(nvm_call *call, const nvm_call_host *host, struct nvm_vm *vm, int32_t threads);

/* Run a kernel. operands: signature->n_operands tensors, borrowed. dims: room for NVM_MAX_DIMS, the
 * in-dims filled in; afterwards the out-dims stand at *out_dims. pools: by device index. out_bytes:
 * bytes of all operands. Errors: OPERAND_MISMATCH, DIM_OVERFLOW, UNSUPPORTED, what the kernel
 * reports. */
NVM_NODISCARD nvm_status nvm_call_kernel(nvm_call *call, const nvm_pool *pools,
                                         const nvm_kernel *kernel, nvm_tensor *const *operands,
                                         int64_t *dims, int64_t **out_dims, size_t *out_bytes);

#endif
