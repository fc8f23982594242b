/* The first k elements of (outer, axis, inner) along the middle axis in stable order, and their
 * positions: topk, and with k = axis also sort and argsort.
 *
 * dims: outer, axis, inner, k, is_ascend. Ascending with NaN last, or descending with NaN first;
 * equals keep their order in both. k > axis is an error.
 */
#include "generated/nvm_c_kernels.h"
#include "order.h"

enum { FEW = 128 }; /* so many best elements are kept by insertion */

typedef struct job {
  int dtype, itemsize, wide; /* wide: positions are int64 */
  const void *data;
  void *values, *positions; /* NULL: not wanted */
  uint64_t *scratch;
  int64_t axis, inner, k;
  uint64_t flip;
} job;

static nvm_status check(const nvm_kernel_ctx *ctx, const int64_t *dims, int wide) {
  const int64_t axis = dims[1], k = dims[3];
  if (k < 0 || k > axis) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, axis, k);
  if (!wide && axis > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, axis, INT32_MAX);
  return NVM_OK;
}

/* The k least keys in order, by insertion into a short list; keys at scratch, result behind them.
 */
static int64_t *select_few(const nvm_kernel_ctx *ctx, const job *j, int64_t *work,
                           nvm_status *status) {
  const uint64_t *keys = j->scratch;
  uint64_t *best = j->scratch + 2 * j->axis;
  int64_t *places = (int64_t *)(j->scratch + 3 * j->axis), held = 0;
  for (int64_t i = 0; i < j->axis; ++i) {
    if (held == j->k && keys[i] >= best[held - 1]) continue;
    int64_t hole = held < j->k ? held++ : held - 1;
    for (; hole > 0 && best[hole - 1] > keys[i]; --hole) {
      best[hole] = best[hole - 1];
      places[hole] = places[hole - 1];
    }
    best[hole] = keys[i];
    places[hole] = i;
  }
  *status = nvm_order_charge(ctx, j->axis, work);
  return *status == NVM_OK ? places : NULL;
}

/* One row: elements start + i * inner, results out + i * inner. */
static nvm_status row(const nvm_kernel_ctx *ctx, const job *j, int64_t start, int64_t out,
                      int64_t *work) {
  nvm_status status = NVM_OK;
  uint64_t *keys, *spare;
  NVM_PIECES(ctx, j->axis, work, status, begin, end) {
    nvm_order_keys(j->dtype, j->data, start + begin * j->inner, j->inner, end - begin, j->flip,
                   j->scratch + begin);
  }
  if (status != NVM_OK) return status;
  const int few = j->k > 0 && j->k <= FEW && j->k * 8 <= j->axis && j->axis < NVM_POLL_EVERY;
  const int64_t *places =
      few ? select_few(ctx, j, work, &status)
          : nvm_order_sort(ctx, j->scratch, j->axis, work, &keys, &spare, &status);
  if (!places) return status;
  NVM_PIECES(ctx, j->k, work, status, begin, end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = out + r * j->inner, place = places[r];
      if (j->values) nvm_order_copy(j->itemsize, j->values, at, j->data, start + place * j->inner);
      if (j->positions && j->wide)
        ((int64_t *)j->positions)[at] = place;
      else if (j->positions)
        ((int32_t *)j->positions)[at] = (int32_t)place;
    }
  }
  return status;
}

static nvm_status run(const nvm_kernel_ctx *ctx, job j, const int64_t *dims) {
  const int64_t outer = dims[0], axis = dims[1], inner = dims[2], k = dims[3];
  int64_t work = 0;
  nvm_status status = check(ctx, dims, j.wide);
  j.axis = axis;
  j.inner = inner;
  j.k = k;
  j.flip = dims[4] ? 0 : UINT64_MAX;
  for (int64_t o = 0; status == NVM_OK && k > 0 && o < outer; ++o) {
    for (int64_t i = 0; status == NVM_OK && i < inner; ++i) {
      status = row(ctx, &j, o * axis * inner + i, o * k * inner + i, &work);
    }
  }
  return status;
}

#define KERNEL(kernel, NUMBER, size, is_wide, b_values, b_positions, b_scratch)    \
  nvm_status kernel(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) { \
    const job j = {.dtype = NVM_DTYPE_##NUMBER,                                    \
                   .itemsize = size,                                               \
                   .wide = is_wide,                                                \
                   .data = bufs[0],                                                \
                   .values = b_values,                                             \
                   .positions = b_positions,                                       \
                   .scratch = bufs[b_scratch]};                                    \
    return run(ctx, j, dims);                                                      \
  }

#define VARIANTS(n, NUMBER, name, code, bits, size, f, i, s, u)             \
  KERNEL(nvm_kernel_topk_##name, NUMBER, size, 0, bufs[1], bufs[2], 3)      \
  KERNEL(nvm_kernel_topk64_##name, NUMBER, size, 1, bufs[1], bufs[2], 3)    \
  KERNEL(nvm_kernel_topk_values_##name, NUMBER, size, 1, bufs[1], NULL, 2)  \
  KERNEL(nvm_kernel_topk_indices_##name, NUMBER, size, 0, NULL, bufs[1], 2) \
  KERNEL(nvm_kernel_topk_indices64_##name, NUMBER, size, 1, NULL, bufs[1], 2)

NVM_DTYPES(VARIANTS)
