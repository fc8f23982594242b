#include "outputs.h"

#include <math.h>

#include "generated/nvm_dtype.h"

static double element(const nvm_out *out, size_t i) {
  switch (out->dtype) {
    case NVM_DTYPE_FLOAT32:
      return ((const float *)out->data)[i];
    case NVM_DTYPE_INT64:
      return (double)((const int64_t *)out->data)[i];
    case NVM_DTYPE_INT32:
      return ((const int32_t *)out->data)[i];
    default:
      return ((const uint8_t *)out->data)[i];
  }
}

void read_outputs(const nvm_result *result, outputs *out) {
  out->n = 0;
  for (size_t i = 0; i < nvm_result_count(result); i++) {
    const nvm_out *value = &nvm_result_values(result)[i];
    size_t count = 1;
    if (value->kind != NVM_OUT_TENSOR) continue;
    for (uint32_t k = 0; k < value->rank; k++) count *= (size_t)value->shape[k];
    for (size_t k = 0; k < count && out->n < MAX_OUTPUTS; k++)
      out->values[out->n++] = element(value, k);
  }
}

int same_outputs(const outputs *a, const outputs *b) {
  if (a->n != b->n) return 0;
  for (size_t i = 0; i < a->n; i++) {
    const double x = a->values[i], y = b->values[i];
    if (!(fabs(x - y) <= 1e-5 + 1e-4 * fabs(y))) return 0;
  }
  return 1;
}
