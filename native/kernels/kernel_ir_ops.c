/* Row operations on lanes: arithmetic. Plain loops that the compiler vectorises; sanitizer builds
 * leave them scalar. */
/* Nobody reads the exception flags, and with them loops that select could not be vectorised. Values
 * are the same. */
#if defined(__GNUC__) && !defined(__clang__) && defined(__OPTIMIZE__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

#include "kernel_ir_ops.h"

#include <math.h>

#include "generated/nvm_dtype.h"
#include "generated/nvm_loop_ir.h"
#include "generated/nvm_math.h"

#define NAME2(a, b) a##_##b
#define NAME(a, b)  NAME2(a, b)
#define LANES       for (int64_t i = 0; i < n; ++i)

/* The integer lane types: X(suffix, type, type of wrapping arithmetic, bits). */
#define SIGNED_TYPES(X)      \
  X(i8, int8_t, uint32_t, 8) \
  X(i16, int16_t, uint32_t, 16) X(i32, int32_t, uint32_t, 32) X(i64, int64_t, uint64_t, 64)
#define UNSIGNED_TYPES(X)     \
  X(u8, uint8_t, uint32_t, 8) \
  X(u16, uint16_t, uint32_t, 16) X(u32, uint32_t, uint32_t, 32) X(u64, uint64_t, uint64_t, 64)
#define FLOAT_TYPES(X) X(f32, float) X(f64, double)

#define UNARY(name, T, R, expr)            \
  static int name(const nvm_ir_row *row) { \
    R *restrict out = row->out;            \
    const T *restrict in = row->in[0];     \
    const int64_t n = row->n;              \
    if (row->step[0]) {                    \
      LANES {                              \
        const T x = in[i];                 \
        out[i] = (R)(expr);                \
      }                                    \
    } else {                               \
      const T x = in[0];                   \
      const R value = (R)(expr);           \
      LANES out[i] = value;                \
    }                                      \
    return 0;                              \
  }

#define BINARY(name, T, R, expr)                  \
  static int name(const nvm_ir_row *row) {        \
    R *restrict out = row->out;                   \
    const T *restrict lhs = row->in[0];           \
    const T *restrict rhs = row->in[1];           \
    const int64_t n = row->n;                     \
    if (row->step[0] & row->step[1]) {            \
      LANES {                                     \
        const T x = lhs[i], y = rhs[i];           \
        out[i] = (R)(expr);                       \
      }                                           \
    } else if (row->step[0]) {                    \
      const T y = rhs[0];                         \
      LANES {                                     \
        const T x = lhs[i];                       \
        out[i] = (R)(expr);                       \
      }                                           \
    } else {                                      \
      const T x = lhs[0];                         \
      const int64_t step = (int64_t)row->step[1]; \
      LANES {                                     \
        const T y = rhs[i * step];                \
        out[i] = (R)(expr);                       \
      }                                           \
    }                                             \
    return 0;                                     \
  }

/* Like BINARY, after a look for zero divisors. */
#define DIVISION(name, T, expr)                  \
  BINARY(NAME(name, rows), T, T, expr)           \
  static int name(const nvm_ir_row *row) {       \
    const T *rhs = row->in[1];                   \
    const int64_t n = row->step[1] ? row->n : 1; \
    int zero = 0;                                \
    LANES zero |= rhs[i] == 0;                   \
    return zero ? 1 : NAME(name, rows)(row);     \
  }

/* --- arithmetic ------------------------------------------------------------------------------- */

#define INTEGER_OPS(s, T, U, bits)                        \
  BINARY(NAME(add, s), T, T, (U)x + (U)y)                 \
  BINARY(NAME(sub, s), T, T, (U)x - (U)y)                 \
  BINARY(NAME(mul, s), T, T, (U)x *(U)y)                  \
  BINARY(NAME(min, s), T, T, x < y ? x : y)               \
  BINARY(NAME(max, s), T, T, x > y ? x : y)               \
  BINARY(NAME(and, s), T, T, x &y)                        \
  BINARY(NAME(or, s), T, T, x | y)                        \
  BINARY(NAME(xor, s), T, T, x ^ y)                       \
  BINARY(NAME(shl, s), T, T, (U)x << ((U)y & (bits - 1))) \
  BINARY(NAME(shr, s), T, T, x >> ((U)y & (bits - 1)))    \
  UNARY(NAME(neg, s), T, T, (U)0 - (U)x)                  \
  UNARY(NAME(bitnot, s), T, T, ~x)

