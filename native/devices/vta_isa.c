/* Decoding of VTA instructions, and what a configuration amounts to. */
#include "vta_isa.h"

#include <stdarg.h>
#include <stdio.h>

static const char *opcode_name(uint32_t opcode) {
  static const char *const names[] = {"LOAD", "STORE", "GEMM", "FINISH", "ALU"};
  return opcode < sizeof names / sizeof *names ? names[opcode] : "unknown";
}

const char *nvm_vta_memory_name(uint32_t memory) {
  static const char *const names[] = {"uop", "wgt", "inp", "acc", "out", "acc8"};
  return memory < sizeof names / sizeof *names ? names[memory] : "unknown";
}

const char *nvm_vta_module_name(uint32_t module) {
  static const char *const names[] = {"load", "compute", "store"};
  return module < NVM_VTA_MODULES ? names[module] : "unknown";
}

nvm_status nvm_vta_fault(const nvm_vta_instruction *instruction, const char *format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  NVM_FAIL(NVM_DEVICE_ERROR, "vta instruction %llu (%s): %s",
           (unsigned long long)instruction->number, opcode_name(instruction->opcode), text);
}

static nvm_status check_number(const char *name, uint32_t value, uint32_t low, uint32_t high) {
  if (value < low || value > high)
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "vta configuration: %s must be %u to %u, not %u", name, low,
             high, value);
  return NVM_OK;
}

/* log2 of a scratchpad's bytes -> its entries. */
static nvm_status entries_of(const char *name, uint32_t log_bytes, uint32_t entry_bytes,
                             uint32_t bits, uint32_t *out_entries) {
  uint32_t log_entry = 31u - (uint32_t)__builtin_clz(entry_bytes);
  NVM_TRY(check_number(name, log_bytes, log_entry, log_entry + bits));
  *out_entries = 1u << (log_bytes - log_entry);
  return NVM_OK;
}

nvm_status nvm_vta_shape_of(const nvm_vta_config *config, nvm_vta_shape *out) {
  NVM_TRY(check_number("log_batch", config->log_batch, 0, 4));
  NVM_TRY(check_number("log_block_in", config->log_block_in, 2, 6));
  NVM_TRY(check_number("log_block_out", config->log_block_out, 2, 6));
  NVM_TRY(check_number("bytes_a_cycle", config->bytes_a_cycle, 1, 4096));
  NVM_TRY(check_number("dram_latency", config->dram_latency, 0, 65536));
  *out = (nvm_vta_shape){.batch = 1u << config->log_batch,
                         .block_in = 1u << config->log_block_in,
                         .block_out = 1u << config->log_block_out,
                         .dram_latency = config->dram_latency,
                         .bytes_a_cycle = config->bytes_a_cycle};
  out->acc_lanes = out->batch * out->block_out;
  out->bytes[NVM_VTA_UOP] = 4;
  out->bytes[NVM_VTA_WGT] = out->block_in * out->block_out;
  out->bytes[NVM_VTA_INP] = out->batch * out->block_in;
  out->bytes[NVM_VTA_ACC] = out->acc_lanes * 4;
  out->bytes[NVM_VTA_OUT] = out->bytes[NVM_VTA_ACC8] = out->acc_lanes;
  NVM_TRY(entries_of("log_uop_bytes", config->log_uop_bytes, out->bytes[NVM_VTA_UOP],
                     NVM_VTA_UOP_BITS, &out->entries[NVM_VTA_UOP]));
  NVM_TRY(entries_of("log_wgt_bytes", config->log_wgt_bytes, out->bytes[NVM_VTA_WGT],
                     NVM_VTA_WGT_BITS, &out->entries[NVM_VTA_WGT]));
  NVM_TRY(entries_of("log_inp_bytes", config->log_inp_bytes, out->bytes[NVM_VTA_INP],
                     NVM_VTA_INP_BITS, &out->entries[NVM_VTA_INP]));
  NVM_TRY(entries_of("log_acc_bytes", config->log_acc_bytes, out->bytes[NVM_VTA_ACC],
                     NVM_VTA_ACC_BITS, &out->entries[NVM_VTA_ACC]));
  out->entries[NVM_VTA_OUT] = out->entries[NVM_VTA_ACC8] = out->entries[NVM_VTA_ACC];
  return NVM_OK;
}

/* --- bits ------------------------------------------------------------------------------------- */

/* Takes fields of a word from the lowest bit up. */
typedef struct bits {
  uint64_t word;
} bits;

static uint32_t take(bits *from, uint32_t width) {
  uint32_t value = (uint32_t)(from->word & ((UINT64_C(1) << width) - 1));
  from->word >>= width;
  return value;
}

static uint8_t take8(bits *from, uint32_t width) { return (uint8_t)take(from, width); }
static uint16_t take16(bits *from, uint32_t width) { return (uint16_t)take(from, width); }

