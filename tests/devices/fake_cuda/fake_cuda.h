/* A CUDA driver for tests without a GPU: the functions of native/devices/cuda_driver.h over host
 * memory.
 *
 * Device addresses lie in a window of addresses that nothing may touch, so a host that follows one
 * faults. Work is queued and done when a stream is waited for: copies out of pinned memory read it
 * then. Modules are PTX that was translated to C (ptx_to_c.py) and compiled to <folder>/<FNV-1a of
 * the PTX>.so. Every call checks its arguments: what a driver would refuse is refused, what it
 * would not notice (a copy from a block that was freed, a context that nobody made current) is a
 * violation, which tests assert there are none of.
 */
#ifndef FAKE_CUDA_H
#define FAKE_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_cuda_state {
  int64_t live_blocks, live_bytes, live_pinned, modules, streams, events, contexts, pushed;
  int64_t calls, launches, threads_run, copies_in, copies_out, copies_within, syncs, queued,
      violations, most_queued;
} fake_cuda_state;

/* Forget failures, counts and sticky errors; what is alive stays alive. */
void fake_cuda_reset(void);
/* Forget all that is alive, after a test in which giving it back failed. */
void fake_cuda_forget(void);
void fake_cuda_state_get(fake_cuda_state *out_state);
/* The violations and the calls since the reset, a line each (the first 64 KiB). */
const char *fake_cuda_violations(void);
const char *fake_cuda_trace(void);
/* The n-th call (from 1) of `function` (NULL: of any) gives `result`; with `sticky` all later ones
 * too. */
void fake_cuda_fail(const char *function, int64_t n, int32_t result, int32_t sticky);
void fake_cuda_set_modules(const char *folder);
void fake_cuda_set_memory(int64_t bytes);
void fake_cuda_set_capability(int32_t major, int32_t minor);
void fake_cuda_set_devices(int32_t count);
void fake_cuda_set_pools(int32_t supported);

#endif