#define SIGNED_OPS(s, T, U, bits)                                                      \
  INTEGER_OPS(s, T, U, bits)                                                           \
  UNARY(NAME(abs, s), T, T, x < 0 ? (U)0 - (U)x : (U)x)                                \
  UNARY(NAME(sign, s), T, T, (x > 0) - (x < 0))                                        \
  DIVISION(NAME(div, s), T, y == -1 ? (T)((U)0 - (U)x) : x / y)                        \
  DIVISION(NAME(mod, s), T, y == -1 ? 0 : x % y)                                       \
  DIVISION(NAME(floordiv, s), T,                                                       \
           y == -1 ? (T)((U)0 - (U)x) : x / y - ((x % y != 0) & ((x < 0) != (y < 0)))) \
  DIVISION(NAME(floormod, s), T,                                                       \
           y == -1 ? 0 : x % y + ((x % y != 0) & ((x < 0) != (y < 0)) ? y : 0))

#define UNSIGNED_OPS(s, T, U, bits)     \
  INTEGER_OPS(s, T, U, bits)            \
  UNARY(NAME(abs, s), T, T, x)          \
  UNARY(NAME(sign, s), T, T, x > 0)     \
  DIVISION(NAME(div, s), T, x / y)      \
  DIVISION(NAME(mod, s), T, x % y)      \
  DIVISION(NAME(floordiv, s), T, x / y) \
  DIVISION(NAME(floormod, s), T, x % y)

SIGNED_TYPES(SIGNED_OPS)
UNSIGNED_TYPES(UNSIGNED_OPS)

#define FLOAT_MATH(s, T, fn)                                          \
  static inline T NAME(floormod_value, s)(T x, T y) {                 \
    const T m = fn(fmod)(x, y);                                       \
    if (m == 0) return fn(copysign)(m, y);                            \
    return (m < 0) != (y < 0) ? m + y : m;                            \
  }                                                                   \
  BINARY(NAME(add, s), T, T, x + y)                                   \
  BINARY(NAME(sub, s), T, T, x - y)                                   \
  BINARY(NAME(mul, s), T, T, x *y)                                    \
  BINARY(NAME(div, s), T, T, x / y)                                   \
  BINARY(NAME(min, s), T, T, x < y || x != x ? x : y)                 \
  BINARY(NAME(max, s), T, T, x > y || x != x ? x : y)                 \
  BINARY(NAME(mod, s), T, T, fn(fmod)(x, y))                          \
  BINARY(NAME(floordiv, s), T, T, fn(floor)(x / y))                   \
  BINARY(NAME(floormod, s), T, T, NAME(floormod_value, s)(x, y))      \
  UNARY(NAME(neg, s), T, T, -x)                                       \
  UNARY(NAME(abs, s), T, T, fn(fabs)(x))                              \
  UNARY(NAME(sqrt, s), T, T, fn(sqrt)(x))                             \
  UNARY(NAME(floor, s), T, T, fn(floor)(x))                           \
  UNARY(NAME(ceil, s), T, T, fn(ceil)(x))                             \
  UNARY(NAME(round, s), T, T, fn(round)(x))                           \
  UNARY(NAME(trunc, s), T, T, fn(trunc)(x))                           \
  UNARY(NAME(sign, s), T, T, x > 0 ? 1 : x < 0 ? -1 : x != x ? x : 0) \
  UNARY(NAME(exp, s), T, T, NAME(nvm_exp, s)(x))                      \
  UNARY(NAME(log, s), T, T, NAME(nvm_log, s)(x))                      \
  UNARY(NAME(rsqrt, s), T, T, NAME(nvm_rsqrt, s)(x))                  \
  UNARY(NAME(tanh, s), T, T, NAME(nvm_tanh, s)(x))                    \
  UNARY(NAME(sigmoid, s), T, T, NAME(nvm_sigmoid, s)(x))              \
  UNARY(NAME(erf, s), T, T, NAME(nvm_erf, s)(x))                      \
  UNARY(NAME(sin, s), T, T, NAME(nvm_sin, s)(x))                      \
  UNARY(NAME(cos, s), T, T, NAME(nvm_cos, s)(x))                      \
  UNARY(NAME(tan, s), T, T, NAME(nvm_tan, s)(x))                      \
  UNARY(NAME(log2, s), T, T, NAME(nvm_log2, s)(x))                    \
  UNARY(NAME(log10, s), T, T, NAME(nvm_log10, s)(x))                  \
  UNARY(NAME(sinh, s), T, T, NAME(nvm_sinh, s)(x))                    \
  UNARY(NAME(cosh, s), T, T, NAME(nvm_cosh, s)(x))                    \
  UNARY(NAME(asin, s), T, T, NAME(nvm_asin, s)(x))                    \
  UNARY(NAME(acos, s), T, T, NAME(nvm_acos, s)(x))                    \
  UNARY(NAME(atan, s), T, T, NAME(nvm_atan, s)(x))                    \
  UNARY(NAME(asinh, s), T, T, NAME(nvm_asinh, s)(x))                  \
  UNARY(NAME(acosh, s), T, T, NAME(nvm_acosh, s)(x))                  \
  UNARY(NAME(atanh, s), T, T, NAME(nvm_atanh, s)(x))                  \
  BINARY(NAME(pow, s), T, T, NAME(nvm_pow, s)(x, y))                  \
  UNARY(NAME(isnan, s), T, uint8_t, x != x)                           \
  UNARY(NAME(isinf, s), T, uint8_t, fn(fabs)(x) == (T)INFINITY)       \
  UNARY(NAME(isfinite, s), T, uint8_t, fn(fabs)(x) < (T)INFINITY)
