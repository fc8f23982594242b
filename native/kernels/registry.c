/* Finds the kernels written in C by name (table: nimblevm/kernels/c_kernels.py). */
#include <string.h>

#define NVM_C_KERNELS_TABLE
#include "generated/nvm_c_kernels.h"

const nvm_c_kernel *nvm_c_kernel_find(const char *name, size_t length) {
  size_t low = 0, high = sizeof c_kernels / sizeof *c_kernels;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    const size_t known = strlen(c_kernels[middle].name);
    int order = memcmp(name, c_kernels[middle].name, known < length ? known : length);
    if (order == 0) order = (length > known) - (length < known);
    if (order == 0) return &c_kernels[middle];
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}
