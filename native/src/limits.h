/* Whether a run may go on: its instructions ("fuel"), its time, and cancel. Limits of memory are in
 * vm.c, of frames in frame.c.
 */
#ifndef NVM_LIMITS_H
#define NVM_LIMITS_H

#include "vm.h"

/* Words between checkpoints: well under a millisecond. */
#ifdef NVM_TEST
#define NVM_SLICE 50
#else
#define NVM_SLICE 40000
#endif

/* Around a run: take vm->limits, from this thread; account for what the last slice used. */
void nvm_limits_begin(nvm_vm *vm);
void nvm_limits_end(nvm_vm *vm);

/* The slice is used up: settle fuel; check limits, cancel, time and poll; start the next slice. */
NVM_NODISCARD nvm_status nvm_vm_checkpoint(nvm_vm *vm);
/* The same but for fuel, from kernels, on any thread. */
NVM_NODISCARD nvm_status nvm_vm_poll(nvm_vm *vm);
/* Record why a run ends early: cancelled, interrupted or out of time; kernel: NULL outside of one.
 * Returns `code`. */
nvm_status nvm_vm_stopped(const nvm_vm *vm, nvm_status code, const char *kernel);

/* Poll, and count `turns` of a kernel's loops as instructions. */
NVM_NODISCARD nvm_status nvm_vm_charge(nvm_vm *vm, uint64_t turns);

#endif
