/* Kernels as loop IR: parse (full verification) and run (interpreter, every access checked).
 *
 * The serialized form is docs/format.md, "Serialized loop IR". A parsed kernel is immutable and may
 * run on several threads at once. Running allocates only the first time that many threads run one
 * kernel at once (workspaces are kept).
 */
#ifndef NVM_KERNEL_IR_H
#define NVM_KERNEL_IR_H

#include "generated/nvm_loop_ir.h" /* limits of a body */
#include "nvm_kernel.h"

typedef struct nvm_kernel_ir nvm_kernel_ir;

/* Loop turns between two calls of ctx->poll. */
#ifdef NVM_TEST
#define NVM_IR_POLL_WORK (1 << 12)
#else
#define NVM_IR_POLL_WORK (1 << 18)
#endif

/* Check `size` bytes at `data` against the signature, in linear time. `data` is borrowed for the
 * call, `sig` too. out_ir: owned, freed with nvm_kernel_ir_free. Errors: NVM_INVALID_EXECUTABLE
 * (says what and where), NVM_OUT_OF_MEMORY. */
nvm_status nvm_kernel_ir_parse(const uint8_t *data, size_t size, const nvm_signature *sig,
                               nvm_kernel_ir **out_ir);

/* No run may be in progress. NULL ok. */
void nvm_kernel_ir_free(nvm_kernel_ir *ir);

/* Run with `sig` the signature that the body was parsed with, and bufs and dims as nvm_kernel.h
 * says (operands checked by the caller). Faults are reported through ctx->fail; other errors:
 * NVM_OUT_OF_MEMORY, NVM_DIM_OVERFLOW, and what ctx->poll returns (polled every few ms of work).
 * Floats: dot products and sums are grouped in eight lanes. */
nvm_status nvm_kernel_ir_run(const nvm_kernel_ir *ir, const nvm_signature *sig,
                             const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims);

#endif
