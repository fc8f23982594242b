/* Transfers between DRAM and scratchpads that no token orders: found by the bytes that they share.
 */
#include <string.h>

#include "vta_sim.h"

void nvm_vta_log_clear(nvm_vta_log *log) {
  log->count = 0;
  log->older_begin = log->older_end = log->older_number = 0;
}

static uint64_t end_of(const nvm_vta_transfer *transfer) {
  return transfer->begin + (transfer->rows - 1) * transfer->stride + transfer->row;
}

/* Do two transfers share a byte? Rows of one transfer ascend but may overlap (a stride less than a
 * row, or 0), so of each row of `a` only the rows of `b` that can reach it are looked at. */
static int overlap(const nvm_vta_transfer *a, const nvm_vta_transfer *b) {
  if (a->begin >= end_of(b) || b->begin >= end_of(a)) return 0;
  if (b->rows == 1 || b->stride <= b->row) { /* one range without gaps */
    uint64_t begin = b->begin, end = end_of(b);
    for (uint64_t i = 0; i < a->rows; i++) {
      uint64_t row = a->begin + i * a->stride;
      if (row < end && begin < row + a->row) return 1;
    }
    return 0;
  }
  for (uint64_t i = 0; i < a->rows; i++) {
    uint64_t row = a->begin + i * a->stride;
    /* The first row of b that ends behind the start of this one. */
    uint64_t k = row < b->begin + b->row ? 0 : (row - b->begin - b->row) / b->stride + 1;
    if (k < b->rows && b->begin + k * b->stride < row + a->row) return 1;
  }
  return 0;
}

/* A transfer in `log` that `clock` does not know to be done and that shares bytes with `transfer`:
 * its number, 0 if there is none. */
static uint64_t find_conflict(const nvm_vta_log *log, uint64_t known,
                              const nvm_vta_transfer *transfer) {
  uint64_t kept = log->count < NVM_VTA_TRANSFERS ? log->count : NVM_VTA_TRANSFERS;
  for (uint64_t i = 0; i < kept; i++) {
    const nvm_vta_transfer *other = &log->kept[(log->count - 1 - i) % NVM_VTA_TRANSFERS];
    if (other->number <= known) return 0; /* and so are all before it */
    if (overlap(transfer, other)) return other->number;
  }
  if (log->older_number > known && transfer->begin < log->older_end &&
      log->older_begin < end_of(transfer))
    return log->older_number;
  return 0;
}

static void note(nvm_vta_log *log, const nvm_vta_transfer *transfer) {
  nvm_vta_transfer *slot = &log->kept[log->count % NVM_VTA_TRANSFERS];
  if (log->count >= NVM_VTA_TRANSFERS) {
    uint64_t end = end_of(slot);
    int first = log->older_number == 0;
    if (first || slot->begin < log->older_begin) log->older_begin = slot->begin;
    if (first || end > log->older_end) log->older_end = end;
    log->older_number = slot->number;
  }
  *slot = *transfer;
  log->count++;
}

nvm_status nvm_vta_order_transfer(nvm_vta_sim *sim, const nvm_vta_instruction *in,
                                  const nvm_vta_transfer *transfer) {
  uint32_t module = in->module;
  nvm_vta_unit *unit = &sim->units[module];
  for (uint32_t other = 0; other < NVM_VTA_MODULES; other++) {
    /* Reads conflict with writes, and only the store module writes. */
    if (other == module || (module != NVM_VTA_STORER && other != NVM_VTA_STORER)) continue;
    if (find_conflict(&sim->units[other].log, unit->clock.done[other], transfer))
      return nvm_vta_fault(in,
                           "dependence error: no token orders it behind the %s module's access to "
                           "the same DRAM, bytes %llu to %llu",
                           nvm_vta_module_name(other), (unsigned long long)transfer->begin,
                           (unsigned long long)end_of(transfer));
  }
  note(&unit->log, transfer);
  return NVM_OK;
}
