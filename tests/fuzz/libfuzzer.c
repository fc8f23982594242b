/* libFuzzer's target: the reader, the verifier and the interpreter. Built without digest checks. */
#include <stdlib.h>
#include <string.h>

#include "run_one.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Sizes in the fixed header follow the data, so that cutting and growing the file is no dead end.
 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run_one_counts counts = {0};
  uint8_t *copy = malloc(size ? size : 1);
  if (size > 0) memcpy(copy, data, size);
  if (size >= 96) {
    uint64_t file_size = size;
    memcpy(copy + 24, &file_size, sizeof file_size);
  }
  run_one(copy, size, &counts);
  free(copy);
  return 0;
}
