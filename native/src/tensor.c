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

/* What is copied between two polls: some ms. */
#ifdef NVM_TEST
#define COPY_PIECE ((size_t)64)
#else
#define COPY_PIECE ((size_t)32 << 20)
#endif

nvm_status nvm_copy(nvm_heap *heap, char *to, const char *from, size_t bytes) {
  for (; NVM_UNLIKELY(bytes > COPY_PIECE); to += COPY_PIECE, from += COPY_PIECE) {
    memcpy(to, from, COPY_PIECE);
    bytes -= COPY_PIECE;
    if (heap->poll) NVM_TRY(heap->poll(heap->vm));
  }
  memcpy(to, from, bytes);
  return NVM_OK;
}

nvm_status nvm_copy_strided(nvm_heap *heap, char *to, const char *from, size_t item, uint32_t rank,
                            const int64_t *shape, const int64_t *strides) {
  const int64_t piece = COPY_PIECE >> 6; /* elements: each may be in a page of its own */
  int64_t index[NVM_MAX_RANK] = {0}, left = piece;
  const uint32_t last = rank - 1;
  for (;;) {
    const char *element = from;
    for (int64_t rest = shape[last]; rest > 0;) {
      const int64_t n = rest < left ? rest : left;
      for (int64_t k = 0; k < n; k++) {
        memcpy(to, element, item);
        to += item;
        element += strides[last] * (int64_t)item;
      }
      rest -= n;
      left -= n;
      if (left > 0) continue;
      if (heap->poll) NVM_TRY(heap->poll(heap->vm));
      left = piece;
    }
    uint32_t axis = last;
    for (;;) {
      if (axis-- == 0) return NVM_OK;
      from += strides[axis] * (int64_t)item;
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * shape[axis] * (int64_t)item;
      index[axis] = 0;
    }
  }
}

/* To a device, with polls. */
static nvm_status copy_from_host(nvm_heap *heap, nvm_device *target, void *memory, size_t at,
                                 const char *from, size_t bytes) {
  const size_t piece = COPY_PIECE;
  for (; NVM_UNLIKELY(bytes > piece); at += piece, from += piece, bytes -= piece) {
    NVM_TRY(target->vtable->copy_from_host(target, memory, at, from, piece));
    if (heap->poll) NVM_TRY(heap->poll(heap->vm));
  }
  return target->vtable->copy_from_host(target, memory, at, from, bytes);
}

/* The elements of `from` to byte `offset` of `to`. */
static nvm_status copy_between(nvm_heap *heap, nvm_tensor *to, size_t offset,
                               const nvm_tensor *from) {
  nvm_device *target = heap->pools[to->device].device;
  nvm_device *origin = heap->pools[from->device].device;
  void *memory = to->storage->memory;
  size_t at = (size_t)(to->data - (char *)memory) + offset;
  heap->copied_bytes += from->bytes;
  if (from->device != to->device) heap->copies[to->device == 0]++;
  if (origin->vtable->host_accessible || !from->storage) /* constants are host memory */
    return copy_from_host(heap, target, memory, at, from->data, from->bytes);
  void *source = from->storage->memory;
  size_t source_at = (size_t)(from->data - (char *)source);
  if (target->vtable->host_accessible) { /* the host reads next */
    return origin->vtable->copy_to_host(origin, (char *)memory + at, source, source_at,
                                        from->bytes);
  }
  if (target == origin)
    return target->vtable->copy_within(target, memory, at, source, source_at, from->bytes);
  void *bounce = nvm_malloc(from->bytes);
  if (!bounce) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory to copy %zu bytes", from->bytes);
  nvm_status status = origin->vtable->copy_to_host(origin, bounce, source, source_at, from->bytes);
  if (status == NVM_OK)
    status = target->vtable->copy_from_host(target, memory, at, bounce, from->bytes);
  nvm_free(bounce);
  return status;
}

nvm_status nvm_tensor_copy(nvm_heap *heap, const nvm_tensor *source, uint32_t device,
                           nvm_tensor **out_tensor) {
  nvm_tensor *copy;
  NVM_TRY(nvm_tensor_create(heap, device, source->header.extra, source->rank, source->dims, &copy));
  nvm_status status = source->bytes ? copy_between(heap, copy, 0, source) : NVM_OK;
  if (NVM_UNLIKELY(status != NVM_OK)) {
    nvm_tensor_free(heap, copy);
    return status;
  }
  *out_tensor = copy;
  return NVM_OK;
}

/* --- appending -------------------------------------------------------------------------------- */

