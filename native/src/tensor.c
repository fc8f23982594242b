/* Tensors and storage. See tensor.h. */
#include "tensor.h"

#include <stdio.h>

static size_t header_bytes(uint32_t rank) { return sizeof(nvm_tensor) + rank * sizeof(int64_t); }

nvm_status nvm_shape_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims, size_t *out_bytes) {
  int64_t bytes = nvm_dtypes[dtype].itemsize;
  int empty = 0, over = 0;
  for (uint32_t i = 0; i < rank; i++) {
    if (NVM_UNLIKELY(dims[i] < 0))
      NVM_FAIL(NVM_DIM_OVERFLOW, "axis %u of a tensor would have size %lld", i, (long long)dims[i]);
    empty |= dims[i] == 0;
    over |= __builtin_mul_overflow(bytes, dims[i] ? dims[i] : 1, &bytes);
  }
  if (NVM_UNLIKELY(!empty && (over || (uint64_t)bytes > NVM_MAX_BLOCK))) {
    char text[NVM_SHAPE_TEXT];
    NVM_FAIL(NVM_DIM_OVERFLOW, "a tensor %s is too large", nvm_shape_text(text, dtype, rank, dims));
  }
  *out_bytes = empty ? 0 : (size_t)bytes;
  return NVM_OK;
}

/* The optimizer would make loops over vectors of this, which cost more than few dims. */
static inline void copy_dims(int64_t *to, uint32_t rank, const int64_t *dims) {
  for (uint32_t i = 0; i < rank; i++) {
    to[i] = dims[i];
    __asm__("" : "+r"(i));
  }
}

/* storage: consumed, also on failure. */
static nvm_status make(nvm_heap *heap, nvm_storage *storage, char *data, size_t bytes,
                       uint32_t device, uint32_t dtype, uint32_t rank, const int64_t *dims,
                       nvm_tensor **out_tensor) {
  void *cell;
  const nvm_status status = nvm_cell_create(heap, header_bytes(rank), &cell);
  if (NVM_UNLIKELY(status != NVM_OK)) {
    if (storage) nvm_storage_release(heap, storage);
    return status;
  }
  nvm_tensor *tensor = cell;
  tensor->header = (nvm_object){.refcount = 1, .kind = NVM_KIND_TENSOR, .extra = (uint16_t)dtype};
  tensor->rank = (uint8_t)rank;
  tensor->device = (uint16_t)device;
  tensor->storage = storage;
  tensor->data = data;
  tensor->bytes = bytes;
  copy_dims(tensor->dims, rank, dims);
  *out_tensor = tensor;
  return NVM_OK;
}

nvm_status nvm_tensor_whole(nvm_heap *heap, nvm_storage *storage, uint32_t dtype, uint32_t rank,
                            const int64_t *dims, nvm_tensor **out_tensor) {
  return make(heap, storage, storage->memory, storage->size, storage->device, dtype, rank, dims,
              out_tensor);
}

nvm_status nvm_tensor_create(nvm_heap *heap, uint32_t device, uint32_t dtype, uint32_t rank,
                             const int64_t *dims, nvm_tensor **out_tensor) {
  size_t bytes;
  NVM_TRY(nvm_shape_bytes(dtype, rank, dims, &bytes));
  nvm_storage *storage;
  NVM_TRY(nvm_storage_create(heap, device, bytes, NVM_BLOCK_ALIGNMENT, &storage));
  return make(heap, storage, storage->memory, bytes, device, dtype, rank, dims, out_tensor);
}

