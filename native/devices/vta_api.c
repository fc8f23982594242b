/* The simulator without a VM, as nvm_api.h offers it. */
#include <pthread.h>
#include <string.h>

#include "alloc.h"
#include "nvm_api.h"
#include "vta_sim.h"

struct nvm_vta_simulator {
  nvm_vta_sim *sim;
  nvm_vta_window whole;
};

/* Of the whole process: a reader takes differences. */
static nvm_vta_stats totals;
static pthread_mutex_t totals_lock = PTHREAD_MUTEX_INITIALIZER;

void nvm_vta_stats_add(const nvm_vta_stats *stats) {
  const uint64_t *from = (const uint64_t *)stats;
  uint64_t *to = (uint64_t *)&totals;
  pthread_mutex_lock(&totals_lock);
  for (size_t i = 0; i < sizeof totals / sizeof *to; i++) to[i] += from[i];
  pthread_mutex_unlock(&totals_lock);
}

NVM_EXPORT void nvm_vta_stats_get(nvm_vta_stats *out_stats) {
  pthread_mutex_lock(&totals_lock);
  *out_stats = totals;
  pthread_mutex_unlock(&totals_lock);
}

NVM_EXPORT nvm_status nvm_vta_simulator_create(const nvm_vta_config *config, void *dram,
                                               uint64_t dram_bytes,
                                               nvm_vta_simulator **out_simulator) {
  if (!dram_bytes) NVM_FAIL(NVM_INVALID_INPUT, "vta: DRAM of no bytes");
  nvm_vta_simulator *self = nvm_calloc(sizeof *self);
  if (!self) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a vta simulator");
  nvm_status status = nvm_vta_sim_create(config, dram, dram_bytes, &self->sim);
  if (status != NVM_OK) {
    nvm_free(self);
    return status;
  }
  self->whole = (nvm_vta_window){0, dram_bytes, 1};
  *out_simulator = self;
  return nvm_ok();
}

NVM_EXPORT void nvm_vta_simulator_destroy(nvm_vta_simulator *simulator) {
  if (!simulator) return;
  nvm_vta_sim_destroy(simulator->sim);
  nvm_free(simulator);
}

NVM_EXPORT nvm_status nvm_vta_simulator_run(nvm_vta_simulator *simulator, const void *instructions,
                                            size_t count, uint64_t cycle_limit,
                                            nvm_vta_stats *out_stats) {
  nvm_vta_begin(simulator->sim, &simulator->whole, 1, NULL, cycle_limit);
  NVM_TRY(nvm_vta_feed(simulator->sim, instructions, count));
  NVM_TRY(nvm_vta_end(simulator->sim, out_stats));
  return nvm_ok();
}

NVM_EXPORT nvm_status nvm_vta_fields(const void *instruction, int64_t *out_fields) {
  uint64_t words[2];
  memcpy(words, instruction, sizeof words);
  nvm_vta_instruction in;
  NVM_TRY(nvm_vta_decode(words, 0, &in));
  const int64_t fields[] = {in.opcode,
                            in.pop_prev,
                            in.pop_next,
                            in.push_prev,
                            in.push_next,
                            in.memory,
                            in.sram,
                            in.dram,
                            in.y_size,
                            in.x_size,
                            in.x_stride,
                            in.y_pad_0,
                            in.y_pad_1,
                            in.x_pad_0,
                            in.x_pad_1,
                            in.reset,
                            in.uop_begin,
                            in.uop_end,
                            in.iter_out,
                            in.iter_in,
                            in.dst_out,
                            in.dst_in,
                            in.src_out,
                            in.src_in,
                            in.opcode == NVM_VTA_ALU ? in.alu | in.use_immediate << 3 : in.wgt_out,
                            in.opcode == NVM_VTA_ALU ? in.immediate : in.wgt_in};
  memcpy(out_fields, fields, sizeof fields);
  return nvm_ok();
}
