/* Call frames of a VM: one array of slots, growing upwards. */
#ifndef NVM_FRAME_H
#define NVM_FRAME_H

#include "vm.h"

/* A call frame; its int registers follow, then its object registers. `pc` is the instruction that
 * is under way. */
typedef struct nvm_frame {
  const nvm_function *function;
  const uint32_t *pc;
  size_t caller; /* slot of the caller's frame, NVM_NO_FRAME for the first */
} nvm_frame;

#define NVM_FRAME_SLOTS (sizeof(nvm_frame) / sizeof(uint64_t))

static inline nvm_frame *nvm_frame_at(const nvm_vm *vm, size_t slot) {
  return (nvm_frame *)(void *)(vm->stack + slot);
}
static inline int64_t *nvm_frame_ints(nvm_frame *frame) { return (int64_t *)(void *)(frame + 1); }
static inline nvm_object **nvm_frame_objs(nvm_frame *frame) {
  return (nvm_object **)(void *)(nvm_frame_ints(frame) + frame->function->n_ints);
}
static inline size_t nvm_frame_size(const nvm_function *function) {
  return NVM_FRAME_SLOTS + function->n_ints + function->n_objs;
}
/* Make room for `slots` more above `top`. Errors: OUT_OF_MEMORY, MEMORY_LIMIT, FRAME_LIMIT. */
NVM_NODISCARD nvm_status nvm_stack_grow(nvm_vm *vm, size_t slots);
/* Push a frame with registers 0 and NULL; arguments are the caller's to fill in. vm->frame is the
 * new one. */
NVM_NODISCARD nvm_status nvm_frame_push(nvm_vm *vm, const nvm_function *function);
/* Release all object registers of a frame. */
void nvm_frame_clear(nvm_heap *heap, nvm_frame *frame);
/* Pop every frame. */
void nvm_frames_unwind(nvm_vm *vm);
/* Add function, pc, span and the trace of calls to the error on record. */
void nvm_frames_report(nvm_vm *vm);
NVM_NODISCARD nvm_status nvm_depth_exceeded(nvm_vm *vm);
/* Give back a stack that one deep run left behind. */
void nvm_stack_trim(nvm_vm *vm, size_t keep_slots);

#endif
