/* The numbers of a result, to compare runs by. */
#ifndef NVM_OUTPUTS_H
#define NVM_OUTPUTS_H

#include "nvm_api.h"

enum { MAX_OUTPUTS = 1024 };

typedef struct outputs {
  size_t n;
  double values[MAX_OUTPUTS];
} outputs;

/* The elements of all tensors of a result; those behind MAX_OUTPUTS are left out. */
void read_outputs(const nvm_result *result, outputs *out);
/* Equal up to the rounding of other code (machine code may be what could not be had). */
int same_outputs(const outputs *a, const outputs *b);

#endif
