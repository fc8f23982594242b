/* What test_external.c loads: a BLAS of one loop, and a runtime of external code that doubles. */
#include <stdlib.h>

#include "nvm_api.h"
#include "nvm_kernel.h"

void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
void cblas_sgemv(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                 const float *x, int incx, float beta, float *y, int incy);
const nvm_external_runtime *nvm_external_entry(const nvm_external_api *given);

/* Row-major, a as it is, b transposed, alpha 1, beta 0: what blas.c asks for. */
void cblas_sgemm(int order, int trans_a, int trans_b, int m, int n, int k, float alpha,
                 const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc) {
  if (order != 101 || trans_a != 111 || trans_b != 112 || alpha != 1 || beta != 0) abort();
  for (int i = 0; i < m; i++)
    for (int j = 0; j < n; j++) {
      float sum = 0;
      for (int l = 0; l < k; l++)
        sum += a[(size_t)i * (size_t)lda + l] * b[(size_t)j * (size_t)ldb + l];
      c[(size_t)i * (size_t)ldc + j] = sum;
    }
}

void cblas_sgemv(int order, int trans, int m, int n, float alpha, const float *a, int lda,
                 const float *x, int incx, float beta, float *y, int incy) {
  if (incx != 1 || incy != 1) abort();
  cblas_sgemm(order, trans, 112, m, 1, n, alpha, a, lda, x, n ? n : 1, beta, y, 1);
}

static const nvm_external_api *api;

static nvm_status create(void *context, const void *blob, size_t size, const char *kernel,
                         const nvm_signature *signature, void **out_instance) {
  (void)context, (void)blob, (void)kernel;
  if (size != 3) return api->fail(NVM_INVALID_EXECUTABLE, "three bytes are code");
  if (api->operand_count(signature) != 2 || api->dim_count(signature) != 1)
    return api->fail(NVM_UNSUPPORTED, "one operand in, one out");
  *out_instance = malloc(sizeof signature);
  if (!*out_instance) return api->fail(NVM_OUT_OF_MEMORY, "no memory");
  *(const nvm_signature **)*out_instance = signature;
  return NVM_OK;
}

static nvm_status run(void *instance, const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  nvm_external_operand operands[2];
  const nvm_status status = api->operands(*(const nvm_signature **)instance, dims, operands);
  if (status != NVM_OK) return status;
  const float *x = bufs[0];
  float *y = bufs[1];
  for (int64_t i = 0; i < operands[1].shape[0]; i++) {
    if (x[i] < 0) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 0, i, 0);
    y[i] = 2 * x[i];
  }
  return NVM_OK;
}

static const nvm_external_runtime runtime = {
    .size = sizeof runtime, .name = "doubling", .create = create, .run = run, .destroy = free};

const nvm_external_runtime *nvm_external_entry(const nvm_external_api *given) {
  api = given;
  return &runtime;
}
