/* The pool of threads and one kernel body shared by threads; meant to be run under the thread
 * sanitizer too.
 *
 * threads_harness FILE: int64 number of signature words, the words, int64 size of the body, the
 * body: a kernel that sums the rows of x (n, m) into out (n), dims n and m.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "call.h"
#include "nvm_api.h"
#include "threads.h"

typedef struct harness harness;
nvm_status harness_load(const uint8_t *data, size_t size, const int64_t *words, harness **out);
nvm_status harness_run(harness *h, void *const *bufs, int64_t *dims, int64_t *fault);
void harness_free(harness *h);

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      fprintf(stderr, "line %d: expected %s\n", __LINE__, #condition); \
      exit(1);                                                         \
    }                                                                  \
  } while (0)

enum { COUNT = 1000, CALLERS = 4, ROUNDS = 300, MUCH = 1000000 };

typedef struct task {
  int64_t marks[COUNT];
  int64_t fail_from; /* turns from here on fail with their number; < 0: none */
  int64_t work;      /* additions a turn */
} task;

static nvm_status mark(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  task *t = closure;
  (void)ctx;
  for (int64_t i = begin; i < end; ++i) {
    if (t->fail_from >= 0 && i >= t->fail_from) return (nvm_status)i;
    for (volatile int64_t k = 0; k < t->work; ++k) {
    }
    t->marks[i]++;
  }
  return NVM_OK;
}

/* estimate: ns, what the pool is told of the work */
static void run_once(int32_t threads, int64_t estimate, int64_t work) {
  task t = {.fail_from = -1, .work = work};
  for (int turned = 0; turned < 2; ++turned) {
    CHECK(nvm_threads_run(threads, NULL, COUNT, estimate, mark, &t, turned) == NVM_OK);
    for (int i = 0; i < COUNT; ++i) CHECK(t.marks[i] == 1 + turned);
  }
}

/* The first failing turn is reported, and all turns before it were run once, whoever ran them. */
static void fail_once(int64_t from, int64_t work, int turned) {
  task t = {.fail_from = from, .work = work};
  CHECK(nvm_threads_run(4, NULL, COUNT, MUCH, mark, &t, turned) == (nvm_status)from);
  for (int64_t i = 0; i < COUNT; ++i) CHECK(t.marks[i] == (i < from));
}

static nvm_status nest(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  (void)ctx;
  (void)closure;
  (void)begin;
  (void)end;
  run_once(4, MUCH, 0);
  return NVM_OK;
}

static void *call_often(void *unused) {
  (void)unused;
  for (int k = 0; k < ROUNDS; ++k) run_once(4, MUCH, k % 8);
  return NULL;
}

static void test_pool(void) {
  CHECK(nvm_threads_available() >= 1);
  run_once(1, MUCH, 0);
  run_once(4, MUCH, 0);
  run_once(4, 0, 0);
  run_once(4, 2500, 0);
  run_once(300, MUCH, 0);
  for (int64_t from = 1; from < COUNT; from += 37) fail_once(from, from % 5, from & 1);
  CHECK(nvm_threads_run(4, NULL, 0, MUCH, mark, NULL, 0) == NVM_OK);
  CHECK(nvm_threads_run(4, NULL, 8, MUCH, nest, NULL, 0) == NVM_OK);
  pthread_t callers[CALLERS];
  for (int k = 0; k < CALLERS; ++k) CHECK(pthread_create(&callers[k], NULL, call_often, NULL) == 0);
  for (int k = 0; k < CALLERS; ++k) pthread_join(callers[k], NULL);
  usleep(2000); /* workers sleep now */
  run_once(4, MUCH, 0);
  for (int k = 0; k < 40; ++k) { /* sleep between regions, and work too small to wake for */
    usleep(300);
    run_once(4, 3000, 0);
    run_once(2 + k % 3, MUCH, 20);
  }
}

