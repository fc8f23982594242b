/* The process's pool of worker threads: what ctx->parallel_for stands on.
 *
 * One pool a process, made at the first parallel call; it grows to as many workers as a caller asks
 * for and as CPUs that affinity and cgroup quota allow, less one. One caller has it at a time;
 * another runs serially. In a child of fork the pool is made anew.
 */
#ifndef NVM_THREADS_H
#define NVM_THREADS_H

#include "nvm_kernel.h"

/* CPUs this process may use: affinity mask and cgroup quota (rounded up), at least 1. */
int32_t nvm_threads_available(void);

/* Run fn over [0, count) on the calling thread and at most threads - 1 workers. `work` is an
 * estimate of what all turns take together, ns. Which thread runs which turns, and in how many
 * pieces, depends on load: fn must give the same results for any grouping. Returns the status of
 * the first piece in order of position that failed: all turns before it were run. turned: begin
 * with the last turns, of which each thread's cache still holds most if the run before was the same
 * and began with the first ones. ctx and closure are borrowed and passed on. A call while another
 * one is under way (of another thread, or by fn itself) and one of little work runs fn once,
 * serially. */
nvm_status nvm_threads_run(int32_t threads, const nvm_kernel_ctx *ctx, int64_t count, int64_t work,
                           nvm_range_fn fn, void *closure, int turned);

/* Stop and join the workers (tests, unloading). The next parallel call makes a new pool. No call
 * may be in progress. */
void nvm_threads_shutdown(void);

#endif
