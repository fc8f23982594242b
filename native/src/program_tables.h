/* From the msgpack header to a program's tables: everything that docs/format.md says about the
 * header's values is checked here, and nothing about what lies in the sections.
 */
#ifndef NVM_PROGRAM_TABLES_H
#define NVM_PROGRAM_TABLES_H

#include "arena.h"
#include "msgpack.h"
#include "nvm_device.h"
#include "program.h"

enum { /* nvm_device.h has those that backends get */
       NVM_SECTION_BYTECODE = 0,
       NVM_SECTION_CONSTANTS = 1,
       NVM_SECTION_KERNEL_IR = 2,
       NVM_SECTION_NATIVE = 3
};

enum {
  NVM_MAX_REGISTERS = 1 << 20, /* of each kind */
  NVM_MAX_DEVICES = 64,
  NVM_MAX_TYPE_INDEX = 1 << 16 /* dim slots of a function, type variables of a definition */
};

typedef struct nvm_section_row {
  uint64_t offset, size; /* offset from the first section's place */
  const uint8_t *digest; /* 32 bytes in the header */
} nvm_section_row;

typedef struct nvm_kernel_row {
  uint64_t ir_offset, ir_size;
  int64_t native;
} nvm_kernel_row;

/* A program under construction: the mutable views of its tables, and what only loading needs. */
typedef struct nvm_loader {
  nvm_program *program;
  nvm_arena *arena;
  nvm_mp mp;
  nvm_section *sections; /* data is set when they are read */
  nvm_section_row *section_rows;
  nvm_function *functions; /* code is an offset until the bytecode is read */
  uint32_t *code_first;
  nvm_tensor **constants; /* data is set when they are mapped */
  uint64_t *constant_offsets;
  nvm_kernel *kernels;
  nvm_kernel_row *kernel_rows;
  uint32_t *type_slots; /* by type: 1 + largest dim slot in it, 0 none */
  uint32_t *type_vars;  /* by type: 1 + largest type variable in it, 0 none */
} nvm_loader;

/* Read the header into program and loader. Errors: NVM_INVALID_EXECUTABLE, NVM_OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_read_tables(nvm_loader *loader, const uint8_t *header, size_t size);

/* kernel_tables.c: the kernel table. */
NVM_NODISCARD nvm_status nvm_read_kernels(nvm_loader *loader);

/* constant_tables.c: what is bound late, and all constants. */
NVM_NODISCARD nvm_status nvm_read_weights(nvm_loader *loader);
NVM_NODISCARD nvm_status nvm_read_weights_file(nvm_loader *loader);
NVM_NODISCARD nvm_status nvm_read_constants(nvm_loader *loader);

/* Allocate `count` items for a table. The count came from nvm_mp_array, so the header justifies it.
 */
#define NVM_TABLE(loader, count, pointer)                                           \
  do {                                                                              \
    void *table_ = NULL;                                                            \
    NVM_TRY(nvm_arena_array((loader)->arena, (count), sizeof *(pointer), &table_)); \
    (pointer) = table_;                                                             \
  } while (0)

/* Errors from here on name this row. */
static inline void nvm_at_row(nvm_loader *loader, const char *table, uint32_t row) {
  loader->mp.table = table;
  loader->mp.row = row;
}

/* --- table_fields.c: values in rows --- */

/* A str of the header as a terminated copy. */
NVM_NODISCARD nvm_status nvm_read_string(nvm_loader *loader, const char *what,
                                         const char **out_text);
/* An array of ints with values low .. high. */
NVM_NODISCARD nvm_status nvm_read_ints(nvm_loader *loader, const char *what, int64_t low,
                                       int64_t high, const int64_t **out_words,
                                       uint32_t *out_count);
/* Check the postfix program at words[0] (limits of nvm_kernel.h, references < n_refs, one value
 * left). out_words: its length, NVM_DIM_END included. */
NVM_NODISCARD nvm_status nvm_check_dim_program(const nvm_mp *mp, const int64_t *words,
                                               uint32_t n_words, uint32_t n_refs,
                                               uint32_t *out_words);

/* Unsigned LEB128 of at most 32 bits; 0 if it is cut or too large. */
static inline int nvm_read_varint(const uint8_t **at, const uint8_t *end, uint32_t *out_value) {
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

#endif
