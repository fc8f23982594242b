/* Load bytes as a program, never its machine code, and run its public functions on made-up inputs
 * within limits. Whatever the bytes are, this must return, leave nothing behind and call every
 * `release` once: that is the test.
 *
 * Behind the file (the fixed header says where it ends) there may be a script: a byte of RUN_
 * flags, a byte that chooses limits, then a byte for each decision about arguments and kernel
 * calls. What the script does not say is 0: valid arguments.
 */
#ifndef NVM_RUN_ONE_H
#define NVM_RUN_ONE_H

#include <stddef.h>
#include <stdint.h>

enum {
  /* how the file is loaded: the low four bits (others: from memory) */
  RUN_HOW = 15,
  RUN_SIGNED =
      9, /* the signature's form is checked, and any signature is right but one of signer 255 */
  RUN_KEEP_DIGESTS = 10, /* else they are repaired first */
  RUN_FILE = 11,
  RUN_FILE_COPY = 12,
  RUN_BORROW = 13,
  RUN_VERIFY_FULL = 14,
  RUN_NATIVE = 15, /* looks at native sections, unless the file has an ELF object */
  /* and bits */
  RUN_FAIL_ALLOC = 64, /* an allocation fails: a byte says which (builds with NVM_TEST) */
  RUN_PROFILE = 128
};

typedef struct run_one_counts {
  uint64_t files, past_structure, past_code, calls, returned, refused;
} run_one_counts;

void run_one(const uint8_t *data, size_t size, run_one_counts *counts);

#endif
