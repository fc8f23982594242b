/* call CORE SIZE FILE...: what a call from C costs. Runs main(x: (1, SIZE) float32) of each file on
 * one core and prints the nanoseconds of a call as a JSON list, the result's release included:
 * medians over batches. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "generated/nvm_dtype.h"
#include "nvm_api.h"

enum { BATCHES = 201, CALLS = 100, MOST = 4096 };

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int ascending(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nvm_last_error()->message);
  return 1;
}

static int measure(const char *path, const nvm_arg *x, double *out_ns) {
  static double times[BATCHES];
  nvm_program *program;
  nvm_vm *vm;
  uint32_t function;
  if (nvm_program_open(path, 0, &program)) return fail(path);
  if (nvm_program_find(program, "main", &function)) return fail(path);
  nvm_vm_options options = {.size = sizeof options, .threads = 1};
  if (nvm_vm_create(program, &options, &vm)) return fail(path);
  for (int batch = -1; batch < BATCHES; batch++) {
    double start = now();
    for (int i = 0; i < CALLS; i++) {
      nvm_result *result;
      if (nvm_vm_invoke(vm, function, x, 1, &result)) return fail(path);
      nvm_result_free(result);
    }
    if (batch >= 0) times[batch] = (now() - start) / CALLS;
  }
  qsort(times, BATCHES, sizeof times[0], ascending);
  *out_ns = times[BATCHES / 2];
  nvm_vm_destroy(vm);
  nvm_program_release(program);
  return 0;
}

int main(int argc, char **argv) {
  static float data[MOST];
  if (argc < 4 || atoi(argv[2]) < 1 || atoi(argv[2]) > MOST) {
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
  printf("[");
  for (int i = 3; i < argc; i++) {
    double ns;
    if (measure(argv[i], &x, &ns)) return 1;
    printf("%s%.1f", i > 3 ? ", " : "", ns);
  }
  printf("]\n");
  return 0;
}