#define SINGLE(x) x##f
#define DOUBLE(x) x
FLOAT_MATH(f32, float, SINGLE)
FLOAT_MATH(f64, double, DOUBLE)

UNARY(bits_f32, float, int32_t, nvm_bits_f32_i32(x))
UNARY(bits_f64, double, int64_t, nvm_bits_f64_i64(x))
UNARY(bits_i32, int32_t, float, nvm_bits_i32_f32(x))
UNARY(bits_i64, int64_t, double, nvm_bits_i64_f64(x))
UNARY(bits_u32, uint32_t, float, nvm_bits_i32_f32((int32_t)x))
UNARY(bits_u64, uint64_t, double, nvm_bits_i64_f64((int64_t)x))

BINARY(and_bool, uint8_t, uint8_t, x &y)
BINARY(or_bool, uint8_t, uint8_t, x | y)
BINARY(xor_bool, uint8_t, uint8_t, x ^ y)
BINARY(add_bool, uint8_t, uint8_t, x | y)
BINARY(mul_bool, uint8_t, uint8_t, x &y)
BINARY(min_bool, uint8_t, uint8_t, x &y)
BINARY(max_bool, uint8_t, uint8_t, x | y)
UNARY(not_bool, uint8_t, uint8_t, x ^ 1)

/* --- comparisons ------------------------------------------------------------------------------ */

#define COMPARE(s, T)                     \
  BINARY(NAME(eq, s), T, uint8_t, x == y) \
  BINARY(NAME(ne, s), T, uint8_t, x != y) \
  BINARY(NAME(lt, s), T, uint8_t, x < y)  \
  BINARY(NAME(le, s), T, uint8_t, x <= y) \
  BINARY(NAME(gt, s), T, uint8_t, x > y)  \
  BINARY(NAME(ge, s), T, uint8_t, x >= y)
#define COMPARE_INTEGER(s, T, U, bits) COMPARE(s, T)
SIGNED_TYPES(COMPARE_INTEGER)
UNSIGNED_TYPES(COMPARE_INTEGER)
FLOAT_TYPES(COMPARE)

/* --- folds: eight partial results, combined in one fixed order -------------------------------- */

