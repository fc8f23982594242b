/* Values in rows. See table_fields.h. */
#include "table_fields.h"

#include <string.h>

nvm_status nvm_read_string(nvm_loader *loader, const char *what, const char **out_text) {
  const char *text = NULL;
  size_t length = 0;
  NVM_TRY(nvm_mp_str(&loader->mp, what, &text, &length));
  return nvm_arena_string(loader->arena, text, length, out_text);
}

nvm_status nvm_read_rows(nvm_loader *loader, const char *what, uint32_t min_row, size_t item,
                         uint32_t *out_count, void *out_items) {
  void *items = NULL;
  NVM_TRY(nvm_mp_array(&loader->mp, what, min_row, out_count));
  NVM_TRY(nvm_arena_array(loader->arena, *out_count, item, &items));
  memcpy(out_items, &items, sizeof items);
  return NVM_OK;
}

nvm_status nvm_read_ints(nvm_loader *loader, const char *what, int64_t low, int64_t high,
                         const int64_t **out_words, uint32_t *out_count) {
  uint32_t count = 0;
  int64_t *words = NULL;
  NVM_ROWS(loader, what, 1, count, words);
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

/* Unsigned LEB128 of at most 32 bits; 0 if it is cut or too large. */
static int read_varint(const uint8_t **at, const uint8_t *end, uint32_t *out_value) {
  uint32_t value = 0;
  for (uint32_t shift = 0; shift < 35; shift += 7) {
    if (*at == end) return 0;
    uint8_t byte = *(*at)++;
    if (shift == 28 && byte > 0x0f) return 0;
    value |= (uint32_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *out_value = value;
      return 1;
    }
  }
  return 0;
}

int nvm_read_span(const uint8_t **at, const uint8_t *end, nvm_span *out_span) {
  return read_varint(at, end, &out_span->words) && read_varint(at, end, &out_span->source) &&
         read_varint(at, end, &out_span->line) && read_varint(at, end, &out_span->column);
}
