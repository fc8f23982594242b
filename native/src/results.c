/* Values out: a flat postorder array, made iteratively; storage is handed out where nothing else
 * sees it. */
#include "results.h"

#include "copy.h"
#include "object.h"
#include "tensor.h"

struct nvm_walk {
  nvm_object *object;
  uint32_t next;   /* field to visit */
  uint32_t shared; /* reachable from elsewhere too */
  uint32_t first;  /* where the value's records begin */
};

/* --- handles ---------------------------------------------------------------------------------- */

static nvm_status handle_create(nvm_heap *heap, nvm_object *object, nvm_handle **out_handle) {
  nvm_handle *handle = heap->handles_free;
  if (handle) {
    heap->handles_free = handle->live;
  } else {
    handle = nvm_malloc(sizeof *handle);
    if (!handle) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a handle");
    atomic_fetch_add_explicit(&heap->system_allocations, 1, memory_order_relaxed);
  }
  memset(handle, 0, sizeof *handle);
  handle->dropped.header = (nvm_object){.refcount = 1, .kind = NVM_KIND_HANDLE};
  handle->heap = heap;
  nvm_retain(object);
  handle->object = object;
  handle->live = heap->handles;
  if (heap->handles) heap->handles->prev = handle;
  heap->handles = handle;
  *out_handle = handle;
  return NVM_OK;
}

NVM_COLD static void handle_recycle(nvm_heap *heap, nvm_handle *handle) {
  if (handle->prev)
    handle->prev->live = handle->live;
  else
    heap->handles = handle->live;
  if (handle->live) handle->live->prev = handle->prev;
  nvm_object *object = handle->object;
  handle->live = heap->handles_free;
  heap->handles_free = handle;
  nvm_release(heap, object);
}

static int handle_dies(nvm_handle *handle) {
  return __atomic_fetch_sub(&handle->dropped.header.refcount, 1u, __ATOMIC_ACQ_REL) == 1;
}

NVM_EXPORT void nvm_handle_retain(nvm_handle *handle) {
  __atomic_fetch_add(&handle->dropped.header.refcount, 1u, __ATOMIC_RELAXED);
  nvm_heap_retain(handle->heap);
}

NVM_EXPORT void nvm_handle_release(nvm_handle *handle) {
  if (!handle) return;
  nvm_heap *heap = handle->heap;
  if (handle_dies(handle))
    nvm_heap_drop(heap, &handle->dropped);
  else
    nvm_heap_release(heap);
}

NVM_COLD void nvm_handles_clear(nvm_heap *heap) {
  for (nvm_handle *handle = heap->handles; handle; handle = handle->live) {
    nvm_object *object = handle->object;
    handle->object = NULL;
    nvm_release(heap, object);
  }
}

/* --- results ---------------------------------------------------------------------------------- */

NVM_COLD static void result_free(nvm_result *result) {
  nvm_free(result->values);
  nvm_free(result->dims);
  nvm_free(result);
}

static void result_clear(nvm_heap *heap, nvm_result *result) {
  for (size_t i = 0; i < result->count; i++) {
    nvm_out *out = &result->values[i];
    if (out->storage) nvm_storage_release(heap, out->storage);
    if (out->handle && handle_dies(out->handle)) handle_recycle(heap, out->handle);
  }
  result->count = result->n_dims = 0;
  result->dropped.next = (nvm_dropped *)heap->results_free;
  heap->results_free = result;
}

/* A dropped result or handle, by the VM's thread. */
static void recycle(nvm_heap *heap, nvm_dropped *item) {
  if (item->header.kind == NVM_KIND_HANDLE)
    handle_recycle(heap, (nvm_handle *)item);
  else
    result_clear(heap, (nvm_result *)item);
}

NVM_COLD static void free_cached(nvm_heap *heap) {
  while (heap->results_free) {
    nvm_result *result = heap->results_free;
    heap->results_free = (nvm_result *)result->dropped.next;
    result_free(result);
  }
  while (heap->handles_free) {
    nvm_handle *handle = heap->handles_free;
    heap->handles_free = handle->live;
    nvm_free(handle);
  }
  nvm_free(heap->walk);
  heap->walk = NULL;
  heap->walk_capacity = 0;
}

