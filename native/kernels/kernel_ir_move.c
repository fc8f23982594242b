/* Row operations on lanes: conversions, selection, and moving elements between buffers and lanes.
 */
#include <math.h>
#include <string.h>

#include "generated/nvm_dtype.h"
#include "kernel_ir_ops.h"

#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3")
#endif

#define NAME2(a, b) a##_##b
#define NAME(a, b)  NAME2(a, b)
#define LANES       for (int64_t i = 0; i < n; ++i)

/* --- float16 ---------------------------------------------------------------------------------- */

static inline uint32_t float_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float bits_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

float nvm_half_to_float(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3FFu;
  if (exponent == 31) return bits_float(sign | 0x7F800000u | mantissa << 13);
  if (exponent) return bits_float(sign | (exponent + 112) << 23 | mantissa << 13);
  return bits_float(sign | float_bits((float)mantissa * 0x1p-24f));
}

uint16_t nvm_half_from_float(float x) {
  const uint32_t bits = float_bits(x), a = bits & 0x7FFFFFFFu;
  const uint32_t sign = bits >> 16 & 0x8000u;
  if (a > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (a >> 13 & 0x3FFu));
  if (a >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and more round to infinity */
  if (a < 0x38800000u) { /* below 2^-14: the sum's last bit is worth 2^-24 */
    return (uint16_t)(sign | (float_bits(bits_float(a) + 0.5f) - float_bits(0.5f)));
  }
  return (uint16_t)(sign | (a - 0x38000000u + 0xFFFu + (a >> 13 & 1u)) >> 13);
}

float nvm_half_prepare(double x) {
  const float nearest = (float)x;
  if ((double)nearest == x || nearest != nearest || fabsf(nearest) == INFINITY) return nearest;
  uint32_t bits = float_bits(nearest);
  if (fabs((double)nearest) > fabs(x)) --bits; /* towards zero */
  return bits_float(bits | 1u);
}

void nvm_ir_round_half(float *lanes, int64_t n) {
  LANES lanes[i] = nvm_half_to_float(nvm_half_from_float(lanes[i]));
}

/* Elements are moved as bits whatever their type. */
typedef uint16_t __attribute__((may_alias)) bits16;
typedef uint32_t __attribute__((may_alias)) bits32;
typedef uint64_t __attribute__((may_alias)) bits64;

/* --- select ----------------------------------------------------------------------------------- */

#define SELECT(s, T)                                                    \
  static int NAME(select, s)(const nvm_ir_row *row) {                   \
    T *restrict out = row->out;                                         \
    const uint8_t *cond = row->in[0];                                   \
    const T *yes = row->in[1], *no = row->in[2];                        \
    const int64_t n = row->n, c = (int64_t)row->step[0];                \
    const int64_t y = (int64_t)row->step[1], z = (int64_t)row->step[2]; \
    if (c & y & z) {                                                    \
      LANES {                                                           \
        const T a = yes[i], b = no[i];                                  \
        out[i] = cond[i] ? a : b;                                       \
      }                                                                 \
    } else {                                                            \
      LANES out[i] = cond[i * c] ? yes[i * y] : no[i * z];              \
    }                                                                   \
    return 0;                                                           \
  }
SELECT(1, uint8_t)
SELECT(2, bits16)
SELECT(4, bits32)
SELECT(8, bits64)

uint32_t nvm_ir_lane_size(uint8_t dtype) {
  return dtype == NVM_DTYPE_FLOAT16 ? 4 : nvm_dtypes[dtype].itemsize;
}

nvm_ir_op nvm_ir_select(uint8_t dtype) {
  if (dtype >= NVM_DTYPE_COUNT) return NULL;
  switch (nvm_ir_lane_size(dtype)) {
    case 1:
      return select_1;
    case 2:
      return select_2;
    case 4:
      return select_4;
    default:
      return select_8;
  }
}

/* --- casts ------------------------------------------------------------------------------------ */

#define CAST(name, T, R, expr)               \
  static int name(const nvm_ir_row *row) {   \
    R *restrict out = row->out;              \
    const T *restrict in = row->in[0];       \
    const int64_t n = row->n;                \
    const int64_t s = (int64_t)row->step[0]; \
    LANES {                                  \
      const T x = in[i * s];                 \
      out[i] = (R)(expr);                    \
    }                                        \
    return 0;                                \
  }

/* Saturating: `top` is the first power of two above the range. */
#define SATURATE(F, R, low, high, top) \
  (x != x ? (R)0 : x <= (F)(low) ? (R)(low) : x >= (F)(top) ? (R)(high) : (R)x)

#define CAST_FROM_INTEGER(from, T)              \
  CAST(NAME(from, to_bool), T, uint8_t, x != 0) \
  CAST(NAME(from, to_i8), T, int8_t, x)         \
  CAST(NAME(from, to_i16), T, int16_t, x)       \
  CAST(NAME(from, to_i32), T, int32_t, x)       \
  CAST(NAME(from, to_i64), T, int64_t, x)       \
  CAST(NAME(from, to_u8), T, uint8_t, x)        \
  CAST(NAME(from, to_u16), T, uint16_t, x)      \
  CAST(NAME(from, to_u32), T, uint32_t, x)      \
  CAST(NAME(from, to_u64), T, uint64_t, x)      \
  CAST(NAME(from, to_f32), T, float, x)         \
  CAST(NAME(from, to_f64), T, double, x)
#define CAST_FROM_FLOAT(from, T)                                                           \
  CAST(NAME(from, to_bool), T, uint8_t, x != 0)                                            \
  CAST(NAME(from, to_i8), T, int8_t, SATURATE(T, int8_t, INT8_MIN, INT8_MAX, 0x1p7))       \
  CAST(NAME(from, to_i16), T, int16_t, SATURATE(T, int16_t, INT16_MIN, INT16_MAX, 0x1p15)) \
  CAST(NAME(from, to_i32), T, int32_t, SATURATE(T, int32_t, INT32_MIN, INT32_MAX, 0x1p31)) \
  CAST(NAME(from, to_i64), T, int64_t, SATURATE(T, int64_t, INT64_MIN, INT64_MAX, 0x1p63)) \
  CAST(NAME(from, to_u8), T, uint8_t, SATURATE(T, uint8_t, 0, UINT8_MAX, 0x1p8))           \
  CAST(NAME(from, to_u16), T, uint16_t, SATURATE(T, uint16_t, 0, UINT16_MAX, 0x1p16))      \
  CAST(NAME(from, to_u32), T, uint32_t, SATURATE(T, uint32_t, 0, UINT32_MAX, 0x1p32))      \
  CAST(NAME(from, to_u64), T, uint64_t, SATURATE(T, uint64_t, 0, UINT64_MAX, 0x1p64))      \
  CAST(NAME(from, to_f32), T, float, x)                                                    \
  CAST(NAME(from, to_f64), T, double, x)

CAST_FROM_INTEGER(u8, uint8_t)
CAST_FROM_INTEGER(u16, uint16_t)
CAST_FROM_INTEGER(u32, uint32_t)
CAST_FROM_INTEGER(u64, uint64_t)
CAST_FROM_INTEGER(i8, int8_t)
CAST_FROM_INTEGER(i16, int16_t)
CAST_FROM_INTEGER(i32, int32_t)
CAST_FROM_INTEGER(i64, int64_t)
CAST_FROM_FLOAT(f32, float)
CAST_FROM_FLOAT(f64, double)
CAST(f64_to_f16, double, float, nvm_half_prepare(x))

/* What goes to float16 is rounded by the caller; integers above 2^24 are infinite there, so float
 * loses nothing. */
#define CAST_ROW(from, half)                                                          \
  {[NVM_DTYPE_BOOL] = NAME(from, to_bool),   [NVM_DTYPE_INT8] = NAME(from, to_i8),    \
   [NVM_DTYPE_INT16] = NAME(from, to_i16),   [NVM_DTYPE_INT32] = NAME(from, to_i32),  \
   [NVM_DTYPE_INT64] = NAME(from, to_i64),   [NVM_DTYPE_UINT8] = NAME(from, to_u8),   \
   [NVM_DTYPE_UINT16] = NAME(from, to_u16),  [NVM_DTYPE_UINT32] = NAME(from, to_u32), \
   [NVM_DTYPE_UINT64] = NAME(from, to_u64),  [NVM_DTYPE_FLOAT16] = NAME(from, half),  \
   [NVM_DTYPE_FLOAT32] = NAME(from, to_f32), [NVM_DTYPE_FLOAT64] = NAME(from, to_f64)}

static const nvm_ir_op casts[NVM_DTYPE_COUNT][NVM_DTYPE_COUNT] = {
    [NVM_DTYPE_BOOL] = CAST_ROW(u8, to_f32),     [NVM_DTYPE_INT8] = CAST_ROW(i8, to_f32),
    [NVM_DTYPE_INT16] = CAST_ROW(i16, to_f32),   [NVM_DTYPE_INT32] = CAST_ROW(i32, to_f32),
    [NVM_DTYPE_INT64] = CAST_ROW(i64, to_f32),   [NVM_DTYPE_UINT8] = CAST_ROW(u8, to_f32),
    [NVM_DTYPE_UINT16] = CAST_ROW(u16, to_f32),  [NVM_DTYPE_UINT32] = CAST_ROW(u32, to_f32),
    [NVM_DTYPE_UINT64] = CAST_ROW(u64, to_f32),  [NVM_DTYPE_FLOAT16] = CAST_ROW(f32, to_f32),
    [NVM_DTYPE_FLOAT32] = CAST_ROW(f32, to_f32), [NVM_DTYPE_FLOAT64] = CAST_ROW(f64, to_f16),
};

nvm_ir_op nvm_ir_cast(uint8_t to, uint8_t from) {
  return to < NVM_DTYPE_COUNT && from < NVM_DTYPE_COUNT ? casts[from][to] : NULL;
}

/* --- elements --------------------------------------------------------------------------------- */

/* One loop for every element width; `at` is the element offset of lane i. */
#define MOVE_IN(at)                                                            \
  switch (dtype) {                                                             \
    case NVM_DTYPE_BOOL:                                                       \
      LANES((uint8_t *)lanes)[i] = ((const uint8_t *)src)[at] != 0;            \
      return;                                                                  \
    case NVM_DTYPE_INT8:                                                       \
    case NVM_DTYPE_UINT8:                                                      \
      LANES((uint8_t *)lanes)[i] = ((const uint8_t *)src)[at];                 \
      return;                                                                  \
    case NVM_DTYPE_INT16:                                                      \
    case NVM_DTYPE_UINT16:                                                     \
      LANES((bits16 *)lanes)[i] = ((const bits16 *)src)[at];                   \
      return;                                                                  \
    case NVM_DTYPE_FLOAT16:                                                    \
      LANES((float *)lanes)[i] = nvm_half_to_float(((const bits16 *)src)[at]); \
      return;                                                                  \
    case NVM_DTYPE_INT32:                                                      \
    case NVM_DTYPE_UINT32:                                                     \
    case NVM_DTYPE_FLOAT32:                                                    \
      LANES((bits32 *)lanes)[i] = ((const bits32 *)src)[at];                   \
      return;                                                                  \
    default:                                                                   \
      LANES((bits64 *)lanes)[i] = ((const bits64 *)src)[at];                   \
      return;                                                                  \
  }

#define MOVE_OUT(at)                                                                 \
  switch (dtype) {                                                                   \
    case NVM_DTYPE_BOOL:                                                             \
    case NVM_DTYPE_INT8:                                                             \
    case NVM_DTYPE_UINT8:                                                            \
      LANES((uint8_t *)dst)[at] = ((const uint8_t *)lanes)[i * s];                   \
      return;                                                                        \
    case NVM_DTYPE_INT16:                                                            \
    case NVM_DTYPE_UINT16:                                                           \
      LANES((bits16 *)dst)[at] = ((const bits16 *)lanes)[i * s];                     \
      return;                                                                        \
    case NVM_DTYPE_FLOAT16:                                                          \
      LANES((bits16 *)dst)[at] = nvm_half_from_float(((const float *)lanes)[i * s]); \
      return;                                                                        \
    case NVM_DTYPE_INT32:                                                            \
    case NVM_DTYPE_UINT32:                                                           \
    case NVM_DTYPE_FLOAT32:                                                          \
      LANES((bits32 *)dst)[at] = ((const bits32 *)lanes)[i * s];                     \
      return;                                                                        \
    default:                                                                         \
      LANES((bits64 *)dst)[at] = ((const bits64 *)lanes)[i * s];                     \
      return;                                                                        \
  }

void nvm_ir_read(void *lanes, const void *src, int64_t step, int64_t n, uint8_t dtype) {
  MOVE_IN(i * step)
}

void nvm_ir_gather(void *lanes, const void *src, const int64_t *offsets, int64_t n, uint8_t dtype) {
  MOVE_IN(offsets[i])
}

void nvm_ir_write(void *dst, int64_t step, const void *lanes, uint32_t lane_step, int64_t n,
                  uint8_t dtype) {
  const int64_t s = (int64_t)lane_step;
  if (step == 1 && s == 1 && dtype != NVM_DTYPE_FLOAT16) {
    memcpy(dst, lanes, (size_t)n * nvm_dtypes[dtype].itemsize);
    return;
  }
  MOVE_OUT(i * step)
}

void nvm_ir_scatter(void *dst, const int64_t *offsets, const void *lanes, uint32_t lane_step,
                    int64_t n, uint8_t dtype) {
  const int64_t s = (int64_t)lane_step;
  MOVE_OUT(offsets[i])
}
