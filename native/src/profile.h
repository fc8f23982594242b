/* Where a VM's time goes: an option, off by default. Kernels are timed at the door to all of them
 * (call.c), instructions by a second copy of the interpreter (interp_profiled.c). */
#ifndef NVM_PROFILE_H
#define NVM_PROFILE_H

#include <stdint.h>

#include "generated/nvm_isa.h"
#include "nvm_api.h"
#include "status.h"

struct nvm_vm;

typedef struct nvm_profile_state {
  int32_t level; /* NVM_PROFILE_KERNELS, NVM_PROFILE_INSTRUCTIONS */
  uint64_t runs, cycles, nanoseconds;
  uint32_t opcode;                               /* of the instruction that is under way, */
  uint64_t since;                                /* and when it began */
  nvm_profile_row opcodes[NVM_OPCODE_COUNT + 1]; /* the last: none */
  nvm_profile_row kernels[];                     /* by their number in the program */
} nvm_profile_state;

uint64_t nvm_now(void);

/* A counter that runs at one speed on all CPUs: the time stamp counter where there is one, else ns.
 */
static inline uint64_t nvm_cycles(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
  uint64_t now;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
  return now;
#else
  return nvm_now();
#endif
}

static inline void nvm_profile_add(nvm_profile_row *row, uint64_t since) {
  row->calls++;
  row->cycles += nvm_cycles() - since;
}

/* The instruction under way ends, one of `opcode` begins. */
static inline void nvm_profile_step(nvm_profile_state *profile, uint32_t opcode) {
  const uint64_t now = nvm_cycles();
  nvm_profile_row *row = &profile->opcodes[profile->opcode];
  row->calls++;
  row->cycles += now - profile->since;
  profile->opcode = opcode;
  profile->since = now;
}

/* interp_profiled.c: nvm_interpret that counts instructions and their time. */
NVM_NODISCARD nvm_status nvm_interpret_profiled(struct nvm_vm *vm);

#endif
