/* bind_threads FILE WEIGHTS: threads bind one set of weights to one program at once, half of them
 * with their digests checked, run what they made and let it go. Meant for TSan. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

enum { THREADS = 4, ROUNDS = 25 };
static nvm_program *late;
static nvm_weights *weights;

static void *work(void *context) {
  const uint32_t flags = (size_t)context % 2 ? NVM_LOAD_VERIFY_FULL : 0;
  for (int round = 0; round < ROUNDS; round++) {
    nvm_program *bound = NULL;
    nvm_vm *vm = NULL;
    CHECK_STATUS(nvm_program_bind(late, weights, flags | NVM_BIND_ALLOW_EXTRA, &bound), NVM_OK);
    CHECK_STATUS(nvm_vm_create(bound, NULL, &vm), NVM_OK);
    nvm_program_release(bound);
    nvm_vm_destroy(vm);
  }
  return NULL;
}

int main(int argc, char **argv) {
  pthread_t threads[THREADS];
  if (argc != 3) return 2;
  CHECK_STATUS(nvm_program_open(argv[1], 0, &late), NVM_OK);
  CHECK_STATUS(nvm_weights_open(argv[2], 0, &weights), NVM_OK);
  if (failures) return 1;
  for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  nvm_weights_release(weights);
  nvm_program_release(late);
  return failures != 0;
}
