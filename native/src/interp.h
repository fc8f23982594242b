/* The interpreter. */
#ifndef NVM_INTERP_H
#define NVM_INTERP_H

#include "vm.h"

/* Run the frame on top until it returns; the value is in vm->result or vm->result_int. */
NVM_NODISCARD nvm_status nvm_interpret(nvm_vm *vm);

#endif
