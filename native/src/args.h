/* Arguments on their way into a VM. */
#ifndef NVM_ARGS_H
#define NVM_ARGS_H

#include "vm.h"

/* Check and convert arguments, fill the registers of the frame on top. Calls `release` of every
 * argument once, now or when its memory is no longer used, also on failure. */
NVM_NODISCARD nvm_status nvm_args_convert(nvm_vm *vm, uint32_t function, const nvm_arg *args,
                                          size_t n_args);
/* What outlives the run (handles) must not use memory that is good for the call only: copy it.
 * Without memory all handles of the VM become invalid. */
NVM_NODISCARD nvm_status nvm_args_privatize(nvm_vm *vm);
/* After a run: arguments that were given away are ordinary blocks again. */
void nvm_args_settle(nvm_vm *vm, const nvm_arg *args, size_t n_args);
void nvm_scratch_free(nvm_vm *vm);

#endif
