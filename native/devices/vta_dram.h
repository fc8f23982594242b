/* The memory of a simulated VTA: an arena that the host reaches only by copies. A pointer that the
 * VM gets is NVM_VTA_ADDRESS + offset, which no machine maps: it can be added to and compared, and
 * reading it on the host ends in a fault instead of in wrong data. */
#ifndef NVM_VTA_DRAM_H
#define NVM_VTA_DRAM_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "status.h"

#define NVM_VTA_ADDRESS \
  UINT64_C(0x5654410000000000) /* "VTA"; non-canonical on x86-64 and aarch64 */
#define NVM_VTA_DRAM_BYTES (UINT64_C(1) << 30)

typedef struct nvm_vta_block {
  uint64_t begin, size;
} nvm_vta_block;

typedef struct nvm_vta_dram {
  uint8_t *memory; /* NVM_VTA_DRAM_BYTES of address space, pages as they are touched */
  pthread_mutex_t lock;
  nvm_vta_block *used; /* by begin */
  size_t n_used, capacity;
} nvm_vta_dram;

NVM_NODISCARD nvm_status nvm_vta_dram_open(nvm_vta_dram *dram);
void nvm_vta_dram_close(nvm_vta_dram *dram);
/* size > 0 bytes at a multiple of `alignment` (a power of two). Errors: OUT_OF_MEMORY. Any thread.
 */
NVM_NODISCARD nvm_status nvm_vta_dram_alloc(nvm_vta_dram *dram, uint64_t size, uint64_t alignment,
                                            uint64_t *out_begin);
void nvm_vta_dram_free(nvm_vta_dram *dram, uint64_t begin); /* any thread */

#endif
