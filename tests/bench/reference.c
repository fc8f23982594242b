/* What the benchmarks are compared with: the same work in plain C. Built by reference.py with -O3.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
/* The optimizer must take a value for changed, so that it keeps the loop. */
#define OPAQUE(value) __asm__ volatile("" : "+r"(value)::"memory")

EXPORT int64_t ref_empty(int64_t n) { return n; }

EXPORT int64_t ref_loop(int64_t n) {
  int64_t i = 0;
  while (i < n) {
    i += 1;
    OPAQUE(i);
  }
  return i;
}

__attribute__((noinline)) static int64_t identity(int64_t n) {
  OPAQUE(n);
  return n;
}

EXPORT int64_t ref_calls(int64_t n) {
  int64_t i = 0;
  while (i < n) i = identity(i) + 1;
  return i;
}

EXPORT __attribute__((noinline)) int64_t ref_chain(int64_t n) {
  if (n <= 0) return 0;
  int64_t inner = ref_chain(n - 1);
  OPAQUE(inner); /* else the compiler makes a loop of it */
  return inner + 1;
}

EXPORT int64_t ref_sum(int64_t n) {
  int64_t sum = 0;
  for (int64_t i = 0; i < n; i++) {
    sum += i;
    OPAQUE(sum);
  }
  return sum;
}

typedef struct pair {
  int64_t count;
  void *first, *second;
} pair;

EXPORT int64_t ref_allocations(int64_t n) {
  int64_t i = 0;
  for (; i < n; i++) {
    pair *made = malloc(sizeof *made);
    if (!made) return -1;
    OPAQUE(made);
    free(made);
  }
  return i;
}

static void largest(const float *x, float *out, int64_t n) {
  float most = x[0];
  for (int64_t i = 1; i < n; i++) most = x[i] > most ? x[i] : most;
  out[0] = most;
}

/* A chain of kernels through a pointer, each with an output of its own. */
EXPORT int64_t ref_kernels(int64_t n) {
  void (*kernel)(const float *, float *, int64_t) = largest;
  float *value = calloc(1, sizeof *value);
  if (!value) return -1;
  for (int64_t i = 0; i < n; i++) {
    float *out = malloc(sizeof *out);
    if (!out) return -1;
    OPAQUE(kernel);
    kernel(value, out, 1);
    free(value);
    value = out;
  }
  free(value);
  return n;
}

/* --- models ----------------------------------------------------------------------------------- */

/* y = w x + b, w (rows, depth) row-major; the loop that gcc vectorises at -O3 -ffast-math. */
static void dense(const float *restrict w, const float *restrict b, const float *restrict x,
                  float *restrict y, int64_t rows, int64_t depth) {
  for (int64_t r = 0; r < rows; r++) {
    float sum = 0;
    for (int64_t k = 0; k < depth; k++) sum += w[r * depth + k] * x[k];
    y[r] = sum + b[r];
  }
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* LSTM over x (n, inputs): h (hidden) out. Gates i, f, g, o. scratch: 2 hidden + inputs + 4 hidden
 * floats. */
EXPORT void ref_lstm(const float *x, int64_t n, const float *w, const float *b, int64_t inputs,
                     int64_t hidden, float *scratch, float *h) {
  float *c = scratch, *xh = c + hidden, *z = xh + inputs + hidden;
  memset(c, 0, (size_t)hidden * sizeof *c);
  memset(h, 0, (size_t)hidden * sizeof *h);
  for (int64_t t = 0; t < n; t++) {
    memcpy(xh, x + t * inputs, (size_t)inputs * sizeof *xh);
    memcpy(xh + inputs, h, (size_t)hidden * sizeof *xh);
    dense(w, b, xh, z, 4 * hidden, inputs + hidden);
    for (int64_t j = 0; j < hidden; j++) {
      c[j] = sigmoid(z[hidden + j]) * c[j] + sigmoid(z[j]) * tanhf(z[2 * hidden + j]);
      h[j] = sigmoid(z[3 * hidden + j]) * tanhf(c[j]);
    }
  }
}

/* Sum of `count` floats, as fast as memory gives them: the bound of a model that reads its weights
 * once a step. */
EXPORT float ref_read(const float *w, int64_t count) {
  float sum = 0;
  for (int64_t i = 0; i < count; i++) sum += w[i];
  return sum;
}
