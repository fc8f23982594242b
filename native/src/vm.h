/* The state of a VM. Used by one thread at a time (`busy`); only `cancel` may be touched by others.
 */
#ifndef NVM_VM_H
#define NVM_VM_H

#include <pthread.h>
#include <stdatomic.h>

#include "call.h"
#include "object.h"
#include "program.h"
#include "tensor.h"

/* A call frame; its int registers follow, then its object registers. `pc` is the instruction that
 * is under way. */
typedef struct nvm_frame {
  const nvm_function *function;
  const uint32_t *pc;
  size_t caller; /* slot of the caller's frame, NVM_NO_FRAME for the first */
} nvm_frame;

#define NVM_NO_FRAME    SIZE_MAX
#define NVM_FRAME_SLOTS (sizeof(nvm_frame) / sizeof(uint64_t))

/* Room for an invocation's conversion of arguments; kept between runs (args.c). */
typedef struct nvm_scratch {
  void *memory;
  size_t capacity;
} nvm_scratch;

struct nvm_vm {
  nvm_program *program; /* retained */
  nvm_heap *heap;
  atomic_int busy, cancel;
  nvm_limits limits;
  int32_t (*poll)(void *context);
  void *poll_context;

  uint64_t *stack; /* frames, growing upwards; addresses change when it grows */
  size_t stack_slots, top;
  size_t frame; /* slot of the running frame, NVM_NO_FRAME outside of a run */
  uint64_t depth, depth_limit;
  uint64_t *transfer; /* arguments of a tail call on their way */
  size_t transfer_slots;

  /* Fuel is counted in code words (about four an instruction). `slice` counts down to the next
   * checkpoint. */
  int64_t slice, slice_start, slice_kernels;
  uint64_t fuel_left, fuel_used;
  uint64_t deadline; /* ns of the monotonic clock, UINT64_MAX for none */
  uint64_t next_poll;
  pthread_t thread;
  int collectable; /* all live values are in frames and handles: cycles may be collected */
  int tight;       /* a collection at a limit of this run freed little: do not try again */

  nvm_call call;
  nvm_object *result; /* owned: what the run returned, if an object */
  int64_t result_int;
  int64_t recent_peak; /* bytes above those live at the start, of recent runs: what the pools may
                          keep */

  nvm_scratch args[5];
  int borrowed; /* this run uses memory that is good for the call only, or that was given away */
  int moved;    /* this run was given memory away (NVM_FLAG_MOVED) */
  uint64_t runs, kernel_calls;
  struct nvm_profile_state *profile; /* NULL: not wanted */
};

/* Words between checkpoints: well under a millisecond. */
#ifdef NVM_TEST
#define NVM_SLICE 50
#else
#define NVM_SLICE 40000
#endif

uint64_t nvm_now(void); /* ns, monotonic */

/* The slice is used up: settle fuel; check limits, cancel, time and poll; start the next slice. */
NVM_NODISCARD nvm_status nvm_vm_checkpoint(nvm_vm *vm);
/* The same but for fuel, from kernels, on any thread. */
NVM_NODISCARD nvm_status nvm_vm_poll(nvm_vm *vm);
/* Record why a run ends early: cancelled, interrupted or out of time; kernel: NULL outside of one.
 * Returns `code`. */
nvm_status nvm_vm_stopped(const nvm_vm *vm, nvm_status code, const char *kernel);

/* Poll, and count `turns` of a kernel's loops as instructions. */
NVM_NODISCARD nvm_status nvm_vm_charge(nvm_vm *vm, uint64_t turns);

/* --- frame.c --- */
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

/* --- interp.c: run the frame on top until it returns; the value is in vm->result or vm->result_int
 * --- */
NVM_NODISCARD nvm_status nvm_interpret(nvm_vm *vm);

/* --- args.c: check and convert arguments, fill the registers of the frame on top. Calls `release`
 * of every argument once, now or when its memory is no longer used, also on failure. --- */
NVM_NODISCARD nvm_status nvm_args_convert(nvm_vm *vm, uint32_t function, const nvm_arg *args,
                                          size_t n_args);
/* What outlives the run (handles) must not use memory that is good for the call only: copy it.
 * Without memory all handles of the VM become invalid. */
NVM_NODISCARD nvm_status nvm_args_privatize(nvm_vm *vm);
/* After a run: arguments that were given away are ordinary blocks again. */
void nvm_args_settle(nvm_vm *vm, const nvm_arg *args, size_t n_args);
void nvm_scratch_free(nvm_vm *vm);

#endif
