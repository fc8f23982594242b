/* See blas_epilogue.h. Results are the same for all widths: nothing contracts, nothing is
 * reordered. */
#include "blas_epilogue.h"

#include "generated/nvm_math.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-trapping-math")
#endif

#define ROWS(NAME, TARGET, EXPR)                                                                 \
  TARGET static void NAME(float *out, const float *bias, size_t rows, size_t count, size_t ld) { \
    for (size_t i = 0; i < rows; i++) {                                                          \
      float *restrict row = out + i * ld;                                                        \
      if (bias)                                                                                  \
        for (size_t j = 0; j < count; j++) {                                                     \
          const float x = row[j] + bias[j];                                                      \
          row[j] = (EXPR);                                                                       \
        }                                                                                        \
      else                                                                                       \
        for (size_t j = 0; j < count; j++) {                                                     \
          const float x = row[j];                                                                \
          row[j] = (EXPR);                                                                       \
        }                                                                                        \
    }                                                                                            \
  }

#define VARIANT(NAME, TARGET)                                                           \
  ROWS(none_##NAME, TARGET, x)                                                          \
  ROWS(relu_##NAME, TARGET, x <= 0.0f ? 0.0f : x) /* NaN stays */                       \
  ROWS(tanh_##NAME, TARGET, nvm_tanh_f32(x))                                            \
  ROWS(sigmoid_##NAME, TARGET, nvm_sigmoid_f32(x))                                      \
  ROWS(gelu_##NAME, TARGET, x * 0.5f * (1.0f + nvm_erf_f32(x * 0x1.6a09e6p-1f)))        \
  static const rows_fn NAME[] = {none_##NAME, relu_##NAME, tanh_##NAME, sigmoid_##NAME, \
                                 gelu_##NAME};

typedef void (*rows_fn)(float *out, const float *bias, size_t rows, size_t count, size_t ld);

VARIANT(plain, )
#if defined(__x86_64__)
VARIANT(avx2, __attribute__((target("avx2"))))
VARIANT(avx512, __attribute__((target("avx512f,avx512vl,avx512dq"))))
#endif

static const rows_fn *best(void) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    return avx512;
  if (__builtin_cpu_supports("avx2")) return avx2;
#endif
  return plain;
}

void nvm_blas_epilogue(uint8_t activation, float *out, const float *bias, size_t rows, size_t count,
                       size_t ld) {
  if (activation == NVM_BLAS_NONE && !bias) return;
  best()[activation](out, bias, rows, count, ld);
}
