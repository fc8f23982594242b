/* sparse_transpose and fill_empty_rows. Indices are int32 or (wide) int64. */
#include <string.h>

#include "generated/nvm_c_kernels.h"
#include "order.h"

static inline int64_t whole(int wide, const void *data, int64_t i) {
  return wide ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
}

static inline void put(int wide, void *data, int64_t i, int64_t value) {
  if (wide) {
    ((int64_t *)data)[i] = value;
  } else {
    ((int32_t *)data)[i] = (int32_t)value;
  }
}

/* --- sparse_transpose ------------------------------------------------------------------------ */

/* Where rows end must ascend from 0 to the number of elements; columns must be less than that of
 * the rows. ends: what is counted, the elements of each column behind the column before it. */
static nvm_status count_columns(const nvm_kernel_ctx *ctx, int wide, const void *indices,
                                const void *indptr, int64_t elements, int64_t rows, void *ends,
                                int64_t *work) {
  nvm_status status = NVM_OK;
  int64_t before = 0;
  NVM_PIECES(ctx, rows + 1, work, status, begin, end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t found = whole(wide, indptr, r);
      if (found < before || found > elements || (r == 0 && found))
        return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 2, found, elements + 1);
      before = found;
      put(wide, ends, r, 0);
    }
  }
  if (status == NVM_OK && before != elements)
    return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 2, before, elements + 1);
  NVM_PIECES(ctx, elements, work, status, begin, end) {
    for (int64_t j = begin; j < end; ++j) {
      const int64_t column = whole(wide, indices, j);
      if (column < 0 || column >= rows)
        return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 1, column, rows);
      put(wide, ends, column + 1, whole(wide, ends, column + 1) + 1);
    }
  }
  return status;
}

/* dims: elements, ends (rows + 1). */
static nvm_status transpose(const nvm_kernel_ctx *ctx, int wide, int itemsize, void *const *bufs,
                            const int64_t *dims) {
  const int64_t elements = dims[0], rows = dims[1] - 1;
  const void *indices = bufs[1], *indptr = bufs[2];
  void *ends = bufs[5];
  int64_t work = 0;
  if (rows < 0) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 2, dims[1], 1);
  if (!wide && elements > INT32_MAX)
    return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, elements, INT32_MAX);
  nvm_status status = count_columns(ctx, wide, indices, indptr, elements, rows, ends, &work);
  /* Now ends[c] is where the elements of column c start. */
  NVM_PIECES(ctx, rows, &work, status, begin, end) {
    for (int64_t c = begin; c < end; ++c)
      put(wide, ends, c + 1, whole(wide, ends, c) + whole(wide, ends, c + 1));
  }
  int64_t row = 0;
  NVM_PIECES(ctx, elements, &work, status, begin, end) {
    for (int64_t j = begin; j < end; ++j) {
      while (whole(wide, indptr, row + 1) <= j) ++row;
      const int64_t column = whole(wide, indices, j), place = whole(wide, ends, column);
      nvm_order_copy(itemsize, bufs[3], place, bufs[0], j);
      put(wide, bufs[4], place, row);
      put(wide, ends, column, place + 1);
    }
  }
  /* And where they end: the starts again, one place on. */
  for (int64_t c = rows; status == NVM_OK && c > 0; --c) {
    put(wide, ends, c, whole(wide, ends, c - 1));
    status = nvm_order_charge(ctx, 1, &work);
  }
  if (status == NVM_OK) put(wide, ends, 0, 0);
  return status;
}

#define TRANSPOSES(k, NUMBER, name, code, bits, size, f, i, s, u)                               \
  nvm_status nvm_kernel_sparse_transpose_##name(const nvm_kernel_ctx *ctx, void *const *bufs,   \
                                                int64_t *dims) {                                \
    return transpose(ctx, 0, size, bufs, dims);                                                 \
  }                                                                                             \
  nvm_status nvm_kernel_sparse_transpose64_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                                  int64_t *dims) {                              \
    return transpose(ctx, 1, size, bufs, dims);                                                 \
  }

NVM_DTYPES(TRANSPOSES)

/* --- fill_empty_rows ------------------------------------------------------------------------- */

/* Elements that are written, of `count` there is room for; the next row without one is `row`. */
typedef struct filling {
  int64_t axes, count, at, row, rows;
  int64_t *places, *values, *empty;
} filling;

static nvm_status append(const nvm_kernel_ctx *ctx, filling *f, int64_t row, int64_t value,
                         int64_t *work) {
  if (f->at >= f->count) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 4, f->count, f->at);
  memset(f->places + f->at * f->axes, 0, (size_t)f->axes * sizeof *f->places);
  f->places[f->at * f->axes] = row;
  f->values[f->at++] = value;
  return nvm_order_charge(ctx, f->axes, work);
}

/* Rows before `end` that have no element get one. */
static nvm_status fill_to(const nvm_kernel_ctx *ctx, filling *f, int64_t end, int64_t value,
                          int64_t *work) {
  nvm_status status = NVM_OK;
  for (; status == NVM_OK && f->row < end; ++f->row) {
    f->empty[f->row] = 1;
    status = append(ctx, f, f->row, value, work);
  }
  return status;
}

/* dims: elements, axes, count (of elements in the result), rows. wide: of indices and dense_shape;
 * wide_values: of values and the default. */
static nvm_status fill_empty_rows(const nvm_kernel_ctx *ctx, int wide, int wide_values,
                                  void *const *bufs, const int64_t *dims) {
  const int64_t elements = dims[0], axes = dims[1], rows = dims[3];
  filling f = {axes, dims[2], 0, 0, rows, bufs[4], bufs[5], bufs[6]};
  const int64_t value = whole(wide_values, bufs[3], 0);
  int64_t work = 0, last = 0;
  nvm_status status = NVM_OK;
  if (axes < 1) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, axes, 1);
  if (whole(wide, bufs[2], 0) != rows)
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 2, whole(wide, bufs[2], 0), rows);
  for (int64_t i = 0; status == NVM_OK && i < elements; ++i) {
    const int64_t row = whole(wide, bufs[0], i * axes);
    if (row < last || row >= rows) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, row, rows);
    status = fill_to(ctx, &f, row, value, &work);
    if (status == NVM_OK) status = append(ctx, &f, row, whole(wide_values, bufs[1], i), &work);
    if (status != NVM_OK) return status;
    for (int64_t a = 1; a < axes; ++a)
      f.places[(f.at - 1) * axes + a] = whole(wide, bufs[0], i * axes + a);
    f.empty[row] = 0;
    f.row = row + 1;
    last = row;
  }
  if (status == NVM_OK) status = fill_to(ctx, &f, rows, value, &work);
  if (status == NVM_OK && f.at != f.count)
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 4, f.count, f.at);
  return status;
}

#define FILLS(name, wide_values)                                                               \
  nvm_status nvm_kernel_fill_empty_rows_##name(const nvm_kernel_ctx *ctx, void *const *bufs,   \
                                               int64_t *dims) {                                \
    return fill_empty_rows(ctx, 0, wide_values, bufs, dims);                                   \
  }                                                                                            \
  nvm_status nvm_kernel_fill_empty_rows64_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                                 int64_t *dims) {                              \
    return fill_empty_rows(ctx, 1, wide_values, bufs, dims);                                   \
  }

FILLS(int32, 0)
FILLS(int64, 1)
