/* The state of a VM. Used by one thread at a time (`busy`); only `cancel` may be touched by others.
 */
#ifndef NVM_VM_H
#define NVM_VM_H

#include <pthread.h>
#include <stdatomic.h>

#include "call.h"
#include "clock.h"
#include "object.h"
#include "program.h"
#include "tensor.h"

#define NVM_NO_FRAME SIZE_MAX

/* Room for an invocation's conversion of arguments; kept between runs (args.c). */
typedef struct nvm_scratch {
  void *memory;
  size_t capacity;
} nvm_scratch;

struct nvm_vm {
  nvm_program *program; /* retained */
  nvm_heap *heap;
  nvm_tensor *const *constants; /* the program's, with copies of those that lie on a device */
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
  int step_instructions;             /* this run calls nvm_profile_step before each instruction */
};

#endif
