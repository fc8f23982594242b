/* Detections: get_valid_counts and non_max_suppression over boxes (batch, boxes, fields), and
 * all_class_nms over boxes (batch, boxes, 4) and scores (batch, classes, boxes).
 *
 * A box's fields are a score, perhaps a class, and two corners. float16 is computed in float32,
 * float32 and float64 in themselves, one operation after the other.
 */
#include <string.h>

#include "generated/nvm_c_kernels.h"
#include "kernel_ir_ops.h"
#include "order.h"

/* --- get_valid_counts ------------------------------------------------------------------------ */

/* Field i as a double: exact for every float dtype. */
static double field(int dtype, const void *data, int64_t i) {
  switch (dtype) {
    case NVM_DTYPE_FLOAT16:
      return (double)nvm_half_to_float(((const uint16_t *)data)[i]);
    case NVM_DTYPE_FLOAT32:
      return (double)((const float *)data)[i];
    default:
      return ((const double *)data)[i];
  }
}

static void fill_minus_one(int dtype, void *data, int64_t start, int64_t count) {
  const uint16_t half = 0xbc00;
  for (int64_t i = start; i < start + count; ++i) {
    if (dtype == NVM_DTYPE_FLOAT16) {
      ((uint16_t *)data)[i] = half;
    } else if (dtype == NVM_DTYPE_FLOAT32) {
      ((float *)data)[i] = -1;
    } else {
      ((double *)data)[i] = -1;
    }
  }
}

static void copy_box(int itemsize, int64_t fields, void *target, int64_t to, const void *source,
                     int64_t from) {
  if (fields > 0)
    memcpy((char *)target + to * fields * itemsize, (const char *)source + from * fields * itemsize,
           (size_t)(fields * itemsize));
}

/* Boxes with score > threshold and a class >= 0 move to the front of their batch, the rest is -1.
 *
 * dims: batch, boxes, fields, id_index (negative: no class), score_index. */
static nvm_status valid_counts(const nvm_kernel_ctx *ctx, int dtype, int itemsize,
                               void *const *bufs, const int64_t *dims) {
  const int64_t batch = dims[0], boxes = dims[1], fields = dims[2], id = dims[3], score = dims[4];
  const double threshold = (double)*(const float *)bufs[1];
  const void *data = bufs[0];
  int32_t *counts = bufs[2], *places = bufs[4];
  int64_t work = 0;
  if (boxes > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, boxes, INT32_MAX);
  if (score < 0 || score >= fields) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, score, fields);
  if (id >= fields) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, id, fields);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t first = b * boxes;
    int64_t kept = 0;
    for (int64_t j = 0; j < boxes; ++j) {
      const int64_t at = (first + j) * fields;
      const nvm_status status = nvm_order_charge(ctx, 2 * fields, &work);
      if (status != NVM_OK) return status;
      if (!(field(dtype, data, at + score) > threshold)) continue;
      if (id >= 0 && !(field(dtype, data, at + id) >= 0)) continue;
      copy_box(itemsize, fields, bufs[3], first + kept, data, first + j);
      places[first + kept++] = (int32_t)j;
    }
    counts[b] = (int32_t)kept;
    fill_minus_one(dtype, bufs[3], (first + kept) * fields, (boxes - kept) * fields);
    for (int64_t j = kept; j < boxes; ++j) places[first + j] = -1;
  }
  return NVM_OK;
}

/* --- non_max_suppression --------------------------------------------------------------------- */

/* Box p of a batch has its score at scores[score_first + p * score_step]; score_first is the
 * batch's, and the class's. limit: boxes to keep, negative: all. */
typedef struct job {
  const void *data, *scores;
  int dtype, itemsize;
  int64_t boxes, fields, limit;
  int64_t force, top_k, coord, id;
  int64_t score_first, score_step;
  float threshold;
} job;

