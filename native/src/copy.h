/* Copies of elements: within host memory and between devices. */
#ifndef NVM_COPY_H
#define NVM_COPY_H

#include "tensor.h"

/* Copy host memory in pieces of some ms each, with a poll between them. */
NVM_NODISCARD nvm_status nvm_copy(nvm_heap *heap, char *to, const char *from, size_t bytes);
/* The same of a strided array (rank >= 1, no axis is empty; strides in elements) into compact
 * memory. */
NVM_NODISCARD nvm_status nvm_copy_strided(nvm_heap *heap, char *to, const char *from, size_t item,
                                          uint32_t rank, const int64_t *shape,
                                          const int64_t *strides);
/* The elements of `from` (on any device) to byte `offset` of `to`. Adds their bytes to
 * heap->copied_bytes. */
NVM_NODISCARD nvm_status nvm_tensor_copy_into(nvm_heap *heap, nvm_tensor *to, size_t offset,
                                              const nvm_tensor *from);
/* A copy of `source` (on any device) on `device`. */
NVM_NODISCARD nvm_status nvm_tensor_copy(nvm_heap *heap, const nvm_tensor *source, uint32_t device,
                                         nvm_tensor **out_tensor);

#endif
