/* unique: the distinct elements of a vector, where each occurs first, for each element which of
 * them it is, their number, and perhaps how often each occurs. All NaNs are one element, as -0 and
 * 0 are.
 *
 * dims: size, is_sorted; out-dim: their number. is_sorted: ascending, NaN last; else in the order
 * in which they occur first. Outputs of `size` elements are written up to their number.
 */
#include "generated/nvm_c_kernels.h"
#include "order.h"

typedef struct outputs {
  void *values;
  int32_t *first, *inverse, *number, *counts; /* counts may be NULL */
} outputs;

/* Number the groups of equal keys in sorted order: label[i] = number of place i's group. Returns
 * how many; first[g]: the first place of group g. */
static int64_t label_groups(const uint64_t *keys, const int64_t *places, int64_t n, int64_t *label,
                            int64_t *first) {
  int64_t groups = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (i == 0 || keys[i] != keys[i - 1]) first[groups++] = places[i];
    label[places[i]] = groups - 1;
  }
  return groups;
}

/* Number the groups anew by where they occur first. */
static void relabel(int64_t n, int64_t *label, int64_t *first) {
  int64_t next = 0;
  /* A group's first place is visited before its others: it keeps its new number in `first`, as a
   * negative number until all are done. */
  for (int64_t i = 0; i < n; ++i) {
    const int64_t group = label[i];
    if (first[group] == i) first[group] = -1 - next++;
    label[i] = -1 - first[group];
  }
}

static nvm_status run(const nvm_kernel_ctx *ctx, int dtype, int itemsize, const void *data,
                      outputs out, uint64_t *scratch, int64_t *dims) {
  const int64_t n = dims[0];
  const int sorted = dims[1] != 0;
  int64_t work = 0, groups = 0;
  uint64_t *keys, *spare;
  nvm_status status;
  if (n > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, n, INT32_MAX);
  if (n > 0) {
    nvm_order_keys(dtype, data, 0, 1, n, 0, scratch);
    const int64_t *places = nvm_order_sort(ctx, scratch, n, &work, &keys, &spare, &status);
    if (!places) return status;
    int64_t *label = (int64_t *)spare, *first = label + n;
    groups = label_groups(keys, places, n, label, first);
    if (!sorted) relabel(n, label, first);
    for (int64_t i = n; i-- > 0;) { /* backwards: the first place is written last */
      out.inverse[i] = (int32_t)label[i];
      out.first[label[i]] = (int32_t)i;
    }
    for (int64_t g = 0; g < groups; ++g) {
      nvm_order_copy(itemsize, out.values, g, data, out.first[g]);
      if (out.counts) out.counts[g] = 0;
    }
    for (int64_t i = 0; out.counts && i < n; ++i) ++out.counts[label[i]];
  }
  out.number[0] = (int32_t)groups;
  dims[2] = groups;
  return NVM_OK;
}

#define VARIANTS(k, NUMBER, name, code, bits, size, f, i, s, u)                            \
  nvm_status nvm_kernel_unique_##name(const nvm_kernel_ctx *ctx, void *const *bufs,        \
                                      int64_t *dims) {                                     \
    const outputs out = {bufs[1], bufs[2], bufs[3], bufs[4], NULL};                        \
    return run(ctx, NVM_DTYPE_##NUMBER, size, bufs[0], out, bufs[5], dims);                \
  }                                                                                        \
  nvm_status nvm_kernel_unique_counts_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                             int64_t *dims) {                              \
    const outputs out = {bufs[1], bufs[2], bufs[3], bufs[4], bufs[5]};                     \
    return run(ctx, NVM_DTYPE_##NUMBER, size, bufs[0], out, bufs[6], dims);                \
  }

NVM_DTYPES(VARIANTS)
