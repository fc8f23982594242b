/* What VTA instructions do: transfers, block products and vector arithmetic, each access checked.
 */
#include <string.h>

#include "vta_sim.h"

/* Between two questions whether to go on. */
enum { POLL_WORK = 1 << 16 };

/* After some work, in micro-ops or what takes as long: ask whether to go on. */
static nvm_status worked(nvm_vta_sim *sim, uint64_t work) {
  sim->work += work;
  if (sim->work < POLL_WORK || !sim->ctx) return NVM_OK;
  sim->work = 0;
  return sim->ctx->poll(sim->ctx);
}

static uint64_t transfer_cycles(const nvm_vta_shape *shape, const nvm_vta_instruction *in) {
  uint64_t moved = (uint64_t)in->y_size * in->x_size;
  uint64_t rows = (uint64_t)in->y_pad_0 + in->y_size + in->y_pad_1;
  uint64_t entries = rows * ((uint64_t)in->x_pad_0 + in->x_size + in->x_pad_1);
  if (!entries) return 1; /* tokens only */
  uint64_t bytes = moved * shape->bytes[in->memory];
  uint64_t bus = (bytes + shape->bytes_a_cycle - 1) / shape->bytes_a_cycle;
  return shape->dram_latency + (bus > entries ? bus : entries);
}

static uint64_t micro_ops(const nvm_vta_instruction *in) {
  if (in->uop_end <= in->uop_begin) return 0;
  return (uint64_t)in->iter_out * in->iter_in * (uint64_t)(in->uop_end - in->uop_begin);
}

uint64_t nvm_vta_cycles(const nvm_vta_shape *shape, const nvm_vta_instruction *in) {
  uint64_t cycles = 1;
  switch (in->opcode) {
    case NVM_VTA_LOAD:
    case NVM_VTA_STORE:
      return transfer_cycles(shape, in);
    case NVM_VTA_GEMM:
      cycles = micro_ops(in);
      break;
    case NVM_VTA_ALU: /* one port: the second operand takes a cycle of its own */
      cycles = micro_ops(in) * (in->use_immediate ? 1 : 2);
      break;
    default:
      break;
  }
  return cycles ? cycles : 1;
}

/* --- LOAD and STORE --------------------------------------------------------------------------- */

/* All rows of the transfer lie in one window. */
static nvm_status check_window(const nvm_vta_sim *sim, const nvm_vta_instruction *in,
                               const nvm_vta_transfer *transfer) {
  uint64_t span = (transfer->rows - 1) * transfer->stride + transfer->row;
  int writes = in->opcode == NVM_VTA_STORE;
  for (uint32_t i = 0; i < sim->n_windows; i++) {
    const nvm_vta_window *window = &sim->windows[i];
    if (writes && !window->writable) continue;
    if (transfer->begin >= window->begin && span <= window->size &&
        transfer->begin - window->begin <= window->size - span)
      return NVM_OK;
  }
  return nvm_vta_fault(in,
                       "out of range: bytes %llu to %llu of DRAM are in nothing that this run may "
                       "%s",
                       (unsigned long long)transfer->begin,
                       (unsigned long long)(transfer->begin + span), writes ? "write" : "read");
}

/* The DRAM side of a transfer, checked. */
static nvm_status prepare(nvm_vta_sim *sim, const nvm_vta_instruction *in, nvm_vta_transfer *out) {
  uint64_t bytes = sim->shape.bytes[in->memory];
  *out = (nvm_vta_transfer){.number = sim->units[in->module].clock.done[in->module],
                            .begin = in->dram * bytes,
                            .row = in->x_size * bytes,
                            .stride = in->x_stride * bytes,
                            .rows = in->y_size};
  if (!out->row || !out->rows) return NVM_OK;
  NVM_TRY(check_window(sim, in, out));
  return nvm_vta_order_transfer(sim, in, out);
}