/* Boxes in float (float16 and float32) or double, and the loop over them. `front` holds those that
 * may suppress others. Decides about the boxes in `order` (places in the batch, best first); those
 * that go become -1. */
#define SUPPRESS(C, LOAD)                                                                          \
  typedef struct box_##C {                                                                         \
    C left, top, right, bottom, area, label;                                                       \
  } box_##C;                                                                                       \
                                                                                                   \
  static box_##C load_##C(const job *j, int64_t number) {                                          \
    const int64_t at = number * j->fields + j->coord;                                              \
    const void *data = j->data;                                                                    \
    const C a0 = LOAD(j, data, at), a1 = LOAD(j, data, at + 1), a2 = LOAD(j, data, at + 2),        \
            a3 = LOAD(j, data, at + 3);                                                            \
    box_##C box = {                                                                                \
        a0 < a2 ? a0 : a2, a1 < a3 ? a1 : a3, a0 > a2 ? a0 : a2, a1 > a3 ? a1 : a3, 0, 0};         \
    box.area = (box.right - box.left) * (box.bottom - box.top);                                    \
    box.label = j->id < 0 ? 0 : LOAD(j, data, number * j->fields + j->id);                         \
    return box;                                                                                    \
  }                                                                                                \
                                                                                                   \
  static inline int overlap_##C(const box_##C *a, const box_##C *b, C threshold) {                 \
    const C wide =                                                                                 \
        (a->right < b->right ? a->right : b->right) - (a->left > b->left ? a->left : b->left);     \
    const C high =                                                                                 \
        (a->bottom < b->bottom ? a->bottom : b->bottom) - (a->top > b->top ? a->top : b->top);     \
    const C area = (high > 0 ? high : 0) * (wide > 0 ? wide : 0);                                  \
    const C both = a->area + b->area - area;                                                       \
    return area > 0 && !(both <= 0) && area / both >= threshold;                                   \
  }                                                                                                \
                                                                                                   \
  static nvm_status suppress_##C(const nvm_kernel_ctx *ctx, const job *j, int64_t first,           \
                                 int64_t *order, int64_t count, box_##C *front, int64_t *work) {   \
    const int any = j->force || j->id < 0;                                                         \
    int64_t held = 0, suppressors = 0;                                                             \
    for (int64_t p = 0; p < count; ++p) {                                                          \
      const int64_t number = first + order[p];                                                     \
      int drop = held == j->limit;                                                                 \
      const int64_t score = j->score_first + order[p] * j->score_step;                             \
      if (!drop && !(LOAD(j, j->scores, score) > 0)) continue;                                     \
      const box_##C box = load_##C(j, number);                                                     \
      for (int64_t k = 0; !drop && k < suppressors; ++k)                                           \
        drop =                                                                                     \
            (any || box.label == front[k].label) && overlap_##C(&box, &front[k], (C)j->threshold); \
      if (drop) {                                                                                  \
        order[p] = -1;                                                                             \
      } else {                                                                                     \
        ++held;                                                                                    \
        if (j->id < 0 || box.label >= 0) front[suppressors++] = box;                               \
      }                                                                                            \
      const nvm_status status = nvm_order_charge(ctx, 1 + 4 * suppressors, work);                  \
      if (status != NVM_OK) return status;                                                         \
    }                                                                                              \
    return NVM_OK;                                                                                 \
  }

static inline float load_narrow(const job *j, const void *data, int64_t i) {
  return j->dtype == NVM_DTYPE_FLOAT16 ? nvm_half_to_float(((const uint16_t *)data)[i])
                                       : ((const float *)data)[i];
}

static inline double load_wide(const job *j, const void *data, int64_t i) {
  (void)j;
  return ((const double *)data)[i];
}

SUPPRESS(float, load_narrow)
SUPPRESS(double, load_wide)