nvm_vta_uop nvm_vta_decode_uop(uint32_t word) {
  bits from = {word};
  uint32_t dst = take(&from, NVM_VTA_ACC_BITS);
  uint32_t src = take(&from, NVM_VTA_INP_BITS);
  return (nvm_vta_uop){dst, src, take(&from, NVM_VTA_WGT_BITS)};
}

static void decode_transfer(bits *low, bits *high, nvm_vta_instruction *out) {
  out->memory = take8(low, 3);
  out->sram = take16(low, 16);
  out->dram = take(low, 32);
  out->y_size = take16(high, 16);
  out->x_size = take16(high, 16);
  out->x_stride = take16(high, 16);
  out->y_pad_0 = take8(high, 4);
  out->y_pad_1 = take8(high, 4);
  out->x_pad_0 = take8(high, 4);
  out->x_pad_1 = take8(high, 4);
}

static void decode_loops(bits *low, bits *high, nvm_vta_instruction *out) {
  out->reset = take8(low, 1);
  out->uop_begin = take16(low, NVM_VTA_UOP_BITS);
  out->uop_end = take16(low, NVM_VTA_UOP_BITS + 1);
  out->iter_out = take16(low, 14);
  out->iter_in = take16(low, 14);
  out->dst_out = take16(high, NVM_VTA_ACC_BITS);
  out->dst_in = take16(high, NVM_VTA_ACC_BITS);
  out->src_out = take16(high, NVM_VTA_INP_BITS);
  out->src_in = take16(high, NVM_VTA_INP_BITS);
}

/* Fields that only one opcode has; the rest of `low` and `high` must then be zero. */
static nvm_status decode_fields(bits *low, bits *high, nvm_vta_instruction *out) {
  switch (out->opcode) {
    case NVM_VTA_LOAD:
    case NVM_VTA_STORE:
      decode_transfer(low, high, out);
      break;
    case NVM_VTA_GEMM:
      decode_loops(low, high, out);
      out->wgt_out = take16(high, NVM_VTA_WGT_BITS);
      out->wgt_in = take16(high, NVM_VTA_WGT_BITS);
      break;
    case NVM_VTA_ALU:
      decode_loops(low, high, out);
      out->alu = take8(high, 3);
      out->use_immediate = take8(high, 1);
      out->immediate = (int16_t)take16(high, 16);
      if (out->alu > NVM_VTA_SHR || out->reset)
        return nvm_vta_fault(out, "operation %u%s is unknown", out->alu,
                             out->reset ? " with reset" : "");
      break;
    case NVM_VTA_FINISH:
      break;
    default:
      NVM_FAIL(NVM_DEVICE_ERROR, "vta instruction %llu: opcode %u is unknown",
               (unsigned long long)out->number, out->opcode);
  }
  if (low->word || high->word) return nvm_vta_fault(out, "bits that mean nothing are set");
  return NVM_OK;
}

/* Who executes it; which transfers there are. */
static nvm_status find_module(nvm_vta_instruction *out) {
  out->module = NVM_VTA_COMPUTE;
  if (out->opcode == NVM_VTA_STORE) out->module = NVM_VTA_STORER;
  if (out->opcode == NVM_VTA_LOAD && (out->memory == NVM_VTA_INP || out->memory == NVM_VTA_WGT))
    out->module = NVM_VTA_LOADER;
  int known = out->opcode == NVM_VTA_STORE ? out->memory == NVM_VTA_OUT
              : out->opcode == NVM_VTA_LOAD
                  ? out->memory < NVM_VTA_MEMORIES && out->memory != NVM_VTA_OUT
                  : 1;
  if (!known)
    return nvm_vta_fault(out, "there is none of memory %u (%s)", out->memory,
                         nvm_vta_memory_name(out->memory));
  if (out->opcode == NVM_VTA_STORE && (out->y_pad_0 | out->y_pad_1 | out->x_pad_0 | out->x_pad_1))
    return nvm_vta_fault(out, "a store has no padding");
  if ((out->module == NVM_VTA_LOADER && (out->pop_prev || out->push_prev)) ||
      (out->module == NVM_VTA_STORER && (out->pop_next || out->push_next)))
    return nvm_vta_fault(out, "the %s module has no neighbour on that side",
                         nvm_vta_module_name(out->module));
  return NVM_OK;
}

nvm_status nvm_vta_decode(const uint64_t words[2], uint64_t number, nvm_vta_instruction *out) {
  bits low = {words[0]}, high = {words[1]};
  *out = (nvm_vta_instruction){.number = number, .opcode = take8(&low, 3)};
  out->pop_prev = take8(&low, 1);
  out->pop_next = take8(&low, 1);
  out->push_prev = take8(&low, 1);
  out->push_next = take8(&low, 1);
  NVM_TRY(decode_fields(&low, &high, out));
  return find_module(out);
}
