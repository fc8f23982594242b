/* Memory of the fake device. All calls under the driver's lock. */
#ifndef FAKE_CUDA_MEMORY_H
#define FAKE_CUDA_MEMORY_H

#include <stddef.h>
#include <stdint.h>

typedef struct fake_block {
  uint64_t address;
  size_t size;
  char *host;
} fake_block;

/* 0: no memory, or more than `limit` bytes would be alive. */
uint64_t fake_memory_alloc(size_t size, int64_t limit);
/* 0: no live block begins there. */
int fake_memory_free(uint64_t address);
void fake_memory_forget(void);
/* The live block that holds these bytes, or NULL. */
const fake_block *fake_memory_block(uint64_t address, size_t size);
void *fake_memory_find(uint64_t address, size_t size);
/* A block's canary was overwritten: kernels or copies wrote beyond it. */
int fake_memory_damaged(void);
int64_t fake_memory_blocks(void);
int64_t fake_memory_bytes(void);

#endif