#define HALVE(T, half, expr)                 \
  for (int k = 0; k < half; ++k) {           \
    const T x = part[k], y = part[k + half]; \
    part[k] = (T)(expr);                     \
  }
#define FOLD(name, T, start, expr)                                         \
  static void name(void *cell, const void *in, uint32_t step, int64_t n) { \
    const T *restrict values = in;                                         \
    const int64_t s = (int64_t)step;                                       \
    T part[8] = {start, start, start, start, start, start, start, start};  \
    int64_t i = 0;                                                         \
    if (s) {                                                               \
      for (; i + 8 <= n; i += 8) {                                         \
        for (int k = 0; k < 8; ++k) {                                      \
          const T x = part[k], y = values[i + k];                          \
          part[k] = (T)(expr);                                             \
        }                                                                  \
      }                                                                    \
    }                                                                      \
    for (; i < n; ++i) {                                                   \
      const T x = part[i & 7], y = values[i * s];                          \
      part[i & 7] = (T)(expr);                                             \
    }                                                                      \
    HALVE(T, 4, expr)                                                      \
    HALVE(T, 2, expr)                                                      \
    HALVE(T, 1, expr)                                                      \
    const T x = *(T *)cell, y = part[0];                                   \
    *(T *)cell = (T)(expr);                                                \
  }

#define FOLD_INTEGER(s, T, U, bits, low, high)    \
  FOLD(NAME(fold_add, s), T, 0, (U)x + (U)y)      \
  FOLD(NAME(fold_mul, s), T, 1, (U)x *(U)y)       \
  FOLD(NAME(fold_min, s), T, high, x < y ? x : y) \
  FOLD(NAME(fold_max, s), T, low, x > y ? x : y)  \
  FOLD(NAME(fold_and, s), T, (T) - 1, x & y)      \
  FOLD(NAME(fold_or, s), T, 0, x | y)
FOLD_INTEGER(i8, int8_t, uint32_t, 8, INT8_MIN, INT8_MAX)
FOLD_INTEGER(i16, int16_t, uint32_t, 16, INT16_MIN, INT16_MAX)
FOLD_INTEGER(i32, int32_t, uint32_t, 32, INT32_MIN, INT32_MAX)
FOLD_INTEGER(i64, int64_t, uint64_t, 64, INT64_MIN, INT64_MAX)
FOLD_INTEGER(u8, uint8_t, uint32_t, 8, 0, UINT8_MAX)
FOLD_INTEGER(u16, uint16_t, uint32_t, 16, 0, UINT16_MAX)
FOLD_INTEGER(u32, uint32_t, uint32_t, 32, 0, UINT32_MAX)
FOLD_INTEGER(u64, uint64_t, uint64_t, 64, 0, UINT64_MAX)
#define FOLD_FLOAT(s, T)                                           \
  FOLD(NAME(fold_add, s), T, 0, x + y)                             \
  FOLD(NAME(fold_mul, s), T, 1, x *y)                              \
  FOLD(NAME(fold_min, s), T, (T)INFINITY, x < y || x != x ? x : y) \
  FOLD(NAME(fold_max, s), T, (T) - INFINITY, x > y || x != x ? x : y)
FLOAT_TYPES(FOLD_FLOAT)
FOLD(fold_and_bool, uint8_t, 1, x &y)
FOLD(fold_or_bool, uint8_t, 0, x | y)

/* --- tables ----------------------------------------------------------------------------------- */

#define INTEGERS(op)                                                    \
  [NVM_DTYPE_INT8] = NAME(op, i8), [NVM_DTYPE_INT16] = NAME(op, i16),   \
  [NVM_DTYPE_INT32] = NAME(op, i32), [NVM_DTYPE_INT64] = NAME(op, i64), \
  [NVM_DTYPE_UINT8] = NAME(op, u8), [NVM_DTYPE_UINT16] = NAME(op, u16), \
  [NVM_DTYPE_UINT32] = NAME(op, u32), [NVM_DTYPE_UINT64] = NAME(op, u64)
