/* Which micro-kernels are in the scratchpad. */
#include <string.h>

#include "alloc.h"
#include "vta.h"

nvm_status nvm_vta_cache_add(nvm_vta_device *device, const uint8_t *words, uint32_t count,
                             uint32_t *out_id) {
  size_t bytes = (size_t)count * 4;
  if (count > device->sim->shape.entries[NVM_VTA_UOP])
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "vta: a micro-kernel of %u micro-ops, the scratchpad has %u",
             count, device->sim->shape.entries[NVM_VTA_UOP]);
  uint32_t at = device->n_cached;
  for (uint32_t i = 0; i < device->n_cached; i++) {
    nvm_vta_cached *entry = &device->cache[i];
    if (!entry->users) at = i;
    if (!entry->users || entry->count != count ||
        memcmp(device->dram.memory + entry->dram, words, bytes) != 0)
      continue;
    entry->users++;
    *out_id = i;
    return NVM_OK;
  }
  if (at == device->cache_capacity) {
    uint32_t capacity = 2 * device->cache_capacity + 32;
    nvm_vta_cached *cache = nvm_realloc(device->cache, capacity * sizeof *cache);
    if (!cache) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for %u micro-kernels", capacity);
    device->cache = cache;
    device->cache_capacity = capacity;
  }
  nvm_vta_cached made = {.count = count, .users = 1};
  NVM_TRY(nvm_vta_dram_alloc(&device->dram, bytes, 64, &made.dram));
  memcpy(device->dram.memory + made.dram, words, bytes);
  device->cache[at] = made;
  if (at == device->n_cached) device->n_cached++;
  *out_id = at;
  return NVM_OK;
}

void nvm_vta_cache_drop(nvm_vta_device *device, uint32_t id) {
  nvm_vta_cached *entry = &device->cache[id];
  if (--entry->users) return;
  nvm_vta_dram_free(&device->dram, entry->dram);
  entry->resident = 0;
}

void nvm_vta_cache_clear(nvm_vta_device *device) {
  for (uint32_t i = 0; i < device->n_cached; i++) device->cache[i].resident = 0;
  device->next_uop = 0;
}

/* LOAD uop, as docs/vta.md encodes it. */
static void encode_load(uint64_t words[2], const nvm_vta_cached *entry) {
  words[0] = (uint64_t)entry->first << 10 | (entry->dram / 4) << 26;
  words[1] = UINT64_C(1) | (uint64_t)entry->count << 16 | (uint64_t)entry->count << 32;
}

nvm_status nvm_vta_cache_load(nvm_vta_device *device, const nvm_vta_program *program,
                              const nvm_vta_run *run, uint64_t (*loads)[2], uint32_t *out_loads,
                              nvm_vta_stats *stats) {
  uint32_t room = device->sim->shape.entries[NVM_VTA_UOP];
  uint64_t missing = 0, all = 0;
  for (uint32_t i = 0; i < run->n_kernels; i++) {
    const nvm_vta_cached *entry = &device->cache[program->micro_kernels[run->kernels[i]].id];
    all += entry->count;
    if (!entry->resident) missing += entry->count;
  }
  if (all > room)
    NVM_FAIL(NVM_DEVICE_ERROR, "vta: a run needs %llu micro-ops at once, the scratchpad has %u",
             (unsigned long long)all, room);
  if (missing > room - device->next_uop) nvm_vta_cache_clear(device);
  *out_loads = 0;
  for (uint32_t i = 0; i < run->n_kernels; i++) {
    nvm_vta_cached *entry = &device->cache[program->micro_kernels[run->kernels[i]].id];
    if (entry->resident) {
      stats->uop_reuses++;
      continue;
    }
    entry->first = device->next_uop;
    entry->resident = 1;
    device->next_uop += entry->count;
    encode_load(loads[(*out_loads)++], entry);
    stats->uop_loads++;
  }
  return NVM_OK;
}