NVM_COLD void nvm_results_attach(nvm_heap *heap) {
  heap->recycle = recycle;
  heap->free_cached = free_cached;
}

/* Make room for one more item of `size` bytes in *array. */
static nvm_status grow(nvm_heap *heap, void **array, size_t *capacity, size_t needed, size_t size) {
  if (NVM_LIKELY(needed <= *capacity)) return NVM_OK;
  size_t wanted = *capacity * 2 > needed ? *capacity * 2 : needed + 14;
  void *grown = nvm_realloc(*array, wanted * size);
  if (!grown) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a result of %zu values", wanted);
  atomic_fetch_add_explicit(&heap->system_allocations, 1, memory_order_relaxed);
  *array = grown;
  *capacity = wanted;
  return NVM_OK;
}

static nvm_status next_out(nvm_heap *heap, nvm_result *result, nvm_out **out_out) {
  void *values = result->values;
  NVM_TRY(grow(heap, &values, &result->capacity, result->count + 1, sizeof(nvm_out)));
  result->values = values;
  *out_out = &result->values[result->count];
  memset(*out_out, 0, sizeof **out_out);
  return NVM_OK;
}

/* Whether a block is the tensor's own: nobody else holds it but who gave it away to this run. */
static int owned_alone(nvm_storage *storage) {
  uint32_t givers = (storage->header.flags & NVM_FLAG_MOVED) != 0;
  return __atomic_load_n(nvm_storage_count(storage), __ATOMIC_ACQUIRE) == 1 + givers;
}

/* Whether a buffer of the caller may be filled from a tensor's own memory: not if that may be the
 * same memory. */
static int fills_directly(const nvm_tensor *tensor) {
  const nvm_storage *storage = tensor->storage;
  return tensor->device == 0 &&
         (!storage || (storage->pool && !(storage->header.flags & NVM_FLAG_MOVED)));
}

static nvm_status add_tensor(nvm_heap *heap, nvm_result *result, nvm_tensor *tensor, int shared,
                             int to_buffer) {
  nvm_out *out;
  NVM_TRY(next_out(heap, result, &out));
  void *dims = result->dims;
  NVM_TRY(
      grow(heap, &dims, &result->dims_capacity, result->n_dims + tensor->rank, sizeof(int64_t)));
  result->dims = dims;
  nvm_storage *storage = tensor->storage;
  nvm_tensor *copy = NULL;
  if (to_buffer
          ? !fills_directly(tensor)
          : shared || !storage || !storage->pool || tensor->device != 0 || !owned_alone(storage)) {
    NVM_TRY(nvm_tensor_copy(heap, tensor, 0, &copy));
    tensor = copy;
  }
  if (tensor->storage) nvm_storage_retain(tensor->storage);
  out->kind = NVM_OUT_TENSOR;
  out->n_values = 1;
  out->dtype = tensor->header.extra;
  out->rank = tensor->rank;
  out->dl_device_type = (int32_t)heap->pools[0].device->vtable->dl_device_type;
  out->data = tensor->data;
  out->storage = tensor->storage;
  for (uint32_t i = 0; i < tensor->rank; i++) result->dims[result->n_dims + i] = tensor->dims[i];
  result->n_dims += tensor->rank;
  result->count++;
  if (copy) nvm_release(heap, &copy->header);
  return NVM_OK;
}

static nvm_status add_leaf(nvm_heap *heap, nvm_result *result, nvm_object *object, int shared,
                           int want) {
  if (object->kind == NVM_KIND_TENSOR && want != NVM_WANT_HANDLE)
    return add_tensor(heap, result, (nvm_tensor *)object, shared, want == NVM_WANT_BUFFER);
  if (object->kind == NVM_KIND_STORAGE)
    NVM_FAIL(NVM_VALUE_KIND, "the function's result holds a storage block");
  nvm_out *out;
  NVM_TRY(next_out(heap, result, &out));
  NVM_TRY(handle_create(heap, object, &out->handle));
  out->kind = NVM_OUT_HANDLE;
  out->n_values = 1;
  result->count++;
  return NVM_OK;
}

