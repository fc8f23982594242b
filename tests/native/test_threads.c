/* Eight threads, one program, a VM each: the results of a single thread. Meant for TSan. Results
 * and handles are dropped by other threads than the VM's, some after the VM is gone. */
#include <pthread.h>

#include "programs.h"

enum { THREADS = 8, RUNS = 60 };
static uint32_t kernels, list, sum, thunk_of;
static _Atomic(nvm_result *) inbox[THREADS];

static void *work(void *context) {
  size_t me = (size_t)context;
  nvm_vm *vm = new_vm(NULL);
  float data[50];
  for (int i = 0; i < 50; i++) data[i] = (float)(i + (int)me);
  for (int run = 0; run < RUNS; run++) {
    int64_t shape[] = {1 + run % 50};
    nvm_arg args[] = {vector_arg(data, shape), int_arg(run % 5)};
    nvm_result *result = NULL;
    CHECK_STATUS(nvm_vm_invoke(vm, kernels, args, 2, &result), NVM_OK);
    const nvm_out *out = nvm_result_values(result);
    CHECK(((const float *)out->data)[0] == (float)me * (float)(1 << (run % 5)));
    nvm_result_free(atomic_exchange(&inbox[(me + 1) % THREADS], result)); /* the neighbour's */
    CHECK(run_int(vm, list, (nvm_arg[]){int_arg(100 + run)}, 1) == 100 + run);
    CHECK(run_int(vm, sum, (nvm_arg[]){int_arg(1000), int_arg(0)}, 2) == 500500);
    CHECK_STATUS(nvm_vm_invoke(vm, thunk_of, args, 1, &result), NVM_OK);
    CHECK(nvm_result_values(result)->kind == NVM_OUT_HANDLE);
    nvm_result_free(atomic_exchange(&inbox[(me + 3) % THREADS], result));
  }
  nvm_vm_destroy(vm);
  return NULL;
}

int main(void) {
  new_program(0);
  kernels = add_kernel_loop();
  list = add_list_length();
  sum = add_tail_sum();
  uint32_t id = add_function("id", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_VECTOR, 0, 0, 1,
                             WORDS(NVM_OP_Ret, 0));
  thunk_of = add_function("thunk_of", (params){1, {PARAM("x", T_VECTOR, 0)}}, T_FUNCTION, 0, 0, 2,
                          WORDS(NVM_OP_AllocClosure, 1, id, 1, 0, NVM_OP_Ret, 1));
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (size_t i = 0; i < THREADS; i++) nvm_result_free(atomic_load(&inbox[i]));
  return failures != 0;
}
