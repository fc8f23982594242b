/* regular_nms and proposal: the best boxes of a detector, as TFLite and Faster R-CNN pick them. All
 * in float32, one operation after the other. */
#include <math.h>
#include <string.h>

#include "generated/nvm_c_kernels.h"
#include "generated/nvm_math.h"
#include "order.h"

static float number(int64_t bits) {
  const uint32_t low = (uint32_t)bits;
  float value;
  memcpy(&value, &low, sizeof value);
  return value;
}

static inline float least(float a, float b) { return a < b ? a : b; }
static inline float most(float a, float b) { return a > b ? a : b; }

/* How much two boxes overlap: area of the intersection by that of the union; `more` is what a side
 * is longer than the difference of its corners. */
static inline float overlap(const float *a, const float *b, float more) {
  const float high = most(0, least(a[2], b[2]) - most(a[0], b[0]) + more);
  const float wide = most(0, least(a[3], b[3]) - most(a[1], b[1]) + more);
  const float area = (a[2] - a[0] + more) * (a[3] - a[1] + more);
  const float other = (b[2] - b[0] + more) * (b[3] - b[1] + more);
  if (more == 0 && !(area > 0 && other > 0)) return 0;
  return high * wide / (area + other - high * wide);
}

/* --- regular_nms ----------------------------------------------------------------------------- */

/* Boxes that were kept are places in a batch's (boxes, columns) scores. */
typedef struct regular {
  const float *boxes, *scores;
  int64_t count, columns, per_class, most;
  float threshold, least;
} regular;

/* The kept boxes of one class, best first, at the front of the last row of scratch. */
static nvm_status keep(const nvm_kernel_ctx *ctx, const regular *r, int64_t column,
                       uint64_t *scratch, int64_t *out_kept, int64_t *work) {
  int64_t *candidates = (int64_t *)scratch + 4 * r->count, *kept = candidates + r->count;
  int64_t valid = 0, held = 0;
  uint64_t *keys, *spare;
  nvm_status status = NVM_OK;
  *out_kept = 0;
  for (int64_t i = 0; i < r->count; ++i) {
    const int64_t place = i * r->columns + column;
    if (!(r->scores[place] >= r->least)) continue;
    scratch[valid] = ~nvm_order_key(NVM_DTYPE_FLOAT32, r->scores, place);
    candidates[valid++] = i;
  }
  status = nvm_order_charge(ctx, r->count, work);
  if (status != NVM_OK || valid == 0) return status;
  const int64_t *order = nvm_order_sort(ctx, scratch, valid, work, &keys, &spare, &status);
  if (!order) return status;
  for (int64_t p = 0; p < valid && held < r->per_class; ++p) {
    const int64_t i = candidates[order[p]];
    int drop = 0;
    for (int64_t k = 0; k < held && !drop; ++k)
      drop = overlap(r->boxes + 4 * (kept[k] / r->columns), r->boxes + 4 * i, 0) > r->threshold;
    if (!drop) kept[held++] = i * r->columns + column;
    status = nvm_order_charge(ctx, 1 + 4 * held, work);
    if (status != NVM_OK) return status;
  }
  *out_kept = held;
  return status;
}

/* The best of two rows in order, equal ones of the first before those of the second. */
static int64_t merge(const regular *r, const int64_t *a, int64_t n, const int64_t *b, int64_t m,
                     int64_t *out) {
  int64_t i = 0, j = 0, k = 0;
  for (; k < r->most && (i < n || j < m); ++k) {
    const int first = j == m || (i < n && !(r->scores[b[j]] > r->scores[a[i]]));
    out[k] = first ? a[i++] : b[j++];
  }
  return k;
}

/* dims: batch, boxes, columns, max_detections_per_class, max_detections, num_classes,
 * iou_threshold, score_threshold (their bits). */
