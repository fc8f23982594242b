/* The instruction set of VTA (arXiv 1807.04188), as its hardware 0.0.2 encodes it: 128-bit
 * instructions, 32-bit micro-ops. docs/vta.md has every bit; nimblevm/devices/vta_isa.py is the
 * assembler. */
#ifndef NVM_VTA_ISA_H
#define NVM_VTA_ISA_H

#include <stdint.h>

#include "nvm_api.h"
#include "status.h"

enum nvm_vta_opcode {
  NVM_VTA_LOAD = 0,
  NVM_VTA_STORE = 1,
  NVM_VTA_GEMM = 2,
  NVM_VTA_FINISH = 3,
  NVM_VTA_ALU = 4
};

/* Scratchpads. ACC8 is the accumulator's, loaded from int8 and widened. */
enum nvm_vta_memory {
  NVM_VTA_UOP = 0,
  NVM_VTA_WGT = 1,
  NVM_VTA_INP = 2,
  NVM_VTA_ACC = 3,
  NVM_VTA_OUT = 4,
  NVM_VTA_ACC8 = 5,
  NVM_VTA_MEMORIES = 6
};

enum nvm_vta_alu { NVM_VTA_MIN = 0, NVM_VTA_MAX = 1, NVM_VTA_ADD = 2, NVM_VTA_SHR = 3 };

enum nvm_vta_module {
  NVM_VTA_LOADER = 0,
  NVM_VTA_COMPUTE = 1,
  NVM_VTA_STORER = 2,
  NVM_VTA_MODULES = 3
};

/* Fields as wide as the default configuration needs; a smaller one leaves high values unused. */
enum {
  NVM_VTA_UOP_BITS = 13, /* log2 of the most entries of each scratchpad */
  NVM_VTA_ACC_BITS = 11,
  NVM_VTA_INP_BITS = 11,
  NVM_VTA_WGT_BITS = 10,
  NVM_VTA_INSTRUCTION_BYTES = 16
};

typedef struct nvm_vta_instruction {
  uint64_t number;        /* its place in the run, for messages */
  uint8_t opcode, module; /* enum nvm_vta_module: who executes it */
  uint8_t pop_prev, pop_next, push_prev, push_next;
  /* LOAD, STORE; sizes and addresses in elements of `memory` */
  uint8_t memory, y_pad_0, y_pad_1, x_pad_0, x_pad_1;
  uint16_t sram, y_size, x_size, x_stride;
  uint32_t dram;
  /* GEMM, ALU */
  uint8_t reset, alu, use_immediate;
  uint16_t uop_begin, uop_end, iter_out, iter_in;
  uint16_t dst_out, dst_in, src_out, src_in, wgt_out, wgt_in;
  int16_t immediate;
} nvm_vta_instruction;

typedef struct nvm_vta_uop {
  uint32_t dst, src, wgt;
} nvm_vta_uop;

/* What the hardware is: derived from the nine numbers of nvm_vta_config. */
typedef struct nvm_vta_shape {
  uint32_t batch, block_in, block_out;
  uint32_t entries[NVM_VTA_MEMORIES]; /* of each scratchpad */
  uint32_t bytes[NVM_VTA_MEMORIES];   /* of one entry in DRAM */
  uint32_t acc_lanes;                 /* numbers of one accumulator entry */
  uint32_t dram_latency, bytes_a_cycle;
} nvm_vta_shape;

/* Errors: NVM_INVALID_EXECUTABLE that names the number that is out of range. */
NVM_NODISCARD nvm_status nvm_vta_shape_of(const nvm_vta_config *config, nvm_vta_shape *out_shape);

/* Decode two little-endian words, the `number`-th of a run. Errors: NVM_DEVICE_ERROR for an
 * unknown opcode, memory or operation, a token for a neighbour that the module lacks, and bits set
 * that mean nothing. */
NVM_NODISCARD nvm_status nvm_vta_decode(const uint64_t words[2], uint64_t number,
                                        nvm_vta_instruction *out_instruction);
/* Every 32-bit word is a micro-op. */
nvm_vta_uop nvm_vta_decode_uop(uint32_t word);

/* Why an instruction failed: DEVICE_ERROR "vta instruction 12 (GEMM): ...". */
NVM_NODISCARD nvm_status nvm_vta_fault(const nvm_vta_instruction *instruction, const char *format,
                                       ...) __attribute__((format(printf, 2, 3), cold));

/* "uop", ... and "load", ...; for messages. */
const char *nvm_vta_memory_name(uint32_t memory);
const char *nvm_vta_module_name(uint32_t module);

#endif
