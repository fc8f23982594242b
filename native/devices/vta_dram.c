/* First fit over a sorted list of blocks: there are few, since the VM's pools keep what it frees.
 */
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "vta_dram.h"

enum {
  PAGE = 4096,
  RETURNED = 1 << 20 /* bytes of a block whose pages go back when it is freed */
};

nvm_status nvm_vta_dram_open(nvm_vta_dram *dram) {
  memset(dram, 0, sizeof *dram);
  void *memory = nvm_allocation_allowed() ? mmap(NULL, NVM_VTA_DRAM_BYTES, PROT_READ | PROT_WRITE,
                                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                          : MAP_FAILED;
  if (memory == MAP_FAILED)
    NVM_FAIL(NVM_OUT_OF_MEMORY, "the system gave no address space for the DRAM of a vta device");
  dram->memory = memory;
  pthread_mutex_init(&dram->lock, NULL);
  return NVM_OK;
}

void nvm_vta_dram_close(nvm_vta_dram *dram) {
  if (!dram->memory) return;
  munmap(dram->memory, NVM_VTA_DRAM_BYTES);
  pthread_mutex_destroy(&dram->lock);
  nvm_free(dram->used);
  dram->memory = NULL;
}

static int grow(nvm_vta_dram *dram) {
  if (dram->n_used < dram->capacity) return 1;
  size_t capacity = dram->capacity ? 2 * dram->capacity : 64;
  nvm_vta_block *used = nvm_realloc(dram->used, capacity * sizeof *used);
  if (!used) return 0;
  dram->used = used;
  dram->capacity = capacity;
  return 1;
}

/* Where a block of that size fits: its index, and its begin. */
static int find_gap(const nvm_vta_dram *dram, uint64_t size, uint64_t alignment, size_t *out_index,
                    uint64_t *out_begin) {
  uint64_t begin = 0;
  for (size_t i = 0; i <= dram->n_used; i++) {
    uint64_t end = i < dram->n_used ? dram->used[i].begin : NVM_VTA_DRAM_BYTES;
    if (begin <= end && size <= end - begin) {
      *out_index = i;
      *out_begin = begin;
      return 1;
    }
    if (i < dram->n_used)
      begin = (dram->used[i].begin + dram->used[i].size + alignment - 1) & ~(alignment - 1);
  }
  return 0;
}

nvm_status nvm_vta_dram_alloc(nvm_vta_dram *dram, uint64_t size, uint64_t alignment,
                              uint64_t *out_begin) {
  size_t index = 0;
  pthread_mutex_lock(&dram->lock);
  int found =
      nvm_allocation_allowed() && grow(dram) && find_gap(dram, size, alignment, &index, out_begin);
  if (found) {
    nvm_vta_block *at = dram->used + index;
    memmove(at + 1, at, (dram->n_used - index) * sizeof *at);
    *at = (nvm_vta_block){*out_begin, size};
    dram->n_used++;
  }
  pthread_mutex_unlock(&dram->lock);
  if (!found)
    NVM_FAIL(NVM_OUT_OF_MEMORY, "a vta device of %llu bytes has no room for %llu more",
             (unsigned long long)NVM_VTA_DRAM_BYTES, (unsigned long long)size);
  return NVM_OK;
}

void nvm_vta_dram_free(nvm_vta_dram *dram, uint64_t begin) {
  pthread_mutex_lock(&dram->lock);
  size_t low = 0, high = dram->n_used;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (dram->used[middle].begin < begin)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < dram->n_used && dram->used[low].begin == begin) {
    nvm_vta_block *at = dram->used + low;
    if (at->size >= RETURNED) {
      uint64_t first = (at->begin + PAGE - 1) / PAGE * PAGE;
      uint64_t last = (at->begin + at->size) / PAGE * PAGE;
      madvise(dram->memory + first, last - first, MADV_DONTNEED);
    }
    memmove(at, at + 1, (dram->n_used - low - 1) * sizeof *at);
    dram->n_used--;
  }
  pthread_mutex_unlock(&dram->lock);
}
