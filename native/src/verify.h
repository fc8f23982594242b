/* The code verifier: after it, running a program can't crash the process. It says nothing about
 * whether the code is right. Operands of kernels are checked at each call (call.c), values' kinds
 * by the instructions.
 */
#ifndef NVM_VERIFY_H
#define NVM_VERIFY_H

#include "program.h"
#include "status.h"

/* One linear pass over the code of every function. Errors: NVM_INVALID_EXECUTABLE (function, word,
 * expected, got), NVM_OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_verify_program(const nvm_program *program);

/* Find a kernel of kind 1 by name and compare signatures. Errors: NVM_INVALID_EXECUTABLE. */
NVM_NODISCARD nvm_status nvm_verify_c_kernel(const nvm_kernel *kernel, nvm_kernel_fn *out_fn);

#endif
