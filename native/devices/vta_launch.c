/* One call on VTA: layout steps, and streams made from templates for the rows there are. */
#include <string.h>

#include "alloc.h"
#include "nvm_api.h"
#include "vta.h"

enum {
  BATCH = 256,      /* instructions fed at once */
  ALIGNMENT = 4096, /* of tensors that the VM did not align as transfers need it */
  POLL_BYTES = 1 << 20
};

typedef struct vta_operand {
  uint64_t begin, bytes; /* in DRAM */
  uint64_t moved_from;   /* where the VM has it, if `begin` is a copy */
  uint8_t moved;
  int64_t sizes[NVM_MAX_RANK];
} vta_operand;

typedef struct vta_call {
  nvm_vta_device *device;
  const nvm_kernel_ctx *ctx;
  const nvm_vta_code *code;
  nvm_vta_stats stats;
  vta_operand operands[NVM_MAX_OPERANDS];
} vta_call;

/* --- operands ----------------------------------------------------------------------------------
 */

static nvm_status operand_of(vta_call *call, uint32_t index, const void *pointer,
                             const nvm_external_operand *described) {
  vta_operand *operand = &call->operands[index];
  const uint64_t bytes = described->bytes;
  memcpy(operand->sizes, described->shape, sizeof operand->sizes);
  operand->bytes = bytes;
  operand->begin = (uint64_t)(uintptr_t)pointer - NVM_VTA_ADDRESS;
  if (!bytes)
    operand->begin = 0;
  else if (operand->begin > NVM_VTA_DRAM_BYTES || bytes > NVM_VTA_DRAM_BYTES - operand->begin)
    NVM_FAIL(NVM_OPERAND_MISMATCH, "vta: operand %u is not in the device's memory", index);
  return NVM_OK;
}

static void count_layout(vta_call *call, uint64_t read, uint64_t written) {
  const nvm_vta_shape *shape = &call->device->sim->shape;
  uint64_t bus = shape->bytes_a_cycle;
  uint64_t cycles =
      2 * (uint64_t)shape->dram_latency + (read + bus - 1) / bus + (written + bus - 1) / bus;
  call->stats.layout_cycles += cycles;
  call->stats.cycles += cycles;
}

/* Transfers address DRAM in whole entries: an operand that lies askew is copied. */
static nvm_status align(vta_call *call, uint32_t index) {
  vta_operand *operand = &call->operands[index];
  const nvm_vta_shape *shape = &call->device->sim->shape;
  uint64_t entry = shape->bytes[NVM_VTA_INP] > shape->bytes[NVM_VTA_OUT]
                       ? shape->bytes[NVM_VTA_INP]
                       : shape->bytes[NVM_VTA_OUT];
  if (operand->moved || operand->begin % entry == 0) return NVM_OK;
  uint64_t begin;
  NVM_TRY(nvm_vta_dram_alloc(&call->device->dram, operand->bytes, ALIGNMENT, &begin));
  memcpy(call->device->dram.memory + begin, call->device->dram.memory + operand->begin,
         operand->bytes);
  operand->moved_from = operand->begin;
  operand->begin = begin;
  operand->moved = 1;
  count_layout(call, operand->bytes, operand->bytes);
  return NVM_OK;
}

/* Copies of operands go: back to where they came from if the kernel may have written them. */
static void put_back(vta_call *call) {
  const nvm_signature *sig = call->code->signature;
  for (uint32_t i = 0; i < sig->n_operands; i++) {
    vta_operand *operand = &call->operands[i];
    if (!operand->moved) continue;
    uint8_t *memory = call->device->dram.memory;
    if (sig->operands[i].role == NVM_ROLE_OUT) {
      memcpy(memory + operand->moved_from, memory + operand->begin, operand->bytes);
      count_layout(call, operand->bytes, operand->bytes);
    }
    nvm_vta_dram_free(&call->device->dram, operand->begin);
  }
}

