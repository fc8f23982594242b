/* Queues, tokens and time of the VTA simulator; vta_exec.c does what instructions say. */
#include <string.h>

#include "alloc.h"
#include "vta_sim.h"

/* --- making and clearing ---------------------------------------------------------------------- */

static nvm_status allocate(nvm_vta_sim *sim, uint32_t memory, size_t entry_bytes) {
  size_t entries = sim->shape.entries[memory];
  sim->data[memory] = nvm_calloc(entries * entry_bytes);
  sim->written[memory] = nvm_calloc(entries * sizeof(uint64_t));
  sim->read[memory] = nvm_calloc(entries * sizeof(uint64_t));
  if (!sim->data[memory] || !sim->written[memory] || !sim->read[memory])
    NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for the %s scratchpad of a vta device",
             nvm_vta_memory_name(memory));
  return NVM_OK;
}

nvm_status nvm_vta_sim_create(const nvm_vta_config *config, uint8_t *dram, uint64_t dram_size,
                              nvm_vta_sim **out_sim) {
  nvm_vta_shape shape;
  NVM_TRY(nvm_vta_shape_of(config, &shape));
  nvm_vta_sim *sim = nvm_calloc(sizeof *sim);
  if (!sim) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta simulator");
  sim->shape = shape;
  sim->dram = dram;
  sim->dram_size = dram_size;
  nvm_status status = NVM_OK;
  for (uint32_t memory = 0; memory <= NVM_VTA_OUT && status == NVM_OK; memory++)
    status = allocate(sim, memory, shape.bytes[memory]);
  sim->data[NVM_VTA_ACC8] = sim->data[NVM_VTA_ACC];
  sim->written[NVM_VTA_ACC8] = sim->written[NVM_VTA_ACC];
  sim->read[NVM_VTA_ACC8] = sim->read[NVM_VTA_ACC];
  if (status != NVM_OK) {
    nvm_vta_sim_destroy(sim);
    return status;
  }
  *out_sim = sim;
  return NVM_OK;
}

void nvm_vta_sim_destroy(nvm_vta_sim *sim) {
  if (!sim) return;
  for (uint32_t memory = 0; memory <= NVM_VTA_OUT; memory++) {
    nvm_free(sim->data[memory]);
    nvm_free(sim->written[memory]);
    nvm_free(sim->read[memory]);
  }
  nvm_free(sim);
}

/* All modules are idle: each knows what the others did, and none owes anything. */
static void settle(nvm_vta_sim *sim) {
  uint64_t now = sim->fetched_at;
  nvm_vta_clock all;
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++) {
    nvm_vta_unit *unit = &sim->units[m];
    if (unit->free_at > now) now = unit->free_at;
    all.done[m] = unit->clock.done[m];
  }
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++) {
    nvm_vta_unit *unit = &sim->units[m];
    unit->clock = all;
    unit->free_at = now;
    unit->put = unit->taken = 0;
    nvm_vta_log_clear(&unit->log);
  }
  for (uint32_t q = 0; q < NVM_VTA_QUEUES; q++) sim->queues[q].pushed = sim->queues[q].popped = 0;
  sim->fetched_at = now;
}

void nvm_vta_begin(nvm_vta_sim *sim, const nvm_vta_window *windows, uint32_t n_windows,
                   const nvm_kernel_ctx *ctx, uint64_t cycle_limit) {
  settle(sim);
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++) sim->first[m] = sim->units[m].clock.done[m];
  sim->windows = windows;
  sim->n_windows = n_windows;
  sim->ctx = ctx;
  sim->cycle_limit = cycle_limit;
  sim->begun_at = sim->fetched_at;
  sim->number = 0;
  sim->finished = sim->finish_fed = 0;
  sim->stats = (nvm_vta_stats){.runs = 1};
}

/* --- tokens ----------------------------------------------------------------------------------- */

enum { LOAD_TO_COMPUTE, COMPUTE_TO_LOAD, COMPUTE_TO_STORE, STORE_TO_COMPUTE, NO_QUEUE };

static const char *const queue_names[] = {"load to compute", "compute to load", "compute to store",
                                          "store to compute"};

/* The queues of an instruction's four flags, NO_QUEUE where a flag is not set. */
typedef struct token_links {
  uint32_t pops[2], pushes[2];
} token_links;

static token_links links_of(const nvm_vta_instruction *in) {
  static const uint32_t prev_in[] = {NO_QUEUE, LOAD_TO_COMPUTE, COMPUTE_TO_STORE};
  static const uint32_t next_in[] = {COMPUTE_TO_LOAD, STORE_TO_COMPUTE, NO_QUEUE};
  static const uint32_t prev_out[] = {NO_QUEUE, COMPUTE_TO_LOAD, STORE_TO_COMPUTE};
  static const uint32_t next_out[] = {LOAD_TO_COMPUTE, COMPUTE_TO_STORE, NO_QUEUE};
  return (token_links){{in->pop_prev ? prev_in[in->module] : NO_QUEUE,
                        in->pop_next ? next_in[in->module] : NO_QUEUE},
                       {in->push_prev ? prev_out[in->module] : NO_QUEUE,
                        in->push_next ? next_out[in->module] : NO_QUEUE}};
}

