/* Keys and the stable sort behind sort, topk, unique and non_max_suppression (order.h).
 *
 * Few elements are sorted by insertion, more by their keys' bytes, least significant first; bytes
 * that are equal in all keys are skipped, so that narrow dtypes cost what they are wide.
 */
#include "order.h"

#include <string.h>

#include "generated/nvm_dtype.h"

enum { INSERTION = 48 };

nvm_status nvm_order_charge(const nvm_kernel_ctx *ctx, int64_t elements, int64_t *work) {
  *work += elements;
  if (*work < NVM_POLL_EVERY) return NVM_OK;
  *work = 0;
  return ctx->poll ? ctx->poll(ctx) : NVM_OK;
}

static inline uint64_t key_signed(int64_t x) { return (uint64_t)x ^ (UINT64_C(1) << 63); }

static inline uint64_t key_half(uint16_t bits) {
  const uint16_t magnitude = bits & 0x7fff;
  if (magnitude > 0x7c00) return UINT64_MAX;
  if (magnitude == 0) return 0x8000;
  return bits & 0x8000 ? (uint16_t)~bits : (uint64_t)bits | 0x8000;
}

static inline uint64_t key_float(float x) {
  uint32_t bits;
  if (x != x) return UINT64_MAX;
  if (x == 0) x = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 31 ? ~bits : bits | UINT32_C(0x80000000);
}

static inline uint64_t key_double(double x) {
  uint64_t bits;
  if (x != x) return UINT64_MAX;
  if (x == 0) x = 0;
  memcpy(&bits, &x, sizeof bits);
  return bits >> 63 ? ~bits : bits | (UINT64_C(1) << 63);
}

/* clang-format off */
#define EVERY_DTYPE(X)                                                                             \
  case NVM_DTYPE_BOOL: X(uint8_t, (uint64_t)(x != 0)); break;                                      \
  case NVM_DTYPE_INT8: X(int8_t, key_signed(x)); break;                                            \
  case NVM_DTYPE_INT16: X(int16_t, key_signed(x)); break;                                          \
  case NVM_DTYPE_INT32: X(int32_t, key_signed(x)); break;                                          \
  case NVM_DTYPE_INT64: X(int64_t, key_signed(x)); break;                                          \
  case NVM_DTYPE_UINT8: X(uint8_t, (uint64_t)x); break;                                            \
  case NVM_DTYPE_UINT16: X(uint16_t, (uint64_t)x); break;                                          \
  case NVM_DTYPE_UINT32: X(uint32_t, (uint64_t)x); break;                                          \
  case NVM_DTYPE_UINT64: X(uint64_t, x); break;                                                    \
  case NVM_DTYPE_FLOAT16: X(uint16_t, key_half(x)); break;                                         \
  case NVM_DTYPE_FLOAT32: X(float, key_float(x)); break;                                           \
  case NVM_DTYPE_FLOAT64: X(double, key_double(x)); break;                                         \
  default: break;
/* clang-format on */

uint64_t nvm_order_key(int dtype, const void *data, int64_t i) {
#define ONE(T, key)                   \
  do {                                \
    const T x = ((const T *)data)[i]; \
    return key;                       \
  } while (0)
  switch (dtype) { EVERY_DTYPE(ONE) }
  return 0;
}

void nvm_order_keys(int dtype, const void *data, int64_t start, int64_t stride, int64_t count,
                    uint64_t flip, uint64_t *keys) {
#define ALL(T, key)                                      \
  do {                                                   \
    for (int64_t i = 0; i < count; ++i) {                \
      const T x = ((const T *)data)[start + i * stride]; \
      keys[i] = (key) ^ flip;                            \
    }                                                    \
  } while (0)
  switch (dtype) { EVERY_DTYPE(ALL) }
}

static void insertion(uint64_t *keys, int64_t *places, int64_t n) {
  for (int64_t i = 1; i < n; ++i) {
    const uint64_t key = keys[i];
    int64_t hole = i;
    for (; hole > 0 && keys[hole - 1] > key; --hole) {
      keys[hole] = keys[hole - 1];
      places[hole] = places[hole - 1];
    }
    keys[hole] = key;
    places[hole] = i;
  }
}

/* One pass over the byte at `shift`, from (keys, places) behind `from` to those behind `to`. */
static nvm_status scatter(const nvm_kernel_ctx *ctx, const uint64_t *from, uint64_t *to, int64_t n,
                          int shift, int64_t *work) {
  const int64_t *places = (const int64_t *)(from + n);
  int64_t *out_places = (int64_t *)(to + n);
  int64_t next[256] = {0}, sum = 0;
  nvm_status status = NVM_OK;
  NVM_PIECES(ctx, n, work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) ++next[from[i] >> shift & 255];
  }
  for (int b = 0; b < 256; ++b) {
    const int64_t count = next[b];
    next[b] = sum;
    sum += count;
  }
  NVM_PIECES(ctx, n, work, status, begin, end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = next[from[i] >> shift & 255]++;
      to[at] = from[i];
      out_places[at] = places[i];
    }
  }
  return status;
}

int64_t *nvm_order_sort(const nvm_kernel_ctx *ctx, uint64_t *scratch, int64_t n, int64_t *work,
                        uint64_t **out_keys, uint64_t **out_spare, nvm_status *status) {
  uint64_t *from = scratch, *to = scratch + 2 * n, differ = 0;
  int64_t *places = (int64_t *)(from + n);
  *status = NVM_OK;
  NVM_PIECES(ctx, n, work, *status, begin, end) {
    for (int64_t i = begin; i < end; ++i) {
      places[i] = i;
      differ |= from[i] ^ from[0];
    }
  }
  if (*status == NVM_OK && n <= INSERTION) {
    insertion(from, places, n);
    *status = nvm_order_charge(ctx, n, work);
    differ = 0;
  }
  for (int shift = 0; *status == NVM_OK && shift < 64; shift += 8) {
    if (!(differ >> shift & 255)) continue;
    *status = scatter(ctx, from, to, n, shift, work);
    uint64_t *other = from;
    from = to;
    to = other;
  }
  *out_keys = from;
  *out_spare = to;
  return *status == NVM_OK ? (int64_t *)(from + n) : NULL;
}

void nvm_order_copy(int itemsize, void *target, int64_t to, const void *source, int64_t from) {
  switch (itemsize) {
    case 1:
      ((uint8_t *)target)[to] = ((const uint8_t *)source)[from];
      break;
    case 2:
      ((uint16_t *)target)[to] = ((const uint16_t *)source)[from];
      break;
    case 4:
      ((uint32_t *)target)[to] = ((const uint32_t *)source)[from];
      break;
    default:
      ((uint64_t *)target)[to] = ((const uint64_t *)source)[from];
      break;
  }
}
