#include "clock.h"

#include <time.h>

#ifndef CLOCK_MONOTONIC_COARSE
#define CLOCK_MONOTONIC_COARSE CLOCK_MONOTONIC
#endif

static uint64_t read_clock(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t nvm_now(void) { return read_clock(CLOCK_MONOTONIC); }

uint64_t nvm_now_coarse(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }
