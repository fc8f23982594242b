/* Call frames: one array of slots that grows, so that recursion is bounded by limits and memory,
 * not by the C stack. */
#include "frame.h"

/* 1 GiB of registers: without a `frames` limit this ends a recursion without end. */
#define MAX_SLOTS ((size_t)1 << 27)
#ifdef NVM_TEST
enum { FIRST_SLOTS = 8 }; /* growing is the common case */
#else
enum { FIRST_SLOTS = 1024 };
#endif
enum { TRACE_FIRST = 20, TRACE_LAST = 5 };

NVM_COLD nvm_status nvm_depth_exceeded(nvm_vm *vm) {
  NVM_FAIL(NVM_FRAME_LIMIT, "calls nest deeper than the limit of %llu frames",
           (unsigned long long)vm->depth_limit);
}

NVM_COLD static nvm_status check_stack_bytes(nvm_vm *vm, size_t slots) {
  int64_t bytes = (int64_t)(slots * sizeof(uint64_t));
  if (slots > FIRST_SLOTS && bytes > vm->heap->byte_cap - vm->heap->live_bytes)
    NVM_FAIL(NVM_MEMORY_LIMIT, "call frames of %lld bytes exceed the limit of %llu bytes",
             (long long)bytes, (unsigned long long)vm->limits.bytes);
  return NVM_OK;
}

NVM_COLD nvm_status nvm_stack_grow(nvm_vm *vm, size_t slots) {
  size_t needed = vm->top + slots, wanted = vm->stack_slots ? vm->stack_slots : FIRST_SLOTS;
  if (needed > MAX_SLOTS)
    NVM_FAIL(NVM_FRAME_LIMIT, "calls nest too deep: the frames of %llu calls need more than 1 GiB",
             (unsigned long long)vm->depth);
  while (wanted < needed) wanted *= 2;
  NVM_TRY(check_stack_bytes(vm, wanted));
  uint64_t *grown = nvm_realloc(vm->stack, wanted * sizeof *grown);
  if (!grown) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for call frames of %zu bytes", wanted * 8);
  atomic_fetch_add_explicit(&vm->heap->system_allocations, 1, memory_order_relaxed);
  vm->stack = grown;
  vm->stack_slots = wanted;
  return NVM_OK;
}

nvm_status nvm_frame_push(nvm_vm *vm, const nvm_function *function) {
  size_t size = nvm_frame_size(function);
  if (NVM_UNLIKELY(vm->depth >= vm->depth_limit)) return nvm_depth_exceeded(vm);
  if (NVM_UNLIKELY(vm->stack_slots - vm->top < size)) NVM_TRY(nvm_stack_grow(vm, size));
  nvm_frame *frame = nvm_frame_at(vm, vm->top);
  frame->function = function;
  frame->pc = function->code;
  frame->caller = vm->frame;
  memset(frame + 1, 0, (size - NVM_FRAME_SLOTS) * sizeof(uint64_t));
  vm->frame = vm->top;
  vm->top += size;
  vm->depth++;
  return NVM_OK;
}

void nvm_frame_clear(nvm_heap *heap, nvm_frame *frame) {
  nvm_object **objs = nvm_frame_objs(frame);
  for (uint32_t i = 0; i < frame->function->n_objs; i++) {
    nvm_object *object = objs[i];
    objs[i] = NULL;
    nvm_release(heap, object);
  }
}

void nvm_frames_unwind(nvm_vm *vm) {
  while (vm->frame != NVM_NO_FRAME) {
    nvm_frame *frame = nvm_frame_at(vm, vm->frame);
    nvm_frame_clear(vm->heap, frame);
    vm->frame = frame->caller;
  }
  vm->top = 0;
  vm->depth = 0;
}

NVM_COLD static void add_frame(nvm_vm *vm, const nvm_frame *frame) {
  const nvm_function *function = frame->function;
  const char *source = NULL;
  uint32_t line = 0, column = 0, pc = (uint32_t)(frame->pc - function->code);
  uint32_t index = (uint32_t)(function - vm->program->functions);
  if (nvm_program_span(vm->program, index, pc, &source, &line, &column) && source)
    nvm_error_add_trace("@%s at %s:%u:%u\n", function->name, source, line, column);
  else
    nvm_error_add_trace("@%s at word %u\n", function->name, pc);
}

NVM_COLD void nvm_frames_report(nvm_vm *vm) {
  if (vm->frame == NVM_NO_FRAME) return;
  const nvm_frame *top = nvm_frame_at(vm, vm->frame);
  const char *source = NULL;
  uint32_t line = 0, column = 0, pc = (uint32_t)(top->pc - top->function->code);
  uint32_t index = (uint32_t)(top->function - vm->program->functions);
  if (!nvm_program_span(vm->program, index, pc, &source, &line, &column)) source = NULL;
  nvm_error_set_place(top->function->name, pc, source, line, column);
  uint64_t position = 0;
  for (size_t slot = vm->frame; slot != NVM_NO_FRAME; position++) {
    const nvm_frame *frame = nvm_frame_at(vm, slot);
    if (position < TRACE_FIRST || vm->depth - position <= TRACE_LAST)
      add_frame(vm, frame);
    else if (position == TRACE_FIRST)
      nvm_error_add_trace("... %llu more calls ...\n",
                          (unsigned long long)(vm->depth - TRACE_FIRST - TRACE_LAST));
    slot = frame->caller;
  }
}

NVM_COLD void nvm_stack_trim(nvm_vm *vm, size_t keep_slots) {
  if (vm->stack_slots <= keep_slots || vm->top > 0) return;
  nvm_free(vm->stack);
  vm->stack = NULL;
  vm->stack_slots = 0;
}
