/* Sets of weights, made by hand or from a file. See weights.h. */
#include "weights.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "nvm_kernel.h"

NVM_EXPORT nvm_status nvm_weights_create(nvm_weights **out_weights) {
  *out_weights = NULL;
  nvm_weights *weights = nvm_calloc(sizeof *weights);
  if (weights == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for weights");
  atomic_init(&weights->refcount, 1);
  nvm_status status = nvm_arena_create(&weights->arena);
  if (status != NVM_OK) {
    nvm_free(weights);
    return status;
  }
  *out_weights = weights;
  return nvm_ok();
}

NVM_EXPORT void nvm_weights_retain(nvm_weights *weights) {
  atomic_fetch_add_explicit(&weights->refcount, 1, memory_order_relaxed);
}

NVM_EXPORT void nvm_weights_release(nvm_weights *weights) {
  if (weights == NULL) return;
  if (atomic_fetch_sub_explicit(&weights->refcount, 1, memory_order_acq_rel) != 1) return;
  if (weights->mapping != NULL) munmap(weights->mapping, weights->mapping_size);
  nvm_arena_destroy(weights->arena);
  nvm_free(weights->entries);
  nvm_free(weights);
}

nvm_status nvm_weights_new(nvm_weights *weights, nvm_weight_entry **out_entry) {
  if (weights->count == weights->room) {
    uint32_t room = weights->room < 16 ? 16 : 2 * weights->room;
    nvm_weight_entry *grown = NULL;
    if (room > weights->room) grown = nvm_realloc(weights->entries, room * sizeof *grown);
    if (grown == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %u weights", room);
    weights->entries = grown;
    weights->room = room;
  }
  *out_entry = &weights->entries[weights->count++];
  **out_entry = (nvm_weight_entry){.name = "", .dtype_name = ""};
  return NVM_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const nvm_weight_entry *)a)->name, ((const nvm_weight_entry *)b)->name);
}

void nvm_weights_sort(nvm_weights *weights) {
  if (weights->count > 0) {
    qsort(weights->entries, weights->count, sizeof *weights->entries, by_name);
  }
}

const nvm_weight_entry *nvm_weights_find(const nvm_weights *weights, const char *name) {
  const nvm_weight_entry wanted = {.name = name};
  if (weights->count == 0) return NULL;
  return bsearch(&wanted, weights->entries, weights->count, sizeof wanted, by_name);
}

NVM_EXPORT nvm_status nvm_weights_add(nvm_weights *weights, const char *name, int32_t dtype,
                                      uint32_t rank, const int64_t *dims, const void *data,
                                      uint32_t flags) {
  if (dtype < 0 || (uint32_t)dtype >= NVM_DTYPE_COUNT || rank > NVM_MAX_RANK) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s: dtype number %d, rank %u: there is none such",
                    name, dtype, rank);
  }
  if (nvm_weights_find(weights, name) != NULL) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s occurs twice", name);
  }
  int64_t bytes = nvm_dtypes[dtype].itemsize;
  int overflow = 0;
  for (uint32_t i = 0; i < rank; i++) {
    overflow |= dims[i] < 0 || __builtin_mul_overflow(bytes, dims[i], &bytes);
  }
  if (overflow) return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s: impossible dims", name);
  void *own_dims = NULL;
  const char *own_name = NULL;
  nvm_weight_entry *entry = NULL;
  NVM_TRY(nvm_arena_array(weights->arena, rank, sizeof(int64_t), &own_dims));
  NVM_TRY(nvm_arena_string(weights->arena, name, strlen(name), &own_name));
  NVM_TRY(nvm_weights_new(weights, &entry));
  if (rank > 0) memcpy(own_dims, dims, rank * sizeof(int64_t));
  for (; entry > weights->entries && strcmp(entry[-1].name, name) > 0; entry--) *entry = entry[-1];
  *entry = (nvm_weight_entry){.name = own_name,
                              .dtype = dtype,
                              .dtype_name = nvm_dtypes[dtype].name,
                              .rank = rank,
                              .dims = own_dims,
                              .data = data,
                              .size = (size_t)bytes,
                              .stays = (flags & NVM_LOAD_BORROW) != 0};
  return nvm_ok();
}

NVM_EXPORT void nvm_weights_set_limit(nvm_weights *weights, uint64_t max_bytes) {
  weights->max_bytes = max_bytes;
}

NVM_EXPORT uint32_t nvm_weights_count(const nvm_weights *weights) { return weights->count; }

NVM_EXPORT nvm_status nvm_weights_get(const nvm_weights *weights, uint32_t index,
                                      nvm_weight_info *out_info) {
  if (index >= weights->count) {
    return nvm_fail(NVM_INVALID_INPUT, "there is no weight %u of %u", index, weights->count);
  }
  const nvm_weight_entry *entry = &weights->entries[index];
  *out_info = (nvm_weight_info){.name = entry->name,
                                .dtype = entry->dtype,
                                .dtype_name = entry->dtype_name,
                                .rank = entry->rank,
                                .dims = entry->dims,
                                .data = entry->data,
                                .size = entry->size};
  return nvm_ok();
}
