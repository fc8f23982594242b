/* External code "blas": nn.dense of float32 by a BLAS library, with bias and activation. See
 * docs/external-codegen.md.
 *
 * The library is found when the first instance is made: what nvm_blas_library said, the
 * environment's NIMBLEVM_BLAS, or an OpenBLAS or CBLAS of the system. It is used with one thread a
 * call; the VM's threads share a large product by columns. A blob is 8 bytes: "NVBL", 1,
 * activation, has bias, 0. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc.h"
#include "call.h"
#include "nvm_api.h"
#include "nvm_device.h"
#include "status.h"

#include "blas_epilogue.h"

enum {
  ROW_MAJOR = 101,
  PLAIN = 111,
  TRANSPOSED = 112,
  BLOB_BYTES = 8,
  MAX_BLOCKS = 8,
  MAX_SIZE = INT32_MAX - 4096, /* of an axis: blocks round up, in ints */
  FEW_ROWS = 4
};

typedef void (*sgemm_fn)(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                         const float *a, int lda, const float *b, int ldb, float beta, float *c,
                         int ldc);
typedef void (*sgemv_fn)(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                         const float *x, int incx, float beta, float *y, int incy);

static struct {
  pthread_mutex_t lock;
  char path[1024]; /* what nvm_blas_library said */
  sgemm_fn sgemm;
  sgemv_fn sgemv;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const prefixes[] = {"", "scipy_"};
static const char *const usual[] = {"libopenblas.so.0", "libopenblas.so", "libcblas.so.3",
                                    "libblis.so.4"};

NVM_EXPORT void nvm_blas_library(const char *path) {
  pthread_mutex_lock(&library.lock);
  const size_t length = strlen(path);
  if (length < sizeof library.path) memcpy(library.path, path, length + 1);
  pthread_mutex_unlock(&library.lock);
}

static void *symbol(void *handle, const char *prefix, const char *name) {
  char text[64];
  snprintf(text, sizeof text, "%s%s", prefix, name);
  return dlsym(handle, text);
}

/* The functions of one library, if it has them under one of the prefixes. */
static int take(const char *path) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) return 0;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
    void *gemm = symbol(handle, prefixes[i], "cblas_sgemm");
    void *gemv = symbol(handle, prefixes[i], "cblas_sgemv");
    if (!gemm || !gemv) continue;
    void *threads = symbol(handle, prefixes[i], "openblas_set_num_threads");
    void (*set_threads)(int) = NULL;
    memcpy(&set_threads, &threads, sizeof set_threads);
    if (set_threads) set_threads(1);
    memcpy(&library.sgemm, &gemm, sizeof library.sgemm);
    memcpy(&library.sgemv, &gemv, sizeof library.sgemv);
    return 1;
  }
  dlclose(handle);
  return 0;
}

static nvm_status find_library(void) {
  pthread_mutex_lock(&library.lock);
  const char *named = getenv("NIMBLEVM_BLAS");
  int found = library.sgemm != NULL;
  if (!found && named && *named)
    found = take(named); /* that one or none */
  else if (!found) {
    found = library.path[0] && take(library.path);
    for (size_t i = 0; i < sizeof usual / sizeof *usual && !found; i++) found = take(usual[i]);
  }
  pthread_mutex_unlock(&library.lock);
  if (found) return NVM_OK;
  NVM_FAIL(NVM_DEVICE_ERROR,
           "no BLAS library is here: install nimblevm[blas] or an OpenBLAS, or name one by "
           "NIMBLEVM_BLAS%s%s",
           named && *named ? "; it says " : "", named && *named ? named : "");
}

typedef struct instance {
  const nvm_signature *signature;
  uint8_t activation, has_bias;
} instance;

static nvm_status blas_create(void *context, const void *blob, size_t size, const char *kernel,
                              const nvm_signature *signature, void **out_instance) {
  (void)context;
  const uint8_t *bytes = blob;
  if (size != BLOB_BYTES || memcmp(bytes, "NVBL\1", 5) != 0 || bytes[5] > NVM_BLAS_GELU ||
      bytes[6] > 1 || bytes[7])
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "kernel %s: this is no code for blas", kernel);
  if (signature->n_operands < 3u + bytes[6] || signature->n_in != 2u + bytes[6])
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "kernel %s: blas takes %d inputs, the signature has %d",
             kernel, 2 + bytes[6], signature->n_in);
  for (uint32_t i = 0; i <= signature->n_in; i++)
    if (signature->operands[i].dtype != NVM_DTYPE_FLOAT32 || signature->operands[i].rank == 0)
      NVM_FAIL(NVM_INVALID_EXECUTABLE, "kernel %s: blas takes tensors of float32", kernel);
  NVM_TRY(find_library());
  instance *self = nvm_malloc(sizeof *self);
  if (!self) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for blas");
  *self = (instance){signature, bytes[5], bytes[6]};
  *out_instance = self;
  return NVM_OK;
}

