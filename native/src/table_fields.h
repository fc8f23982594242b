/* Values that rows of several tables of the header hold (docs/format.md). */
#ifndef NVM_TABLE_FIELDS_H
#define NVM_TABLE_FIELDS_H

#include "loader.h"

/* A str of the header as a terminated copy. */
NVM_NODISCARD nvm_status nvm_read_string(nvm_loader *loader, const char *what,
                                         const char **out_text);
/* An array, each of its rows at least min_row bytes of the header, and zeroed memory for as many
 * items (borrowed from the arena). out_items: the address of a pointer. */
NVM_NODISCARD nvm_status nvm_read_rows(nvm_loader *loader, const char *what, uint32_t min_row,
                                       size_t item, uint32_t *out_count, void *out_items);
#define NVM_ROWS(loader, what, min_row, count, pointer) \
  NVM_TRY(nvm_read_rows((loader), (what), (min_row), sizeof *(pointer), &(count), &(pointer)))
/* An array of ints with values low .. high. */
NVM_NODISCARD nvm_status nvm_read_ints(nvm_loader *loader, const char *what, int64_t low,
                                       int64_t high, const int64_t **out_words,
                                       uint32_t *out_count);
/* Check the postfix program at words[0] (limits of nvm_kernel.h, references < n_refs, one value
 * left). out_words: its length, NVM_DIM_END included. */
NVM_NODISCARD nvm_status nvm_check_dim_program(const nvm_mp *mp, const int64_t *words,
                                               uint32_t n_words, uint32_t n_refs,
                                               uint32_t *out_words);

/* Where instructions came from: `words` behind the entry before, source (0: none), line, column. */
typedef struct nvm_span {
  uint32_t words, source, line, column;
} nvm_span;

/* The entry of a function's spans at *at, which moves behind it; 0 if it is cut or too large. */
int nvm_read_span(const uint8_t **at, const uint8_t *end, nvm_span *out_span);

#endif
