/* What this machine can do at most: float32 multiply-adds, reading from L2, L3 and memory, and
 * handing over between two threads. Prints JSON. Arguments: the cores to use; everything is
 * measured with 1 thread and with one a core.
 *
 * Each figure is the best of many short windows and of several ways to write the loop, because the
 * question is what is possible: vectors of the widest kinds that the CPU has, with and without
 * software prefetch. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { MAX_THREADS = 64, WINDOWS = 40, ACCUMULATORS = 12, LINE = 64 };
#define KIB ((size_t)1024)
#define MIB (KIB * 1024)

typedef struct variant {
  uint64_t (*fma)(uint64_t turns);                                /* returns operations */
  uint64_t (*read)(const char *from, size_t bytes, size_t ahead); /* ahead: prefetch, 0 none */
} variant;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static volatile float factor = 0.999f, term = 0.001f;
static _Atomic uint64_t sink;

/* The loops for vectors of BYTES bytes with the instructions of TARGET. The multiply-adds are
 * contracted by the compiler
 * (-ffp-contract=fast); twelve of them do not wait for each other. */
#define VARIANT(NAME, BYTES, TARGET)                                                           \
  typedef float NAME##_float __attribute__((vector_size(BYTES)));                              \
  typedef uint64_t NAME##_word __attribute__((vector_size(BYTES), aligned(BYTES)));            \
  TARGET static uint64_t NAME##_fma(uint64_t turns) {                                          \
    NAME##_float acc[ACCUMULATORS], m, c, sum;                                                 \
    for (size_t i = 0; i < (BYTES) / sizeof(float); i++) m[i] = factor, c[i] = term;           \
    for (int k = 0; k < ACCUMULATORS; k++) acc[k] = c * (float)(k + 1);                        \
    for (uint64_t t = 0; t < turns; t++) {                                                     \
      _Pragma("GCC unroll 12") for (int k = 0; k < ACCUMULATORS; k++) acc[k] = acc[k] * m + c; \
    }                                                                                          \
    sum = acc[0];                                                                              \
    for (int k = 1; k < ACCUMULATORS; k++) sum += acc[k];                                      \
    atomic_fetch_add(&sink, (uint64_t)(int64_t)sum[0]);                                        \
    return turns * ACCUMULATORS * (BYTES) / sizeof(float) * 2;                                 \
  }                                                                                            \
  TARGET static uint64_t NAME##_read(const char *from, size_t bytes, size_t ahead) {           \
    NAME##_word acc[8] = {0};                                                                  \
    for (size_t at = 0; at + 8 * (BYTES) <= bytes; at += 8 * (BYTES)) {                        \
      const NAME##_word *v = (const NAME##_word *)(const void *)(from + at);                   \
      if (ahead)                                                                               \
        _Pragma("GCC unroll 8") for (size_t p = 0; p < 8 * (BYTES); p += LINE)                 \
            __builtin_prefetch(from + at + ahead + p);                                         \
      _Pragma("GCC unroll 8") for (int k = 0; k < 8; k++) acc[k] ^= v[k];                      \
    }                                                                                          \
    for (int k = 1; k < 8; k++) acc[0] ^= acc[k];                                              \
    atomic_fetch_add(&sink, acc[0][0]);                                                        \
    return bytes;                                                                              \
  }

VARIANT(plain, 16, )
#if defined(__x86_64__)
VARIANT(avx2, 32, __attribute__((target("avx2,fma"))))
VARIANT(avx512, 64, __attribute__((target("avx512f,avx512vl,avx512dq,prefer-vector-width=512"))))
#endif

static size_t variants(variant out[3]) {
  size_t count = 0;
  out[count++] = (variant){plain_fma, plain_read};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    out[count++] = (variant){avx2_fma, avx2_read};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    out[count++] = (variant){avx512_fma, avx512_read};
#endif
  return count;
}

/* --- threads that start a window together --- */

typedef struct job {
  int cores[MAX_THREADS];
  int threads;
  atomic_int arrived;
  const variant *how;
  const char *memory; /* NULL: multiply-adds */
  size_t bytes, ahead;
  uint64_t repeats;
  double start[MAX_THREADS], end[MAX_THREADS];
  _Atomic uint64_t work;
} job;

typedef struct seat {
  job *job;
  int index;
} seat;

static void pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)core, &set);
  (void)sched_setaffinity(0, sizeof set, &set);
}

/* All wait for each other; `round` counts up from 1. Yields now and then: the machine may be
 * shared. */
static void meet(job *j, int round) {
  atomic_fetch_add(&j->arrived, 1);
  for (unsigned spins = 1; atomic_load(&j->arrived) < round * j->threads; spins++)
    if (spins % 4096 == 0) sched_yield();
}

static uint64_t work(const job *j, int index) {
  uint64_t done = 0;
  if (!j->memory) return j->how->fma(j->repeats);
  size_t part = j->bytes / (size_t)j->threads / LINE * LINE;
  const char *own = j->memory + part * (size_t)index;
  for (uint64_t r = 0; r < j->repeats; r++) done += j->how->read(own, part, j->ahead);
  return done;
}

static void *take_seat(void *argument) {
  seat *s = argument;
  job *j = s->job;
  pin(j->cores[s->index]);
  (void)work(j, s->index); /* warm */
  meet(j, 1);
  j->start[s->index] = now();
  atomic_fetch_add(&j->work, work(j, s->index));
  j->end[s->index] = now();
  return NULL;
}