/* The places of the first `valid` boxes, best score first: NULL on failure. */
static int64_t *by_score(const nvm_kernel_ctx *ctx, const job *j, int64_t valid, uint64_t *scratch,
                         int64_t *work, nvm_status *status) {
  uint64_t *keys, *spare;
  *status = NVM_OK;
  NVM_PIECES(ctx, valid, work, *status, begin, end) {
    nvm_order_keys(j->dtype, j->scores, j->score_first + begin * j->score_step, j->score_step,
                   end - begin, UINT64_MAX, scratch + begin);
  }
  if (*status != NVM_OK) return NULL;
  return nvm_order_sort(ctx, scratch, valid, work, &keys, &spare, status);
}

/* Decide about the `count` boxes of `order`; those that go become -1. */
static nvm_status suppress(const nvm_kernel_ctx *ctx, const job *j, int64_t first, int64_t *order,
                           int64_t count, void *front, int64_t *work) {
  return j->dtype == NVM_DTYPE_FLOAT64 ? suppress_double(ctx, j, first, order, count, front, work)
                                       : suppress_float(ctx, j, first, order, count, front, work);
}

/* The order in which a batch's boxes stand in the result, -1 for those that are gone: NULL on
 * failure. scratch: 10 words a box, 4 to sort and 6 for those that suppress. */
static int64_t *arrange(const nvm_kernel_ctx *ctx, const job *j, int64_t first, int64_t valid,
                        uint64_t *scratch, int64_t *work, nvm_status *status) {
  if (!(j->threshold > 0) || valid == 0) {
    int64_t *order = (int64_t *)scratch;
    for (int64_t p = 0; p < valid; ++p) order[p] = p;
    *status = NVM_OK;
    return order;
  }
  int64_t *order = by_score(ctx, j, valid, scratch, work, status);
  if (!order) return NULL;
  const int64_t kept = 0 < j->top_k && j->top_k < valid ? j->top_k : valid;
  *status = suppress(ctx, j, first, order, kept, scratch + 4 * j->boxes, work);
  for (int64_t p = kept; p < valid; ++p) order[p] = -1;
  return *status == NVM_OK ? order : NULL;
}

static nvm_status check(const nvm_kernel_ctx *ctx, const int64_t *dims) {
  const int64_t boxes = dims[1], fields = dims[2], coord = dims[5], score = dims[6], id = dims[7];
  if (boxes > INT32_MAX) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, boxes, INT32_MAX);
  if (coord < 0 || coord > fields - 4)
    return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, coord, fields - 3);
  if (score < 0 || score >= fields) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, score, fields);
  if (id >= fields) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, id, fields);
  return NVM_OK;
}

/* Results of one batch: indices of the boxes that are left at its front, and their number. */
static void write_indices(const job *j, int64_t first, const int64_t *order, int64_t valid,
                          const int32_t *indices, int32_t *out, int32_t *number) {
  int64_t left = 0;
  for (int64_t p = 0; p < valid; ++p) {
    if (order[p] >= 0 && indices[first + order[p]] >= 0)
      out[first + left++] = indices[first + order[p]];
  }
  *number = (int32_t)left;
  for (; left < j->boxes; ++left) out[first + left] = -1;
}

/* Results of one batch: the boxes, -1 for those that are gone, with `to_bottom` behind all others.
 */
static void write_boxes(const job *j, int64_t first, const int64_t *order, int64_t valid,
                        int to_bottom, void *out) {
  int64_t left = 0;
  for (int64_t p = 0; p < valid; ++p) {
    if (order[p] >= 0) {
      copy_box(j->itemsize, j->fields, out, first + left++, j->data, first + order[p]);
    } else if (!to_bottom) {
      fill_minus_one(j->dtype, out, (first + left++) * j->fields, j->fields);
    }
  }
  fill_minus_one(j->dtype, out, (first + left) * j->fields, (j->boxes - left) * j->fields);
}

/* dims: batch, boxes, fields, force_suppress, top_k, coord_start, score_index, id_index, to_bottom.
 * number: NULL if boxes are wanted instead of indices. */
