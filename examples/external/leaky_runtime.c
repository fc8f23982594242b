/* A runtime of external code in C: nn.leaky_relu of float32 tensors, with the slope in the blob.
 *
 *   cc -shared -fPIC -O2 -I $(prefix)/include/nimblevm leaky_runtime.c -o leaky_runtime.so
 *   nimblevm.external.load_runtime("leaky_runtime.so")      in Python; nvm_external_load in C
 *
 * It links with nothing: what it may call comes with `api`. leaky_backend.py is its compile time.
 */
#include <stdlib.h>
#include <string.h>

#include "nvm_api.h"
#include "nvm_kernel.h"

static const nvm_external_api *api;

/* A kernel of one VM. Calls of it do not overlap, so it could have state, too. */
typedef struct leaky {
  const nvm_signature *signature;
  float slope;
} leaky;

static nvm_status leaky_create(void *context, const void *blob, size_t size, const char *kernel,
                               const nvm_signature *signature, void **out_instance) {
  (void)context;
  (void)kernel;
  /* The blob and the signature come from a file: look at everything that run relies on. */
  if (size != sizeof(float)) return api->fail(NVM_INVALID_EXECUTABLE, "leaky: a slope is 4 bytes");
  if (api->operand_count(signature) != 2)
    return api->fail(NVM_INVALID_EXECUTABLE, "leaky: one input, one output");
  leaky *self = malloc(sizeof *self);
  if (!self) return api->fail(NVM_OUT_OF_MEMORY, "leaky: no memory");
  self->signature = signature;
  memcpy(&self->slope, blob, sizeof self->slope);
  *out_instance = self;
  return NVM_OK;
}

static void leaky_destroy(void *instance) { free(instance); }

typedef struct work {
  const float *x;
  float *y;
  float slope;
} work;

static nvm_status rows(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  (void)ctx;
  const work *w = closure;
  for (int64_t i = begin; i < end; i++) w->y[i] = w->x[i] < 0 ? w->slope * w->x[i] : w->x[i];
  return NVM_OK;
}

static nvm_status leaky_run(void *instance, const nvm_kernel_ctx *ctx, void *const *bufs,
                            int64_t *dims) {
  const leaky *self = instance;
  nvm_external_operand operands[2]; /* with the sizes of this call */
  const nvm_status status = api->operands(self->signature, dims, operands);
  if (status != NVM_OK) return status;
  if (operands[0].dtype != NVM_DTYPE_FLOAT32 || operands[1].dtype != NVM_DTYPE_FLOAT32 ||
      operands[0].bytes != operands[1].bytes)
    return api->fail(NVM_OPERAND_MISMATCH, "leaky: float32 of one size in and out");
  const int64_t count = (int64_t)(operands[0].bytes / sizeof(float));
  work w = {bufs[0], bufs[1], self->slope};
  return ctx->parallel_for(ctx, count, count / 4, rows, &w); /* on the VM's threads */
}

static const nvm_external_runtime runtime = {.size = sizeof runtime,
                                             .name = "leaky",
                                             .create = leaky_create,
                                             .run = leaky_run,
                                             .destroy = leaky_destroy};

const nvm_external_runtime *nvm_external_entry(const nvm_external_api *given);
const nvm_external_runtime *nvm_external_entry(const nvm_external_api *given) {
  if (given->size < sizeof *given) return NULL; /* an older library, with less than this needs */
  api = given;
  return &runtime;
}
