/* Between run 10 and run 1,000 with repeated sizes: no call of the system's allocator, no brk, no
 * mmap. And resident memory is flat over random sizes. */
#include "counting.h"
#include "programs.h"

static float data[100000];

static void run_all(nvm_vm *vm, const uint32_t *functions, int64_t n) {
  nvm_result *result = NULL;
  int64_t shape[] = {n};
  nvm_arg args[] = {vector_arg(data, shape), int_arg(5)};
  CHECK_STATUS(nvm_vm_invoke(vm, functions[0], args, 2, &result), NVM_OK);
  nvm_result_free(result);
  nvm_arg numbers[] = {int_arg(n), {.kind = NVM_ARG_ADT, .ctor = CTOR_NIL}};
  CHECK_STATUS(nvm_vm_invoke(vm, functions[1], numbers, 1, &result), NVM_OK); /* length of a list */
  nvm_result_free(result);
  CHECK_STATUS(nvm_vm_invoke(vm, functions[2], numbers, 2, &result), NVM_OK); /* a list */
  nvm_result_free(result);
  CHECK_STATUS(nvm_vm_invoke(vm, functions[3], numbers, 1, &result), NVM_OK); /* ref cycles */
  nvm_result_free(result);
  CHECK_STATUS(nvm_vm_invoke(vm, functions[4], numbers, 1, &result), NVM_OK); /* recursion */
  nvm_result_free(result);
}

static void test_no_allocation(const uint32_t *functions) {
  static const int64_t sizes[] = {8, 64, 300, 1000, 5000};
  nvm_vm *vm = new_vm(NULL);
  unsigned long brk_before = 0;
  for (int run = 0; run < 1000; run++) {
    if (run == 10) {
      counting = 1;
      brk_before = (unsigned long)sbrk(0);
    }
    run_all(vm, functions, sizes[run % 5]);
  }
  counting = 0;
  CHECK(calls == 0);
  if (calls) fprintf(stderr, "%lu allocations between run 10 and run 1,000\n", calls);
  CHECK(brk_before == (unsigned long)sbrk(0));
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
  nvm_vm_destroy(vm);
}

static long resident(void) {
  long pages = 0, total;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

static void test_flat(const uint32_t *functions) {
  nvm_vm *vm = new_vm(NULL);
  uint64_t state = 42;
  long after_1000 = 0;
  for (int run = 0; run < 10000; run++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    run_all(vm, functions, 1 + (int64_t)((state >> 33) % 400));
    if (run == 999) after_1000 = resident();
  }
  long grown = resident() - after_1000;
  CHECK(grown <= 2 << 20);
  if (grown > 2 << 20) fprintf(stderr, "resident memory grew by %ld bytes\n", grown);
  CHECK_STATUS(nvm_vm_trim(vm), NVM_OK);
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.pool_bytes == 0);
  nvm_vm_destroy(vm);
}

int main(void) {
  new_program(0);
  uint32_t kernels = add_kernel_loop(), list = add_list_length(), cycles = add_cycles();
  uint32_t depth = add_depth();
  const uint32_t functions[] = {kernels, list, kernels + 1, cycles, depth};
  if (COUNTED) test_no_allocation(functions);
  if (COUNTED) test_flat(functions);
  return failures != 0;
}