nvm_status nvm_kernel_regular_nms_float32(const nvm_kernel_ctx *ctx, void *const *bufs,
                                          int64_t *dims) {
  const int64_t batch = dims[0], count = dims[1], columns = dims[2], limit = dims[4];
  const int64_t classes = dims[5], first = columns - classes;
  int64_t work = 0, held;
  if (classes < 0 || first < 0) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 1, columns, classes);
  for (int64_t b = 0; b < batch; ++b) {
    const regular r = {(const float *)bufs[0] + 4 * b * count,
                       (const float *)bufs[1] + b * count * columns,
                       count,
                       columns,
                       dims[3],
                       limit,
                       number(dims[6]),
                       number(dims[7])};
    int64_t *best = bufs[7], *other = best + limit, left = 0;
    const int64_t *kept = (const int64_t *)bufs[6] + 5 * count;
    for (int64_t c = 0; count > 0 && c < classes; ++c) {
      nvm_status status = keep(ctx, &r, first + c, bufs[6], &held, &work);
      if (status != NVM_OK) return status;
      if (held == 0) continue;
      left = merge(&r, best, left, kept, held, other);
      int64_t *swap = best;
      best = other;
      other = swap;
      status = nvm_order_charge(ctx, 2 * left, &work);
      if (status != NVM_OK) return status;
    }
    float *boxes = (float *)bufs[2] + 4 * b * limit, *labels = (float *)bufs[3] + b * limit;
    float *scores = (float *)bufs[4] + b * limit;
    for (int64_t k = 0; k < left; ++k) {
      memcpy(boxes + 4 * k, r.boxes + 4 * (best[k] / columns), 4 * sizeof *boxes);
      labels[k] = (float)(best[k] % columns - first);
      scores[k] = r.scores[best[k]];
    }
    for (int64_t k = left; k < limit; ++k) {
      memset(boxes + 4 * k, 0, 4 * sizeof *boxes);
      labels[k] = scores[k] = 0;
    }
    ((int32_t *)bufs[5])[b] = (int32_t)left;
    const nvm_status status = nvm_order_charge(ctx, limit, &work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}

/* --- proposal -------------------------------------------------------------------------------- */

enum { SLOTS = 8 }; /* for scales, and for ratios */

typedef struct region {
  int64_t height, width, anchors, boxes, stride;
  float min_size;
  int iou_loss;
  float anchor[SLOTS * SLOTS][4];
} region;

/* The anchors around the first place: for each ratio, for each scale. */
static void make_anchors(region *r, int64_t scales, const int64_t *scale, int64_t ratios,
                         const int64_t *ratio) {
  const double side = (double)r->stride, centre = 0.5 * (side - 1);
  for (int64_t k = 0; k < scales * ratios; ++k) {
    const double high_by_wide = (double)number(ratio[k / scales]);
    const double times = (double)number(scale[k % scales]);
    const double wide = floor(sqrt(floor(side * side / high_by_wide)) + 0.5);
    const double half_wide = 0.5 * (wide * times - 1);
    const double half_high = 0.5 * (floor(wide * high_by_wide + 0.5) * times - 1);
    r->anchor[k][0] = (float)(centre - half_wide);
    r->anchor[k][1] = (float)(centre - half_high);
    r->anchor[k][2] = (float)(centre + half_wide);
    r->anchor[k][3] = (float)(centre + half_high);
  }
}

/* An anchor's corners moved as predicted. */
static void move(const region *r, float *box, const float *delta, int64_t step) {
  const float dx = delta[0], dy = delta[step], dw = delta[2 * step], dh = delta[3 * step];
  if (r->iou_loss) {
    box[0] += dx;
    box[1] += dy;
    box[2] += dw;
    box[3] += dh;
    return;
  }
  const float wide = box[2] - box[0] + 1, high = box[3] - box[1] + 1;
  const float x = dx * wide + (box[0] + 0.5f * (wide - 1));
  const float y = dy * high + (box[1] + 0.5f * (high - 1));
  const float half_wide = 0.5f * (nvm_exp_f32(dw) * wide - 1);
  const float half_high = 0.5f * (nvm_exp_f32(dh) * high - 1);
  box[0] = x - half_wide;
  box[1] = y - half_high;
  box[2] = x + half_wide;
  box[3] = y + half_high;
}

/* Boxes and keys of one image: four corners a box; keys put the best score first. */
static nvm_status predict(const nvm_kernel_ctx *ctx, const region *r, const float *score,
                          const float *delta, const float *info, float *boxes, uint64_t *keys,
                          int64_t *work) {
  const int64_t plane = r->height * r->width;
  const float rows = truncf(info[0] / (float)r->stride),
              columns = truncf(info[1] / (float)r->stride);
  const float limit = info[2] * r->min_size;
  for (int64_t at = 0; at < plane; ++at) {
    const int64_t y = at / r->width, x = at % r->width;
    const float down = (float)(y * r->stride), right = (float)(x * r->stride);
    for (int64_t k = 0; k < r->anchors; ++k) {
      const int64_t number_of = at * r->anchors + k;
      float *box = boxes + 4 * number_of;
      float found = score[(r->anchors + k) * plane + at];
      for (int i = 0; i < 4; ++i) box[i] = r->anchor[k][i] + (i % 2 ? down : right);
      move(r, box, delta + 4 * k * plane + at, plane);
      for (int i = 0; i < 4; ++i) box[i] = most(least(box[i], info[i % 2 ? 0 : 1] - 1), 0);
      if (!((float)y < rows && (float)x < columns)) found = -1;
      if (box[2] - box[0] + 1 < limit || box[3] - box[1] + 1 < limit) {
        for (int i = 0; i < 4; ++i) box[i] += i < 2 ? -limit / 2 : limit / 2;
        found = -1;
      }
      keys[number_of] = ~nvm_order_key(NVM_DTYPE_FLOAT32, &found, 0);
    }
    const nvm_status status = nvm_order_charge(ctx, 8 * r->anchors, work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}

/* Of the first `count` boxes in order those that overlap no better one by more than threshold, as
 * many as are wanted: their places, and how many. */
static nvm_status pick(const nvm_kernel_ctx *ctx, const float *boxes, const int64_t *order,
                       int64_t count, int64_t wanted, float threshold, int64_t *picked,
                       int64_t *out_count, int64_t *work) {
  int64_t held = 0;
  for (int64_t p = 0; p < count && held < wanted; ++p) {
    int drop = 0;
    for (int64_t k = 0; k < held && !drop; ++k)
      drop = overlap(boxes + 4 * picked[k], boxes + 4 * order[p], 1) > threshold;
    if (!drop) picked[held++] = order[p];
    const nvm_status status = nvm_order_charge(ctx, 1 + 4 * held, work);
    if (status != NVM_OK) return status;
  }
  *out_count = held;
  return NVM_OK;
}

/* dims: batch, classes (2 an anchor), deltas (4 an anchor), height, width, boxes, rows; then
 * feature_stride, rpn_pre_nms_top_n, rpn_post_nms_top_n, iou_loss, threshold (its bits),
 * rpn_min_size, scales, ratios (how many), and the bits of each. */
static nvm_status check(const nvm_kernel_ctx *ctx, const int64_t *dims) {
  const int64_t *attrs = dims + 7, scales = attrs[6], ratios = attrs[7];
  int64_t all, rows;
  if (scales < 1 || scales > SLOTS) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, scales, SLOTS);
  if (ratios < 1 || ratios > SLOTS) return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, ratios, SLOTS);
  if (dims[1] != 2 * scales * ratios)
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, dims[1], 2 * scales * ratios);
  if (dims[2] != 4 * scales * ratios)
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 1, dims[2], 4 * scales * ratios);
  if (__builtin_mul_overflow(dims[3], dims[4], &all) ||
      __builtin_mul_overflow(all, scales * ratios, &all) || all != dims[5])
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, dims[5], all);
  if (attrs[0] < 1 || attrs[0] > INT32_MAX || dims[3] > INT32_MAX || dims[4] > INT32_MAX)
    return ctx->fail(ctx, NVM_KERNEL_ERROR, 0, attrs[0], INT32_MAX);
  if (__builtin_mul_overflow(dims[0], attrs[2], &rows) || rows != dims[6])
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 3, dims[6], rows);
  return NVM_OK;
}

