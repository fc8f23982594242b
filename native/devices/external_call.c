/* What a runtime of external code asks about the kernel that it runs, and how it fails. */
#include "dim_program.h"
#include "nvm_api.h"
#include "nvm_device.h"
#include "status.h"

NVM_EXPORT nvm_status nvm_external_fail(nvm_status code, const char *text) {
  if (code <= NVM_OK || code > NVM_INTERRUPTED) code = NVM_KERNEL_ERROR;
  return nvm_fail(code, "%s", text ? text : "");
}

NVM_EXPORT uint32_t nvm_external_operand_count(const nvm_signature *signature) {
  return signature->n_operands;
}

NVM_EXPORT uint32_t nvm_external_dim_count(const nvm_signature *signature) {
  return signature->n_dims;
}

static nvm_status axis_size(const nvm_signature *sig, const nvm_axis *axis, const int64_t *dims,
                            int64_t *out_size) {
  *out_size = axis->value;
  if (axis->kind == NVM_AXIS_DIM) *out_size = dims[axis->value];
  if (axis->kind != NVM_AXIS_EXPR) return NVM_OK;
  const size_t start = (size_t)axis->value;
  return nvm_dim_program(sig->exprs + start, sig->n_expr_words - start, dims,
                         (size_t)sig->n_dims + sig->n_attrs, out_size);
}

NVM_EXPORT nvm_status nvm_external_operands(const nvm_signature *sig, const int64_t *dims,
                                            nvm_external_operand *out_operands) {
  const int64_t *pitch = dims + sig->n_dims + sig->n_attrs;
  for (uint32_t i = 0; i < sig->n_operands; i++) {
    const nvm_operand *operand = &sig->operands[i];
    nvm_external_operand *out = &out_operands[i];
    *out = (nvm_external_operand){
        .dtype = operand->dtype, .role = operand->role, .rank = operand->rank};
    out->bytes = nvm_dtypes[operand->dtype].itemsize;
    for (uint32_t a = 0; a < operand->rank; a++) {
      if (operand->axes[a].broadcast)
        out->shape[a] = *pitch++;
      else
        NVM_TRY(axis_size(sig, &operand->axes[a], dims, &out->shape[a]));
      out->bytes *= (size_t)out->shape[a];
    }
  }
  return NVM_OK;
}
