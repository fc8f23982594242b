/* Runs a grid of a translated kernel. */
#ifndef FAKE_CUDA_GRID_H
#define FAKE_CUDA_GRID_H

#include "ptx_machine.h"

enum { GRID_DONE = 0, GRID_ILLEGAL_ADDRESS = 1, GRID_NO_MEMORY = 2 };

int fake_grid_run(const ptx_kernel *kernel, const uint64_t *params, const uint32_t grid[3],
                  const uint32_t block[3], void *(*find)(uint64_t address, size_t size));

#endif
