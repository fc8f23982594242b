/* ADT values, closures, refs: creation, release, collection of cycles. */
#include "object.h"

#include <stddef.h>

#include "tensor.h"

static size_t array_size(size_t base, uint32_t n) { return base + n * sizeof(nvm_object *); }

/* ADT values and closures are alike: a number, a count, and as many objects. */
_Static_assert(sizeof(nvm_adt) == sizeof(nvm_closure) &&
                   offsetof(nvm_adt, ctor) == offsetof(nvm_closure, func) &&
                   offsetof(nvm_adt, n_fields) == offsetof(nvm_closure, n_captures),
               "composite");

static nvm_status create_composite(nvm_heap *heap, uint8_t kind, uint32_t number, uint32_t n,
                                   nvm_adt **out_object) {
  size_t size = array_size(sizeof(nvm_adt), n);
  void *cell;
  NVM_TRY(nvm_cell_create(heap, size, &cell));
  nvm_adt *made = cell;
  made->header = (nvm_object){.refcount = 1, .kind = kind};
  made->ctor = number;
  made->n_fields = n;
  *out_object = made;
  return NVM_OK;
}

nvm_status nvm_adt_create(nvm_heap *heap, uint32_t ctor, uint32_t n_fields, nvm_adt **out_adt) {
  return create_composite(heap, NVM_KIND_ADT, ctor, n_fields, out_adt);
}

nvm_status nvm_closure_create(nvm_heap *heap, uint32_t func, uint32_t n_captures,
                              nvm_closure **out_closure) {
  nvm_adt *made = NULL;
  NVM_TRY(create_composite(heap, NVM_KIND_CLOSURE, func, n_captures, &made));
  *out_closure = (nvm_closure *)(void *)made;
  return NVM_OK;
}

nvm_status nvm_ref_create(nvm_heap *heap, nvm_object *value, nvm_ref **out_ref) {
  /* Cycles that a long run drops would else pile up until its end. */
  if (NVM_UNLIKELY(heap->n_refs >= heap->refs_threshold && heap->pressure))
    (void)heap->pressure(heap->vm, NVM_OK, 0);
  void *cell;
  NVM_TRY(nvm_cell_create(heap, sizeof(nvm_ref), &cell));
  nvm_ref *ref = cell;
  ref->header = (nvm_object){.refcount = 1, .kind = NVM_KIND_REF};
  nvm_retain(value);
  ref->value = value;
  ref->prev = NULL;
  ref->next = heap->refs;
  if (heap->refs) heap->refs->prev = ref;
  heap->refs = ref;
  heap->n_refs++;
  *out_ref = ref;
  return NVM_OK;
}

/* --- release ---------------------------------------------------------------------------------- */

/* The children of a composite object: where they are and how many. */
nvm_object **nvm_children(nvm_object *object, uint32_t *out_n) {
  switch (object->kind) {
    case NVM_KIND_ADT:
      *out_n = ((nvm_adt *)object)->n_fields;
      return ((nvm_adt *)object)->fields;
    case NVM_KIND_CLOSURE:
      *out_n = ((nvm_closure *)object)->n_captures;
      return ((nvm_closure *)object)->captures;
    case NVM_KIND_REF:
      *out_n = 1;
      return &((nvm_ref *)object)->value;
    default:
      *out_n = 0;
      return NULL;
  }
}

static void unlink_ref(nvm_heap *heap, nvm_ref *ref) {
  if (ref->prev)
    ref->prev->next = ref->next;
  else
    heap->refs = ref->next;
  if (ref->next) ref->next->prev = ref->prev;
  heap->n_refs--;
}

/* Free the memory of one object whose children are taken care of. */
static void free_cell(nvm_heap *heap, nvm_object *object) {
  size_t size;
  switch (object->kind) {
    case NVM_KIND_TENSOR:
      nvm_tensor_free(heap, (nvm_tensor *)object);
      return;
    case NVM_KIND_STORAGE:
      nvm_storage_recycle(heap, (nvm_storage *)object);
      return;
    case NVM_KIND_ADT:
    case NVM_KIND_CLOSURE:
      size = array_size(sizeof(nvm_adt), ((nvm_adt *)object)->n_fields);
      break;
    default:
      unlink_ref(heap, (nvm_ref *)object);
      size = sizeof(nvm_ref);
      break;
  }
  nvm_cell_free(heap, object, size);
}

/* Drop one reference; true if the object died. */
static int dies(nvm_object *object) {
  if (!object || (object->flags & NVM_FLAG_IMMORTAL)) return 0;
  if (object->kind == NVM_KIND_STORAGE)
    return __atomic_fetch_sub(&object->refcount, 1u, __ATOMIC_ACQ_REL) == 1;
  return --object->refcount == 0;
}