nvm_status nvm_tensor_on(nvm_heap *heap, nvm_storage *storage, int64_t offset, uint32_t dtype,
                         uint32_t rank, const int64_t *dims, nvm_tensor **out_tensor) {
  size_t bytes;
  NVM_TRY(nvm_shape_bytes(dtype, rank, dims, &bytes));
  if (NVM_UNLIKELY(offset < 0 || (uint64_t)offset > storage->size ||
                   bytes > storage->size - (size_t)offset)) {
    char text[NVM_SHAPE_TEXT];
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE,
             "a tensor %s at byte %lld does not fit a storage block of %zu bytes",
             nvm_shape_text(text, dtype, rank, dims), (long long)offset, storage->size);
  }
  if (NVM_UNLIKELY(offset % nvm_dtypes[dtype].itemsize != 0))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "byte offset %lld is not aligned to %s", (long long)offset,
             nvm_dtypes[dtype].name);
  nvm_storage_retain(storage);
  return make(heap, storage, (char *)storage->memory + offset, bytes, storage->device, dtype, rank,
              dims, out_tensor);
}

nvm_status nvm_tensor_view(nvm_heap *heap, nvm_tensor *source, int64_t offset, uint32_t rank,
                           const int64_t *dims, nvm_tensor **out_tensor) {
  uint32_t dtype = source->header.extra;
  size_t bytes, item = nvm_dtypes[dtype].itemsize;
  NVM_TRY(nvm_shape_bytes(dtype, rank, dims, &bytes));
  if (NVM_UNLIKELY(offset < 0 || (uint64_t)offset > source->bytes / item ||
                   bytes > source->bytes - (size_t)offset * item)) {
    char text[NVM_SHAPE_TEXT], of[NVM_SHAPE_TEXT];
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "a view %s at element %lld reaches outside of a tensor %s",
             nvm_shape_text(text, dtype, rank, dims), (long long)offset,
             nvm_shape_text(of, dtype, source->rank, source->dims));
  }
  if (source->storage) nvm_storage_retain(source->storage);
  return make(heap, source->storage, source->data + (size_t)offset * item, bytes, source->device,
              dtype, rank, dims, out_tensor);
}

nvm_status nvm_tensor_scalar(nvm_heap *heap, uint32_t dtype, int64_t value,
                             nvm_tensor **out_tensor) {
  NVM_TRY(nvm_tensor_create(heap, 0, dtype, 0, NULL, out_tensor));
  nvm_int_write(dtype, value, (*out_tensor)->data);
  return NVM_OK;
}

void nvm_tensor_free(nvm_heap *heap, nvm_tensor *tensor) {
  if (NVM_LIKELY(tensor->storage != NULL)) nvm_storage_release(heap, tensor->storage);
  nvm_cell_free(heap, tensor, header_bytes(tensor->rank));
}

#define READ(type)                        \
  do {                                    \
    type value_;                          \
    memcpy(&value_, from, sizeof value_); \
    return (int64_t)value_;               \
  } while (0)

int64_t nvm_int_read(uint32_t dtype, const void *from) {
  switch (dtype) {
    case NVM_DTYPE_BOOL:
      return *(const uint8_t *)from != 0;
    case NVM_DTYPE_INT8:
      READ(int8_t);
    case NVM_DTYPE_INT16:
      READ(int16_t);
    case NVM_DTYPE_INT32:
      READ(int32_t);
    case NVM_DTYPE_UINT8:
      READ(uint8_t);
    case NVM_DTYPE_UINT16:
      READ(uint16_t);
    case NVM_DTYPE_UINT32:
      READ(uint32_t);
    default:
      READ(int64_t);
  }
}

/* Little-endian (docs/format.md): the low bytes come first. */
void nvm_int_write(uint32_t dtype, int64_t value, void *to) {
  int64_t cut = nvm_int_extend(dtype, value);
  memcpy(to, &cut, nvm_dtypes[dtype].itemsize);
}

NVM_COLD const char *nvm_shape_text(char *text, uint32_t dtype, uint32_t rank,
                                    const int64_t *dims) {
  size_t used = 1;
  text[0] = '(';
  for (uint32_t i = 0; i < rank && i < NVM_MAX_RANK; i++)
    used += (size_t)snprintf(text + used, NVM_SHAPE_TEXT - used, i ? ", %lld" : "%lld",
                             (long long)dims[i]);
  snprintf(text + used, NVM_SHAPE_TEXT - used, rank == 1 ? ",) %s" : ") %s",
           nvm_dtypes[dtype].name);
  return text;
}