/* Entries [sram, sram + count) of the instruction's scratchpad are about to be overwritten. */
static nvm_status claim_entries(nvm_vta_sim *sim, const nvm_vta_instruction *in, uint64_t count) {
  uint32_t entries = sim->shape.entries[in->memory];
  if (in->sram > entries || count > entries - in->sram)
    return nvm_vta_fault(in, "out of range: entries %u to %llu of %s, which has %u", in->sram,
                         (unsigned long long)(in->sram + count), nvm_vta_memory_name(in->memory),
                         entries);
  const nvm_vta_clock *clock = &sim->units[in->module].clock;
  if (in->module == NVM_VTA_LOADER)
    for (uint64_t i = in->sram; i < in->sram + count; i++)
      if (sim->read[in->memory][i] > clock->done[NVM_VTA_COMPUTE])
        return nvm_vta_fault(in,
                             "dependence error: no token orders it behind the last use of %s[%llu]",
                             nvm_vta_memory_name(in->memory), (unsigned long long)i);
  for (uint64_t i = in->sram; i < in->sram + count; i++)
    sim->written[in->memory][i] = clock->done[in->module];
  return NVM_OK;
}

/* Elements of one row into the scratchpad; int8 numbers are widened for ACC8. */
static void fill(const nvm_vta_sim *sim, uint32_t memory, uint64_t entry, const uint8_t *from,
                 uint64_t count) {
  uint64_t bytes = sim->shape.bytes[memory];
  if (memory != NVM_VTA_ACC8) {
    memcpy((uint8_t *)sim->data[memory] + entry * bytes, from, count * bytes);
    return;
  }
  int32_t *to = (int32_t *)sim->data[memory] + entry * bytes;
  for (uint64_t i = 0; i < count * bytes; i++) to[i] = (int8_t)from[i];
}

static void clear(const nvm_vta_sim *sim, uint32_t memory, uint64_t entry, uint64_t count) {
  uint64_t bytes = sim->shape.bytes[memory == NVM_VTA_ACC8 ? NVM_VTA_ACC : memory];
  memset((uint8_t *)sim->data[memory] + entry * bytes, 0, count * bytes);
}

static nvm_status load(nvm_vta_sim *sim, const nvm_vta_instruction *in) {
  uint64_t width = (uint64_t)in->x_pad_0 + in->x_size + in->x_pad_1;
  uint64_t rows = (uint64_t)in->y_pad_0 + in->y_size + in->y_pad_1;
  nvm_vta_transfer transfer;
  NVM_TRY(prepare(sim, in, &transfer));
  NVM_TRY(claim_entries(sim, in, width * rows));
  uint64_t entry = in->sram;
  clear(sim, in->memory, entry, in->y_pad_0 * width);
  entry += in->y_pad_0 * width;
  for (uint64_t y = 0; y < in->y_size; y++, entry += width) {
    clear(sim, in->memory, entry, in->x_pad_0);
    fill(sim, in->memory, entry + in->x_pad_0, sim->dram + transfer.begin + y * transfer.stride,
         in->x_size);
    clear(sim, in->memory, entry + in->x_pad_0 + in->x_size, in->x_pad_1);
  }
  clear(sim, in->memory, entry, in->y_pad_1 * width);
  uint64_t bytes = transfer.row * transfer.rows;
  sim->stats.bytes_loaded += bytes;
  if (in->memory == NVM_VTA_UOP) sim->stats.uop_bytes += bytes;
  if (in->memory == NVM_VTA_WGT) sim->stats.wgt_bytes += bytes;
  return NVM_OK;
}

