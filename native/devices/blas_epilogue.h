/* What follows a product: bias and activation, for the vectors that the CPU has. */
#ifndef NVM_BLAS_EPILOGUE_H
#define NVM_BLAS_EPILOGUE_H

#include <stddef.h>
#include <stdint.h>

/* The numbers of activations in a blob. */
enum nvm_blas_activation {
  NVM_BLAS_NONE = 0,
  NVM_BLAS_RELU = 1,
  NVM_BLAS_TANH = 2,
  NVM_BLAS_SIGMOID = 3,
  NVM_BLAS_GELU = 4 /* x / 2 * (1 + erf(x / sqrt 2)) */
};

/* out[i * ld + j] = act(out[i * ld + j] + bias[j]) for i < rows, j < count. bias: may be NULL. */
void nvm_blas_epilogue(uint8_t activation, float *out, const float *bias, size_t rows, size_t count,
                       size_t ld);

#endif
