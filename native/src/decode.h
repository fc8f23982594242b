/* One decoder of instructions. The verifier finds operands with nvm_decode, which checks every
 * bound; the interpreter reads verified code with the generated macros NVM_<Mnemonic>_<operand>(pc)
 * and NVM_NEXT_<Mnemonic>(pc), which check nothing. Both come from nimblevm/bytecode/isa.py.
 */
#ifndef NVM_DECODE_H
#define NVM_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "generated/nvm_isa.h"

/* Value of a DIM word: an int register or an immediate. */
#define NVM_DIM_VALUE(word, ints) \
  (((word) & NVM_INT_BIT) ? (ints)[(word) & ~NVM_INT_BIT] : (int64_t)(word))
/* Parts of an ANY_IN or ANY_OUT word. */
#define NVM_IS_INT_REGISTER(word) (((word) & NVM_INT_BIT) != 0)
#define NVM_REGISTER_INDEX(word)  ((word) & ~NVM_INT_BIT)

typedef struct nvm_decoded {
  const nvm_isa_row *row;
  uint32_t size;                             /* words of the whole instruction */
  uint32_t at[NVM_MAX_INSTRUCTION_OPERANDS]; /* offset of each operand's (first) word from the
                                                instruction's */
} nvm_decoded;

enum nvm_decode_result {
  NVM_DECODE_OK = 0,
  NVM_DECODE_UNKNOWN = 1,  /* no instruction has that number */
  NVM_DECODE_TRUNCATED = 2 /* the instruction runs past the end of the code */
};

static inline int nvm_operand_is_list(uint8_t kind) { return kind >= NVM_OPERAND_LABEL_LIST; }

/* Find the operands of the instruction at word `pc` < n_words. Touches no word at or past n_words.
 */
static inline enum nvm_decode_result nvm_decode(const uint32_t *code, uint32_t n_words, uint32_t pc,
                                                nvm_decoded *out_decoded) {
  uint32_t opcode = code[pc];
  if (opcode >= NVM_OPCODE_COUNT || nvm_isa[opcode].mnemonic == NULL) return NVM_DECODE_UNKNOWN;
  const nvm_isa_row *row = &nvm_isa[opcode];
  uint32_t left = n_words - pc, used = 1; /* used <= left throughout */
  for (uint32_t k = 0; k < row->n_operands; k++) {
    uint32_t need = row->kinds[k] == NVM_OPERAND_IMM64 ? 2 : 1;
    if (left - used < need) return NVM_DECODE_TRUNCATED;
    out_decoded->at[k] = used;
    used += need;
    if (nvm_operand_is_list(row->kinds[k])) {
      uint32_t count = code[pc + used - 1];
      if (count > left - used) return NVM_DECODE_TRUNCATED;
      used += count;
    }
  }
  out_decoded->row = row;
  out_decoded->size = used;
  return NVM_DECODE_OK;
}

_Static_assert(NVM_OPERAND_LABEL_LIST < NVM_OPERAND_DIM_LIST &&
                   NVM_OPERAND_OUT_LIST == NVM_OPERAND_LABEL_LIST + 4,
               "list kinds are the last ones");

#endif
