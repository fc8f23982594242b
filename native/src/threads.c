/* The pool of worker threads (threads.h).
 *
 * A region of work is cut into pieces; each thread that takes part has a share of consecutive
 * pieces in a slot of its own (a cache line on which its worker spins), takes them in order,
 * several at once while there are many, or from the last one on, by compare-and-swap, and then
 * helps the others with what is left of theirs.
 * The same shares in every run of a loop keep what a piece reads in the cache of one core; a thread
 * that the system does not run loses its share to the others.
 */
#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc.h"
#include "log.h"

enum {
  MAX_SLOTS = 256,
  PIECES_A_THREAD = 64, /* at most: whoever is done waits for half a piece in the mean */
  ONE_BY_ONE = 16,      /* pieces of a share: it may be a step of a loop, in a fixed order */
  AT_ONCE = 4,          /* of more pieces, this part of what is left is taken at once */
  SPIN = 20000,         /* ns that a worker waits awake for more work */
  SPIN_LONG = 1000000,  /* the same where work came soon: steps of a loop, calls in a row */
  QUICK = 4,            /* so many in a row */
  PIECE = 1000,         /* ns of work that a piece should have at least */
  SMALL = 50000,        /* ns of work for which sleeping workers are not woken, ... */
  CREDIT = 100000,      /* ... unless so much of such work came since the last time */
  LEAVE = 50000,        /* ns that a worker on its caller's CPU leaves it alone */
  MOVE = 1000000,       /* ns between two moves of a worker away from its caller's CPU, at least */
  STALL = 100000,       /* ns of waiting for a piece, beyond what pieces take, ... */
  BACK_OFF = 8          /* ... after which the caller works alone for that many times as long */
};

typedef struct job {
  const nvm_kernel_ctx *ctx;
  nvm_range_fn fn;
  void *closure;
  int64_t count;
  uint32_t pieces, slots;
  int turned;
} job;

/* state: generation (30 bits), whether several pieces are taken at once (1), whether the last one
 * is taken first (1), end of the share (16), next piece of it to take (16). Who takes a piece keeps
 * the job alive until it is done, so it may read `job` only then. */
#define END(state)  ((uint32_t)((state) >> 16) & 0xFFFFu)
#define NEXT(state) ((uint32_t)(state) & 0xFFFFu)
#define TURNED      ((uint_least64_t)1 << 32)
#define LAST        ((uint_least64_t)1 << 16)
#define SEVERAL     ((uint_least64_t)1 << 33)

typedef struct slot {
  _Alignas(64) atomic_uint_least64_t state;
  job job;
  atomic_int cpu; /* of the caller when it published */
  _Alignas(64) atomic_int asleep;
  pthread_cond_t wake;
  pthread_t thread;
  cpu_set_t allowed; /* what the process may use */
  int64_t moved;     /* ns: when the worker last left a CPU to its caller */
} slot;

static struct {
  atomic_flag busy; /* a caller has the pool: it owns slot 0 and publishes in the others */
  uint32_t generation;
  uint32_t n_workers, credit; /* under busy */
  int watching;
  _Alignas(64) atomic_int stop; /* this line is written rarely: workers read it while they spin */
  atomic_int waiting;
  atomic_int_least64_t alone_until; /* ns: a worker was not run when it was needed */
  atomic_uint failed;               /* first piece that failed, UINT32_MAX for none */
  nvm_status failure;               /* its status, under lock */
  pthread_mutex_t lock;             /* for sleeping and failures */
  pthread_cond_t finished;
  _Alignas(64) atomic_uint done; /* pieces of the current job */
  slot slots[MAX_SLOTS];         /* 0: the caller */
} pool = {.busy = ATOMIC_FLAG_INIT,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .finished = PTHREAD_COND_INITIALIZER};

/* --- how many CPUs --------------------------------------------------------------------------- */

/* A file that holds one number; 0: there is none. */
static long long number_in(const char *file) {
  long long number = 0;
  FILE *stream = fopen(file, "re");
  if (!stream) return 0;
  if (fscanf(stream, "%lld", &number) != 1) number = 0;
  fclose(stream);
  return number;
}

/* CPUs of that share, rounded up; 0: no limit. */
static int32_t cpus_of(long long limit, long long period) {
  if (limit <= 0 || period <= 0) return 0;
  const long long cpus = limit / period + (limit % period != 0);
  return cpus > INT32_MAX ? 0 : (int32_t)cpus;
}

