/* What outlives a call: values that handles hold must not use memory that is good for the call
 * only. */
#include "results.h"
#include "args.h"
#include "object.h"

/* Move a tensor off memory that is good for this call only, or that was given away: the giver may
 * get it back, or hold arrays on it. The block's copy is noted in its `owner`. */
NVM_COLD static nvm_status privatize_tensor(nvm_heap *heap, nvm_tensor *tensor) {
  nvm_storage *old = tensor->storage;
  if (!old || old->release || (old->pool && !(old->header.flags & NVM_FLAG_MOVED))) return NVM_OK;
  nvm_storage *copy = old->owner;
  if (!copy) {
    NVM_TRY(nvm_storage_create(heap, 0, old->size, NVM_BLOCK_ALIGNMENT, &copy));
    memcpy(copy->memory, old->memory, old->size);
    heap->copied_bytes += old->size;
    old->owner = copy; /* one reference; the first tensor takes it */
  } else {
    nvm_storage_retain(copy);
  }
  tensor->data = (char *)copy->memory + (tensor->data - (char *)old->memory);
  tensor->storage = copy;
  nvm_storage_release(heap, old);
  return NVM_OK;
}

NVM_COLD static nvm_status privatize_reachable(nvm_heap *heap) {
  nvm_status status = NVM_OK;
  heap->n_marked = 0;
  heap->mark_failed = 0;
  for (nvm_handle *handle = heap->handles; handle; handle = handle->live) {
    nvm_mark(heap, handle->object);
    if (status == NVM_OK && handle->object && handle->object->kind == NVM_KIND_TENSOR)
      status = privatize_tensor(heap, (nvm_tensor *)handle->object);
  }
  for (size_t i = 0; i < heap->n_marked; i++) {
    uint32_t n = 0;
    nvm_object **slots = nvm_children(heap->marked[i], &n);
    for (uint32_t k = 0; k < n; k++) {
      nvm_mark(heap, slots[k]);
      if (status == NVM_OK && slots[k] && slots[k]->kind == NVM_KIND_TENSOR)
        status = privatize_tensor(heap, (nvm_tensor *)slots[k]);
    }
  }
  for (size_t i = 0; i < heap->n_marked; i++) heap->marked[i]->flags &= (uint8_t)~NVM_FLAG_MARK;
  heap->n_marked = 0;
  if (heap->mark_failed) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory to keep the arguments of a handle");
  return status;
}

void nvm_args_settle(nvm_vm *vm, const nvm_arg *args, size_t n_args) {
  for (size_t i = 0; i < n_args && vm->moved; i++) {
    nvm_storage *storage = args[i].kind == NVM_ARG_TENSOR ? args[i].storage : NULL;
    if (!storage || !storage->pool || storage->pool->heap != vm->heap) continue;
    storage->header.flags &= (uint8_t)~NVM_FLAG_MOVED;
    storage->owner = NULL; /* see privatize_tensor */
  }
  vm->moved = 0;
}

nvm_status nvm_args_privatize(nvm_vm *vm) {
  if (!vm->borrowed || !vm->heap->handles) return NVM_OK;
  vm->borrowed = 0;
  nvm_status status = privatize_reachable(vm->heap);
  if (status != NVM_OK) nvm_handles_clear(vm->heap);
  return status;
}
