/* Whether a handle's value has the type of the parameter that it is given to. */
#ifndef NVM_HANDLE_TYPE_H
#define NVM_HANDLE_TYPE_H

#include "program.h"

/* 1 if `object` (borrowed; a closure, a ref, or a value inside one) may stand where `type` is
 * expected: kinds, dtypes, ranks, data types, numbers of parameters. Dims are claims, which the
 * program checks itself. What lies inside a data type is not looked into. Work is bounded: a deeper
 * part of a type than that is taken on trust (a wrong value then meets the checks of the
 * instructions). */
int nvm_handle_fits(const nvm_program *program, const nvm_object *object, uint32_t type);

#endif