/* How the value at hand is wanted: the function's result, or a field of it. */
static int wanted(const nvm_heap *heap, const nvm_wants *wants, size_t depth) {
  if (NVM_LIKELY(wants->count == 0) || depth != wants->depth) return NVM_WANT_VALUE;
  return wants->items[depth ? heap->walk[0].next - 1 : 0].kind;
}

static nvm_status convert(nvm_heap *heap, nvm_result *result, nvm_object *value, uint64_t limit,
                          const nvm_wants *wants) {
  size_t depth = 0;
  nvm_object *object = value;
  uint32_t above = 0; /* an ancestor is shared */
  for (;;) {
    if (result->count >= limit)
      NVM_FAIL(NVM_OBJECT_LIMIT,
               "the result has more than %llu values (shared parts count each time)",
               (unsigned long long)limit);
    uint32_t shared = above || object->refcount > 1 || (object->flags & NVM_FLAG_IMMORTAL);
    int want = wanted(heap, wants, depth);
    if (object->kind == NVM_KIND_ADT && want != NVM_WANT_HANDLE) {
      void *walk = heap->walk;
      NVM_TRY(grow(heap, &walk, &heap->walk_capacity, depth + 1, sizeof(struct nvm_walk)));
      heap->walk = walk;
      heap->walk[depth++] = (struct nvm_walk){object, 0, shared, (uint32_t)result->count};
    } else {
      NVM_TRY(add_leaf(heap, result, object, (int)shared, want));
    }
    for (;;) { /* the next value in postorder; ADT values come after their fields */
      if (depth == 0) return NVM_OK;
      struct nvm_walk *top = &heap->walk[depth - 1];
      nvm_adt *adt = (nvm_adt *)top->object;
      if (top->next < adt->n_fields) {
        object = adt->fields[top->next++];
        above = top->shared;
        break;
      }
      nvm_out *out;
      NVM_TRY(next_out(heap, result, &out));
      out->kind = NVM_OUT_ADT;
      out->ctor = adt->ctor;
      out->n_fields = adt->n_fields;
      result->count++;
      out->n_values = (uint32_t)result->count - top->first;
      depth--;
    }
  }
}

nvm_status nvm_result_create(nvm_heap *heap, nvm_object *value, uint64_t limit,
                             const nvm_wants *wants, nvm_result **out_result) {
  if (limit > UINT32_MAX) limit = UINT32_MAX; /* see nvm_out.n_values */
  nvm_result *result = heap->results_free;
  if (result) {
    heap->results_free = (nvm_result *)result->dropped.next;
  } else {
    result = nvm_malloc(sizeof *result);
    if (!result) {
      nvm_release(heap, value);
      NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a result");
    }
    atomic_fetch_add_explicit(&heap->system_allocations, 1, memory_order_relaxed);
    memset(result, 0, sizeof *result);
  }
  result->dropped.header = (nvm_object){.refcount = 1, .kind = NVM_KIND_RESULT};
  result->heap = heap;
  nvm_status status = convert(heap, result, value, limit, wants);
  nvm_release(heap, value);
  if (status != NVM_OK) {
    result_clear(heap, result);
    return status;
  }
  size_t at = 0;
  for (size_t i = 0; i < result->count; i++) {
    if (result->values[i].kind != NVM_OUT_TENSOR) continue;
    result->values[i].shape = result->dims ? result->dims + at : NULL; /* NULL + 0 is undefined */
    at += result->values[i].rank;
  }
  nvm_heap_retain(heap);
  *out_result = result;
  return NVM_OK;
}

NVM_EXPORT size_t nvm_result_count(const nvm_result *result) { return result->count; }

NVM_EXPORT const nvm_out *nvm_result_values(const nvm_result *result) { return result->values; }

NVM_EXPORT void nvm_result_free(nvm_result *result) {
  if (result) nvm_heap_drop(result->heap, &result->dropped);
}
