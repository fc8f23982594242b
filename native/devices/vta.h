/* The device backend "vta": the simulator with memory, modules and a cache of micro-kernels. */
#ifndef NVM_VTA_H
#define NVM_VTA_H

#include "nvm_device.h"
#include "vta_dram.h"
#include "vta_program.h"
#include "vta_sim.h"

/* Micro-kernels of all modules, equal ones once. They stay in the scratchpad from call to call, one
 * behind the other; when one does not fit any more, all are dropped and loaded again as needed. */
typedef struct nvm_vta_cached {
  uint64_t dram;         /* where its words lie */
  uint32_t count, first; /* micro-ops; entry of the scratchpad */
  uint32_t users;        /* programs that have it */
  uint8_t resident;      /* in the scratchpad */
} nvm_vta_cached;

typedef struct nvm_vta_device {
  nvm_device base;
  nvm_vta_dram dram;
  nvm_vta_sim *sim; /* NULL until the first module says what the hardware is */
  nvm_vta_config config;
  nvm_vta_cached *cache;
  uint32_t n_cached, cache_capacity, next_uop;
} nvm_vta_device;

/* One kernel, as find_kernel gives it. */
typedef struct nvm_vta_code {
  uint32_t index; /* of the file's kernel table */
  const uint8_t *blob;
  size_t blob_size;
  uint8_t ready; /* read, its constants in DRAM */
  const nvm_signature *signature;
  nvm_vta_program program;
  uint64_t constants; /* in DRAM */
} nvm_vta_code;

/* Run one call. Operands are pointers as the device gave them, whole tensors of the signature. */
NVM_NODISCARD nvm_status nvm_vta_launch(nvm_vta_device *device, const nvm_kernel_ctx *ctx,
                                        const nvm_vta_code *code, void *const *bufs,
                                        const int64_t *dims);

/* vta_cache.c: know a micro-kernel, its words copied to DRAM; *out_id says which it is. */
NVM_NODISCARD nvm_status nvm_vta_cache_add(nvm_vta_device *device, const uint8_t *words,
                                           uint32_t count, uint32_t *out_id);
void nvm_vta_cache_drop(nvm_vta_device *device, uint32_t id);
/* Make a run's micro-kernels resident: LOAD instructions for those that are not are written to
 * `loads` (room for one each). Errors: DEVICE_ERROR if they do not fit the scratchpad. */
NVM_NODISCARD nvm_status nvm_vta_cache_load(nvm_vta_device *device, const nvm_vta_program *program,
                                            const nvm_vta_run *run, uint64_t (*loads)[2],
                                            uint32_t *out_loads, nvm_vta_stats *stats);
/* The scratchpad holds nothing any more. */
void nvm_vta_cache_clear(nvm_vta_device *device);

#endif