static nvm_status count_rows(const vta_call *call, const nvm_vta_count *count, uint64_t *out_rows) {
  int64_t rows = 1;
  for (uint32_t a = 0; a < count->axes; a++)
    if (__builtin_mul_overflow(rows, call->operands[count->operand].sizes[a], &rows))
      NVM_FAIL(NVM_DIM_OVERFLOW, "vta: the number of rows overflows");
  *out_rows = (uint64_t)rows;
  return NVM_OK;
}

/* --- layout ------------------------------------------------------------------------------------
 */

/* One row between row-major and blocks. */
static nvm_status move_row(const vta_call *call, const nvm_vta_layout *layout, uint32_t block,
                           const uint8_t *src, uint8_t *dst, uint64_t *since_poll) {
  uint64_t positions = layout->positions, channels = layout->channels;
  uint64_t blocks = (channels + block - 1) / block;
  for (uint64_t b = 0; b < blocks; b++) {
    uint64_t lanes = channels - b * block < block ? channels - b * block : block;
    for (uint64_t p = 0; p < positions; p++) {
      uint64_t blocked = (b * positions + p) * block;
      for (uint64_t c = 0; c < lanes; c++) {
        uint64_t plain =
            layout->channels_last ? p * channels + b * block + c : (b * block + c) * positions + p;
        if (layout->to_blocks)
          dst[blocked + c] = src[plain];
        else
          dst[plain] = src[blocked + c];
      }
      if (layout->to_blocks) memset(dst + blocked + lanes, 0, block - lanes);
      *since_poll += block;
      if (*since_poll < POLL_BYTES) continue;
      *since_poll = 0;
      NVM_TRY(call->ctx->poll(call->ctx));
    }
  }
  return NVM_OK;
}

static nvm_status run_layout(vta_call *call, const nvm_vta_step *step) {
  const nvm_vta_layout *layout = &step->layout;
  const nvm_vta_shape *shape = &call->device->sim->shape;
  uint32_t block = layout->to_blocks ? shape->block_in : shape->block_out;
  uint64_t plain_row = (uint64_t)layout->channels * layout->positions;
  uint64_t blocks = ((uint64_t)layout->channels + block - 1) / block;
  uint64_t blocked_row = blocks * layout->positions * block; /* < 2^57 */
  uint64_t from_row = layout->to_blocks ? plain_row : blocked_row;
  uint64_t to_row = layout->to_blocks ? blocked_row : plain_row;
  const vta_operand *from = &call->operands[layout->src], *to = &call->operands[layout->dst];
  uint64_t rows = 0, read, written;
  NVM_TRY(count_rows(call, &step->count, &rows));
  if (__builtin_mul_overflow(rows, from_row, &read) || read > from->bytes ||
      __builtin_mul_overflow(rows, to_row, &written) || written > to->bytes)
    NVM_FAIL(NVM_OPERAND_MISMATCH,
             "vta: a layout step of %llu rows of %llu and %llu bytes, its operands have %llu and "
             "%llu bytes",
             (unsigned long long)rows, (unsigned long long)from_row, (unsigned long long)to_row,
             (unsigned long long)from->bytes, (unsigned long long)to->bytes);
  if (!read || !written) return NVM_OK;
  uint8_t *memory = call->device->dram.memory;
  uint64_t since_poll = 0;
  for (uint64_t r = 0; r < rows; r++)
    NVM_TRY(move_row(call, layout, block, memory + from->begin + r * from_row,
                     memory + to->begin + r * to_row, &since_poll));
  count_layout(call, read, written);
  return NVM_OK;
}

/* --- runs --------------------------------------------------------------------------------------
 */

/* A trip of a run: where each symbol is, and how many rows there are. */
typedef struct vta_trip {
  const nvm_vta_run *run;
  uint64_t addresses[NVM_VTA_MAX_SYMBOLS];
  uint64_t rows;
} vta_trip;

