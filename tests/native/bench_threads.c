/* What a parallel region costs, printed and never asserted: hand-off between threads that spin and
 * that sleep, the gain for pieces of a few microseconds, and the same beside a process that takes
 * one CPU. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"
#include "threads.h"

uint64_t nvm_now(void);

typedef struct task {
  int64_t turns; /* of a chain of multiplications, about 1.2 ns each */
  double out[64];
} task;

static nvm_status work(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  task *t = closure;
  (void)ctx;
  for (int64_t i = begin; i < end; ++i) {
    double x = 1.0 + (double)i * 1e-9;
    for (int64_t k = 0; k < t->turns; ++k) x *= 1.0000001;
    t->out[i] = x;
  }
  return NVM_OK;
}

/* ns a region of 8 pieces; best: the fastest of the rounds, else their mean. */
static double region(int32_t threads, int64_t turns, int pause_us, int best) {
  enum { ROUNDS = 40 };
  const int regions = turns < 1000 ? 200 : 50;
  task t = {.turns = turns};
  uint64_t least = UINT64_MAX, sum = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    uint64_t took = 0;
    for (int k = 0; k < regions; ++k) {
      if (pause_us) usleep((unsigned)pause_us);
      const uint64_t start = nvm_now();
      nvm_status status = nvm_threads_run(threads, NULL, 8, 8 * turns + 8000, work, &t);
      took += nvm_now() - start;
      if (status != NVM_OK) return 0;
    }
    if (took < least) least = took;
    sum += took;
  }
  return (best ? (double)least : (double)sum / ROUNDS) / regions;
}

static void compare(const char *what, int64_t turns, int pause_us, int best) {
  const double one = region(1, turns, pause_us, best), two = region(2, turns, pause_us, best);
  printf("%-36s %9.2f us 1 thread %9.2f us 2 threads  ratio %.2f\n", what, one / 1e3, two / 1e3,
         two / one);
}

static pid_t compete(void) {
  const pid_t child = fork();
  if (child != 0) return child;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(1, &one);
  (void)sched_setaffinity(0, sizeof one, &one);
  for (;;) {
  }
}

int main(void) {
  const int64_t sizes[] = {0, 100, 500, 1500, 6000, 60000};
  for (int k = 0; k < 6; ++k) {
    char what[64];
    snprintf(what, sizeof what, "8 pieces of %lld multiplications", (long long)sizes[k]);
    compare(what, sizes[k], 0, 1);
  }
  compare("1500, workers asleep", 1500, 500, 1);
  compare("6000, mean", 6000, 0, 0);
  const pid_t child = compete();
  compare("1500 beside a busy CPU, mean", 1500, 0, 0);
  compare("6000 beside a busy CPU, mean", 6000, 0, 0);
  compare("60000 beside a busy CPU, mean", 60000, 0, 0);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  return 0;
}
