/* stft and dft: Fourier transforms of frames of a signal, and of rows, in float64.
 *
 * A transform of n elements goes by the factors of n (Stockham's order: no elements are swapped),
 * in n * (their sum) steps: n log n for sizes of small factors, n * n for a prime.
 */
#include <math.h>

#include "generated/nvm_c_kernels.h"
#include "generated/nvm_math.h"
#include "kernel_ir_ops.h"
#include "order.h"

enum { WORDS = 8 }; /* of scratch an element */

/* turn: for k < n * step the cosine and sine of -2 pi k / (n * step), of the opposite for the
 * inverse. from, to: n complex numbers each. pairs: n of them for a factor that has no code of its
 * own. */
typedef struct transform {
  int64_t n, step;
  double *turn, *from, *to, *pairs;
} transform;

static double element(int dtype, const void *data, int64_t i) {
  switch (dtype) {
    case NVM_DTYPE_FLOAT16:
      return (double)nvm_half_to_float(((const uint16_t *)data)[i]);
    case NVM_DTYPE_FLOAT32:
      return (double)((const float *)data)[i];
    case NVM_DTYPE_INT32:
      return (double)((const int32_t *)data)[i];
    default:
      return ((const double *)data)[i];
  }
}

static void put(int dtype, void *data, int64_t i, double value) {
  if (dtype == NVM_DTYPE_FLOAT16) {
    ((uint16_t *)data)[i] = nvm_half_from_float((float)value);
  } else if (dtype == NVM_DTYPE_FLOAT32) {
    ((float *)data)[i] = (float)value;
  } else {
    ((double *)data)[i] = value;
  }
}

/* The k-th complex number to transform. What is infinite counts as NaN, so that it does not depend
 * on the order of additions where it spreads. */
static inline void set(const transform *t, int64_t k, double re, double im) {
  const int finite = isfinite(re) && isfinite(im);
  t->from[2 * k] = finite ? re : (double)NAN;
  t->from[2 * k + 1] = finite ? im : (double)NAN;
}

/* For n elements; with step 2, for n real ones, which are taken as n / 2 complex ones. */
static nvm_status start(const nvm_kernel_ctx *ctx, transform *t, int64_t n, int64_t step,
                        double sign, double *scratch, int64_t *work) {
  const double angle = sign * 6.283185307179586476925286766559 / (double)n;
  nvm_status status = NVM_OK;
  *t = (transform){n / step, step, scratch, scratch + 2 * n, scratch + 4 * n, scratch + 6 * n};
  NVM_PIECES(ctx, n, work, status, begin, end) {
    for (int64_t k = begin; k < end; ++k) {
      t->turn[2 * k] = nvm_cos_f64(angle * (double)k);
      t->turn[2 * k + 1] = nvm_sin_f64(angle * (double)k);
    }
  }
  return status;
}

/* to[k] = (re, im) turned by place / n. */
static inline void turned(const transform *t, int64_t k, double re, double im, int64_t place) {
  const double *turn = t->turn + 2 * place * t->step, c = turn[0], s = turn[1];
  t->to[2 * k] = re * c - im * s;
  t->to[2 * k + 1] = re * s + im * c;
}

/* One step works on elements from[q + stride * (p + j * parts)], j < factor, for each q < stride.
 * Its results are to[q + stride * (factor * p + k)], k < factor: the sum over j of the elements
 * turned by j * k / factor, turned by p * k / (factor * parts). */
static void by_two(const transform *t, int64_t parts, int64_t stride, int64_t p) {
  const double *a = t->from + 2 * stride * p, *b = a + 2 * stride * parts;
  const int64_t first = 2 * p * stride;
  for (int64_t q = 0; q < stride; ++q) {
    t->to[2 * (first + q)] = a[2 * q] + b[2 * q];
    t->to[2 * (first + q) + 1] = a[2 * q + 1] + b[2 * q + 1];
    turned(t, first + stride + q, a[2 * q] - b[2 * q], a[2 * q + 1] - b[2 * q + 1], p * stride);
  }
}

static void by_four(const transform *t, int64_t parts, int64_t stride, int64_t p, double sign) {
  const double *a = t->from + 2 * stride * p, *b = a + 2 * stride * parts;
  const double *c = b + 2 * stride * parts, *d = c + 2 * stride * parts;
  const int64_t first = 4 * p * stride, place = p * stride;
  for (int64_t i = 0; i < 2 * stride; i += 2) {
    const double even_re = a[i] + c[i], even_im = a[i + 1] + c[i + 1];
    const double odd_re = b[i] + d[i], odd_im = b[i + 1] + d[i + 1];
    const double re = a[i] - c[i], im = a[i + 1] - c[i + 1];
    const double other_re = sign * (b[i + 1] - d[i + 1]), other_im = sign * (d[i] - b[i]);
    const int64_t q = first + i / 2;
    t->to[2 * q] = even_re + odd_re;
    t->to[2 * q + 1] = even_im + odd_im;
    turned(t, q + stride, re - other_re, im - other_im, place);
    turned(t, q + 2 * stride, even_re - odd_re, even_im - odd_im, 2 * place);
    turned(t, q + 3 * stride, re + other_re, im + other_im, 3 * place);
  }
}