/* The template with this trip's addresses, rows and micro-ops. */
static nvm_status patch(const vta_call *call, const vta_trip *trip, const uint8_t *template,
                        uint32_t mark, uint64_t words[2]) {
  memcpy(words, template, NVM_VTA_INSTRUCTION_BYTES);
  uint32_t opcode = (uint32_t)words[0] & 7u, name = mark & ~(uint32_t)NVM_VTA_ROWS;
  int transfer = opcode == NVM_VTA_LOAD || opcode == NVM_VTA_STORE;
  if (mark & NVM_VTA_ROWS && trip->rows < trip->run->rows) {
    if (transfer)
      words[1] = (words[1] & ~UINT64_C(0xFFFF)) | trip->rows;
    else
      words[0] = (words[0] & ~(UINT64_C(0x3FFF) << 35)) | trip->rows << 35;
  }
  if (name == NVM_VTA_NO_SYMBOL) return NVM_OK;
  if (!transfer) {
    uint64_t first = call->device->cache[call->code->program.micro_kernels[name].id].first;
    uint64_t begin = (words[0] >> 8 & 0x1FFF) + first, end = (words[0] >> 21 & 0x3FFF) + first;
    if (begin > 0x1FFF || end > 0x3FFF)
      NVM_FAIL(NVM_DEVICE_ERROR, "vta: micro-ops %llu to %llu are out of range",
               (unsigned long long)begin, (unsigned long long)end);
    words[0] = (words[0] & ~(UINT64_C(0x7FFFFFF) << 8)) | begin << 8 | end << 21;
    return NVM_OK;
  }
  uint32_t memory = (uint32_t)(words[0] >> 7) & 7u;
  uint64_t bytes = memory < NVM_VTA_MEMORIES ? call->device->sim->shape.bytes[memory] : 1;
  uint64_t entry = (words[0] >> 26 & UINT32_MAX) + trip->addresses[name] / bytes;
  if (trip->addresses[name] % bytes || entry > UINT32_MAX)
    NVM_FAIL(NVM_DEVICE_ERROR, "vta: %s can't address byte %llu of DRAM",
             nvm_vta_memory_name(memory), (unsigned long long)trip->addresses[name]);
  words[0] = (words[0] & ~(UINT64_C(0xFFFFFFFF) << 26)) | entry << 26;
  return NVM_OK;
}

static nvm_status feed(vta_call *call, const vta_trip *trip, const nvm_vta_stream *stream) {
  uint64_t words[BATCH][2];
  uint32_t n = 0;
  for (uint32_t i = 0; i < stream->count; i++) {
    uint32_t mark = stream->marks[2 * i] | (uint32_t)stream->marks[2 * i + 1] << 8;
    NVM_TRY(patch(call, trip, stream->instructions + (size_t)i * NVM_VTA_INSTRUCTION_BYTES, mark,
                  words[n++]));
    if (n < BATCH) continue;
    NVM_TRY(nvm_vta_feed(call->device->sim, (const uint8_t *)words, n));
    n = 0;
  }
  NVM_TRY(nvm_vta_feed(call->device->sim, (const uint8_t *)words, n));
  return call->ctx->poll(call->ctx);
}

static nvm_status feed_uops(vta_call *call, const nvm_vta_run *run) {
  if (!run->n_kernels) return NVM_OK;
  uint64_t (*loads)[2] = nvm_malloc(run->n_kernels * sizeof *loads);
  if (!loads) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for loads of micro-kernels");
  uint32_t count;
  nvm_status status =
      nvm_vta_cache_load(call->device, &call->code->program, run, loads, &count, &call->stats);
  if (status == NVM_OK) status = nvm_vta_feed(call->device->sim, (const uint8_t *)loads, count);
  nvm_free(loads);
  return status;
}

static nvm_status feed_all(vta_call *call, const nvm_vta_run *run, uint64_t rows) {
  vta_trip trip = {.run = run, .rows = run->rows};
  for (uint32_t i = 0; i < run->n_symbols; i++) {
    const nvm_vta_symbol *symbol = &run->symbols[i];
    uint64_t begin = symbol->operand == NVM_VTA_CONSTANTS ? call->code->constants
                                                          : call->operands[symbol->operand].begin;
    trip.addresses[i] = begin + symbol->offset;
  }
  NVM_TRY(feed_uops(call, run));
  NVM_TRY(feed(call, &trip, &run->prologue));
  for (uint64_t left = rows; left; left -= trip.rows) {
    if (left < trip.rows) trip.rows = left;
    NVM_TRY(feed(call, &trip, &run->body));
    for (uint32_t i = 0; i < run->n_symbols; i++) trip.addresses[i] += run->symbols[i].stride;
  }
  return feed(call, &trip, &run->epilogue);
}

