/* One kernel, without a VM: constant folding, tuning and tests go through the same door as
 * CallKernel. */
#include "call.h"
#include "tensor.h"

/* A header with room for the largest rank, on the caller's memory. */
typedef union operand {
  nvm_tensor tensor;
  char room[sizeof(nvm_tensor) + NVM_MAX_RANK * sizeof(int64_t)];
} operand;

static int is_compact(const nvm_arg *arg) {
  int64_t expected = 1;
  if (!arg->strides) return 1;
  for (uint32_t i = arg->rank; i-- > 0;) {
    if (arg->shape[i] == 0) return 1;
    if (arg->shape[i] != 1 && arg->strides[i] != expected) return 0;
    if (__builtin_mul_overflow(expected, arg->shape[i], &expected)) return 0;
  }
  return 1;
}

static nvm_status wrap(const nvm_arg *arg, size_t i, nvm_storage *storage, operand *out) {
  if (arg->kind != NVM_ARG_TENSOR)
    NVM_FAIL(NVM_INVALID_INPUT_TYPE, "operand %zu of a kernel call is no tensor", i);
  if (arg->dtype < 0 || arg->dtype >= (int32_t)NVM_DTYPE_COUNT || arg->rank > NVM_MAX_RANK)
    NVM_FAIL(NVM_INVALID_INPUT, "operand %zu has dtype number %d and rank %u", i, arg->dtype,
             arg->rank);
  if (arg->dl_device_type != 1 || !is_compact(arg))
    NVM_FAIL(NVM_INVALID_INPUT, "operand %zu must be compact and on the host", i);
  nvm_tensor *tensor = &out->tensor;
  tensor->header =
      (nvm_object){.refcount = 1, .kind = NVM_KIND_TENSOR, .extra = (uint16_t)arg->dtype};
  tensor->rank = (uint8_t)arg->rank;
  tensor->device = 0;
  tensor->storage = storage;
  tensor->data = (char *)(uintptr_t)arg->data; /* outputs are the caller's to be written */
  if (arg->rank) memcpy(tensor->dims, arg->shape, arg->rank * sizeof(int64_t));
  return nvm_shape_bytes((uint32_t)arg->dtype, arg->rank, arg->shape, &tensor->bytes);
}

NVM_EXPORT nvm_status nvm_kernel_call(nvm_program *program, uint32_t kernel,
                                      const nvm_arg *operands, size_t n_operands, int64_t *dims,
                                      size_t n_dims) {
  nvm_error_clear();
  if (kernel >= program->n_kernels)
    NVM_FAIL(NVM_INVALID_INPUT, "the executable has %u kernels, no number %u", program->n_kernels,
             kernel);
  const nvm_signature *sig = &program->kernels[kernel].signature;
  if (n_operands != sig->n_operands || n_dims != (size_t)sig->n_dims + sig->n_out_dims)
    NVM_FAIL(NVM_INVALID_INPUT,
             "kernel %s takes %u operands and %u dims (out-dims included), got %zu and %zu",
             program->kernels[kernel].name, sig->n_operands, sig->n_dims + sig->n_out_dims,
             n_operands, n_dims);
  operand wrapped[NVM_MAX_OPERANDS];
  nvm_tensor *tensors[NVM_MAX_OPERANDS];
  nvm_storage storage = {.header = {.refcount = 1, .kind = NVM_KIND_STORAGE}};
  for (size_t i = 0; i < n_operands; i++) {
    NVM_TRY(wrap(&operands[i], i, &storage, &wrapped[i]));
    tensors[i] = &wrapped[i].tensor;
  }
  nvm_pool host = {0};
  NVM_TRY(nvm_device_find("cpu")->open(0, &host.device));
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, 1);
  int64_t room[NVM_MAX_DIMS], *out_dims;
  size_t bytes;
  if (sig->n_dims) memcpy(room, dims, sig->n_dims * sizeof *room);
  NVM_TRY(
      nvm_call_kernel(&call, &host, &program->kernels[kernel], tensors, room, &out_dims, &bytes));
  if (sig->n_out_dims) memcpy(dims + sig->n_dims, out_dims, sig->n_out_dims * sizeof *dims);
  return NVM_OK;
}
