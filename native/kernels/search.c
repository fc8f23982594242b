/* searchsorted and argwhere. */
#include "generated/nvm_c_kernels.h"
#include "order.h"

/* searchsorted: for each value of (outer, count) its place in its row of (outer, axis), which is
 * sorted: the number of elements less than it, or with `right` not greater.
 *
 * dims: outer, axis, count, right. In rows that are not sorted the place is some place. */
static nvm_status searchsorted(const nvm_kernel_ctx *ctx, int dtype, int wide, void *const *bufs,
                               const int64_t *dims) {
  const int64_t outer = dims[0], axis = dims[1], count = dims[2];
  const uint64_t right = dims[3] != 0;
  int64_t work = 0;
  if (!wide && axis > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, axis, INT32_MAX);
  for (int64_t at = 0; at < outer * count; ++at) {
    const int64_t row = at / count * axis;
    const uint64_t key = nvm_order_key(dtype, bufs[1], at);
    int64_t low = 0, high = axis;
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const uint64_t found = nvm_order_key(dtype, bufs[0], row + middle);
      if (found < key || (right && found == key)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    if (wide) {
      ((int64_t *)bufs[2])[at] = low;
    } else {
      ((int32_t *)bufs[2])[at] = (int32_t)low;
    }
    const nvm_status status = nvm_order_charge(ctx, 16, &work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}

/* argwhere: the coordinates of the elements that are not zero (NaN is not), in order.
 *
 * dims: size, rank, d0..d7 (the first `rank` count); out-dim: the number of rows written. */
static nvm_status argwhere(const nvm_kernel_ctx *ctx, int dtype, void *const *bufs, int64_t *dims) {
  const int64_t size = dims[0], rank = dims[1], *shape = dims + 2;
  int64_t index[NVM_MAX_RANK] = {0}, found = 0, work = 0, elements = 1;
  int32_t *out = bufs[1];
  if (rank < 0 || rank > NVM_MAX_RANK)
    return ctx->fail(ctx, NVM_KERNEL_ERROR, 1, rank, NVM_MAX_RANK);
  for (int64_t a = 0; a < rank; ++a) {
    if (shape[a] > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, shape[a], INT32_MAX);
    if (shape[a] < 0 || __builtin_mul_overflow(elements, shape[a], &elements))
      return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, shape[a], size);
  }
  if (elements != size) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, elements, size);
  const uint64_t zero_bits = 0, zero = nvm_order_key(dtype, &zero_bits, 0);
  for (int64_t i = 0; i < size; ++i) {
    if (nvm_order_key(dtype, bufs[0], i) != zero) {
      for (int64_t a = 0; a < rank; ++a) out[found * rank + a] = (int32_t)index[a];
      ++found;
    }
    for (int64_t a = rank - 1; a >= 0 && ++index[a] == shape[a]; --a) index[a] = 0;
    const nvm_status status = nvm_order_charge(ctx, 1, &work);
    if (status != NVM_OK) return status;
  }
  dims[2 + NVM_MAX_RANK] = found;
  return NVM_OK;
}

#define VARIANTS(n, NUMBER, name, code, bits, size, f, i, s, u)                             \
  nvm_status nvm_kernel_searchsorted_##name(const nvm_kernel_ctx *ctx, void *const *bufs,   \
                                            int64_t *dims) {                                \
    return searchsorted(ctx, NVM_DTYPE_##NUMBER, 0, bufs, dims);                            \
  }                                                                                         \
  nvm_status nvm_kernel_searchsorted64_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                              int64_t *dims) {                              \
    return searchsorted(ctx, NVM_DTYPE_##NUMBER, 1, bufs, dims);                            \
  }                                                                                         \
  nvm_status nvm_kernel_argwhere_##name(const nvm_kernel_ctx *ctx, void *const *bufs,       \
                                        int64_t *dims) {                                    \
    return argwhere(ctx, NVM_DTYPE_##NUMBER, bufs, dims);                                   \
  }

NVM_DTYPES(VARIANTS)
