/* Detections: get_valid_counts and non_max_suppression over boxes (batch, boxes, fields).
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
      if (!(field(dtype, data, at + score) > threshold)) continue;
      if (id >= 0 && !(field(dtype, data, at + id) >= 0)) continue;
      copy_box(itemsize, fields, bufs[3], first + kept, data, first + j);
      places[first + kept++] = (int32_t)j;
    }
    counts[b] = (int32_t)kept;
    fill_minus_one(dtype, bufs[3], (first + kept) * fields, (boxes - kept) * fields);
    for (int64_t j = kept; j < boxes; ++j) places[first + j] = -1;
    const nvm_status status = nvm_order_charge(ctx, boxes * fields, &work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}

/* --- non_max_suppression --------------------------------------------------------------------- */

typedef struct job {
  const void *data;
  int dtype, itemsize;
  int64_t boxes, fields, limit; /* limit: boxes to keep, negative: all */
  int64_t force, top_k, coord, score, id;
  float threshold;
} job;

#define CORNERS(C, LOAD)                                                                  \
  const C a0 = LOAD(at_a), a1 = LOAD(at_a + 1), a2 = LOAD(at_a + 2), a3 = LOAD(at_a + 3); \
  const C b0 = LOAD(at_b), b1 = LOAD(at_b + 1), b2 = LOAD(at_b + 2), b3 = LOAD(at_b + 3); \
  const C al = a0 < a2 ? a0 : a2, at = a1 < a3 ? a1 : a3, ar = a0 > a2 ? a0 : a2,         \
          ab = a1 > a3 ? a1 : a3;                                                         \
  const C bl = b0 < b2 ? b0 : b2, bt = b1 < b3 ? b1 : b3, br = b0 > b2 ? b0 : b2,         \
          bb = b1 > b3 ? b1 : b3;                                                         \
  const C wide = (ar < br ? ar : br) - (al > bl ? al : bl);                               \
  const C high = (ab < bb ? ab : bb) - (at > bt ? at : bt);                               \
  const C area = (high > 0 ? high : 0) * (wide > 0 ? wide : 0);                           \
  const C both = (ar - al) * (ab - at) + (br - bl) * (bb - bt) - area;                    \
  return !(both <= 0) && area / both >= (C)j->threshold

/* Whether boxes a and b (numbers of boxes in the whole tensor) overlap too much. */
static int overlap(const job *j, int64_t a, int64_t b) {
  const int64_t at_a = a * j->fields + j->coord, at_b = b * j->fields + j->coord;
#define LOAD_HALF(i)   nvm_half_to_float(((const uint16_t *)j->data)[i])
#define LOAD_FLOAT(i)  (((const float *)j->data)[i])
#define LOAD_DOUBLE(i) (((const double *)j->data)[i])
  if (j->dtype == NVM_DTYPE_FLOAT16) {
    CORNERS(float, LOAD_HALF);
  }
  if (j->dtype == NVM_DTYPE_FLOAT32) {
    CORNERS(float, LOAD_FLOAT);
  }
  CORNERS(double, LOAD_DOUBLE);
}

static double box_field(const job *j, int64_t box, int64_t which) {
  return field(j->dtype, j->data, box * j->fields + which);
}

/* Decide about the boxes in `order` (places in the batch, best first); those that go become -1.
 * `front`: room for the numbers of boxes that may suppress. */
static nvm_status suppress(const nvm_kernel_ctx *ctx, const job *j, int64_t first, int64_t *order,
                           int64_t count, int64_t *front, int64_t *work) {
  int64_t held = 0, suppressors = 0;
  for (int64_t p = 0; p < count; ++p) {
    const int64_t box = first + order[p];
    int drop = held == j->limit;
    if (!drop && !(box_field(j, box, j->score) > 0)) continue;
    for (int64_t k = 0; !drop && k < suppressors; ++k) {
      const int same =
          j->force || j->id < 0 || box_field(j, box, j->id) == box_field(j, front[k], j->id);
      drop = same && overlap(j, box, front[k]);
    }
    if (drop) {
      order[p] = -1;
    } else {
      ++held;
      if (j->id < 0 || box_field(j, box, j->id) >= 0) front[suppressors++] = box;
    }
    const nvm_status status = nvm_order_charge(ctx, 1 + 8 * suppressors, work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}

/* The order in which a batch's boxes stand in the result, -1 for those that are gone: NULL on
 * failure. */
static int64_t *arrange(const nvm_kernel_ctx *ctx, const job *j, int64_t first, int64_t valid,
                        uint64_t *scratch, int64_t *work, nvm_status *status) {
  if (!(j->threshold > 0) || valid == 0) {
    int64_t *order = (int64_t *)scratch;
    for (int64_t p = 0; p < valid; ++p) order[p] = p;
    *status = NVM_OK;
    return order;
  }
  uint64_t *keys, *spare;
  nvm_order_keys(j->dtype, j->data, first * j->fields + j->score, j->fields, valid, UINT64_MAX,
                 scratch);
  int64_t *order = nvm_order_sort(ctx, scratch, valid, work, &keys, &spare, status);
  if (!order) return NULL;
  const int64_t kept = 0 < j->top_k && j->top_k < valid ? j->top_k : valid;
  *status = suppress(ctx, j, first, order, kept, (int64_t *)spare, work);
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
  const job j = {.data = bufs[0],
                 .dtype = dtype,
                 .itemsize = itemsize,
                 .boxes = boxes,
                 .fields = dims[2],
                 .limit = *(const int32_t *)bufs[3],
                 .force = dims[3],
                 .top_k = dims[4],
                 .coord = dims[5],
                 .score = dims[6],
                 .id = dims[7],
                 .threshold = *(const float *)bufs[4]};
  int64_t work = 0;
  nvm_status status = check(ctx, dims);
  for (int64_t b = 0; status == NVM_OK && b < batch; ++b) {
    const int64_t valid = valid_count[b], first = b * boxes;
    if (valid < 0 || valid > boxes)
      return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 1, valid, boxes + 1);
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

#define VARIANTS(name, NUMBER, size)                                                          \
  nvm_status nvm_kernel_get_valid_counts_##name(const nvm_kernel_ctx *ctx, void *const *bufs, \
                                                int64_t *dims) {                              \
    return valid_counts(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims);                           \
  }                                                                                           \
  nvm_status nvm_kernel_nms_indices_##name(const nvm_kernel_ctx *ctx, void *const *bufs,      \
                                           int64_t *dims) {                                   \
    return nms(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims, bufs[6], bufs[7]);                  \
  }                                                                                           \
  nvm_status nvm_kernel_nms_boxes_##name(const nvm_kernel_ctx *ctx, void *const *bufs,        \
                                         int64_t *dims) {                                     \
    return nms(ctx, NVM_DTYPE_##NUMBER, size, bufs, dims, NULL, bufs[6]);                     \
  }

VARIANTS(float16, FLOAT16, 2)
VARIANTS(float32, FLOAT32, 4)
VARIANTS(float64, FLOAT64, 8)
