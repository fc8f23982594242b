/* call CORE SIZE FILE...: what a call from C costs. Runs main(x: (1, SIZE) float32) of the files in
 * turns on one core and prints, as JSON, a list of rounds: the nanoseconds of a call of each file,
 * the result's release included. A core may run half as fast for a while (what its neighbours do),
 * so only figures of one round belong together. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generated/nvm_dtype.h"
#include "nvm_api.h"

enum { ROUNDS = 401, WARM = 20, CALLS = 100, MOST = 4096, FILES = 8 };

static double took[FILES];

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nvm_last_error()->message);
  return 1;
}

typedef struct side {
  nvm_program *program;
  nvm_vm *vm;
  uint32_t function;
} side;

static int open_side(const char *path, side *out) {
  const nvm_vm_options options = {.size = sizeof options, .threads = 1};
  if (nvm_program_open(path, 0, &out->program)) return fail(path);
  if (nvm_program_find(out->program, "main", &out->function)) return fail(path);
  return nvm_vm_create(out->program, &options, &out->vm) ? fail(path) : 0;
}

static int call(const side *s, const nvm_arg *x, int count) {
  for (int i = 0; i < count; i++) {
    nvm_result *result;
    if (nvm_vm_invoke(s->vm, s->function, x, 1, &result)) return fail("main");
    nvm_result_free(result);
  }
  return 0;
}

/* One line a round. */
static int measure(const side *sides, int count, const nvm_arg *x) {
  printf("[");
  for (int round = 0; round < ROUNDS; round++) {
    printf("%s[", round ? ",\n" : "");
    for (int k = 0; k < count; k++) {
      const side *s = &sides[(k + round) % count];
      if (call(s, x, WARM)) return 1;
      const double start = now();
      if (call(s, x, CALLS)) return 1;
      took[s - sides] = (now() - start) / CALLS;
    }
    for (int k = 0; k < count; k++) printf("%s%.1f", k ? ", " : "", took[k]);
    printf("]");
  }
  printf("]\n");
  return 0;
}

int main(int argc, char **argv) {
  static float data[MOST];
  static side sides[FILES];
  const int files = argc - 3;
  if (files < 1 || files > FILES || atoi(argv[2]) < 1 || atoi(argv[2]) > MOST) {
    fprintf(stderr, "usage: call CORE SIZE FILE...\n");
    return 2;
  }
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET((size_t)atoi(argv[1]), &set);
  (void)sched_setaffinity(0, sizeof set, &set);
  const int64_t shape[] = {1, atoi(argv[2])};
  for (int i = 0; i < MOST; i++) data[i] = (float)(i % 7) * 0.25f;
  const nvm_arg x = {.kind = NVM_ARG_TENSOR,
                     .dtype = NVM_DTYPE_FLOAT32,
                     .rank = 2,
                     .dl_device_type = 1,
                     .data = data,
                     .shape = shape};
  for (int i = 0; i < files; i++)
    if (open_side(argv[3 + i], &sides[i])) return 1;
  if (measure(sides, files, &x)) return 1;
  for (int i = 0; i < files; i++) {
    nvm_vm_destroy(sides[i].vm);
    nvm_program_release(sides[i].program);
  }
  return 0;
}
