/* Sets of weights: what bind.c takes the values of late-bound constants from. */
#ifndef NVM_WEIGHTS_H
#define NVM_WEIGHTS_H

#include <stdatomic.h>

#include "arena.h"

typedef struct nvm_weight_entry {
  const char *name;
  int32_t dtype; /* -1: dtype_name alone */
  const char *dtype_name;
  uint32_t rank;
  const int64_t *dims;
  const uint8_t *data;
  size_t size;
  uint8_t stays; /* the bytes live as long as the set: constants may point to them */
} nvm_weight_entry;

struct nvm_weights {
  atomic_uint refcount;
  nvm_arena *arena; /* names, dims, copied bytes */
  nvm_weight_entry *entries;
  uint32_t count, room;
  uint8_t sorted;
  uint8_t is_private; /* nobody else can change the bytes */
  void *mapping;
  size_t mapping_size;
};

/* An entry of that name, NULL if there is none. Sorts the set by name at first. */
const nvm_weight_entry *nvm_weights_find(nvm_weights *weights, const char *name);

/* Room for one more entry; out_entry: zeroed, to be filled. */
NVM_NODISCARD nvm_status nvm_weights_new(nvm_weights *weights, nvm_weight_entry **out_entry);

/* safetensors.c: fill a set from the bytes of a safetensors file; the entries' data point into
 * them. */
NVM_NODISCARD nvm_status nvm_safetensors_read(nvm_weights *weights, const uint8_t *file,
                                              size_t size);

#endif