/* A dead composite waits in a list that is linked through its first child's slot; the first child
 * is followed at once. So a list or tree of any depth needs no stack. */
void nvm_object_destroy(nvm_heap *heap, nvm_object *object) {
  nvm_object *waiting = NULL;
  for (;;) {
    uint32_t n = 0;
    nvm_object **slots;
    while ((slots = nvm_children(object, &n)) != NULL && n > 0) {
      nvm_object *first = slots[0];
      slots[0] = waiting;
      waiting = object;
      if (!dies(first)) {
        object = NULL;
        break;
      }
      object = first;
    }
    if (object) free_cell(heap, object);
    /* Take up the next child of the object on top of the list. */
    object = NULL;
    while (waiting && !object) {
      nvm_object *top = waiting;
      slots = nvm_children(top, &n);
      uint32_t left = top->refcount ? top->refcount : n; /* children not yet dropped + 1 */
      while (left > 1 && !object) {
        nvm_object *child = slots[--left];
        if (dies(child)) object = child;
      }
      if (object) {
        top->refcount = left;
        if (left == 1) { /* the last one: the parent is done, free it before the child */
          waiting = slots[0];
          free_cell(heap, top);
        }
      } else {
        waiting = slots[0];
        free_cell(heap, top);
      }
    }
    if (!object) return;
  }
}

/* --- collection of cycles --------------------------------------------------------------------- */

NVM_COLD static int remember(nvm_heap *heap, nvm_object *object) {
  if (heap->n_marked == heap->marked_capacity) {
    size_t capacity = heap->marked_capacity ? heap->marked_capacity * 2 : 1024;
    nvm_object **grown = nvm_realloc(heap->marked, capacity * sizeof *grown);
    if (!grown) {
      heap->mark_failed = 1;
      return 0;
    }
    atomic_fetch_add_explicit(&heap->system_allocations, 1, memory_order_relaxed);
    heap->marked = grown;
    heap->marked_capacity = capacity;
  }
  heap->marked[heap->n_marked++] = object;
  return 1;
}

NVM_COLD void nvm_mark(nvm_heap *heap, nvm_object *object) {
  if (!object || (object->flags & (NVM_FLAG_IMMORTAL | NVM_FLAG_MARK))) return;
  if (object->kind != NVM_KIND_ADT && object->kind != NVM_KIND_CLOSURE &&
      object->kind != NVM_KIND_REF)
    return;
  if (remember(heap, object)) object->flags |= NVM_FLAG_MARK;
}

NVM_COLD void nvm_collect(nvm_heap *heap, void (*roots)(nvm_heap *heap, void *context),
                          void *context) {
  heap->n_marked = 0;
  heap->mark_failed = 0;
  roots(heap, context);
  for (size_t i = 0; i < heap->n_marked; i++) {
    uint32_t n = 0;
    nvm_object **slots = nvm_children(heap->marked[i], &n);
    for (uint32_t k = 0; k < n; k++) nvm_mark(heap, slots[k]);
  }
  size_t n_alive = heap->n_marked;
  for (nvm_ref *ref = heap->refs; ref && !heap->mark_failed; ref = ref->next)
    if (!(ref->header.flags & NVM_FLAG_MARK)) remember(heap, &ref->header);
  for (size_t i = 0; i < n_alive; i++) heap->marked[i]->flags &= (uint8_t)~NVM_FLAG_MARK;
  size_t n_dead = heap->mark_failed ? n_alive : heap->n_marked;
  /* Hold each dead ref while contents are cleared: freeing one may free others. */
  for (size_t i = n_alive; i < n_dead; i++) nvm_retain(heap->marked[i]);
  for (size_t i = n_alive; i < n_dead; i++) {
    nvm_ref *ref = (nvm_ref *)heap->marked[i];
    nvm_object *value = ref->value;
    ref->value = NULL;
    nvm_release(heap, value);
  }
  for (size_t i = n_alive; i < n_dead; i++) nvm_release(heap, heap->marked[i]);
  heap->n_marked = 0;
  heap->refs_threshold = heap->n_refs * 2 > (1u << 16) ? heap->n_refs * 2 : 1u << 16;
}

NVM_COLD const char *nvm_kind_name(const nvm_object *object) {
  if (!object) return "nothing";
  switch (object->kind) {
    case NVM_KIND_TENSOR:
      return "a tensor";
    case NVM_KIND_STORAGE:
      return "a storage block";
    case NVM_KIND_ADT:
      return ((const nvm_adt *)object)->ctor ? "an ADT value" : "a tuple";
    case NVM_KIND_CLOSURE:
      return "a closure";
    case NVM_KIND_REF:
      return "a ref";
    default:
      return "an unknown value";
  }
}