/* The dims of a tensor and a tail joined along an axis. */
static nvm_status joined_dims(const nvm_tensor *a, const nvm_tensor *b, uint32_t axis,
                              int64_t *out_dims) {
  char have[NVM_SHAPE_TEXT], more[NVM_SHAPE_TEXT];
  if (NVM_UNLIKELY(a->header.extra != b->header.extra || a->rank != b->rank ||
                   a->device != b->device))
    NVM_FAIL(NVM_VALUE_KIND,
             "a tensor %s on device %u can't be appended to a tensor %s on device %u",
             nvm_shape_text(more, b->header.extra, b->rank, b->dims), b->device,
             nvm_shape_text(have, a->header.extra, a->rank, a->dims), a->device);
  if (NVM_UNLIKELY(axis >= a->rank))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "axis %u of a tensor of rank %u", axis, a->rank);
  for (uint32_t i = 0; i < a->rank; i++) {
    out_dims[i] = a->dims[i];
    if (NVM_UNLIKELY(i != axis && (a->dims[i] != b->dims[i] || (i < axis && a->dims[i] != 1))))
      NVM_FAIL(NVM_SHAPE_MISMATCH, "a tensor %s can't be appended to a tensor %s along axis %u",
               nvm_shape_text(more, b->header.extra, b->rank, b->dims),
               nvm_shape_text(have, a->header.extra, a->rank, a->dims), axis);
  }
  if (NVM_UNLIKELY(__builtin_add_overflow(a->dims[axis], b->dims[axis], &out_dims[axis])))
    NVM_FAIL(NVM_DIM_OVERFLOW, "axis %u of a joined tensor exceeds int64", axis);
  return NVM_OK;
}

/* A block of `bytes` for what grew out of `source`: with room for half as much again if that was
 * appended to before and limits and memory allow. */
NVM_COLD static nvm_status grown_block(nvm_heap *heap, const nvm_tensor *source, size_t bytes,
                                       nvm_storage **out_storage) {
  size_t roomy = bytes + bytes / 2;
  int again = source->storage && (source->storage->header.flags & NVM_FLAG_GROWN);
  if (again && roomy < NVM_MAX_BLOCK && /* a size class may add a quarter */
      heap->live_bytes + (int64_t)(roomy + roomy / 4) <= heap->byte_cap &&
      nvm_storage_create(heap, source->device, roomy, NVM_BLOCK_ALIGNMENT, out_storage) == NVM_OK)
    nvm_storage_resize(heap, *out_storage, bytes);
  else
    NVM_TRY(nvm_storage_create(heap, source->device, bytes, NVM_BLOCK_ALIGNMENT, out_storage));
  (*out_storage)->header.flags |= NVM_FLAG_GROWN;
  return NVM_OK;
}

/* Whether `bytes` from the start of `source` fit its block without reaching what others see. */
static int fits_behind(const nvm_tensor *source, size_t bytes) {
  nvm_storage *storage = source->storage;
  if (!storage || !storage->pool || (storage->header.flags & NVM_FLAG_READONLY)) return 0;
  size_t start = (size_t)(source->data - (char *)storage->memory);
  if (bytes > storage->capacity - start) return 0;
  return start + source->bytes == storage->size || nvm_storage_unique(storage);
}

nvm_status nvm_tensor_append(nvm_heap *heap, nvm_tensor *source, const nvm_tensor *tail,
                             uint32_t axis, nvm_tensor **out_tensor) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t dtype = source->header.extra;
  size_t bytes;
  NVM_TRY(joined_dims(source, tail, axis, dims));
  NVM_TRY(nvm_shape_bytes(dtype, source->rank, dims, &bytes));
  if (tail->bytes == 0) return nvm_tensor_view(heap, source, 0, source->rank, dims, out_tensor);
  int behind = fits_behind(source, bytes);
  nvm_storage *storage = source->storage;
  char *data;
  size_t used = 0;
  if (behind) {
    data = source->data;
    used = storage->size;
    nvm_storage_resize(heap, storage, (size_t)(data - (char *)storage->memory) + bytes);
    storage->header.flags |= NVM_FLAG_GROWN;
    nvm_storage_retain(storage);
  } else {
    NVM_TRY(grown_block(heap, source, bytes, &storage));
    data = storage->memory;
  }
  nvm_tensor *made;
  nvm_status status =
      make(heap, storage, data, bytes, source->device, dtype, source->rank, dims, &made);
  if (NVM_LIKELY(status == NVM_OK)) {
    if (!behind && source->bytes) status = copy_between(heap, made, 0, source);
    if (status == NVM_OK) status = copy_between(heap, made, source->bytes, tail);
    if (NVM_UNLIKELY(status != NVM_OK)) nvm_tensor_free(heap, made);
  }
  if (NVM_UNLIKELY(status != NVM_OK)) {
    if (behind) nvm_storage_resize(heap, storage, used); /* source still holds the block */
    return status;
  }
  *out_tensor = made;
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
