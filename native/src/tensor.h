/* Tensors: a header (dtype, dims) on a range of a storage block. Invariant, made here and nowhere
 * else: dims are >= 0, bytes = product of dims * item size, and [data, data + bytes) lies inside
 * the block. */
#ifndef NVM_TENSOR_H
#define NVM_TENSOR_H

#include "alloc.h"
#include "generated/nvm_dtype.h"

/* Checked byte size of a shape. Errors: DIM_OVERFLOW (negative dim or more than 2^56 bytes). */
NVM_NODISCARD nvm_status nvm_shape_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims,
                                         size_t *out_bytes);

/* A tensor with a block of its own. out_tensor: owned. */
NVM_NODISCARD nvm_status nvm_tensor_create(nvm_heap *heap, uint32_t device, uint32_t dtype,
                                           uint32_t rank, const int64_t *dims,
                                           nvm_tensor **out_tensor);
/* A tensor that takes up a whole block (consumed, also on failure), whose size is that of the dims.
 */
NVM_NODISCARD nvm_status nvm_tensor_whole(nvm_heap *heap, nvm_storage *storage, uint32_t dtype,
                                          uint32_t rank, const int64_t *dims,
                                          nvm_tensor **out_tensor);
/* A tensor at a byte offset of a block (retained). Errors also: INDEX_OUT_OF_RANGE if it does not
 * fit or is not aligned to its items. */
NVM_NODISCARD nvm_status nvm_tensor_on(nvm_heap *heap, nvm_storage *storage, int64_t offset,
                                       uint32_t dtype, uint32_t rank, const int64_t *dims,
                                       nvm_tensor **out_tensor);
/* Another header on the data of `source` from element `offset` on. */
NVM_NODISCARD nvm_status nvm_tensor_view(nvm_heap *heap, nvm_tensor *source, int64_t offset,
                                         uint32_t rank, const int64_t *dims,
                                         nvm_tensor **out_tensor);
/* Rank-0 host tensor of an integer or bool, cut to the dtype. */
NVM_NODISCARD nvm_status nvm_tensor_scalar(nvm_heap *heap, uint32_t dtype, int64_t value,
                                           nvm_tensor **out_tensor);

/* The count is zero. */
void nvm_tensor_free(nvm_heap *heap, nvm_tensor *tensor);

/* Integer of a dtype at a place; uint64 comes as its bits. */
int64_t nvm_int_read(uint32_t dtype, const void *from);
void nvm_int_write(uint32_t dtype, int64_t value, void *to);

/* Cut to the dtype and re-extend: what an int register of that dtype holds. */
static inline int64_t nvm_int_extend(uint32_t dtype, int64_t value) {
  switch (dtype) {
    case NVM_DTYPE_BOOL:
      return value != 0;
    case NVM_DTYPE_INT8:
      return (int8_t)value;
    case NVM_DTYPE_INT16:
      return (int16_t)value;
    case NVM_DTYPE_INT32:
      return (int32_t)value;
    case NVM_DTYPE_UINT8:
      return (uint8_t)value;
    case NVM_DTYPE_UINT16:
      return (uint16_t)value;
    case NVM_DTYPE_UINT32:
      return (uint32_t)value;
    default:
      return value;
  }
}

/* "(2, 3) float32"; text of at least NVM_SHAPE_TEXT bytes. Returns text. */
#define NVM_SHAPE_TEXT 224
const char *nvm_shape_text(char *text, uint32_t dtype, uint32_t rank, const int64_t *dims);

#endif