/* An odd factor: elements j and factor - j are added and subtracted, which gives results k and
 * factor - k at once. */
static nvm_status by_odd(const nvm_kernel_ctx *ctx, const transform *t, int64_t factor,
                         int64_t parts, int64_t stride, int64_t p, int64_t *work) {
  const int64_t half = (factor - 1) / 2, around = 2 * t->step * (t->n / factor);
  for (int64_t q = 0; q < stride; ++q) {
    const double *a = t->from + 2 * (q + stride * p);
    double re = a[0], im = a[1];
    for (int64_t j = 1; j <= half; ++j) {
      const double *b = a + 2 * stride * parts * j, *c = a + 2 * stride * parts * (factor - j);
      double *pair = t->pairs + 4 * (j - 1);
      pair[0] = b[0] + c[0];
      pair[1] = b[1] + c[1];
      pair[2] = b[0] - c[0];
      pair[3] = b[1] - c[1];
      re += pair[0];
      im += pair[1];
    }
    const int64_t first = q + stride * factor * p;
    t->to[2 * first] = re;
    t->to[2 * first + 1] = im;
    for (int64_t k = 1; k <= half; ++k) {
      double even_re = a[0], even_im = a[1], odd_re = 0, odd_im = 0;
      for (int64_t j = 1, at = k; j <= half; ++j, at += at >= factor - k ? k - factor : k) {
        const double c = t->turn[at * around], s = t->turn[at * around + 1];
        const double *pair = t->pairs + 4 * (j - 1);
        even_re += c * pair[0];
        even_im += c * pair[1];
        odd_re -= s * pair[3];
        odd_im += s * pair[2];
      }
      turned(t, first + stride * k, even_re + odd_re, even_im + odd_im, p * k * stride);
      turned(t, first + stride * (factor - k), even_re - odd_re, even_im - odd_im,
             p * (factor - k) * stride);
      const nvm_status status = nvm_order_charge(ctx, half, work);
      if (status != NVM_OK) return status;
    }
  }
  return NVM_OK;
}

/* The factor to take next: 4, 2, or an odd prime, which is `odd` or more. */
static int64_t factor_of(int64_t n, int64_t odd) {
  if (n % 4 == 0) return 4;
  if (n % 2 == 0) return 2;
  while (odd <= n / odd && n % odd) odd += 2;
  return odd <= n / odd ? odd : n;
}

/* The transform of t->from, which is where it is afterwards. sign: that of start. */
static nvm_status run(const nvm_kernel_ctx *ctx, transform *t, double sign, int64_t *work) {
  int64_t left = t->n, stride = 1, odd = 3;
  while (left > 1) {
    const int64_t factor = factor_of(left, odd), parts = left / factor;
    if (factor % 2) odd = factor;
    for (int64_t p = 0; p < parts; ++p) {
      nvm_status status = NVM_OK;
      if (factor == 4) {
        by_four(t, parts, stride, p, sign);
      } else if (factor == 2) {
        by_two(t, parts, stride, p);
      } else {
        status = by_odd(ctx, t, factor, parts, stride, p, work);
      }
      if (status == NVM_OK) status = nvm_order_charge(ctx, factor * stride, work);
      if (status != NVM_OK) return status;
    }
    double *other = t->from;
    t->from = t->to;
    t->to = other;
    left = parts;
    stride *= factor;
  }
  return NVM_OK;
}

/* Frequency k < n * step of the elements that were transformed. With step 2 those at even places
 * are real parts, the others imaginary ones; frequencies above the half mirror others. */
static inline void frequency(const transform *t, int64_t k, double *re, double *im) {
  const int64_t n = t->n;
  if (t->step == 1) {
    *re = t->from[2 * k];
    *im = t->from[2 * k + 1];
    return;
  }
  const int64_t low = k > n ? 2 * n - k : k;
  const double *a = t->from + 2 * (low == n ? 0 : low), *b = t->from + 2 * (low ? n - low : 0);
  const double c = t->turn[2 * low], s = t->turn[2 * low + 1];
  const double odd_re = (a[1] + b[1]) / 2, odd_im = (b[0] - a[0]) / 2;
  const double found = (a[1] - b[1]) / 2 + odd_re * s + odd_im * c;
  *re = (a[0] + b[0]) / 2 + odd_re * c - odd_im * s;
  *im = k > n ? -found : found;
}