/* What keeps the instruction from starting: a queue, NO_QUEUE if nothing. */
static uint32_t blocked_by(const nvm_vta_sim *sim, const token_links *links, int *out_full) {
  for (int i = 0; i < 2; i++) {
    uint32_t pop = links->pops[i], push = links->pushes[i];
    *out_full = 0;
    if (pop != NO_QUEUE && sim->queues[pop].pushed == sim->queues[pop].popped) return pop;
    *out_full = 1;
    if (push != NO_QUEUE && sim->queues[push].pushed - sim->queues[push].popped >= NVM_VTA_TOKENS)
      return push;
  }
  return NO_QUEUE;
}

/* Take a token: when it came, and what its sender knew. */
static uint64_t pop(nvm_vta_queue *queue, nvm_vta_clock *clock, uint64_t start) {
  const nvm_vta_token *token = &queue->tokens[queue->popped % NVM_VTA_TOKENS];
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++)
    if (token->clock.done[m] > clock->done[m]) clock->done[m] = token->clock.done[m];
  return token->time > start ? token->time : start;
}

/* The earliest end of an instruction that pushes: there is room when an earlier token has left. */
static uint64_t room_at(const nvm_vta_queue *queue, uint64_t end) {
  if (queue->pushed < NVM_VTA_TOKENS) return end;
  uint64_t left = queue->popped_at[queue->pushed % NVM_VTA_TOKENS];
  return left > end ? left : end;
}

static void push(nvm_vta_queue *queue, const nvm_vta_clock *clock, uint64_t end) {
  queue->tokens[queue->pushed % NVM_VTA_TOKENS] = (nvm_vta_token){end, *clock};
  queue->pushed++;
}

/* --- modules ---------------------------------------------------------------------------------- */

static void count_cycles(nvm_vta_sim *sim, const nvm_vta_instruction *in, uint64_t cycles) {
  nvm_vta_stats *stats = &sim->stats;
  switch (in->opcode) {
    case NVM_VTA_GEMM:
      stats->gemm_cycles += cycles;
      break;
    case NVM_VTA_ALU:
      stats->alu_cycles += cycles;
      break;
    case NVM_VTA_STORE:
      stats->store_cycles += cycles;
      break;
    case NVM_VTA_LOAD:
      stats->load_cycles += cycles;
      break;
    default:
      break;
  }
  stats->instructions++;
}

/* Start, do and end the command at the head of a module's queue; its tokens are there. */
static nvm_status step(nvm_vta_sim *sim, uint32_t module, const token_links *links) {
  nvm_vta_unit *unit = &sim->units[module];
  const nvm_vta_command *command = &unit->commands[unit->taken % NVM_VTA_COMMANDS];
  uint64_t start = command->fetched_at > unit->free_at ? command->fetched_at : unit->free_at;
  for (int i = 0; i < 2; i++)
    if (links->pops[i] != NO_QUEUE) start = pop(&sim->queues[links->pops[i]], &unit->clock, start);
  for (int i = 0; i < 2; i++) {
    if (links->pops[i] == NO_QUEUE) continue;
    nvm_vta_queue *queue = &sim->queues[links->pops[i]];
    queue->popped_at[queue->popped++ % NVM_VTA_TOKENS] = start;
  }
  uint64_t cycles = nvm_vta_cycles(&sim->shape, &command->instruction);
  uint64_t end = start + cycles;
  if (sim->cycle_limit && end - sim->begun_at > sim->cycle_limit)
    return nvm_vta_fault(&command->instruction, "the run takes more than %llu cycles",
                         (unsigned long long)sim->cycle_limit);
  unit->clock.done[module]++;
  NVM_TRY(nvm_vta_execute(sim, &command->instruction));
  for (int i = 0; i < 2; i++)
    if (links->pushes[i] != NO_QUEUE) end = room_at(&sim->queues[links->pushes[i]], end);
  for (int i = 0; i < 2; i++)
    if (links->pushes[i] != NO_QUEUE) push(&sim->queues[links->pushes[i]], &unit->clock, end);
  unit->free_at = end;
  unit->started_at[unit->taken % NVM_VTA_COMMANDS] = start;
  unit->taken++;
  count_cycles(sim, &command->instruction, cycles);
  if (command->instruction.opcode == NVM_VTA_FINISH) sim->finished = 1;
  return NVM_OK;
}

/* Run all modules until each is empty or waits. */
static nvm_status advance(nvm_vta_sim *sim) {
  int moved = 1;
  while (moved) {
    moved = 0;
    for (uint32_t m = 0; m < NVM_VTA_MODULES; m++) {
      nvm_vta_unit *unit = &sim->units[m];
      while (unit->taken < unit->put) {
        token_links links = links_of(&unit->commands[unit->taken % NVM_VTA_COMMANDS].instruction);
        int full;
        if (blocked_by(sim, &links, &full) != NO_QUEUE) break;
        NVM_TRY(step(sim, m, &links));
        moved = 1;
      }
    }
  }
  return NVM_OK;
}

