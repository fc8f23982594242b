/* argmax and argmin over the middle axis of (outer, axis, inner); int32 positions out.
 *
 * dims: outer, axis, inner, select_last_index. Among equals the first wins, or the last with
 * select_last_index; the first NaN wins over all, as in numpy. An empty axis with a non-empty
 * output is an error.
 */
#include "generated/nvm_c_kernels.h"
#include "order.h"

static nvm_status check(const nvm_kernel_ctx *ctx, const int64_t *dims) {
  if (dims[1] == 0 && dims[0] != 0 && dims[2] != 0) {
    return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, 0, 0);
  }
  if (dims[1] > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, dims[1], INT32_MAX);
  return NVM_OK;
}

/* `better`: x is strictly more extreme than best. The axis is walked in pieces, so that a long one
 * can be cancelled. */
#define ARG_REDUCE(name, T, better)                                                           \
  nvm_status nvm_kernel_##name(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) { \
    const int64_t outer = dims[0], axis = dims[1], inner = dims[2];                           \
    const int last = dims[3] != 0;                                                            \
    int32_t *out = bufs[1];                                                                   \
    int64_t work = 0;                                                                         \
    nvm_status status = check(ctx, dims);                                                     \
    for (int64_t row = 0; status == NVM_OK && inner > 0 && row < outer * inner; ++row) {      \
      const T *values = (const T *)bufs[0] + row / inner * axis * inner + row % inner;        \
      T best = values[0];                                                                     \
      int64_t place = 0;                                                                      \
      for (int64_t k = 1; status == NVM_OK && k < axis && best == best;) {                    \
        const int64_t from = k, stop = nvm_order_end(k, axis);                                \
        for (; k < stop && best == best; ++k) {                                               \
          const T x = values[k * inner];                                                      \
          if (better || (last && x == best) || x != x) {                                      \
            best = x;                                                                         \
            place = k;                                                                        \
          }                                                                                   \
        }                                                                                     \
        status = nvm_order_charge(ctx, stop - from, &work);                                   \
      }                                                                                       \
      out[row] = (int32_t)place;                                                              \
    }                                                                                         \
    return status;                                                                            \
  }

ARG_REDUCE(argmax_float32, float, x > best)
ARG_REDUCE(argmax_float64, double, x > best)
ARG_REDUCE(argmax_int32, int32_t, x > best)
ARG_REDUCE(argmax_int64, int64_t, x > best)
ARG_REDUCE(argmin_float32, float, x < best)
ARG_REDUCE(argmin_float64, double, x < best)
ARG_REDUCE(argmin_int32, int32_t, x < best)
ARG_REDUCE(argmin_int64, int64_t, x < best)