/* --- stft ------------------------------------------------------------------------------------ */

/* dims: batch, length, size (of the window), frequencies, frames, n_fft, hop_length, win_length,
 * normalized. */
static nvm_status check(const nvm_kernel_ctx *ctx, const int64_t *dims) {
  const int64_t length = dims[1], frames = dims[4], n_fft = dims[5], hop = dims[6], win = dims[7];
  if (n_fft < 1 || n_fft > length) return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 0, length, n_fft);
  if (win < 1 || win > n_fft || win > dims[2])
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 1, dims[2], win);
  if (hop < 1 || frames > (length - n_fft) / hop + 1)
    return ctx->fail(ctx, NVM_SHAPE_MISMATCH, 2, frames, hop);
  return NVM_OK;
}

static nvm_status stft(const nvm_kernel_ctx *ctx, int dtype, int window_dtype, void *const *bufs,
                       const int64_t *dims) {
  const int64_t batch = dims[0], length = dims[1], frequencies = dims[3], frames = dims[4];
  const int64_t hop = dims[6], win = dims[7];
  const double scale = dims[8] ? 1 / sqrt((double)dims[5]) : 1;
  transform t;
  int64_t work = 0;
  nvm_status status = check(ctx, dims);
  if (status != NVM_OK || batch == 0) return status;
  status = start(ctx, &t, win, win % 2 ? 1 : 2, -1, bufs[3], &work);
  for (int64_t at = 0; status == NVM_OK && at < batch * frames; ++at) {
    const int64_t b = at / frames, frame = at % frames;
    const int64_t first = b * length + frame * hop;
    for (int64_t k = 0, w = 0; k < t.n; ++k, w += t.step) {
      const double re = element(dtype, bufs[0], first + w) * element(window_dtype, bufs[1], w);
      const double im = t.step == 1 ? 0
                                    : element(dtype, bufs[0], first + w + 1) *
                                          element(window_dtype, bufs[1], w + 1);
      set(&t, k, re, im);
    }
    status = run(ctx, &t, -1, &work);
    int64_t place = 2 * (b * frequencies * frames + frame);
    for (int64_t f = 0, k = 0; f < frequencies; ++f, place += 2 * frames) {
      double re, im;
      frequency(&t, k, &re, &im);
      put(dtype, bufs[2], place, re * scale);
      put(dtype, bufs[2], place + 1, im * scale);
      if (++k == win) k = 0;
    }
    if (status == NVM_OK) status = nvm_order_charge(ctx, win + frequencies, &work);
  }
  return status;
}

/* --- dft ------------------------------------------------------------------------------------- */

/* dims: outer, n, inverse. */
static nvm_status dft(const nvm_kernel_ctx *ctx, int dtype, void *const *bufs,
                      const int64_t *dims) {
  const int64_t outer = dims[0], n = dims[1];
  transform t;
  int64_t work = 0;
  if (outer == 0 || n == 0) return NVM_OK;
  const double sign = dims[2] ? 1 : -1, scale = dims[2] ? 1 / (double)n : 1;
  nvm_status status = start(ctx, &t, n, 1, sign, bufs[4], &work);
  for (int64_t row = 0; status == NVM_OK && row < outer; ++row) {
    const int64_t first = row * n;
    for (int64_t k = 0; k < n; ++k)
      set(&t, k, element(dtype, bufs[0], first + k), element(dtype, bufs[1], first + k));
    status = run(ctx, &t, sign, &work);
    for (int64_t k = 0; k < n; ++k) {
      put(dtype, bufs[2], first + k, t.from[2 * k] * scale);
      put(dtype, bufs[3], first + k, t.from[2 * k + 1] * scale);
    }
    if (status == NVM_OK) status = nvm_order_charge(ctx, 2 * n, &work);
  }
  return status;
}

#define VARIANTS(name, NUMBER)                                                                     \
  nvm_status nvm_kernel_stft_##name(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) { \
    return stft(ctx, NVM_DTYPE_##NUMBER, NVM_DTYPE_##NUMBER, bufs, dims);                          \
  }                                                                                                \
  nvm_status nvm_kernel_stft_whole_##name(const nvm_kernel_ctx *ctx, void *const *bufs,            \
                                          int64_t *dims) {                                         \
    return stft(ctx, NVM_DTYPE_##NUMBER, NVM_DTYPE_INT32, bufs, dims);                             \
  }                                                                                                \
  nvm_status nvm_kernel_dft_##name(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {  \
    return dft(ctx, NVM_DTYPE_##NUMBER, bufs, dims);                                               \
  }

VARIANTS(float16, FLOAT16)
VARIANTS(float32, FLOAT32)
VARIANTS(float64, FLOAT64)
