/* Reference-counted values of a VM. Verbs: _create returns +1, retain and release as usual (NULL ok
 * for release). */
#ifndef NVM_OBJECT_OPS_H
#define NVM_OBJECT_OPS_H

#include "alloc.h"

/* A count that would overflow makes the object immortal: a leak in a hostile program instead of a
 * dangling pointer. */
static inline void nvm_retain(nvm_object *object) {
  if (object->flags & NVM_FLAG_IMMORTAL) return;
  if (NVM_UNLIKELY(++object->refcount == 0)) {
    object->refcount = 1;
    object->flags |= NVM_FLAG_IMMORTAL;
  }
}

/* The count is zero: free it and all that dies with it. Iterative, needs no memory. */
void nvm_object_destroy(nvm_heap *heap, nvm_object *object);

static inline void nvm_release(nvm_heap *heap, nvm_object *object) {
  if (!object || (object->flags & NVM_FLAG_IMMORTAL)) return;
  if (--object->refcount == 0) nvm_object_destroy(heap, object);
}

/* Fields and captures are not set: the caller fills all of them with retained values before
 * anything can fail. Errors: OUT_OF_MEMORY, OBJECT_LIMIT, MEMORY_LIMIT. out_*: owned. */
NVM_NODISCARD nvm_status nvm_adt_create(nvm_heap *heap, uint32_t ctor, uint32_t n_fields,
                                        nvm_adt **out_adt);
NVM_NODISCARD nvm_status nvm_closure_create(nvm_heap *heap, uint32_t func, uint32_t n_captures,
                                            nvm_closure **out_closure);
/* value: borrowed, retained by the ref. */
NVM_NODISCARD nvm_status nvm_ref_create(nvm_heap *heap, nvm_object *value, nvm_ref **out_ref);

/* Collection of ref cycles: everything reachable from what `roots` marks stays; of the other refs
 * the content is cleared, which frees the cycles. roots calls nvm_mark for each root. Gives up (and
 * frees nothing) without memory. */
void nvm_mark(nvm_heap *heap, nvm_object *object);
void nvm_collect(nvm_heap *heap, void (*roots)(nvm_heap *heap, void *context), void *context);

/* The values that a composite holds (a ref: one, perhaps NULL); NULL and 0 for others. */
nvm_object **nvm_children(nvm_object *object, uint32_t *out_n);

const char *nvm_kind_name(const nvm_object *object);

#endif
