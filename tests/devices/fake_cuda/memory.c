/* Two windows of addresses: the device's, which is never mapped, and the memory behind it, in the
 * same order. Addresses are not used twice, so what was freed is known. */
#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define WINDOW  ((size_t)64 << 30)
#define ALIGN   ((size_t)512)
#define CANARY  ((size_t)64)
#define PAGE    ((size_t)4096)
#define UNSET   0xA5
#define GUARDED 0x5C

static char *device_window, *host_window;
static size_t used;
static fake_block *blocks; /* by address */
static size_t n_blocks, capacity;
static int64_t live_bytes;
static int damaged;

static int open_windows(void) {
  if (device_window) return 1;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  char *device = mmap(NULL, WINDOW, PROT_NONE, flags, -1, 0);
  char *host = mmap(NULL, WINDOW, PROT_NONE, flags, -1, 0);
  if (device == MAP_FAILED || host == MAP_FAILED) return 0;
  device_window = device, host_window = host;
  return 1;
}

static size_t span(size_t size) {
  return ((size + CANARY + ALIGN - 1) / ALIGN * ALIGN + PAGE - 1) / PAGE * PAGE;
}

uint64_t fake_memory_alloc(size_t size, int64_t limit) {
  if (!open_windows() || size > (size_t)limit || live_bytes > limit - (int64_t)size) return 0;
  const size_t pages = span(size);
  if (used + pages + PAGE > WINDOW) return 0;
  if (n_blocks == capacity) {
    const size_t wanted = capacity ? 2 * capacity : 64;
    fake_block *grown = realloc(blocks, wanted * sizeof *blocks);
    if (!grown) return 0;
    blocks = grown, capacity = wanted;
  }
  char *host = host_window + used;
  if (mprotect(host, pages, PROT_READ | PROT_WRITE) != 0) return 0;
  memset(host, UNSET, size);
  memset(host + size, GUARDED, CANARY);
  blocks[n_blocks++] = (fake_block){(uint64_t)(uintptr_t)device_window + used, size, host};
  used += pages + PAGE; /* a page that nothing may touch */
  live_bytes += (int64_t)size;
  return blocks[n_blocks - 1].address;
}

static size_t place_of(
    uint64_t address) { /* of the last block that begins at or before it, or n_blocks */
  size_t low = 0, high = n_blocks;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (blocks[middle].address <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low ? low - 1 : n_blocks;
}

int fake_memory_free(uint64_t address) {
  const size_t place = place_of(address);
  if (place == n_blocks || blocks[place].address != address) return 0;
  fake_block *block = &blocks[place];
  for (size_t i = 0; i < CANARY; i++)
    damaged |= (unsigned char)block->host[block->size + i] != GUARDED;
  live_bytes -= (int64_t)block->size;
  (void)madvise(block->host, span(block->size), MADV_DONTNEED);
  (void)mprotect(block->host, span(block->size), PROT_NONE);
  memmove(block, block + 1, (n_blocks - place - 1) * sizeof *block);
  n_blocks--;
  return 1;
}

void fake_memory_forget(void) {
  while (n_blocks) (void)fake_memory_free(blocks[0].address);
}

const fake_block *fake_memory_block(uint64_t address, size_t size) {
  const size_t place = place_of(address);
  if (place == n_blocks) return NULL;
  const uint64_t offset = address - blocks[place].address;
  if (offset > blocks[place].size || size > blocks[place].size - offset) return NULL;
  return &blocks[place];
}

void *fake_memory_find(uint64_t address, size_t size) {
  const fake_block *block = fake_memory_block(address, size);
  return block ? block->host + (address - block->address) : NULL;
}

int fake_memory_damaged(void) {
  for (size_t b = 0; b < n_blocks; b++)
    for (size_t i = 0; i < CANARY; i++)
      damaged |= (unsigned char)blocks[b].host[blocks[b].size + i] != GUARDED;
  return damaged;
}

int64_t fake_memory_blocks(void) { return (int64_t)n_blocks; }
int64_t fake_memory_bytes(void) { return live_bytes; }