static nvm_status nms(const nvm_kernel_ctx *ctx, int dtype, int itemsize, void *const *bufs,
                      const int64_t *dims, int32_t *number, uint64_t *scratch) {
  const int64_t batch = dims[0], boxes = dims[1];
  const int32_t *valid_count = bufs[1], *indices = bufs[2];
  job j = {.data = bufs[0],
           .scores = bufs[0],
           .dtype = dtype,
           .itemsize = itemsize,
           .boxes = boxes,
           .fields = dims[2],
           .limit = *(const int32_t *)bufs[3],
           .force = dims[3],
           .top_k = dims[4],
           .coord = dims[5],
           .id = dims[7],
           .score_step = dims[2],
           .threshold = *(const float *)bufs[4]};
  int64_t work = 0;
  nvm_status status = check(ctx, dims);
  for (int64_t b = 0; status == NVM_OK && b < batch; ++b) {
    const int64_t valid = valid_count[b], first = b * boxes;
    if (valid < 0 || valid > boxes)
      return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 1, valid, boxes + 1);
    j.score_first = first * j.fields + dims[6];
    const int64_t *order = arrange(ctx, &j, first, valid, scratch, &work, &status);
    if (!order) return status;
    if (number) {
      write_indices(&j, first, order, valid, indices, bufs[5], number + b);
    } else {
      write_boxes(&j, first, order, valid, dims[8] != 0, bufs[5]);
    }
    status = nvm_order_charge(ctx, boxes, &work);
  }
  return status;
}

/* --- all_class_nms --------------------------------------------------------------------------- */

/* The places of the boxes that a class keeps, best first, at the front of *out_order (inside
 * scratch), and their number. */
static nvm_status of_class(const nvm_kernel_ctx *ctx, const job *j, int64_t first, float least,
                           uint64_t *scratch, int64_t *work, const int64_t **out_order,
                           int64_t *out_kept) {
  int64_t valid = 0, kept = 0;
  nvm_status status = NVM_OK;
  *out_order = NULL;
  *out_kept = 0;
  if (!(j->threshold > 0)) return nvm_order_charge(ctx, 1, work);
  int64_t *order = by_score(ctx, j, j->boxes, scratch, work, &status);
  if (!order) return status;
  for (int64_t p = 0; p < j->boxes; ++p) {
    const double score = field(j->dtype, j->scores, j->score_first + order[p]);
    if (score > (double)least) order[valid++] = order[p];
  }
  status = nvm_order_charge(ctx, j->boxes, work);
  if (status != NVM_OK) return status;
  status = suppress(ctx, j, first, order, valid, scratch + 4 * j->boxes, work);
  for (int64_t p = 0; p < valid && (j->limit < 0 || kept < j->limit); ++p) {
    if (order[p] >= 0 && field(j->dtype, j->scores, j->score_first + order[p]) > -1)
      order[kept++] = order[p];
  }
  *out_order = order;
  *out_kept = kept;
  return status;
}

static job of_classes(int dtype, int itemsize, void *const *bufs, const int64_t *dims) {
  const int32_t limit = *(const int32_t *)bufs[2];
  return (job){.data = bufs[0],
               .scores = bufs[1],
               .dtype = dtype,
               .itemsize = itemsize,
               .boxes = dims[2],
               .fields = 4,
               .limit = limit > 0 ? limit : -1,
               .force = 1,
               .id = -1,
               .score_step = 1,
               .threshold = *(const float *)bufs[3]};
}

/* dims: batch, classes, boxes. Rows (batch, class, box) one after the other, then rows of -1; their
 * number. */
