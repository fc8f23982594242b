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
  int64_t turns; /* of a chain of multiplications, about 0.8 ns each */
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

enum { ROUNDS = 60 };
typedef struct times {
  double least, mean; /* us a region of 8 pieces */
} times;

static uint64_t run_regions(int32_t threads, task *t, int regions, int pause_us) {
  uint64_t took = 0;
  for (int k = 0; k < regions; ++k) {
    if (pause_us) usleep((unsigned)pause_us);
    const uint64_t start = nvm_now();
    const nvm_status status = nvm_threads_run(threads, NULL, 8, 9 * t->turns, work, t, 0);
    took += nvm_now() - start;
    if (status != NVM_OK) exit(1);
  }
  return took;
}

/* One thread and two in turns, so that what else runs on the machine meets both. */
static void compare(const char *what, int64_t turns, int pause_us) {
  const int regions = turns < 1000 ? 200 : 50;
  task t = {.turns = turns};
  times found[2] = {{1e9, 0}, {1e9, 0}};
  for (int round = 0; round < 2 * ROUNDS; ++round) {
    times *side = &found[round % 2];
    const double took = (double)run_regions(1 + round % 2, &t, regions, pause_us) / regions / 1e3;
    if (took < side->least) side->least = took;
    side->mean += took / ROUNDS;
  }
  printf("%-28s least %8.2f us with 1 thread %8.2f with 2: %.2f   mean %8.2f and %8.2f: %.2f\n",
         what, found[0].least, found[1].least, found[1].least / found[0].least, found[0].mean,
         found[1].mean, found[1].mean / found[0].mean);
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
  const int64_t sizes[] = {500, 800, 1500, 6000, 60000};
  char what[64];
  for (int beside = 0; beside < 2; ++beside) {
    const pid_t child = beside ? compete() : 0;
    for (int k = 0; k < 5; ++k) {
      snprintf(what, sizeof what, "%lld turns%s", (long long)sizes[k],
               beside ? ", CPU 1 busy" : "");
      compare(what, sizes[k], 0);
    }
    if (!beside) {
      compare("1500 turns, workers asleep", 1500, 500);
      compare("6000 turns, workers asleep", 6000, 500);
    } else {
      kill(child, SIGKILL);
      waitpid(child, NULL, 0);
    }
  }
  return 0;
}
