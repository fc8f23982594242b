/* Copies of elements. See copy.h. */
#include "copy.h"

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

nvm_status nvm_tensor_copy_into(nvm_heap *heap, nvm_tensor *to, size_t offset,
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
  nvm_status status = source->bytes ? nvm_tensor_copy_into(heap, copy, 0, source) : NVM_OK;
  if (NVM_UNLIKELY(status != NVM_OK)) {
    nvm_tensor_free(heap, copy);
    return status;
  }
  *out_tensor = copy;
  return NVM_OK;
}