#define FLOATS(op)                                                          \
  [NVM_DTYPE_FLOAT16] = NAME(op, f32), [NVM_DTYPE_FLOAT32] = NAME(op, f32), \
  [NVM_DTYPE_FLOAT64] = NAME(op, f64)
#define NUMBERS(op) INTEGERS(op), FLOATS(op)

static const nvm_ir_op unary_ops[NVM_IR_UNARY_COUNT][NVM_DTYPE_COUNT] = {
    [NVM_IR_UNARY_NEG] = {NUMBERS(neg)},
    [NVM_IR_UNARY_ABS] = {NUMBERS(abs)},
    [NVM_IR_UNARY_SIGN] = {NUMBERS(sign)},
    [NVM_IR_UNARY_BITNOT] = {INTEGERS(bitnot)},
    [NVM_IR_UNARY_NOT] = {[NVM_DTYPE_BOOL] = not_bool},
    [NVM_IR_UNARY_EXP] = {FLOATS(exp)},
    [NVM_IR_UNARY_LOG] = {FLOATS(log)},
    [NVM_IR_UNARY_SQRT] = {FLOATS(sqrt)},
    [NVM_IR_UNARY_RSQRT] = {FLOATS(rsqrt)},
    [NVM_IR_UNARY_TANH] = {FLOATS(tanh)},
    [NVM_IR_UNARY_SIGMOID] = {FLOATS(sigmoid)},
    [NVM_IR_UNARY_ERF] = {FLOATS(erf)},
    [NVM_IR_UNARY_SIN] = {FLOATS(sin)},
    [NVM_IR_UNARY_COS] = {FLOATS(cos)},
    [NVM_IR_UNARY_TAN] = {FLOATS(tan)},
    [NVM_IR_UNARY_LOG2] = {FLOATS(log2)},
    [NVM_IR_UNARY_LOG10] = {FLOATS(log10)},
    [NVM_IR_UNARY_SINH] = {FLOATS(sinh)},
    [NVM_IR_UNARY_COSH] = {FLOATS(cosh)},
    [NVM_IR_UNARY_ASIN] = {FLOATS(asin)},
    [NVM_IR_UNARY_ACOS] = {FLOATS(acos)},
    [NVM_IR_UNARY_ATAN] = {FLOATS(atan)},
    [NVM_IR_UNARY_ASINH] = {FLOATS(asinh)},
    [NVM_IR_UNARY_ACOSH] = {FLOATS(acosh)},
    [NVM_IR_UNARY_ATANH] = {FLOATS(atanh)},
    [NVM_IR_UNARY_FLOOR] = {FLOATS(floor)},
    [NVM_IR_UNARY_CEIL] = {FLOATS(ceil)},
    [NVM_IR_UNARY_ROUND] = {FLOATS(round)},
    [NVM_IR_UNARY_TRUNC] = {FLOATS(trunc)},
    [NVM_IR_UNARY_ISNAN] = {FLOATS(isnan)},
    [NVM_IR_UNARY_ISINF] = {FLOATS(isinf)},
    [NVM_IR_UNARY_ISFINITE] = {FLOATS(isfinite)},
    [NVM_IR_UNARY_BITS] = {[NVM_DTYPE_FLOAT32] = bits_f32,
                           [NVM_DTYPE_FLOAT64] = bits_f64,
                           [NVM_DTYPE_INT32] = bits_i32,
                           [NVM_DTYPE_INT64] = bits_i64,
                           [NVM_DTYPE_UINT32] = bits_u32,
                           [NVM_DTYPE_UINT64] = bits_u64},
};

