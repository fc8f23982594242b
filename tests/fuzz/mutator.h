/* Mutations that keep most of a file's structure, so that the verifier, the kernel-IR interpreter
 * and the call checks are reached: instructions and operands by the table of the instruction set,
 * records of kernel IR, values of the msgpack header, the script of calls.
 */
#ifndef NVM_FUZZ_MUTATOR_H
#define NVM_FUZZ_MUTATOR_H

#include "model.h"

typedef struct rng {
  uint64_t state;
} rng;

/* One mutation; some leave the model as it is. */
void mutate(model *m, rng *r);
uint32_t rng_below(rng *r, uint32_t bound); /* bound >= 1 */

#endif
