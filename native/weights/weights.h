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
  uint8_t stays;      /* the bytes live as long as the set: constants may point to them */
  uint8_t is_private; /* nobody else can change the bytes */
} nvm_weight_entry;

struct nvm_weights {
  atomic_uint refcount;
  nvm_arena *arena;          /* names, dims, copied bytes */
  nvm_weight_entry *entries; /* in the order of their names: looking one up changes nothing */
  uint32_t count, room;
  uint64_t max_bytes; /* see nvm_weights_set_limit */
  void *mapping;
  size_t mapping_size;
};

/* An entry of that name, NULL if there is none. */
const nvm_weight_entry *nvm_weights_find(const nvm_weights *weights, const char *name);

/* Room for one more entry, behind the others; out_entry: zeroed, to be filled and put in its place.
 */
NVM_NODISCARD nvm_status nvm_weights_new(nvm_weights *weights, nvm_weight_entry **out_entry);

/* Put all entries in the order of their names. */
void nvm_weights_sort(nvm_weights *weights);

/* safetensors.c: fill an empty set from the bytes of a safetensors file, which are its mapping or a
 * copy of its own; the entries' data point into them. */
NVM_NODISCARD nvm_status nvm_safetensors_read(nvm_weights *weights, const uint8_t *file,
                                              size_t size);

#endif