static nvm_status all_class_rows(const nvm_kernel_ctx *ctx, int dtype, int itemsize,
                                 void *const *bufs, const int64_t *dims) {
  const int64_t batch = dims[0], classes = dims[1], boxes = dims[2];
  int64_t *rows = bufs[5], *count = bufs[6];
  int64_t work = 0, row = 0;
  nvm_status status = NVM_OK;
  job j = of_classes(dtype, itemsize, bufs, dims);
  *count = 0;
  if (boxes == 0) return NVM_OK; /* of classes without boxes there may be any number */
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t c = 0; c < classes; ++c) {
      const int64_t *order;
      int64_t kept;
      j.score_first = (b * classes + c) * boxes;
      status = of_class(ctx, &j, b * boxes, *(const float *)bufs[4], bufs[7], &work, &order, &kept);
      if (status != NVM_OK) return status;
      for (int64_t p = 0; p < kept; ++p, ++row) {
        rows[3 * row] = b;
        rows[3 * row + 1] = c;
        rows[3 * row + 2] = order[p];
      }
    }
  }
  *count = row;
  rows += 3 * row;
  NVM_PIECES(ctx, 3 * (batch * classes * boxes - row), &work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) rows[i] = -1;
  }
  return status;
}

/* dims: batch, classes, boxes. For each of the batch: rows (class, box) and their scores, then
 * zeros; their number. */
static nvm_status all_class_batches(const nvm_kernel_ctx *ctx, int dtype, int itemsize,
                                    void *const *bufs, const int64_t *dims) {
  const int64_t batch = dims[0], classes = dims[1], boxes = dims[2], all = classes * boxes;
  int64_t work = 0;
  job j = of_classes(dtype, itemsize, bufs, dims);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t *rows = (int64_t *)bufs[5] + 2 * b * all;
    int64_t row = 0;
    /* Of classes without boxes there may be any number. */
    for (int64_t c = 0; boxes > 0 && c < classes; ++c) {
      const int64_t *order;
      int64_t kept;
      j.score_first = (b * classes + c) * boxes;
      const nvm_status status =
          of_class(ctx, &j, b * boxes, *(const float *)bufs[4], bufs[8], &work, &order, &kept);
      if (status != NVM_OK) return status;
      for (int64_t p = 0; p < kept; ++p, ++row) {
        rows[2 * row] = c;
        rows[2 * row + 1] = order[p];
        nvm_order_copy(itemsize, bufs[6], b * all + row, j.scores, j.score_first + order[p]);
      }
    }
    ((int64_t *)bufs[7])[b] = row;
    if (row == all) continue;
    memset(rows + 2 * row, 0, (size_t)(all - row) * 2 * sizeof *rows);
    memset((char *)bufs[6] + (b * all + row) * itemsize, 0, (size_t)((all - row) * itemsize));
  }
  return NVM_OK;
}

#define VARIANTS(name, NUMBER, size)                                                               \
  nvm_status nvm_kernel_get_valid_counts_##name(const nvm_kernel_ctx *ctx, void *const *bufs,      \
                                                int64_t *dims) {                                   \
    return valid_counts(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims);                                \
  }                                                                                                \
  nvm_status nvm_kernel_nms_indices_##name(const nvm_kernel_ctx *ctx, void *const *bufs,           \
                                           int64_t *dims) {                                        \
    return nms(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims, bufs[6], bufs[7]);                       \
  }                                                                                                \
  nvm_status nvm_kernel_nms_boxes_##name(const nvm_kernel_ctx *ctx, void *const *bufs,             \
                                         int64_t *dims) {                                          \
    return nms(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims, NULL, bufs[6]);                          \
  }                                                                                                \
  nvm_status nvm_kernel_all_class_nms_##name(const nvm_kernel_ctx *ctx, void *const *bufs,         \
                                             int64_t *dims) {                                      \
    return all_class_rows(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims);                              \
  }                                                                                                \
  nvm_status nvm_kernel_all_class_nms_batches_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                                     int64_t *dims) {                              \
    return all_class_batches(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims);                           \
  }

VARIANTS(float16, FLOAT16, 2)
VARIANTS(float32, FLOAT32, 4)
VARIANTS(float64, FLOAT64, 8)
