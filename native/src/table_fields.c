/* Values that rows of several tables of the header hold (docs/format.md). */
#include "program_tables.h"

nvm_status nvm_read_string(nvm_loader *loader, const char *what, const char **out_text) {
  const char *text = NULL;
  size_t length = 0;
  NVM_TRY(nvm_mp_str(&loader->mp, what, &text, &length));
  return nvm_arena_string(loader->arena, text, length, out_text);
}

nvm_status nvm_read_ints(nvm_loader *loader, const char *what, int64_t low, int64_t high,
                         const int64_t **out_words, uint32_t *out_count) {
  uint32_t count = 0;
  int64_t *words = NULL;
  NVM_TRY(nvm_mp_array(&loader->mp, what, 1, &count));
  NVM_TABLE(loader, count, words);
  for (uint32_t i = 0; i < count; i++) {
    NVM_TRY(nvm_mp_int(&loader->mp, what, low, high, &words[i]));
  }
  *out_words = words;
  *out_count = count;
  return NVM_OK;
}

nvm_status nvm_check_dim_program(const nvm_mp *mp, const int64_t *words, uint32_t n_words,
                                 uint32_t n_refs, uint32_t *out_words) {
  uint32_t depth = 0;
  for (uint32_t i = 0; i < n_words && i < NVM_MAX_EXPR_WORDS; i++) {
    int64_t op = words[i];
    if (op == NVM_DIM_END) {
      if (depth != 1) return nvm_mp_fail(mp, "size program leaves %u values, expected 1", depth);
      *out_words = i + 1;
      return NVM_OK;
    }
    if (op == NVM_DIM_CONST || op == NVM_DIM_REF) {
      if (++i == n_words) break;
      if (op == NVM_DIM_REF && (words[i] < 0 || words[i] >= n_refs)) {
        return nvm_mp_fail(mp, "size program refers to dim %lld of %u", (long long)words[i],
                           n_refs);
      }
      if (++depth > NVM_MAX_EXPR_DEPTH) {
        return nvm_mp_fail(mp, "size program needs a stack deeper than %d", NVM_MAX_EXPR_DEPTH);
      }
    } else if (op > NVM_DIM_REF && op < NVM_DIM_END) {
      if (depth < 2) return nvm_mp_fail(mp, "size program lacks an operand at word %u", i);
      depth--;
    } else {
      return nvm_mp_fail(mp, "size program: unknown word %lld", (long long)op);
    }
  }
  return nvm_mp_fail(mp, "size program does not end within %d words", NVM_MAX_EXPR_WORDS);
}
