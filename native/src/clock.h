/* Clocks. */
#ifndef NVM_CLOCK_H
#define NVM_CLOCK_H

#include <stdint.h>

uint64_t nvm_now(void);        /* ns, monotonic */
uint64_t nvm_now_coarse(void); /* the same, some ms behind, for a third of the time */

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

#endif