/* No module can go on: say what the earliest waiting instruction waits for. */
static nvm_status deadlock(const nvm_vta_sim *sim) {
  const nvm_vta_command *first = NULL;
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++) {
    const nvm_vta_unit *unit = &sim->units[m];
    const nvm_vta_command *head = &unit->commands[unit->taken % NVM_VTA_COMMANDS];
    if (unit->taken < unit->put && (!first || head->instruction.number < first->instruction.number))
      first = head;
  }
  if (!first) NVM_FAIL(NVM_INTERNAL, "vta: a deadlock without a waiting instruction");
  token_links links = links_of(&first->instruction);
  int full;
  uint32_t queue = blocked_by(sim, &links, &full);
  if (queue == NO_QUEUE) NVM_FAIL(NVM_INTERNAL, "vta: a deadlock that nothing causes");
  if (full)
    return nvm_vta_fault(&first->instruction,
                         "dependence error: it waits for ever to push a token, the queue %s is "
                         "full (%d)",
                         queue_names[queue], NVM_VTA_TOKENS);
  return nvm_vta_fault(&first->instruction,
                       "dependence error: it waits for ever for a token of the queue %s",
                       queue_names[queue]);
}

void nvm_vta_abandon(nvm_vta_sim *sim) {
  settle(sim);
  memset(sim->written[NVM_VTA_UOP], 0, sim->shape.entries[NVM_VTA_UOP] * sizeof(uint64_t));
  sim->windows = NULL;
  sim->n_windows = 0;
}

static nvm_status fetch(nvm_vta_sim *sim, const uint8_t *bytes) {
  uint64_t words[2];
  memcpy(words, bytes, sizeof words);
  nvm_vta_command command;
  NVM_TRY(nvm_vta_decode(words, sim->number++, &command.instruction));
  if (sim->finish_fed) return nvm_vta_fault(&command.instruction, "it comes after FINISH");
  sim->finish_fed = command.instruction.opcode == NVM_VTA_FINISH;
  nvm_vta_unit *unit = &sim->units[command.instruction.module];
  if (unit->put - unit->taken == NVM_VTA_COMMANDS) NVM_TRY(advance(sim));
  if (unit->put - unit->taken == NVM_VTA_COMMANDS) return deadlock(sim);
  uint32_t bus = sim->shape.bytes_a_cycle;
  sim->fetched_at += (NVM_VTA_INSTRUCTION_BYTES + bus - 1) / bus;
  if (unit->put >= NVM_VTA_COMMANDS) { /* the fetch waits for room */
    uint64_t room = unit->started_at[unit->put % NVM_VTA_COMMANDS];
    if (room > sim->fetched_at) sim->fetched_at = room;
  }
  command.fetched_at = sim->fetched_at;
  unit->commands[unit->put++ % NVM_VTA_COMMANDS] = command;
  return NVM_OK;
}

nvm_status nvm_vta_feed(nvm_vta_sim *sim, const uint8_t *instructions, size_t count) {
  nvm_status status = NVM_OK;
  for (size_t i = 0; i < count && status == NVM_OK; i++)
    status = fetch(sim, instructions + i * NVM_VTA_INSTRUCTION_BYTES);
  if (status == NVM_OK) status = advance(sim);
  if (status != NVM_OK) nvm_vta_abandon(sim);
  return status;
}

static nvm_status check_end(nvm_vta_sim *sim) {
  for (uint32_t m = 0; m < NVM_VTA_MODULES; m++)
    if (sim->units[m].taken < sim->units[m].put) return deadlock(sim);
  if (!sim->finished)
    NVM_FAIL(NVM_DEVICE_ERROR, "vta: the stream of %llu instructions does not end with FINISH",
             (unsigned long long)sim->number);
  for (uint32_t q = 0; q < NVM_VTA_QUEUES; q++) {
    uint64_t left = sim->queues[q].pushed - sim->queues[q].popped;
    if (left)
      NVM_FAIL(NVM_DEVICE_ERROR,
               "vta: dependence error: %llu tokens are left in the queue %s after FINISH",
               (unsigned long long)left, queue_names[q]);
  }
  return NVM_OK;
}

nvm_status nvm_vta_end(nvm_vta_sim *sim, nvm_vta_stats *out_stats) {
  nvm_status status = check_end(sim);
  if (status != NVM_OK) {
    nvm_vta_abandon(sim);
    return status;
  }
  settle(sim);
  sim->stats.cycles = sim->fetched_at - sim->begun_at;
  sim->windows = NULL;
  sim->n_windows = 0;
  if (out_stats) *out_stats = sim->stats;
  return NVM_OK;
}