static void blas_destroy(void *self) { nvm_free(self); }

/* out (m, n) = act(x (m, k) w (n, k)^T + bias (n)) */
typedef struct product {
  const instance *of;
  const float *x, *w, *bias;
  float *out;
  int m, n, k;
  int block; /* columns of a turn */
} product;

static nvm_status columns(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  const product *p = closure;
  for (int64_t turn = begin; turn < end; turn++) {
    NVM_TRY(ctx->poll(ctx));
    const int first = (int)turn * p->block;
    const int count = p->n - first < p->block ? p->n - first : p->block;
    const float *w = p->w + (size_t)first * (size_t)p->k;
    float *out = p->out + first;
    const int ld = p->k ? p->k : 1;
    if (p->m <= FEW_ROWS) /* sgemm would copy all of w first */
      for (int i = 0; i < p->m; i++)
        library.sgemv(ROW_MAJOR, PLAIN, count, p->k, 1, w, ld, p->x + (size_t)i * (size_t)p->k, 1,
                      0, out + (size_t)i * (size_t)p->n, 1);
    else
      library.sgemm(ROW_MAJOR, PLAIN, TRANSPOSED, p->m, count, p->k, 1, p->x, ld, w, ld, 0, out,
                    p->n);
    nvm_blas_epilogue(p->of->activation, out, p->bias ? p->bias + first : NULL, (size_t)p->m,
                      (size_t)count, (size_t)p->n);
  }
  return NVM_OK;
}

/* The sizes of a product, from operands whose bytes are what they say. */
static int fits(const nvm_external_operand *operands, uint32_t n_in, product *p) {
  const nvm_external_operand *x = &operands[0], *w = &operands[1], *out = &operands[n_in];
  const int64_t k = x->shape[x->rank - 1], n = out->shape[out->rank - 1];
  if (w->rank != 2 || w->shape[0] != n || w->shape[1] != k || n <= 0) return 0;
  const int64_t m = (int64_t)(out->bytes / sizeof(float)) / n;
  if ((uint64_t)x->bytes != (uint64_t)m * (uint64_t)k * sizeof(float)) return 0;
  if (p->of->has_bias && operands[2].bytes != (size_t)n * sizeof(float)) return 0;
  if (m > MAX_SIZE || n > MAX_SIZE || k > MAX_SIZE) return 0;
  p->m = (int)m;
  p->n = (int)n;
  p->k = (int)k;
  return 1;
}

static nvm_status blas_run(void *self, const nvm_kernel_ctx *ctx, void *const *bufs,
                           int64_t *dims) {
  const instance *of = self;
  nvm_external_operand operands[NVM_MAX_OPERANDS];
  NVM_TRY(nvm_external_operands(of->signature, dims, operands));
  const uint32_t n_in = of->signature->n_in;
  product p = {.of = of, .x = bufs[0], .w = bufs[1], .bias = of->has_bias ? bufs[2] : NULL};
  p.out = bufs[n_in];
  if (operands[n_in].bytes == 0) return NVM_OK;
  if (!fits(operands, n_in, &p))
    NVM_FAIL(NVM_OPERAND_MISMATCH, "blas: operands of these sizes are no product");
  if (p.k == 0) memset(p.out, 0, operands[n_in].bytes);
  const double flops = 2.0 * p.m * p.n * p.k;
  /* Blocks depend on sizes and the VM's threads, so results do not depend on who shares the work.
   */
  const int alone = flops < 4e6 || p.n < 2 * 64 || ((const nvm_call *)ctx)->threads <= 1;
  const int blocks = alone ? 1 : MAX_BLOCKS;
  p.block = blocks == 1 ? p.n : ((p.n + blocks - 1) / blocks + 15) / 16 * 16;
  const int64_t turns = (p.n + p.block - 1) / p.block;
  return ctx->parallel_for(ctx, turns, (int64_t)(flops / 50), columns, &p);
}

static const nvm_external_runtime runtime = {.size = sizeof runtime,
                                             .name = "blas",
                                             .create = blas_create,
                                             .run = blas_run,
                                             .destroy = blas_destroy};

extern const nvm_external_runtime *const nvm_external_blas;
const nvm_external_runtime *const nvm_external_blas = &runtime;