static nvm_status store(nvm_vta_sim *sim, const nvm_vta_instruction *in) {
  const nvm_vta_clock *clock = &sim->units[NVM_VTA_STORER].clock;
  uint64_t count = (uint64_t)in->x_size * in->y_size;
  uint32_t entries = sim->shape.entries[NVM_VTA_OUT];
  nvm_vta_transfer transfer;
  NVM_TRY(prepare(sim, in, &transfer));
  if (in->sram > entries || count > entries - in->sram)
    return nvm_vta_fault(in, "out of range: entries %u to %llu of out, which has %u", in->sram,
                         (unsigned long long)(in->sram + count), entries);
  for (uint64_t i = in->sram; i < in->sram + count; i++) {
    uint64_t written = sim->written[NVM_VTA_OUT][i];
    if (written <= sim->first[NVM_VTA_COMPUTE])
      return nvm_vta_fault(in, "dependence error: out[%llu] holds nothing yet",
                           (unsigned long long)i);
    if (written > clock->done[NVM_VTA_COMPUTE])
      return nvm_vta_fault(in, "dependence error: no token orders it behind what wrote out[%llu]",
                           (unsigned long long)i);
    sim->read[NVM_VTA_OUT][i] = clock->done[NVM_VTA_STORER];
  }
  const uint8_t *from =
      (const uint8_t *)sim->data[NVM_VTA_OUT] + (uint64_t)in->sram * sim->shape.bytes[NVM_VTA_OUT];
  for (uint64_t y = 0; y < in->y_size; y++)
    memcpy(sim->dram + transfer.begin + y * transfer.stride, from + y * transfer.row, transfer.row);
  sim->stats.bytes_stored += transfer.row * transfer.rows;
  return NVM_OK;
}

/* --- GEMM and ALU ----------------------------------------------------------------------------- */

/* What a micro-op's turn works on. */
typedef struct vta_turn {
  nvm_vta_sim *sim;
  const nvm_vta_instruction *instruction;
  uint64_t number;                   /* of this instruction among the compute module's */
  uint64_t loader_done, storer_done; /* that tokens vouch for */
} vta_turn;

static nvm_status check_entry(const vta_turn *turn, uint32_t memory, uint32_t entry) {
  if (entry >= turn->sim->shape.entries[memory])
    return nvm_vta_fault(turn->instruction, "out of range: %s[%u], which has %u entries",
                         nvm_vta_memory_name(memory), entry, turn->sim->shape.entries[memory]);
  return NVM_OK;
}

/* An entry that the load module wrote. */
static nvm_status use_loaded(const vta_turn *turn, uint32_t memory, uint32_t entry) {
  nvm_vta_sim *sim = turn->sim;
  NVM_TRY(check_entry(turn, memory, entry));
  uint64_t written = sim->written[memory][entry];
  if (NVM_UNLIKELY(written <= sim->first[NVM_VTA_LOADER] || written > turn->loader_done))
    return nvm_vta_fault(turn->instruction, "dependence error: %s %s[%u]",
                         written > turn->loader_done ? "no token orders it behind the load of"
                                                     : "nothing was loaded into",
                         nvm_vta_memory_name(memory), entry);
  sim->read[memory][entry] = turn->number;
  return NVM_OK;
}

static nvm_status use_acc(const vta_turn *turn, uint32_t entry) {
  NVM_TRY(check_entry(turn, NVM_VTA_ACC, entry));
  if (NVM_UNLIKELY(turn->sim->written[NVM_VTA_ACC][entry] <= turn->sim->first[NVM_VTA_COMPUTE]))
    return nvm_vta_fault(turn->instruction, "dependence error: acc[%u] holds nothing yet", entry);
  return NVM_OK;
}

/* acc[entry], and out[entry] with it, are about to be overwritten. */
static nvm_status claim_result(const vta_turn *turn, uint32_t entry) {
  nvm_vta_sim *sim = turn->sim;
  if (NVM_UNLIKELY(sim->read[NVM_VTA_OUT][entry] > turn->storer_done))
    return nvm_vta_fault(turn->instruction,
                         "dependence error: no token orders it behind the store of out[%u]", entry);
  sim->written[NVM_VTA_ACC][entry] = sim->written[NVM_VTA_OUT][entry] = turn->number;
  return NVM_OK;
}

