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

typedef struct groups {
  const uint64_t *keys;  /* sorted */
  const int64_t *places; /* of the sorted keys */
  int64_t *label;        /* place -> number of its group */
  int64_t *first;        /* number of a group -> the place where it occurs first */
  int64_t n, count;
} groups;

/* Number the groups of equal keys in sorted order. */
static nvm_status number_groups(const nvm_kernel_ctx *ctx, groups *g, int64_t *work) {
  nvm_status status = NVM_OK;
  NVM_PIECES(ctx, g->n, work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i == 0 || g->keys[i] != g->keys[i - 1]) g->first[g->count++] = g->places[i];
      g->label[g->places[i]] = g->count - 1;
    }
  }
  return status;
}

/* Number the groups anew by where they occur first. A group's first place is visited before its
 * others: `first` then holds -1 - its new number. */
static nvm_status renumber(const nvm_kernel_ctx *ctx, groups *g, int64_t *work) {
  nvm_status status = NVM_OK;
  int64_t next = 0;
  NVM_PIECES(ctx, g->n, work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = g->label[i];
      if (g->first[group] == i) g->first[group] = -1 - next++;
      g->label[i] = -1 - g->first[group];
    }
  }
  return status;
}

/* All outputs but the number. */
static nvm_status write(const nvm_kernel_ctx *ctx, const groups *g, int itemsize, const void *data,
                        const outputs *out, int64_t *work) {
  nvm_status status = NVM_OK;
  NVM_PIECES(ctx, g->count, work, status, begin, end) {
    for (int64_t k = begin; k < end; ++k) {
      out->first[k] = -1;
      if (out->counts) out->counts[k] = 0;
    }
  }
  NVM_PIECES(ctx, g->n, work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = g->label[i];
      out->inverse[i] = (int32_t)group;
      if (out->counts) ++out->counts[group];
      if (out->first[group] >= 0) continue;
      out->first[group] = (int32_t)i;
      nvm_order_copy(itemsize, out->values, group, data, i);
    }
  }
  return status;
}

static nvm_status run(const nvm_kernel_ctx *ctx, int dtype, int itemsize, const void *data,
                      outputs out, uint64_t *scratch, int64_t *dims) {
  groups g = {.n = dims[0]};
  int64_t work = 0;
  uint64_t *keys, *spare;
  nvm_status status = NVM_OK;
  if (g.n > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, g.n, INT32_MAX);
  NVM_PIECES(ctx, g.n, &work, status, begin, end) {
    nvm_order_keys(dtype, data, begin, 1, end - begin, 0, scratch + begin);
  }
  if (status != NVM_OK) return status;
  if (g.n > 0) {
    g.places = nvm_order_sort(ctx, scratch, g.n, &work, &keys, &spare, &status);
    if (!g.places) return status;
    g.keys = keys;
    g.label = (int64_t *)spare;
    g.first = g.label + g.n;
    status = number_groups(ctx, &g, &work);
    if (status == NVM_OK && !dims[1]) status = renumber(ctx, &g, &work);
    if (status == NVM_OK) status = write(ctx, &g, itemsize, data, &out, &work);
  }
  out.number[0] = (int32_t)g.count;
  dims[2] = g.count;
  return status;
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
