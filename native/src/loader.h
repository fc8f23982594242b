/* A program while it is read: what the reader's parts hand on to each other. */
#ifndef NVM_LOADER_H
#define NVM_LOADER_H

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

/* Allocate `count` items, zeroed, for a table whose rows the header has. */
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

#endif
