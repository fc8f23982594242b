/* The pool of worker threads (threads.h). Workers take pieces of the one current job by
 * compare-and-swap on `state`. */
#include "threads.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "status.h"

enum { MAX_WORKERS = 255, SPIN_NANOSECONDS = 20000 };

/* state: generation (32 bits), pieces (16), next piece to take (16). Who takes a piece keeps the
 * job alive until it is done. */
#define PIECES(state) ((uint32_t)((state) >> 16) & 0xFFFFu)
#define NEXT(state)   ((uint32_t)(state) & 0xFFFFu)

typedef struct job {
  const nvm_kernel_ctx *ctx;
  nvm_range_fn fn;
  void *closure;
  int64_t count;
  nvm_status *statuses; /* one a piece */
} job;

static struct {
  atomic_flag busy; /* a caller has the pool */
  atomic_uint_least64_t state;
  atomic_uint done; /* pieces of the current job */
  atomic_int failed, stop;
  job job;
  pthread_mutex_t lock; /* for sleeping only */
  pthread_cond_t work, finished;
  uint32_t sleepers, waiting; /* under lock */
  uint32_t n_workers;
  int started;
  pthread_t workers[MAX_WORKERS];
} pool = {.busy = ATOMIC_FLAG_INIT,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* --- how many CPUs
 * ---------------------------------------------------------------------------------- */

/* CPUs that a cgroup v2 directory's cpu.max allows, rounded up; 0: no limit. */
static int32_t quota_of(const char *path) {
  char file[4200], quota[32];
  long long period = 0, limit = 0;
  snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.max", path);
  FILE *stream = fopen(file, "re");
  if (!stream) return 0;
  const int fields = fscanf(stream, "%31s %lld", quota, &period);
  fclose(stream);
  if (fields != 2 || sscanf(quota, "%lld", &limit) != 1 || limit <= 0 || period <= 0) return 0;
  const long long cpus = limit / period + (limit % period != 0);
  return cpus > INT32_MAX ? 0 : (int32_t)cpus;
}

/* The same of cgroup v1, whose cpu controller is mounted by itself. */
static int32_t quota_v1(void) {
  long long limit = 0, period = 0;
  FILE *stream = fopen("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "re");
  if (!stream) return 0;
  const int known = fscanf(stream, "%lld", &limit) == 1;
  fclose(stream);
  stream = fopen("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "re");
  if (!stream) return 0;
  const int period_known = fscanf(stream, "%lld", &period) == 1;
  fclose(stream);
  if (!known || !period_known || limit <= 0 || period <= 0) return 0;
  const long long cpus = limit / period + (limit % period != 0);
  return cpus > INT32_MAX ? 0 : (int32_t)cpus;
}

/* The tightest quota from our cgroup up to the root; 0: none. */
static int32_t cgroup_cpus(void) {
  char line[4096], path[4096] = "";
  int32_t least = quota_v1();
  FILE *stream = fopen("/proc/self/cgroup", "re");
  if (!stream) return least;
  while (fgets(line, sizeof line, stream)) {
    if (strncmp(line, "0::/", 4) != 0) continue;
    line[strcspn(line, "\n")] = 0;
    memcpy(path, line + 3, strlen(line + 3) + 1);
  }
  fclose(stream);
  for (;;) {
    const int32_t cpus = quota_of(path);
    if (cpus && (!least || cpus < least)) least = cpus;
    char *slash = strrchr(path, '/');
    if (!slash) return least;
    *slash = 0;
  }
}

int32_t nvm_threads_available(void) {
  int32_t cpus = 1;
  for (size_t most = 1024; most <= 65536; most *= 4) {
    cpu_set_t *set = CPU_ALLOC(most);
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(most);
    const int known = sched_getaffinity(0, size, set) == 0;
    if (known) cpus = CPU_COUNT_S(size, set);
    CPU_FREE(set);
    if (known) break;
  }
  const int32_t quota = cgroup_cpus();
  if (quota && quota < cpus) cpus = quota;
  return cpus < 1 ? 1 : cpus;
}

/* --- pieces
 * ----------------------------------------------------------------------------------------- */

/* Piece k of `pieces` over [0, count): contiguous, sizes differ by at most one. */
static int64_t piece_begin(int64_t count, uint32_t pieces, uint32_t k) {
  const int64_t each = count / pieces, rest = count % pieces;
  return each * k + (k < rest ? k : rest);
}

static nvm_status run_piece(const job *j, uint32_t pieces, uint32_t k) {
  return j->fn(j->ctx, j->closure, piece_begin(j->count, pieces, k),
               piece_begin(j->count, pieces, k + 1));
}

/* Take a piece of the current job; returns 0 if none is left. */
static int take(uint32_t *out_pieces, uint32_t *out_piece) {
  uint_least64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
  while (NEXT(state) < PIECES(state)) {
    if (atomic_compare_exchange_weak_explicit(&pool.state, &state, state + 1, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *out_pieces = PIECES(state);
      *out_piece = NEXT(state);
      return 1;
    }
  }
  return 0;
}

static void work_on(uint32_t pieces, uint32_t piece) {
  /* Pieces are taken in order, so every earlier one runs; later ones may be left out after a fault.
   */
  if (!atomic_load_explicit(&pool.failed, memory_order_relaxed)) {
    pool.job.statuses[piece] = run_piece(&pool.job, pieces, piece);
    if (pool.job.statuses[piece] != NVM_OK) {
      atomic_store_explicit(&pool.failed, 1, memory_order_relaxed);
    }
  }
  if (atomic_fetch_add_explicit(&pool.done, 1, memory_order_acq_rel) + 1 != pieces) return;
  pthread_mutex_lock(&pool.lock);
  if (pool.waiting) pthread_cond_signal(&pool.finished);
  pthread_mutex_unlock(&pool.lock);
}

static int64_t nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static int work_left(void) {
  const uint_least64_t state = atomic_load_explicit(&pool.state, memory_order_acquire);
  return NEXT(state) < PIECES(state) || atomic_load_explicit(&pool.stop, memory_order_relaxed);
}

static int all_done(uint32_t pieces) {
  return atomic_load_explicit(&pool.done, memory_order_acquire) == pieces;
}

/* --- workers
 * ---------------------------------------------------------------------------------------- */

static void wait_for_work(void) {
  const int64_t until = nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int k = 0; k < 64; ++k) {
      if (work_left()) return;
      relax();
    }
  } while (nanoseconds() < until);
  pthread_mutex_lock(&pool.lock);
  pool.sleepers++;
  while (!work_left()) pthread_cond_wait(&pool.work, &pool.lock);
  pool.sleepers--;
  pthread_mutex_unlock(&pool.lock);
}

static void *worker(void *unused) {
  (void)unused;
  uint32_t pieces, piece;
  while (!atomic_load_explicit(&pool.stop, memory_order_acquire)) {
    if (take(&pieces, &piece)) {
      work_on(pieces, piece);
    } else {
      wait_for_work();
    }
  }
  return NULL;
}

/* The child has none of the threads, and the locks may have been held. */
static void after_fork(void) {
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.work, NULL);
  pthread_cond_init(&pool.finished, NULL);
  pool.sleepers = pool.waiting = pool.n_workers = 0;
  pool.started = 0;
  atomic_store(&pool.state, 0);
  atomic_flag_clear(&pool.busy);
}

static void watch_forks(void) { (void)pthread_atfork(NULL, NULL, after_fork); }

/* With `busy` held. Signals stay with the threads of the program. */
static void start(void) {
  sigset_t all, old;
  const int32_t wanted = nvm_threads_available() - 1;
  pool.started = 1;
  (void)pthread_once(&fork_once, watch_forks);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (pool.n_workers < MAX_WORKERS && (int32_t)pool.n_workers < wanted) {
    if (pthread_create(&pool.workers[pool.n_workers], NULL, worker, NULL) != 0) break;
    pool.n_workers++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* --- running
 * ---------------------------------------------------------------------------------------- */

static nvm_status run_serially(const job *j, uint32_t pieces) {
  for (uint32_t k = 0; k < pieces; ++k) NVM_TRY(run_piece(j, pieces, k));
  return NVM_OK;
}

static void wait_for_end(uint32_t pieces) {
  const int64_t until = nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int k = 0; k < 64; ++k) {
      if (all_done(pieces)) return;
      relax();
    }
  } while (nanoseconds() < until);
  pthread_mutex_lock(&pool.lock);
  pool.waiting = 1;
  while (!all_done(pieces)) pthread_cond_wait(&pool.finished, &pool.lock);
  pool.waiting = 0;
  pthread_mutex_unlock(&pool.lock);
}

/* With `busy` held and at least one worker. */
static nvm_status run_parallel(const job *j, uint32_t pieces) {
  nvm_status statuses[MAX_WORKERS + 1] = {0};
  pool.job = *j;
  pool.job.statuses = statuses;
  atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
  atomic_store_explicit(&pool.failed, 0, memory_order_relaxed);
  const uint_least64_t old = atomic_load_explicit(&pool.state, memory_order_relaxed);
  const uint_least64_t state = ((old >> 32) + 1) << 32 | (uint_least64_t)pieces << 16;
  atomic_store_explicit(&pool.state, state, memory_order_release);
  pthread_mutex_lock(&pool.lock);
  if (pool.sleepers) pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  uint32_t all, piece;
  while (take(&all, &piece)) work_on(all, piece);
  wait_for_end(pieces);
  for (uint32_t k = 0; k < pieces; ++k) NVM_TRY(statuses[k]);
  return NVM_OK;
}

nvm_status nvm_threads_run(int32_t threads, const nvm_kernel_ctx *ctx, int64_t count, int64_t grain,
                           nvm_range_fn fn, void *closure) {
  if (count <= 0) return NVM_OK;
  int64_t pieces = grain > 1 ? count / grain : count;
  if (pieces > threads) pieces = threads;
  if (pieces > MAX_WORKERS + 1) pieces = MAX_WORKERS + 1;
  if (pieces < 1) pieces = 1;
  const job j = {ctx, fn, closure, count, NULL};
  if (pieces == 1 || atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
    return run_serially(&j, (uint32_t)pieces);
  }
  if (!pool.started) start();
  const nvm_status status =
      pool.n_workers ? run_parallel(&j, (uint32_t)pieces) : run_serially(&j, (uint32_t)pieces);
  atomic_flag_clear_explicit(&pool.busy, memory_order_release);
  return status;
}

void nvm_threads_shutdown(void) {
  while (atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) sched_yield();
  pthread_mutex_lock(&pool.lock);
  atomic_store_explicit(&pool.stop, 1, memory_order_release);
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  for (uint32_t k = 0; k < pool.n_workers; ++k) pthread_join(pool.workers[k], NULL);
  atomic_store(&pool.stop, 0);
  pool.n_workers = 0;
  pool.started = 0;
  atomic_flag_clear_explicit(&pool.busy, memory_order_release);
}
