/* Values on their way out of a VM: results and opaque handles. */
#ifndef NVM_RESULTS_H
#define NVM_RESULTS_H

#include "alloc.h"

/* A closure or ref that the caller holds. Counted atomically; dropped through the heap's release
 * list. */
struct nvm_handle {
  nvm_dropped dropped; /* header.refcount counts atomically; kind NVM_KIND_HANDLE */
  nvm_heap *heap;
  nvm_object *object;             /* owned; NULL once the VM is destroyed */
  struct nvm_handle *prev, *live; /* all handles of a heap */
};

struct nvm_result {
  nvm_dropped dropped; /* kind NVM_KIND_RESULT */
  nvm_heap *heap;
  size_t count, capacity;
  size_t n_dims, dims_capacity;
  nvm_out *values;
  int64_t *dims;
};

/* What a caller wants of a result: of itself (depth 0), or of each of its fields (depth 1). */
typedef struct nvm_wants {
  const nvm_want *items;
  uint32_t count; /* 0: values */
  uint32_t depth;
} nvm_wants;

/* wants.c: check a caller's wants against the result type of a function. Errors: INVALID_INPUT. */
NVM_NODISCARD nvm_status nvm_wants_check(const nvm_program *program, uint32_t function,
                                         const nvm_want *items, uint32_t count,
                                         nvm_wants *out_wants);
/* Fill the buffers that are wanted; the result then refers to them. Errors: SHAPE_MISMATCH, and
 * INVALID_INPUT for two in the same memory; before anything is written. */
NVM_NODISCARD nvm_status nvm_wants_fill(nvm_heap *heap, nvm_result *result, const nvm_wants *wants);

/* Turn a value into a result; `value` is consumed, also on failure. A tensor whose memory anything
 * else can see (constant, input, handle, another part of the result) is copied, unless it is wanted
 * in a buffer: then nvm_wants_fill must follow at once. out_result: owned by the caller. */
NVM_NODISCARD nvm_status nvm_result_create(nvm_heap *heap, nvm_object *value, uint64_t limit,
                                           const nvm_wants *wants, nvm_result **out_result);
/* Let a heap know what to do with results and handles. Before the first is made. */
void nvm_results_attach(nvm_heap *heap);
/* The VM is going: release what handles hold. */
void nvm_handles_clear(nvm_heap *heap);

#endif
