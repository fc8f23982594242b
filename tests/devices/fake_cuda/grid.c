/* Groups one after the other; the threads of one, from barrier to barrier. */
#include "grid.h"

static void place_thread(ptx_thread *thread, uint32_t number) {
  thread->tid[0] = number % thread->ntid[0];
  thread->tid[1] = number / thread->ntid[0] % thread->ntid[1];
  thread->tid[2] = number / thread->ntid[0] / thread->ntid[1];
}

static void run_group(const ptx_kernel *kernel, const ptx_thread *first, ptx_thread *threads,
                      char *registers, uint32_t count) {
  if (!kernel->barriers) {
    ptx_thread thread = *first;
    for (uint32_t i = 0; i < count; i++) {
      place_thread(&thread, i);
      kernel->run(&thread);
    }
    return;
  }
  for (uint32_t i = 0; i < count; i++) {
    threads[i] = *first;
    threads[i].registers = registers + (size_t)i * kernel->register_bytes;
    place_thread(&threads[i], i);
  }
  for (uint32_t live = count; live > 0;) {
    live = 0;
    for (uint32_t i = 0; i < count; i++) {
      if (threads[i].resume < 0) continue;
      kernel->run(&threads[i]);
      live += threads[i].resume >= 0;
    }
  }
}

int fake_grid_run(const ptx_kernel *kernel, const uint64_t *params, const uint32_t grid[3],
                  const uint32_t block[3], void *(*find)(uint64_t address, size_t size)) {
  const uint32_t count = block[0] * block[1] * block[2];
  ptx_machine machine = {.find = find, .shared_size = kernel->shared_bytes};
  ptx_thread first = {.machine = &machine, .params = params};
  ptx_thread *threads = calloc(kernel->barriers ? count : 1, sizeof *threads);
  char *registers = calloc(kernel->barriers ? count : 1, kernel->register_bytes + 1);
  machine.shared = aligned_alloc(128, (kernel->shared_bytes / 128 + 1) * 128);
  int status = threads && registers && machine.shared ? GRID_DONE : GRID_NO_MEMORY;
  memcpy(first.ntid, block, sizeof first.ntid);
  memcpy(first.nctaid, grid, sizeof first.nctaid);
  for (uint32_t z = 0; z < grid[2] && status == GRID_DONE; z++)
    for (uint32_t y = 0; y < grid[1] && status == GRID_DONE; y++)
      for (uint32_t x = 0; x < grid[0] && status == GRID_DONE; x++) {
        first.ctaid[0] = x, first.ctaid[1] = y, first.ctaid[2] = z;
        memset(machine.shared, 0xA5, kernel->shared_bytes);
        run_group(kernel, &first, threads, registers, count);
        if (machine.faulted) status = GRID_ILLEGAL_ADDRESS;
      }
  free(threads), free(registers), free(machine.shared);
  return status;
}
