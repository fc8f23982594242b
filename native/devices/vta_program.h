/* What the file holds for one kernel on VTA (external code, docs/vta.md): micro-kernels, constants,
 * and steps. A step rearranges a tensor or runs a stream whose body repeats for each tile of rows,
 * so that one program serves any size of the first dims. */
#ifndef NVM_VTA_PROGRAM_H
#define NVM_VTA_PROGRAM_H

#include "nvm_kernel.h"
#include "vta_isa.h"

enum {
  NVM_VTA_MAX_STEPS = 1024,
  NVM_VTA_MAX_SYMBOLS = 64,
  NVM_VTA_MAX_ROWS = 16383, /* of a trip: what a loop of an instruction can count */
  NVM_VTA_NO_SYMBOL = 0x7FFF,
  NVM_VTA_ROWS = 0x8000 /* flag of a mark: the instruction is about all rows of the trip */
};

/* Instructions with a mark each: of a transfer the symbol that its DRAM address counts from, of
 * GEMM and ALU the micro-kernel that its micro-ops are of. Both little-endian and borrowed. */
typedef struct nvm_vta_stream {
  const uint8_t *instructions, *marks;
  uint32_t count;
} nvm_vta_stream;

/* Where DRAM addresses of a step count from: an operand, or the constants. */
typedef struct nvm_vta_symbol {
  uint32_t operand; /* index; NVM_VTA_CONSTANTS for the constants */
  uint32_t offset;  /* bytes into it */
  uint32_t stride;  /* bytes it moves on from trip to trip */
} nvm_vta_symbol;
#define NVM_VTA_CONSTANTS 0xFFFFu

/* The number of rows, or images: the product of the first `axes` dims of an operand. */
typedef struct nvm_vta_count {
  uint32_t operand, axes;
} nvm_vta_count;

/* rows x channels x positions int8 numbers, row-major (positions before channels if
 * channels_last), into rows x blocks x positions x block and back; the last block is filled up with
 * zeros. */
typedef struct nvm_vta_layout {
  uint32_t src, dst; /* operands */
  uint32_t channels, positions;
  uint8_t channels_last, to_blocks;
} nvm_vta_layout;

/* prologue, body for each trip of `rows` rows, epilogue. The last trip may have fewer: then marked
 * instructions get that number as their y_size (transfers) or iter_out (GEMM and ALU). */
typedef struct nvm_vta_run {
  uint32_t rows, n_symbols, n_kernels;
  uint32_t *kernels; /* owned: the micro-kernels that its streams name, each once */
  nvm_vta_symbol symbols[NVM_VTA_MAX_SYMBOLS];
  nvm_vta_stream prologue, body, epilogue;
} nvm_vta_run;

typedef struct nvm_vta_step {
  uint8_t is_run;
  nvm_vta_count count;
  nvm_vta_layout layout;
  nvm_vta_run run;
} nvm_vta_step;

typedef struct nvm_vta_micro_kernel {
  const uint8_t *words; /* borrowed, little-endian */
  uint32_t count, id;   /* id: of the device's cache, set by vta_cache_add */
} nvm_vta_micro_kernel;

typedef struct nvm_vta_program {
  nvm_vta_config config;
  const uint8_t *constants;
  size_t n_constant_bytes;
  uint32_t n_micro_kernels, n_steps;
  nvm_vta_micro_kernel *micro_kernels;
  nvm_vta_step *steps;
} nvm_vta_program;

/* blob: borrowed as long as the program lives. Checks that operands, symbols and micro-kernels that
 * are named exist; what instructions do is checked when they run. Errors: INVALID_EXECUTABLE. */
NVM_NODISCARD nvm_status nvm_vta_program_read(const void *blob, size_t size,
                                              const nvm_signature *signature,
                                              nvm_vta_program *out_program);
void nvm_vta_program_free(nvm_vta_program *program);

#endif