/* --- through a kernel's ctx: each piece has its own, the caller's gets the first fault --- */

static nvm_status find_zero(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  const int64_t *values = closure;
  for (int64_t i = begin; i < end; ++i) {
    for (volatile int k = 0; k < 50; ++k) {
    }
    if (values[i] == 0) return ctx->fail(ctx, NVM_INDEX_OUT_OF_RANGE, 1, i, COUNT);
  }
  return ctx->poll(ctx);
}

static void test_faults(void) {
  static int64_t values[COUNT];
  nvm_call call;
  for (int k = 0; k < ROUNDS; ++k) {
    nvm_call_init(&call, NULL, NULL, k % 3 == 0 ? 1 : 4);
    call.regions = (uint32_t)k; /* turned or not */
    for (int i = 0; i < COUNT; ++i) values[i] = 1;
    const int64_t first = k * 37 % COUNT;
    for (int64_t i = first; i < COUNT; i += 1 + k % 91) values[i] = 0;
    call.code = NVM_OK;
    CHECK(call.ctx.parallel_for(&call.ctx, COUNT, MUCH, find_zero, values) ==
          NVM_INDEX_OUT_OF_RANGE);
    CHECK(call.code == NVM_INDEX_OUT_OF_RANGE && call.operand == 1);
    CHECK(call.index == first && call.bound == COUNT);
    for (int64_t i = first; i < COUNT; ++i) values[i] = 1;
    call.code = NVM_OK;
    CHECK(call.ctx.parallel_for(&call.ctx, COUNT, MUCH, find_zero, values) == NVM_OK);
    CHECK(call.code == NVM_OK);
  }
}

static void test_fork(void) {
  fflush(NULL);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    for (int k = 0; k < 10; ++k) run_once(4, MUCH, 0);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  run_once(4, MUCH, 0);
}

static harness *shared;

static void *run_kernel(void *unused) {
  enum { N = 3, M = 500 };
  float x[N * M], out[N];
  (void)unused;
  for (int i = 0; i < N * M; ++i) x[i] = (float)(i % 7);
  for (int k = 0; k < ROUNDS; ++k) {
    void *bufs[2] = {x, out};
    int64_t dims[2] = {N, M}, fault[4];
    CHECK(harness_run(shared, bufs, dims, fault) == NVM_OK);
    for (int row = 0; row < N; ++row) {
      float sum = 0;
      for (int i = 0; i < M; ++i) sum += x[row * M + i];
      CHECK(out[row] == sum);
    }
  }
  return NULL;
}

static void test_kernel(const char *path) {
  int64_t n_words = 0, size = 0, words[256];
  uint8_t body[4096];
  FILE *stream = fopen(path, "rb");
  CHECK(stream && fread(&n_words, 8, 1, stream) == 1 && n_words <= 256);
  CHECK(fread(words, 8, (size_t)n_words, stream) == (size_t)n_words);
  CHECK(fread(&size, 8, 1, stream) == 1 && size <= (int64_t)sizeof body);
  CHECK(fread(body, 1, (size_t)size, stream) == (size_t)size);
  fclose(stream);
  CHECK(harness_load(body, (size_t)size, words, &shared) == NVM_OK);
  pthread_t callers[CALLERS];
  for (int k = 0; k < CALLERS; ++k) CHECK(pthread_create(&callers[k], NULL, run_kernel, NULL) == 0);
  for (int k = 0; k < CALLERS; ++k) pthread_join(callers[k], NULL);
  harness_free(shared);
}

int main(int argc, char **argv) {
  CHECK(argc >= 2);
  test_pool();
  test_faults();
  test_kernel(argv[1]);
  if (argc == 2) test_fork(); /* a third argument leaves it out: sanitizers watch one process */
  nvm_threads_shutdown();
  run_once(4, MUCH, 0);
  nvm_threads_shutdown();
  puts("ok");
  return 0;
}
