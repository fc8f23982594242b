/* Load bytes as a program, never its machine code, and run its public functions on small made-up
 * inputs within limits. Whatever the bytes are, this must return: that is the test.
 */
#ifndef NVM_RUN_ONE_H
#define NVM_RUN_ONE_H

#include <stddef.h>
#include <stdint.h>

typedef struct run_one_counts {
  uint64_t files, past_structure, past_code, calls, returned;
} run_one_counts;

void run_one(const uint8_t *data, size_t size, run_one_counts *counts);

#endif