/* Work a second in one window. */
static double window(job *j) {
  pthread_t others[MAX_THREADS];
  seat seats[MAX_THREADS];
  atomic_store(&j->arrived, 0);
  atomic_store(&j->work, 0);
  for (int i = 0; i < j->threads; i++) seats[i] = (seat){j, i};
  for (int i = 1; i < j->threads; i++)
    if (pthread_create(&others[i], NULL, take_seat, &seats[i])) exit(2);
  take_seat(&seats[0]);
  double first = j->start[0], last = j->end[0];
  for (int i = 1; i < j->threads; i++) {
    pthread_join(others[i], NULL);
    if (j->start[i] < first) first = j->start[i];
    if (j->end[i] > last) last = j->end[i];
  }
  return (double)atomic_load(&j->work) / (last - first);
}

static double best(job *j, int windows) {
  double found = 0;
  for (int i = 0; i < windows; i++) {
    double rate = window(j);
    if (rate > found) found = rate;
  }
  return found;
}

/* Best over the ways to write it. */
static double measure(job *j, int windows) {
  static const size_t distances[] = {0, 1024, 4096};
  variant known[3];
  size_t count = variants(known);
  double found = 0;
  for (size_t v = 0; v < count; v++) {
    j->how = &known[v];
    for (size_t d = 0; d < (j->memory ? 3 : 1); d++) {
      j->ahead = distances[d];
      double rate = best(j, windows);
      if (rate > found) found = rate;
    }
  }
  return found;
}

/* --- the hand-off --- */

typedef struct relay {
  _Alignas(128) atomic_int turn;
  int core, turns;
} relay;

static void *answer(void *argument) {
  relay *r = argument;
  pin(r->core);
  for (int i = 0; i < r->turns; i++) {
    while (atomic_load_explicit(&r->turn, memory_order_acquire) != 2 * i + 1) {
    }
    atomic_store_explicit(&r->turn, 2 * i + 2, memory_order_release);
  }
  return NULL;
}

/* Nanoseconds there and back between two spinning threads. */
static double hand_off(const int cores[2]) {
  double least = 1e9;
  pin(cores[0]);
  for (int k = 0; k < WINDOWS; k++) {
    relay r = {.turn = 0, .core = cores[1], .turns = 2000};
    pthread_t other;
    if (pthread_create(&other, NULL, answer, &r)) exit(2);
    double start = 0;
    for (int i = 0; i < r.turns; i++) {
      if (i == 100) start = now();
      atomic_store_explicit(&r.turn, 2 * i + 1, memory_order_release);
      while (atomic_load_explicit(&r.turn, memory_order_acquire) != 2 * i + 2) {
      }
    }
    double took = (now() - start) / (r.turns - 100) * 1e9;
    pthread_join(other, NULL);
    if (took < least) least = took;
  }
  return least;
}

/* --- */

static char *memory(size_t bytes) {
  /* Room to run ahead with prefetches, which never fault but should hit what is ours. */
  size_t size = bytes + 2 * MIB;
  char *found = aligned_alloc(2 * MIB, (size + 2 * MIB - 1) / (2 * MIB) * (2 * MIB));
  if (!found) exit(2);
  (void)madvise(found, size, MADV_HUGEPAGE);
  memset(found, 1, size);
  return found;
}

typedef struct level {
  const char *name;
  size_t bytes;
  int a_thread; /* bytes are each thread's own */
  uint64_t repeats;
  int windows;
} level;

static void print_levels(job *j, int most) {
  static const level levels[] = {{"l2", 512 * KIB, 1, 100, WINDOWS},
                                 {"l3", 8 * MIB, 0, 8, WINDOWS},
                                 {"dram", 256 * MIB, 0, 1, 6}};
  char *room = memory(256 * MIB);
  for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++) {
    const level *l = &levels[i];
    printf("%s\"%s\": {", i ? ", " : "", l->name);
    for (j->threads = 1; j->threads <= most; j->threads++) {
      j->memory = room;
      j->bytes = l->bytes * (l->a_thread ? (size_t)j->threads : 1);
      j->repeats = l->repeats;
      printf("%s\"%d\": %.1f", j->threads > 1 ? ", " : "", j->threads,
             measure(j, l->windows) / 1e9);
    }
    printf("}");
  }
  free(room);
}

int main(int argc, char **argv) {
  static job j;
  int most = argc - 1;
  if (most < 1 || most > MAX_THREADS) {
    fprintf(stderr, "usage: limits CORE...\n");
    return 2;
  }
  for (int i = 0; i < most; i++) j.cores[i] = atoi(argv[i + 1]);
  printf("{\"fma_gflops\": {");
  for (j.threads = 1; j.threads <= most; j.threads++) {
    j.memory = NULL;
    j.repeats = 200000;
    printf("%s\"%d\": %.1f", j.threads > 1 ? ", " : "", j.threads, measure(&j, WINDOWS) / 1e9);
  }
  printf("}, \"read_gb_s\": {");
  print_levels(&j, most);
  printf("}, \"hand_off_ns\": %.1f}\n", most > 1 ? hand_off(j.cores) : 0.0);
  return 0;
}