static void add_stats(nvm_vta_stats *to, const nvm_vta_stats *from) {
  uint64_t *sums = (uint64_t *)to;
  const uint64_t *more = (const uint64_t *)from;
  for (size_t i = 0; i < sizeof *to / sizeof *sums; i++) sums[i] += more[i];
}

/* What a run may touch: operands, constants, micro-kernels. */
static uint32_t list_windows(const vta_call *call, const nvm_vta_run *run,
                             nvm_vta_window *windows) {
  const nvm_signature *sig = call->code->signature;
  const nvm_vta_program *program = &call->code->program;
  uint32_t n = 0;
  for (uint32_t i = 0; i < sig->n_operands; i++)
    if (call->operands[i].bytes)
      windows[n++] = (nvm_vta_window){call->operands[i].begin, call->operands[i].bytes,
                                      sig->operands[i].role != NVM_ROLE_IN};
  if (program->n_constant_bytes)
    windows[n++] = (nvm_vta_window){call->code->constants, program->n_constant_bytes, 0};
  for (uint32_t i = 0; i < run->n_kernels; i++) {
    const nvm_vta_cached *entry = &call->device->cache[program->micro_kernels[run->kernels[i]].id];
    windows[n++] = (nvm_vta_window){entry->dram, (uint64_t)entry->count * 4, 0};
  }
  return n;
}

static nvm_status run_windows(vta_call *call, const nvm_vta_run *run, uint64_t rows,
                              nvm_vta_window *windows) {
  nvm_vta_sim *sim = call->device->sim;
  nvm_vta_stats stats;
  nvm_vta_begin(sim, windows, list_windows(call, run, windows), call->ctx, 0);
  nvm_status status = feed_all(call, run, rows);
  if (status == NVM_OK)
    status = nvm_vta_end(sim, &stats);
  else
    nvm_vta_abandon(sim);
  if (status == NVM_OK)
    add_stats(&call->stats, &stats);
  else
    nvm_vta_cache_clear(call->device);
  return status;
}

static nvm_status run_stream(vta_call *call, const nvm_vta_step *step) {
  const nvm_vta_run *run = &step->run;
  uint64_t rows = 0;
  NVM_TRY(count_rows(call, &step->count, &rows));
  if (!rows) return NVM_OK;
  for (uint32_t i = 0; i < run->n_symbols; i++) {
    uint32_t operand = run->symbols[i].operand;
    if (operand != NVM_VTA_CONSTANTS && call->operands[operand].bytes)
      NVM_TRY(align(call, operand));
  }
  size_t room = NVM_MAX_OPERANDS + 1u + run->n_kernels;
  nvm_vta_window *windows = nvm_malloc(room * sizeof *windows);
  if (!windows) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta run");
  nvm_status status = run_windows(call, run, rows, windows);
  nvm_free(windows);
  return status;
}

nvm_status nvm_vta_launch(nvm_vta_device *device, const nvm_kernel_ctx *ctx,
                          const nvm_vta_code *code, void *const *bufs, const int64_t *dims) {
  vta_call call = {.device = device, .ctx = ctx, .code = code};
  nvm_external_operand described[NVM_MAX_OPERANDS];
  NVM_TRY(nvm_external_operands(code->signature, dims, described));
  for (uint32_t i = 0; i < code->signature->n_operands; i++)
    NVM_TRY(operand_of(&call, i, bufs[i], &described[i]));
  nvm_status status = NVM_OK;
  for (uint32_t i = 0; i < code->program.n_steps && status == NVM_OK; i++) {
    const nvm_vta_step *step = &code->program.steps[i];
    status = step->is_run ? run_stream(&call, step) : run_layout(&call, step);
  }
  put_back(&call);
  nvm_vta_stats_add(&call.stats);
  return status;
}
