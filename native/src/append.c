/* Appending to tensors. See append.h. */
#include "append.h"

#include "copy.h"

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
  const int behind = fits_behind(source, bytes);
  nvm_storage *storage = source->storage;
  size_t start = 0, used = 0;
  if (behind) {
    start = (size_t)(source->data - (char *)storage->memory);
    used = storage->size;
    nvm_storage_resize(heap, storage, start + bytes);
    storage->header.flags |= NVM_FLAG_GROWN;
  } else {
    NVM_TRY(grown_block(heap, source, bytes, &storage));
  }
  nvm_tensor *made;
  nvm_status status =
      nvm_tensor_on(heap, storage, (int64_t)start, dtype, source->rank, dims, &made);
  if (!behind) nvm_storage_release(heap, storage); /* `made` holds it */
  if (NVM_LIKELY(status == NVM_OK)) {
    if (!behind && source->bytes) status = nvm_tensor_copy_into(heap, made, 0, source);
    if (status == NVM_OK) status = nvm_tensor_copy_into(heap, made, source->bytes, tail);
    if (NVM_UNLIKELY(status != NVM_OK)) nvm_tensor_free(heap, made);
  }
  if (NVM_UNLIKELY(status != NVM_OK)) {
    if (behind) nvm_storage_resize(heap, storage, used); /* source still holds the block */
    return status;
  }
  *out_tensor = made;
  return NVM_OK;
}