static int32_t *acc_at(const nvm_vta_sim *sim, uint32_t entry) {
  return (int32_t *)sim->data[NVM_VTA_ACC] + (size_t)entry * sim->shape.acc_lanes;
}

/* out = the low eight bits of acc. */
static void narrow(const nvm_vta_sim *sim, uint32_t entry) {
  const int32_t *from = acc_at(sim, entry);
  int8_t *to = (int8_t *)sim->data[NVM_VTA_OUT] + (size_t)entry * sim->shape.acc_lanes;
  for (uint32_t i = 0; i < sim->shape.acc_lanes; i++) to[i] = (int8_t)from[i];
}

/* acc[a][o] += sum over i of inp[a][i] * wgt[o][i], modulo 2^32. */
static inline void multiply(int32_t *acc, const int8_t *inp, const int8_t *wgt, uint32_t batch,
                            uint32_t block_in, uint32_t block_out) {
  for (uint32_t a = 0; a < batch; a++)
    for (uint32_t o = 0; o < block_out; o++) {
      int32_t sum = 0;
      for (uint32_t i = 0; i < block_in; i++) sum += inp[a * block_in + i] * wgt[o * block_in + i];
      acc[a * block_out + o] = (int32_t)((uint32_t)acc[a * block_out + o] + (uint32_t)sum);
    }
}

static void block_product(const nvm_vta_sim *sim, uint32_t dst, uint32_t src, uint32_t wgt) {
  const nvm_vta_shape *shape = &sim->shape;
  int32_t *acc = acc_at(sim, dst);
  const int8_t *inp = (int8_t *)sim->data[NVM_VTA_INP] + (size_t)src * shape->bytes[NVM_VTA_INP];
  const int8_t *block = (int8_t *)sim->data[NVM_VTA_WGT] + (size_t)wgt * shape->bytes[NVM_VTA_WGT];
  if (shape->batch == 1 && shape->block_in == 16 && shape->block_out == 16)
    multiply(acc, inp, block, 1, 16, 16); /* constants, so that the compiler makes vectors of it */
  else
    multiply(acc, inp, block, shape->batch, shape->block_in, shape->block_out);
}

static nvm_status gemm_turn(const vta_turn *turn, uint32_t dst, uint32_t src, uint32_t wgt) {
  nvm_vta_sim *sim = turn->sim;
  if (turn->instruction->reset) {
    NVM_TRY(check_entry(turn, NVM_VTA_ACC, dst));
    NVM_TRY(claim_result(turn, dst));
    memset(acc_at(sim, dst), 0, sim->shape.bytes[NVM_VTA_ACC]);
  } else {
    NVM_TRY(use_acc(turn, dst));
    NVM_TRY(use_loaded(turn, NVM_VTA_INP, src));
    NVM_TRY(use_loaded(turn, NVM_VTA_WGT, wgt));
    NVM_TRY(claim_result(turn, dst));
    block_product(sim, dst, src, wgt);
  }
  narrow(sim, dst);
  return NVM_OK;
}

/* value >> amount; a negative amount shifts left; the count is taken modulo 32. */
static int32_t shift(int32_t value, int32_t amount) {
  if (amount >= 0) return value >> (amount & 31);
  return (int32_t)((uint32_t)value << ((0u - (uint32_t)amount) & 31u));
}

static int32_t operate(uint32_t operation, int32_t a, int32_t b) {
  switch (operation) {
    case NVM_VTA_MIN:
      return a < b ? a : b;
    case NVM_VTA_MAX:
      return a > b ? a : b;
    case NVM_VTA_ADD:
      return (int32_t)((uint32_t)a + (uint32_t)b);
    default:
      return shift(a, b);
  }
}