nvm_status nvm_kernel_proposal_float32(const nvm_kernel_ctx *ctx, void *const *bufs,
                                       int64_t *dims) {
  const int64_t batch = dims[0], boxes = dims[5], *attrs = dims + 7, wanted = attrs[2];
  const int64_t limit = attrs[1] > 0 && attrs[1] < boxes ? attrs[1] : boxes;
  int64_t work = 0;
  nvm_status status = check(ctx, dims);
  if (status != NVM_OK || wanted <= 0) return status;
  const int64_t plane = dims[3] * dims[4];
  region r = {.height = dims[3],
              .width = dims[4],
              .anchors = attrs[6] * attrs[7],
              .boxes = boxes,
              .stride = attrs[0],
              .min_size = (float)attrs[5],
              .iou_loss = attrs[3] != 0};
  make_anchors(&r, attrs[6], attrs + 8, attrs[7], attrs + 8 + SLOTS);
  for (int64_t b = 0; b < batch; ++b) {
    float *corners = bufs[4], *out = (float *)bufs[3] + 5 * b * wanted;
    uint64_t *keys, *spare;
    int64_t count = 0, *picked = NULL;
    if (boxes > 0) {
      status = predict(ctx, &r, (const float *)bufs[0] + b * dims[1] * plane,
                       (const float *)bufs[1] + b * dims[2] * plane, (const float *)bufs[2] + 3 * b,
                       corners, bufs[5], &work);
      if (status != NVM_OK) return status;
      const int64_t *order = nvm_order_sort(ctx, bufs[5], boxes, &work, &keys, &spare, &status);
      if (!order) return status;
      picked = (int64_t *)spare;
      status = pick(ctx, corners, order, limit, wanted, number(attrs[4]), picked, &count, &work);
      if (status != NVM_OK) return status;
    }
    for (int64_t row = 0; row < wanted; ++row) {
      memset(out + 5 * row, 0, 5 * sizeof *out);
      out[5 * row] = (float)b;
      if (count > 0) memcpy(out + 5 * row + 1, corners + 4 * picked[row % count], 4 * sizeof *out);
    }
    status = nvm_order_charge(ctx, 5 * wanted, &work);
    if (status != NVM_OK) return status;
  }
  return NVM_OK;
}
