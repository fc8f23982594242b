/* The n-th allocation fails, for every n until a run needs no more: a typed error, nothing leaks
 * (ASan sees to that), and the VM works on. Only in NVM_TEST builds. */
#include "programs.h"

#ifdef NVM_TEST
static float data[64];

static nvm_status run_one(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args) {
  nvm_result *result = NULL;
  nvm_status status = nvm_vm_invoke(vm, function, args, n_args, &result);
  CHECK(status == NVM_OK || status == NVM_OUT_OF_MEMORY);
  CHECK((status == NVM_OK) == (result != NULL));
  nvm_result_free(result);
  return status;
}

static void exhaust(uint32_t function, const nvm_arg *args, size_t n_args) {
  nvm_status status = NVM_OUT_OF_MEMORY;
  int n = 0;
  while (status != NVM_OK && n < 2000) {
    nvm_vm *vm = NULL;
    nvm_test_fail_allocation(++n);
    status = nvm_vm_create(&program, NULL, &vm);
    CHECK(status == NVM_OK || status == NVM_OUT_OF_MEMORY);
    if (status == NVM_OK) status = run_one(vm, function, args, n_args);
    nvm_test_fail_allocation(0);
    if (vm) CHECK_STATUS(run_one(vm, function, args, n_args), NVM_OK);
    nvm_vm_stats stats;
    if (vm) CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
    if (vm) CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
    nvm_vm_destroy(vm);
  }
  CHECK(n > 5 && n < 2000);
}

int main(void) {
  new_program(0);
  uint32_t list = add_list_length(), build = 0, cycles = add_cycles(), depth = add_depth();
  uint32_t kernels = add_kernel_loop();
  int64_t shape[] = {64};
  nvm_arg numbers[] = {int_arg(200), {.kind = NVM_ARG_ADT, .ctor = CTOR_NIL}};
  nvm_arg vectors[] = {vector_arg(data, shape), int_arg(4)};
  exhaust(list, numbers, 1);
  exhaust(build, numbers, 2);
  exhaust(cycles, numbers, 1);
  exhaust(depth, (nvm_arg[]){int_arg(5000)}, 1);
  exhaust(kernels, vectors, 2);
  return failures != 0;
}
#else
int main(void) { return 0; }
#endif
