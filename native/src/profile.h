/* Where a VM's time and memory go: an option, off by default. Kernels are timed at the door to all
 * of them (call.c); instructions, calls of functions and memory are seen by the interpreter, which
 * then dispatches by another table (interp.c), so that other runs have no trace of it. */
#ifndef NVM_PROFILE_H
#define NVM_PROFILE_H

#include <stdatomic.h>
#include <stdint.h>

#include "clock.h"
#include "generated/nvm_isa.h"
#include "nvm_api.h"
#include "status.h"
#include "vm.h"

enum {
  NVM_PROFILE_MOST_SHAPES = 1 << 16, /* different sizes of kernel calls that are told apart */
  NVM_PROFILE_MOST_VALUES = 1 << 20, /* numbers that these hold together */
  NVM_PROFILE_NO_SHAPE = -1
};

/* Events in the order in which they ended; the rest is counted as dropped. */
typedef struct nvm_trace {
  uint64_t capacity;
  atomic_uint_fast64_t count; /* of all, also of those that there was no room for */
  uint64_t depth;             /* of calls at the last step */
  int64_t live_bytes;         /* at the last step */
  nvm_profile_event events[];
} nvm_trace;

typedef struct nvm_profile_state {
  int32_t level;                             /* NVM_PROFILE_KERNELS or more */
  uint64_t runs, cycles, nanoseconds, notes; /* as in nvm_profile */
  nvm_profile_row opcodes[NVM_OPCODE_COUNT]; /* sums over `words`, made when asked for */
  nvm_profile_row *kernels;                  /* by their number in the program */

  /* The sizes that kernels were called with: rows, found by their hash. */
  nvm_profile_shape *shapes;
  int64_t *values;
  uint32_t *buckets; /* 1 + a row, 0 for none; twice as many as rows */
  uint32_t *latest;  /* by kernel: 1 + the row of its last call */
  uint32_t n_shapes, n_values;

  /* NVM_PROFILE_INSTRUCTIONS */
  const uint32_t *code;   /* of all functions */
  nvm_profile_row *words; /* by word of code, and a last one for none */
  size_t n_words;
  size_t at;      /* the instruction that is under way, */
  uint64_t since; /* and when it began */

  nvm_trace *trace; /* NVM_PROFILE_EVENTS, else NULL */
} nvm_profile_state;

/* level: KERNELS to EVENTS; max_events: room, for EVENTS. out_profile: owned. Errors:
 * OUT_OF_MEMORY, INVALID_INPUT. */
NVM_NODISCARD nvm_status nvm_profile_create(const nvm_program *program, int32_t level,
                                            uint64_t max_events, nvm_profile_state **out_profile);
void nvm_profile_free(nvm_profile_state *profile); /* NULL ok */
void nvm_profile_clear(nvm_profile_state *profile, const nvm_program *program);

/* A run begins and ends; `function`: which. */
void nvm_profile_begin(nvm_vm *vm, uint32_t function);
void nvm_profile_end(nvm_vm *vm, uint32_t function, nvm_status status, uint64_t began_cycles,
                     uint64_t began_ns);
/* A kernel ended that began at `since`. dims: as it was called with. */
void nvm_profile_kernel(nvm_vm *vm, const nvm_kernel *kernel, const int64_t *dims, uint64_t since);
/* The same of a piece of a parallel loop; on any thread. */
void nvm_profile_piece(nvm_vm *vm, const nvm_kernel *kernel, uint64_t since);

/* Around the interpretation of the frame on top, with counts and times of instructions. */
void nvm_profile_enter(nvm_vm *vm);
void nvm_profile_leave(nvm_vm *vm);
/* The instruction under way ends, the one at `pc` begins. */
void nvm_profile_step(nvm_vm *vm, const uint32_t *pc);

#endif