static const nvm_ir_op binary_ops[NVM_IR_BINARY_COUNT][NVM_DTYPE_COUNT] = {
    [NVM_IR_BINARY_ADD] = {[NVM_DTYPE_BOOL] = add_bool, NUMBERS(add)},
    [NVM_IR_BINARY_SUB] = {NUMBERS(sub)},
    [NVM_IR_BINARY_MUL] = {[NVM_DTYPE_BOOL] = mul_bool, NUMBERS(mul)},
    [NVM_IR_BINARY_DIV] = {NUMBERS(div)},
    [NVM_IR_BINARY_MOD] = {NUMBERS(mod)},
    [NVM_IR_BINARY_FLOORDIV] = {NUMBERS(floordiv)},
    [NVM_IR_BINARY_FLOORMOD] = {NUMBERS(floormod)},
    [NVM_IR_BINARY_MIN] = {[NVM_DTYPE_BOOL] = min_bool, NUMBERS(min)},
    [NVM_IR_BINARY_MAX] = {[NVM_DTYPE_BOOL] = max_bool, NUMBERS(max)},
    [NVM_IR_BINARY_POW] = {FLOATS(pow)},
    [NVM_IR_BINARY_AND] = {[NVM_DTYPE_BOOL] = and_bool, INTEGERS(and)},
    [NVM_IR_BINARY_OR] = {[NVM_DTYPE_BOOL] = or_bool, INTEGERS(or)},
    [NVM_IR_BINARY_XOR] = {[NVM_DTYPE_BOOL] = xor_bool, INTEGERS(xor)},
    [NVM_IR_BINARY_SHL] = {INTEGERS(shl)},
    [NVM_IR_BINARY_SHR] = {INTEGERS(shr)},
};

static const nvm_ir_op compare_ops[NVM_IR_COMPARE_COUNT][NVM_DTYPE_COUNT] = {
    [NVM_IR_COMPARE_EQ] = {[NVM_DTYPE_BOOL] = eq_u8, NUMBERS(eq)},
    [NVM_IR_COMPARE_NE] = {[NVM_DTYPE_BOOL] = ne_u8, NUMBERS(ne)},
    [NVM_IR_COMPARE_LT] = {[NVM_DTYPE_BOOL] = lt_u8, NUMBERS(lt)},
    [NVM_IR_COMPARE_LE] = {[NVM_DTYPE_BOOL] = le_u8, NUMBERS(le)},
    [NVM_IR_COMPARE_GT] = {[NVM_DTYPE_BOOL] = gt_u8, NUMBERS(gt)},
    [NVM_IR_COMPARE_GE] = {[NVM_DTYPE_BOOL] = ge_u8, NUMBERS(ge)},
};

static const nvm_ir_fold folds[NVM_IR_ACC_COUNT][NVM_DTYPE_COUNT] = {
    [NVM_IR_ACC_ADD] = {[NVM_DTYPE_BOOL] = fold_or_bool, NUMBERS(fold_add)},
    [NVM_IR_ACC_MUL] = {[NVM_DTYPE_BOOL] = fold_and_bool, NUMBERS(fold_mul)},
    [NVM_IR_ACC_MIN] = {[NVM_DTYPE_BOOL] = fold_and_bool, NUMBERS(fold_min)},
    [NVM_IR_ACC_MAX] = {[NVM_DTYPE_BOOL] = fold_or_bool, NUMBERS(fold_max)},
    [NVM_IR_ACC_AND] = {[NVM_DTYPE_BOOL] = fold_and_bool, INTEGERS(fold_and)},
    [NVM_IR_ACC_OR] = {[NVM_DTYPE_BOOL] = fold_or_bool, INTEGERS(fold_or)},
};

nvm_ir_op nvm_ir_unary(uint8_t op, uint8_t dtype) {
  return op < NVM_IR_UNARY_COUNT && dtype < NVM_DTYPE_COUNT ? unary_ops[op][dtype] : NULL;
}

nvm_ir_op nvm_ir_binary(uint8_t op, uint8_t dtype) {
  return op < NVM_IR_BINARY_COUNT && dtype < NVM_DTYPE_COUNT ? binary_ops[op][dtype] : NULL;
}

nvm_ir_op nvm_ir_compare(uint8_t op, uint8_t dtype) {
  return op < NVM_IR_COMPARE_COUNT && dtype < NVM_DTYPE_COUNT ? compare_ops[op][dtype] : NULL;
}

nvm_ir_fold nvm_ir_fold_of(uint8_t op, uint8_t dtype) {
  return op < NVM_IR_ACC_COUNT && dtype < NVM_DTYPE_COUNT ? folds[op][dtype] : NULL;
}
