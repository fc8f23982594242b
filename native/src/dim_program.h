/* Dims that a file computes: postfix programs of enum nvm_dim_op. */
#ifndef NVM_DIM_PROGRAM_H
#define NVM_DIM_PROGRAM_H

#include <stddef.h>

#include "status.h"

/* Checked int64 arithmetic of postfix programs (enum nvm_dim_op) over `values`; `words` ends with
 * NVM_DIM_END or after n_words. Errors: DIM_OVERFLOW, DIVISION_BY_ZERO, OPERAND_MISMATCH
 * (malformed). */
NVM_NODISCARD nvm_status nvm_dim_program(const int64_t *words, size_t n_words,
                                         const int64_t *values, size_t n_values,
                                         int64_t *out_value);
/* One operation of enum nvm_dim_op (ADD to MAX). */
NVM_NODISCARD nvm_status nvm_dim_apply(int64_t op, int64_t a, int64_t b, int64_t *out_value);

#endif
