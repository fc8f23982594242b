/* The contract between the VM and kernels: generated code, C kernels, external code.
 *
 * A kernel is   nvm_status kernel(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims)
 *   bufs   one pointer an operand, in the order of the signature (inputs, outputs, scratch), byte
 * offset already added. Values are compact, row-major. A buffer of zero bytes may have any pointer,
 * also NULL. dims   [in-dims of the call][attributes of the table entry][pitches][out-dims]
 *          pitches: for each operand in order, for each axis flagged broadcast, the actual size of
 * that axis (1 or the signature's size). out-dims are zero on entry and written by the kernel.
 * Every operand has been checked against the signature (call.c) before the kernel runs. A kernel
 * keeps nothing and allocates nothing. It may run on several threads at once with different
 * arguments.
 */
#ifndef NVM_KERNEL_H
#define NVM_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* Files, tensors and bit casts take little-endian numbers as they lie in memory. */
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "nimblevm needs a little-endian machine"
#endif
#if __SIZEOF_POINTER__ != 8
#error "nimblevm needs 64-bit pointers"
#endif

#include "generated/nvm_abi.h"    /* NVM_KERNEL_ABI, limits; enum nvm_dim_op */
#include "generated/nvm_status.h" /* enum nvm_status_code; typedef int32_t nvm_status */

typedef struct nvm_kernel_ctx nvm_kernel_ctx;

/* Work on [begin, end). */
typedef nvm_status (*nvm_range_fn)(const nvm_kernel_ctx *ctx, void *closure, int64_t begin,
                                   int64_t end);

struct nvm_kernel_ctx {
  uint32_t abi;  /* NVM_KERNEL_ABI */
  uint32_t size; /* sizeof(nvm_kernel_ctx) of the runtime */
  /* Report a fault; returns `code`, so that a kernel can `return ctx->fail(...)`. operand < 0:
   * none. */
  nvm_status (*fail)(const nvm_kernel_ctx *ctx, nvm_status code, int32_t operand, int64_t index,
                     int64_t bound);
  /* Non-zero: stop soon and return that status (cancel, time limit). Call at most every 10 ms of
   * work. */
  nvm_status (*poll)(const nvm_kernel_ctx *ctx);
  /* Run fn over [0, count) in pieces, on this thread and perhaps others; returns the first fault in
   * order of position. work: about how long all turns take together, ns. fn must give the same
   * results for any grouping of the turns; each piece gets a ctx of its own. */
  nvm_status (*parallel_for)(const nvm_kernel_ctx *ctx, int64_t count, int64_t work,
                             nvm_range_fn fn, void *closure);
};

typedef nvm_status (*nvm_kernel_fn)(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims);

/* The one exported symbol of a native section: `nvm_kernel_table`. */
typedef struct nvm_kernel_table {
  uint32_t abi;   /* NVM_KERNEL_ABI */
  uint32_t count; /* number of functions that follow */
  nvm_kernel_fn functions[];
} nvm_kernel_table;

/* --- signatures ------------------------------------------------------------------------------- */

enum nvm_role { NVM_ROLE_IN = 0, NVM_ROLE_OUT = 1, NVM_ROLE_SCRATCH = 2 };
enum nvm_axis_kind {
  NVM_AXIS_CONST = 0, /* size = value */
  NVM_AXIS_DIM = 1,   /* size = dims[value], an in-dim or attribute */
  NVM_AXIS_EXPR = 2   /* size = result of the postfix program at exprs[value], see docs/format.md */
};

typedef struct nvm_axis {
  uint8_t kind;
  uint8_t broadcast; /* the actual size may be 1 instead */
  int64_t value;
} nvm_axis;

typedef struct nvm_operand {
  uint8_t dtype; /* nvm dtype number */
  uint8_t role;
  uint8_t rank;
  uint8_t alias; /* for outputs: 1 + input operand whose storage it may share, 0 none */
  nvm_axis axes[NVM_MAX_RANK];
} nvm_operand;

typedef struct nvm_signature {
  uint16_t n_operands, n_in, n_out, n_scratch;
  uint16_t n_dims;  /* in-dims passed by the call */
  uint16_t n_attrs; /* constants appended by the table entry */
  uint16_t n_pitches;
  uint16_t n_out_dims;
  uint8_t may_fail;
  const nvm_operand *operands;
  const int64_t *attrs;
  const int64_t *exprs; /* concatenated postfix programs */
  uint32_t n_expr_words;
} nvm_signature;

/* A kernel written in C: registry.c lists them (generated from nimblevm/kernels/c_kernels.py). */
typedef struct nvm_c_kernel {
  const char *name;
  nvm_kernel_fn fn;
  const nvm_signature *signature; /* the file's entry must equal this one, attrs' values excepted */
} nvm_c_kernel;

const nvm_c_kernel *nvm_c_kernel_find(const char *name, size_t length);

#endif