static nvm_status alu_turn(const vta_turn *turn, uint32_t dst, uint32_t src) {
  nvm_vta_sim *sim = turn->sim;
  const nvm_vta_instruction *in = turn->instruction;
  NVM_TRY(use_acc(turn, dst));
  if (!in->use_immediate) NVM_TRY(use_acc(turn, src));
  NVM_TRY(claim_result(turn, dst));
  int32_t *to = acc_at(sim, dst);
  if (in->use_immediate)
    for (uint32_t i = 0; i < sim->shape.acc_lanes; i++)
      to[i] = operate(in->alu, to[i], in->immediate);
  else
    for (uint32_t i = 0; i < sim->shape.acc_lanes; i++)
      to[i] = operate(in->alu, to[i], acc_at(sim, src)[i]);
  narrow(sim, dst);
  return NVM_OK;
}

static nvm_status check_uops(const nvm_vta_sim *sim, const nvm_vta_instruction *in) {
  if (in->uop_end > sim->shape.entries[NVM_VTA_UOP])
    return nvm_vta_fault(in, "out of range: micro-ops up to %u of %u", in->uop_end,
                         sim->shape.entries[NVM_VTA_UOP]);
  for (uint32_t u = in->uop_begin; u < in->uop_end; u++)
    if (!sim->written[NVM_VTA_UOP][u])
      return nvm_vta_fault(in, "dependence error: uop[%u] holds nothing yet", u);
  return NVM_OK;
}

/* One turn of the two loops: all micro-ops with these offsets. */
static nvm_status run_uops(const vta_turn *turn, uint32_t dst, uint32_t src, uint32_t wgt) {
  const nvm_vta_instruction *in = turn->instruction;
  const uint32_t *uops = turn->sim->data[NVM_VTA_UOP];
  for (uint32_t u = in->uop_begin; u < in->uop_end; u++) {
    nvm_vta_uop op = nvm_vta_decode_uop(uops[u]);
    if (in->opcode == NVM_VTA_GEMM)
      NVM_TRY(gemm_turn(turn, dst + op.dst, src + op.src, wgt + op.wgt));
    else
      NVM_TRY(alu_turn(turn, dst + op.dst, src + op.src));
  }
  return NVM_OK;
}

static nvm_status compute(nvm_vta_sim *sim, const nvm_vta_instruction *in) {
  if (!micro_ops(in)) return NVM_OK; /* tokens only */
  NVM_TRY(check_uops(sim, in));
  const nvm_vta_clock *clock = &sim->units[NVM_VTA_COMPUTE].clock;
  const vta_turn turn = {sim, in, clock->done[NVM_VTA_COMPUTE], clock->done[NVM_VTA_LOADER],
                         clock->done[NVM_VTA_STORER]};
  for (uint32_t i = 0; i < in->iter_out; i++)
    for (uint32_t j = 0; j < in->iter_in; j++) {
      NVM_TRY(run_uops(&turn, i * in->dst_out + j * in->dst_in, i * in->src_out + j * in->src_in,
                       i * in->wgt_out + j * in->wgt_in));
      NVM_TRY(worked(sim, (uint64_t)(in->uop_end - in->uop_begin)));
    }
  if (in->opcode == NVM_VTA_GEMM && !in->reset) sim->stats.block_products += micro_ops(in);
  return NVM_OK;
}

nvm_status nvm_vta_execute(nvm_vta_sim *sim, const nvm_vta_instruction *in) {
  /* A transfer's rows are held against those of others, and it against the windows. */
  NVM_TRY(worked(sim, 64 + (uint64_t)in->y_size + sim->n_windows));
  switch (in->opcode) {
    case NVM_VTA_LOAD:
      return load(sim, in);
    case NVM_VTA_STORE:
      return store(sim, in);
    case NVM_VTA_GEMM:
    case NVM_VTA_ALU:
      return compute(sim, in);
    default:
      return NVM_OK;
  }
}