/* CPUs that a cgroup v2 directory's cpu.max allows; 0: no limit. */
static int32_t quota_of(const char *path) {
  char file[4200], quota[32];
  long long period = 0;
  snprintf(file, sizeof file, "/sys/fs/cgroup%s/cpu.max", path);
  FILE *stream = fopen(file, "re");
  if (!stream) return 0;
  const int fields = fscanf(stream, "%31s %lld", quota, &period);
  fclose(stream);
  return fields == 2 ? cpus_of(strtoll(quota, NULL, 10), period) : 0; /* "max": 0 */
}

/* The same of cgroup v1, whose cpu controller is mounted by itself. */
static int32_t quota_v1(void) {
  return cpus_of(number_in("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
                 number_in("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

/* The tightest quota from our cgroup up to the root; 0: none. */
NVM_COLD static int32_t cgroup_cpus(void) {
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

NVM_COLD int32_t nvm_threads_available(void) {
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

/* --- pieces ----------------------------------------------------------------------------------- */

/* Where part k of `parts` over [0, count) begins: contiguous, sizes differ by at most one, larger
 * parts are spread evenly, so that any half of the parts is half of what there is. */
static int64_t part_begin(int64_t count, uint32_t parts, uint32_t k) {
  const int64_t each = count / parts, rest = count % parts;
  return each * k + rest * k / parts;
}

/* Take a piece of a share, or several of many: each time costs 0.1 us, 2 % of a small piece, and
 * how small pieces are matters at the end alone. Returns how many, 0 if none is left, and the first
 * of them. */
static uint32_t claim(slot *s, uint32_t *out_piece) {
  uint_least64_t state = atomic_load_explicit(&s->state, memory_order_acquire);
  while (NEXT(state) < END(state)) {
    const int turned = (state & TURNED) != 0;
    const uint32_t there = END(state) - NEXT(state);
    const uint32_t taken = (state & SEVERAL) != 0 && there > AT_ONCE ? there / AT_ONCE : 1;
    const uint_least64_t left = turned ? state - LAST : state + taken;
    if (atomic_compare_exchange_weak_explicit(&s->state, &state, left, memory_order_acq_rel,
                                              memory_order_acquire)) {
      *out_piece = turned ? END(left) : NEXT(state);
      return taken;
    }
  }
  return 0;
}

NVM_COLD static void note_failure(uint32_t piece, nvm_status status) {
  pthread_mutex_lock(&pool.lock);
  if (piece < atomic_load_explicit(&pool.failed, memory_order_relaxed)) {
    atomic_store_explicit(&pool.failed, piece, memory_order_relaxed);
    pool.failure = status;
  }
  pthread_mutex_unlock(&pool.lock);
}

/* A failure ends the region, but for pieces before it: the first one in order is what counts. */
static void run_pieces(const job *j, uint32_t piece, uint32_t taken) {
  if (piece > atomic_load_explicit(&pool.failed, memory_order_relaxed)) return;
  const nvm_status status = j->fn(j->ctx, j->closure, part_begin(j->count, j->pieces, piece),
                                  part_begin(j->count, j->pieces, piece + taken));
  if (NVM_UNLIKELY(status != NVM_OK)) note_failure(piece, status);
}

/* Run pieces, of the own share first, until none is left; returns how many. */
static uint32_t take_part(uint32_t me, job *out_job) {
  uint32_t ran = 0, taken, piece, at = me;
  do {
    slot *s = &pool.slots[at];
    while ((taken = claim(s, &piece)) != 0) {
      if (ran == 0) *out_job = s->job;
      ran += taken;
      run_pieces(out_job, piece, taken);
    }
    if (ran == 0) return 0; /* the share was given away: the others need no help */
    if (++at >= out_job->slots) at = 0;
  } while (at != me);
  return ran;
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

/* --- workers ---------------------------------------------------------------------------------- */

static int work_left(slot *s) {
  const uint_least64_t state = atomic_load(&s->state);
  return NEXT(state) < END(state) || atomic_load_explicit(&pool.stop, memory_order_relaxed);
}

static void sleep_until_work(slot *s) {
  pthread_mutex_lock(&pool.lock);
  /* Either this thread sees the work, or who published it sees `asleep`: both are sequentially
   * consistent. */
  atomic_store(&s->asleep, 1);
  while (!work_left(s)) pthread_cond_wait(&s->wake, &pool.lock);
  atomic_store(&s->asleep, 0);
  pthread_mutex_unlock(&pool.lock);
}

/* quick: how many times in a row work came soon. */
static void wait_for_work(slot *s, uint32_t *quick) {
  const int64_t since = nanoseconds();
  const int64_t spin = *quick >= QUICK ? SPIN_LONG : SPIN;
  int64_t now = since;
  do {
    for (int k = 0; k < 64; ++k) {
      if (work_left(s)) {
        if (*quick < QUICK) ++*quick;
        return;
      }
      relax();
    }
    now = nanoseconds();
  } while (now - since < spin);
  sleep_until_work(s);
  if (nanoseconds() - since >= SPIN_LONG)
    *quick = 0;
  else if (*quick < QUICK)
    ++*quick;
}

/* A worker on the CPU of its caller only takes time from it: the system puts it there when the
 * other CPUs are busy. Keep it to the other ones. Returns 0 if it is to sleep instead. */
NVM_COLD static int move_away(slot *s, int cpu) {
  const int64_t now = nanoseconds();
  if (now - s->moved < MOVE) return 0;
  s->moved = now;
  cpu_set_t others = s->allowed;
  CPU_CLR((size_t)cpu, &others);
  return CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof others, &others) == 0;
}

static void leave_to_caller(slot *s) {
  if (work_left(s)) {
    (void)nanosleep(&(struct timespec){.tv_nsec = LEAVE}, NULL);
  } else {
    sleep_until_work(s);
  }
}

static void *worker(void *context) {
  slot *s = context;
  const uint32_t me = (uint32_t)(s - pool.slots);
  uint32_t quick = 0;
  job j;
  CPU_ZERO(&s->allowed);
  (void)sched_getaffinity(0, sizeof s->allowed, &s->allowed); /* none known: never moves */
  while (!atomic_load_explicit(&pool.stop, memory_order_acquire)) {
    const int cpu = atomic_load_explicit(&s->cpu, memory_order_relaxed);
    if (NVM_UNLIKELY(cpu == sched_getcpu() && !move_away(s, cpu))) {
      leave_to_caller(s);
      continue;
    }
    const uint32_t ran = take_part(me, &j);
    if (ran == 0) {
      wait_for_work(s, &quick);
      continue;
    }
    if (atomic_fetch_add(&pool.done, ran) + ran != j.pieces || !atomic_load(&pool.waiting))
      continue;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&pool.finished);
    pthread_mutex_unlock(&pool.lock);
  }
  return NULL;
}

/* The child has none of the threads, and the locks may have been held. */
NVM_COLD static void after_fork(void) {
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.finished, NULL);
  for (uint32_t k = 0; k < MAX_SLOTS; ++k) {
    atomic_store(&pool.slots[k].state, 0);
    atomic_store(&pool.slots[k].asleep, 0);
  }
  pool.n_workers = pool.credit = 0;
  atomic_store(&pool.waiting, 0);
  atomic_store(&pool.alone_until, 0);
  atomic_flag_clear(&pool.busy);
}

/* With `busy` held: as many workers as CPUs and the caller's wish allow. Signals stay with the
 * threads of the program. */
static void start(uint32_t wanted) {
  static int32_t available; /* found once: workers keep the mask they were made with */
  if (!available) available = nvm_threads_available();
  const uint32_t most = available > MAX_SLOTS ? MAX_SLOTS - 1 : (uint32_t)available - 1;
  if (wanted > most) wanted = most;
  if (pool.n_workers >= wanted) return;
  if (!pool.watching) {
    pool.watching = 1;
    (void)pthread_atfork(NULL, NULL, after_fork);
  }
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  while (pool.n_workers < wanted) {
    slot *s = &pool.slots[pool.n_workers + 1];
    atomic_store(&s->state, 0);
    atomic_store(&s->asleep, 0);
    atomic_store(&s->cpu, -1);
    pthread_cond_init(&s->wake, NULL);
    if (NVM_SYSTEM(pthread_create(&s->thread, NULL, worker, s), EAGAIN) != 0) break;
    pool.n_workers++;
  }
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  NVM_LOG(INFO, "thread pool: %u workers of at most %u", pool.n_workers, most);
}

/* --- running ---------------------------------------------------------------------------------- */

/* Returns when all pieces are done. began, ran: when the caller started, and how many pieces it
 * did, from which follows what a piece takes. A wait far beyond that says that a worker lost its
 * CPU in the middle of one: then work alone for a while. */
static void wait_for_end(uint32_t pieces, int64_t began, uint32_t ran) {
  const int64_t since = nanoseconds();
  int64_t now = since;
  do {
    for (int k = 0; k < 64; ++k) {
      if (atomic_load_explicit(&pool.done, memory_order_acquire) == pieces) return;
      relax();
    }
    now = nanoseconds();
  } while (now - since < SPIN);
  pthread_mutex_lock(&pool.lock);
  atomic_store(&pool.waiting, 1);
  while (atomic_load(&pool.done) != pieces) pthread_cond_wait(&pool.finished, &pool.lock);
  atomic_store(&pool.waiting, 0);
  pthread_mutex_unlock(&pool.lock);
  now = nanoseconds();
  const int64_t piece = (since - began) / (ran ? ran : 1);
  if (now - since > 2 * piece + STALL) {
    atomic_store_explicit(&pool.alone_until, now + BACK_OFF * (now - since), memory_order_relaxed);
    NVM_LOG(DEBUG, "thread pool: a worker had no CPU for %lld us; working alone for a while",
            (long long)(now - since) / 1000);
  }
}

static void publish(const job *j) {
  const int several = !j->turned && j->pieces > ONE_BY_ONE * j->slots;
  const uint_least64_t generation =
      (uint_least64_t)++pool.generation << 34 | (several ? SEVERAL : 0) | (j->turned ? TURNED : 0);
  const int cpu = sched_getcpu();
  for (uint32_t k = j->slots; k-- > 0;) { /* the own share last: the others wait for theirs */
    slot *s = &pool.slots[k];
    const uint32_t first = (uint32_t)part_begin(j->pieces, j->slots, k);
    const uint32_t end = (uint32_t)part_begin(j->pieces, j->slots, k + 1);
    s->job = *j;
    atomic_store_explicit(&s->cpu, cpu, memory_order_relaxed);
    atomic_store(&s->state, generation | (uint_least64_t)end << 16 | first);
    if (k == 0 || !atomic_load(&s->asleep)) continue;
    pthread_mutex_lock(&pool.lock);
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&pool.lock);
  }
}

/* With `busy` held. */
static nvm_status run_parallel(job *j) {
  atomic_store_explicit(&pool.done, 0, memory_order_relaxed);
  if (atomic_load_explicit(&pool.failed, memory_order_relaxed) != UINT32_MAX)
    atomic_store_explicit(&pool.failed, UINT32_MAX, memory_order_relaxed);
  const int64_t began = nanoseconds();
  publish(j);
  job same;
  const uint32_t ran = take_part(0, &same);
  if (ran != j->pieces && (ran == 0 || atomic_fetch_add(&pool.done, ran) + ran != j->pieces)) {
    wait_for_end(j->pieces, began, ran);
  }
  return atomic_load_explicit(&pool.failed, memory_order_relaxed) == UINT32_MAX ? NVM_OK
                                                                                : pool.failure;
}

/* Whether waking the workers is not worth it. */
static int too_small(int64_t work) {
  if (work >= SMALL || !atomic_load_explicit(&pool.slots[1].asleep, memory_order_relaxed)) {
    return 0;
  }
  pool.credit += (uint32_t)work;
  if (pool.credit < CREDIT) return 1;
  pool.credit = 0;
  return 0;
}

static int stalled(void) {
  const int64_t until = atomic_load_explicit(&pool.alone_until, memory_order_relaxed);
  if (NVM_LIKELY(until == 0)) return 0;
  if (nanoseconds() < until) return 1;
  atomic_store_explicit(&pool.alone_until, 0, memory_order_relaxed);
  return 0;
}

nvm_status nvm_threads_run(int32_t threads, const nvm_kernel_ctx *ctx, int64_t count, int64_t work,
                           nvm_range_fn fn, void *closure, int turned) {
  if (count <= 0) return NVM_OK;
  int64_t pieces = work / PIECE < count ? work / PIECE : count;
  if (threads < 2 || pieces < 2 || stalled() ||
      atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) {
    return fn(ctx, closure, 0, count);
  }
  start((uint32_t)threads - 1);
  uint32_t slots = (uint32_t)threads < pool.n_workers + 1 ? (uint32_t)threads : pool.n_workers + 1;
  if (pieces < slots) slots = (uint32_t)pieces;
  if (pieces > PIECES_A_THREAD * slots) pieces = PIECES_A_THREAD * slots;
  if (slots < 2 || too_small(work)) {
    atomic_flag_clear_explicit(&pool.busy, memory_order_release);
    return fn(ctx, closure, 0, count);
  }
  job j = {ctx, fn, closure, count, (uint32_t)pieces, slots, turned};
  const nvm_status status = run_parallel(&j);
  atomic_flag_clear_explicit(&pool.busy, memory_order_release);
  return status;
}

NVM_COLD void nvm_threads_shutdown(void) {
  while (atomic_flag_test_and_set_explicit(&pool.busy, memory_order_acquire)) sched_yield();
  pthread_mutex_lock(&pool.lock);
  atomic_store(&pool.stop, 1);
  for (uint32_t k = 1; k <= pool.n_workers; ++k) pthread_cond_signal(&pool.slots[k].wake);
  pthread_mutex_unlock(&pool.lock);
  for (uint32_t k = 1; k <= pool.n_workers; ++k) pthread_join(pool.slots[k].thread, NULL);
  atomic_store(&pool.stop, 0);
  pool.n_workers = 0;
  atomic_flag_clear_explicit(&pool.busy, memory_order_release);
}
