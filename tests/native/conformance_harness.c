/* What the conformance suite of devices needs beside a backend's vtable, which it drives through
 * ctypes (tests/devices/conformance). */
#include <string.h>

#include "call.h"
#include "nvm_api.h"
#include "generated/nvm_dtype.h"
#include "nvm_device.h"

const nvm_device_vtable *conformance_vtable(const char *name);
const char *conformance_message(void);
const void *conformance_signature(int32_t kernel);
int32_t conformance_launch(nvm_device *device, int32_t kernel, const void *code, void *const *bufs,
                           int64_t *dims);

const nvm_device_vtable *conformance_vtable(const char *name) { return nvm_device_find(name); }

const char *conformance_message(void) { return nvm_last_error()->message; }

/* Kernel 0: out[i] = in[i] + 1 for i < dims[0]. */
static nvm_status add_one(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  const float *in = bufs[0];
  float *out = bufs[1];
  (void)ctx;
  for (int64_t i = 0; i < dims[0]; i++) out[i] = in[i] + 1.0f;
  return NVM_OK;
}

/* Kernel 1: out[i] = data[index[i]] for i < dims[0], 0 <= index < dims[1], else a fault. */
static nvm_status gather(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  const float *data = bufs[0];
  const int32_t *index = bufs[1];
  float *out = bufs[2];
  for (int64_t i = 0; i < dims[0]; i++) {
    if (index[i] < 0 || index[i] >= dims[1])
      return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 1, index[i], dims[1]);
    out[i] = data[index[i]];
  }
  return NVM_OK;
}

#define VECTOR(dtype, role, dim) \
  {                              \
    dtype, role, 1, 0, {         \
      {                          \
        NVM_AXIS_DIM, 0, dim     \
      }                          \
    }                            \
  }
static const nvm_operand operands[2][3] = {
    {VECTOR(NVM_DTYPE_FLOAT32, NVM_ROLE_IN, 0), VECTOR(NVM_DTYPE_FLOAT32, NVM_ROLE_OUT, 0)},
    {VECTOR(NVM_DTYPE_FLOAT32, NVM_ROLE_IN, 1), VECTOR(NVM_DTYPE_INT32, NVM_ROLE_IN, 0),
     VECTOR(NVM_DTYPE_FLOAT32, NVM_ROLE_OUT, 0)}};

static nvm_kernel kernels[2] = {
    {.name = "add_one", .fn = add_one, .signature = {.n_operands = 2, .n_in = 1, .n_out = 1}},
    {.name = "gather", .fn = gather, .signature = {.n_operands = 3, .n_in = 2, .n_out = 1}}};

const void *conformance_signature(int32_t kernel) {
  nvm_signature *signature = &kernels[kernel].signature;
  signature->operands = operands[kernel];
  signature->n_dims = (uint16_t)(1 + kernel);
  signature->may_fail = kernel == 1;
  return signature;
}

/* As CallKernel does it: a fault that the launch itself reports is recorded. */
int32_t conformance_launch(nvm_device *device, int32_t kernel, const void *code, void *const *bufs,
                           int64_t *dims) {
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, 1);
  call.kernel = &kernels[kernel];
  const nvm_status status =
      device->vtable->launch(device, &call.ctx, kernels[kernel].fn, code, bufs, dims);
  if (call.code == NVM_OK) return status;
  return nvm_kernel_fault(kernels[kernel].name, call.code, call.operand, call.index, call.bound);
}
