/* Joining a tensor with a tail: how caches grow. */
#ifndef NVM_APPEND_H
#define NVM_APPEND_H

#include "tensor.h"

/* `source` and `tail` joined along `axis` (< NVM_MAX_RANK), before which all sizes are 1. Behind
 * source in its block if source ends its used part (or nobody else holds the block) and the
 * capacity suffices; else in a new block, larger than needed if source was appended to before, so
 * that n appends copy O(n) bytes. source stays as it is. Adds what it copied to heap->copied_bytes.
 * Errors also: VALUE_KIND (dtype, rank, device), SHAPE_MISMATCH, INDEX_OUT_OF_RANGE (axis). */
NVM_NODISCARD nvm_status nvm_tensor_append(nvm_heap *heap, nvm_tensor *source,
                                           const nvm_tensor *tail, uint32_t axis,
                                           nvm_tensor **out_tensor);

#endif
