/* Arithmetic on dims, in checked int64. */
#include "dim_program.h"

#include "generated/nvm_abi.h"

static nvm_status divide(int64_t op, int64_t a, int64_t b, int64_t *out_value) {
  if (b == 0) NVM_FAIL(NVM_DIVISION_BY_ZERO, "a dim expression divides %lld by 0", (long long)a);
  if (b == -1) { /* INT64_MIN / -1 traps */
    if (op == NVM_DIM_FLOORMOD)
      *out_value = 0;
    else if (__builtin_sub_overflow((int64_t)0, a, out_value))
      NVM_FAIL(NVM_DIM_OVERFLOW, "dim arithmetic: %lld / -1 exceeds int64", (long long)a);
    return NVM_OK;
  }
  const int64_t rest = a % b;
  const int down = rest != 0 && (rest < 0) != (b < 0);
  *out_value = op == NVM_DIM_FLOORDIV ? a / b - down : down ? rest + b : rest;
  return NVM_OK;
}

nvm_status nvm_dim_apply(int64_t op, int64_t a, int64_t b, int64_t *out_value) {
  int over = 0;
  char sign = '+';
  switch (op) {
    case NVM_DIM_ADD:
      over = __builtin_add_overflow(a, b, out_value);
      break;
    case NVM_DIM_SUB:
      over = __builtin_sub_overflow(a, b, out_value);
      sign = '-';
      break;
    case NVM_DIM_MUL:
      over = __builtin_mul_overflow(a, b, out_value);
      sign = '*';
      break;
    case NVM_DIM_MIN:
      *out_value = a < b ? a : b;
      break;
    case NVM_DIM_MAX:
      *out_value = a > b ? a : b;
      break;
    default:
      return divide(op, a, b, out_value);
  }
  if (NVM_UNLIKELY(over))
    NVM_FAIL(NVM_DIM_OVERFLOW, "dim arithmetic: %lld %c %lld exceeds int64", (long long)a, sign,
             (long long)b);
  return NVM_OK;
}

nvm_status nvm_dim_program(const int64_t *words, size_t n_words, const int64_t *values,
                           size_t n_values, int64_t *out_value) {
  int64_t stack[NVM_MAX_EXPR_DEPTH];
  size_t depth = 0;
  for (size_t i = 0; i < n_words && words[i] != NVM_DIM_END; i++) {
    int64_t op = words[i];
    if (op == NVM_DIM_CONST || op == NVM_DIM_REF) {
      if (i + 1 >= n_words || depth == NVM_MAX_EXPR_DEPTH) goto malformed;
      int64_t word = words[++i];
      if (op == NVM_DIM_REF && (word < 0 || (uint64_t)word >= n_values)) goto malformed;
      stack[depth++] = op == NVM_DIM_CONST ? word : values[word];
    } else {
      if (op < NVM_DIM_ADD || op > NVM_DIM_MAX || depth < 2) goto malformed;
      NVM_TRY(nvm_dim_apply(op, stack[depth - 2], stack[depth - 1], &stack[depth - 2]));
      depth--;
    }
  }
  if (depth == 1) {
    *out_value = stack[0];
    return NVM_OK;
  }
malformed:
  NVM_FAIL(NVM_OPERAND_MISMATCH, "a dim expression is malformed");
}
