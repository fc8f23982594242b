/* Loads and runs one loop-IR body or C kernel for the Python tests: what program.c and call.c do,
 * without a file. */
#include <stdlib.h>
#include <string.h>

#include "kernel_ir.h"
#include "nvm_api.h"

#define EXPORT __attribute__((visibility("default")))

typedef struct harness {
  nvm_kernel_ir *ir;
  nvm_signature sig;
  nvm_operand operands[NVM_MAX_OPERANDS];
  int64_t exprs[4096];
} harness;

EXPORT nvm_status harness_load(const uint8_t *data, size_t size, const int64_t *words,
                               harness **out);
EXPORT nvm_status harness_run(harness *h, void *const *bufs, int64_t *dims, int64_t *fault);
EXPORT void harness_free(harness *h);
EXPORT const char *harness_message(void);
EXPORT nvm_status harness_call(const char *name, void *const *bufs, int64_t *dims, int64_t *fault);

/* The last fault: operand, index, bound, polls. */
static _Thread_local int64_t last_fault[4];

static nvm_status fail(const nvm_kernel_ctx *ctx, nvm_status code, int32_t operand, int64_t index,
                       int64_t bound) {
  (void)ctx;
  last_fault[0] = operand;
  last_fault[1] = index;
  last_fault[2] = bound;
  return code;
}

static nvm_status poll(const nvm_kernel_ctx *ctx) {
  (void)ctx;
  return ++last_fault[3] > 200 ? NVM_TIME_LIMIT : NVM_OK;
}

static nvm_status serial(const nvm_kernel_ctx *ctx, int64_t count, int64_t grain, nvm_range_fn fn,
                         void *closure) {
  (void)grain;
  return fn(ctx, closure, 0, count);
}

static const nvm_kernel_ctx context = {NVM_KERNEL_ABI, sizeof(nvm_kernel_ctx), fail, poll, serial};

/* words: n_operands n_dims n_pitches n_out_dims n_expr_words, exprs, then per operand dtype role
 * rank alias and per axis kind broadcast value. */
nvm_status harness_load(const uint8_t *data, size_t size, const int64_t *words, harness **out) {
  harness *h = calloc(1, sizeof *h);
  nvm_signature *sig = &h->sig;
  uint8_t *copy =
      malloc(size ? size : 1); /* exact size: reads behind it are seen by the sanitizer */
  memcpy(copy, data, size);
  sig->n_operands = (uint16_t)words[0];
  sig->n_dims = (uint16_t)words[1];
  sig->n_pitches = (uint16_t)words[2];
  sig->n_out_dims = (uint16_t)words[3];
  sig->n_expr_words = (uint32_t)words[4];
  words += 5;
  memcpy(h->exprs, words, sig->n_expr_words * sizeof *words);
  words += sig->n_expr_words;
  for (uint32_t k = 0; k < sig->n_operands; ++k) {
    nvm_operand *operand = &h->operands[k];
    operand->dtype = (uint8_t)words[0];
    operand->role = (uint8_t)words[1];
    operand->rank = (uint8_t)words[2];
    operand->alias = (uint8_t)words[3];
    words += 4;
    for (uint32_t axis = 0; axis < operand->rank; ++axis, words += 3) {
      operand->axes[axis] = (nvm_axis){(uint8_t)words[0], (uint8_t)words[1], words[2]};
    }
  }
  sig->operands = h->operands;
  sig->exprs = h->exprs;
  nvm_status status = nvm_kernel_ir_parse(copy, size, sig, &h->ir);
  free(copy);
  if (status != NVM_OK) {
    free(h);
    h = NULL;
  }
  *out = h;
  return status;
}

nvm_status harness_run(harness *h, void *const *bufs, int64_t *dims, int64_t *fault) {
  memset(last_fault, 0, sizeof last_fault);
  nvm_status status = nvm_kernel_ir_run(h->ir, &h->sig, &context, bufs, dims);
  memcpy(fault, last_fault, sizeof last_fault);
  return status;
}

void harness_free(harness *h) {
  if (h) nvm_kernel_ir_free(h->ir);
  free(h);
}

const char *harness_message(void) { return nvm_last_error()->message; }

nvm_status harness_call(const char *name, void *const *bufs, int64_t *dims, int64_t *fault) {
  const nvm_c_kernel *kernel = nvm_c_kernel_find(name, strlen(name));
  if (!kernel) return NVM_FUNCTION_NOT_FOUND;
  memset(last_fault, 0, sizeof last_fault);
  nvm_status status = kernel->fn(&context, bufs, dims);
  memcpy(fault, last_fault, sizeof last_fault);
  return status;
}
