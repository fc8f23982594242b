/* The functional simulator of VTA: three modules that run instructions in order, each beside the
 * others, held together by four queues of tokens. docs/vta.md states the meaning and the cycles.
 *
 *            load -- ready --> compute -- ready --> store
 *                 <-- free --          <-- free --
 *
 * A stream is hostile input. Every access is checked against its scratchpad and against the windows
 * of DRAM that the run may use. Modules run as their tokens allow, so what a program computes would
 * depend on luck if a token were missing: each token carries what its sender knows to be done (a
 * vector clock), and an access that is not ordered behind the one it depends on is a fault.
 *
 * A run: nvm_vta_begin, nvm_vta_feed in pieces of any size, nvm_vta_end. After a fault the
 * simulator is as new, its micro-ops are gone, and the next run works.
 */
#ifndef NVM_VTA_SIM_H
#define NVM_VTA_SIM_H

#include "nvm_kernel.h"
#include "vta_isa.h"

enum {
  NVM_VTA_TOKENS = 128,    /* room of each queue of tokens */
  NVM_VTA_COMMANDS = 512,  /* room of each module's queue of instructions */
  NVM_VTA_TRANSFERS = 256, /* transfers of each module that are known one by one, see vta_order.c */
  NVM_VTA_QUEUES = 4
};

/* Bytes of DRAM that a run may read, and write where `writable`. */
typedef struct nvm_vta_window {
  uint64_t begin, size;
  uint8_t writable;
} nvm_vta_window;

/* What each module is known to have done: numbers of its instructions. */
typedef struct nvm_vta_clock {
  uint64_t done[NVM_VTA_MODULES];
} nvm_vta_clock;

typedef struct nvm_vta_token {
  uint64_t time; /* when it is there */
  nvm_vta_clock clock;
} nvm_vta_token;

/* Counts from the start of the simulator: `pushed - popped` tokens wait. */
typedef struct nvm_vta_queue {
  uint64_t pushed, popped;
  nvm_vta_token tokens[NVM_VTA_TOKENS];
  uint64_t popped_at[NVM_VTA_TOKENS]; /* when that token left */
} nvm_vta_queue;

typedef struct nvm_vta_command {
  uint64_t fetched_at;
  nvm_vta_instruction instruction;
} nvm_vta_command;

/* A transfer between DRAM and a scratchpad: rows of `row` bytes, `stride` apart. */
typedef struct nvm_vta_transfer {
  uint64_t number; /* of the module's instruction */
  uint64_t begin, row, stride, rows;
} nvm_vta_transfer;

/* Transfers of one module in one direction, the newest NVM_VTA_TRANSFERS; of older ones the range.
 */
typedef struct nvm_vta_log {
  uint64_t count;
  nvm_vta_transfer kept[NVM_VTA_TRANSFERS];
  uint64_t older_begin, older_end, older_number;
} nvm_vta_log;

typedef struct nvm_vta_unit {
  uint64_t put, taken; /* commands */
  nvm_vta_command commands[NVM_VTA_COMMANDS];
  uint64_t started_at[NVM_VTA_COMMANDS];
  uint64_t free_at; /* cycle at which it can start the next one */
  nvm_vta_clock clock;
  nvm_vta_log log; /* what it read from DRAM (load, compute) or wrote (store) */
} nvm_vta_unit;

typedef struct nvm_vta_sim {
  nvm_vta_shape shape;
  uint8_t *dram;
  uint64_t dram_size;
  /* Scratchpads, and for each entry the number of the instruction that last wrote and read it. */
  void *data[NVM_VTA_MEMORIES]; /* ACC8 shares with ACC */
  uint64_t *written[NVM_VTA_MEMORIES], *read[NVM_VTA_MEMORIES];
  nvm_vta_unit units[NVM_VTA_MODULES];
  nvm_vta_queue queues[NVM_VTA_QUEUES];
  /* This run. */
  const nvm_vta_window *windows;
  uint32_t n_windows;
  uint64_t cycle_limit;            /* 0: none */
  const nvm_kernel_ctx *ctx;       /* asked whether to go on; NULL: nobody asks */
  uint64_t work;                   /* since it was asked */
  uint64_t first[NVM_VTA_MODULES]; /* numbers up to this one belong to earlier runs */
  uint64_t begun_at, fetched_at, number;
  uint8_t finished; /* FINISH was executed */
  uint8_t finish_fed;
  nvm_vta_stats stats; /* of this run */
} nvm_vta_sim;

/* dram: borrowed. Errors: INVALID_EXECUTABLE (configuration), OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_vta_sim_create(const nvm_vta_config *config, uint8_t *dram,
                                            uint64_t dram_size, nvm_vta_sim **out_sim);
void nvm_vta_sim_destroy(nvm_vta_sim *sim); /* NULL ok */

/* windows: borrowed until nvm_vta_end. Entries of scratchpads hold nothing now, but micro-ops stay.
 */
void nvm_vta_begin(nvm_vta_sim *sim, const nvm_vta_window *windows, uint32_t n_windows,
                   const nvm_kernel_ctx *ctx, uint64_t cycle_limit);
/* Instructions of 16 bytes each, executed as far as tokens allow. Errors: DEVICE_ERROR, and what
 * ctx->poll says; the run is over then. */
NVM_NODISCARD nvm_status nvm_vta_feed(nvm_vta_sim *sim, const uint8_t *instructions, size_t count);
/* All must have been executed, FINISH last, and no token be left. `out_stats` NULL ok. */
NVM_NODISCARD nvm_status nvm_vta_end(nvm_vta_sim *sim, nvm_vta_stats *out_stats);
/* Give a run up: nothing of it is left, and no micro-ops. What a fault does by itself. */
void nvm_vta_abandon(nvm_vta_sim *sim);

/* Add to what nvm_vta_stats_get tells. Any thread. */
void nvm_vta_stats_add(const nvm_vta_stats *stats);

/* --- what vta_sim.c asks of vta_exec.c -------------------------------------------------------- */

/* Cycles that the instruction takes, at least 1. */
uint64_t nvm_vta_cycles(const nvm_vta_shape *shape, const nvm_vta_instruction *instruction);
/* Do it; the module's own number is unit->clock.done[module] already. */
NVM_NODISCARD nvm_status nvm_vta_execute(nvm_vta_sim *sim, const nvm_vta_instruction *instruction);

/* --- what both ask of vta_order.c ------------------------------------------------------------- */

/* Is this access of DRAM ordered behind the accesses of other modules that it conflicts with? Notes
 * it for theirs. */
NVM_NODISCARD nvm_status nvm_vta_order_transfer(nvm_vta_sim *sim,
                                                const nvm_vta_instruction *instruction,
                                                const nvm_vta_transfer *transfer);
void nvm_vta_log_clear(nvm_vta_log *log);

#endif
