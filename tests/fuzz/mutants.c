/* Reads mutants from stdin (8-byte little-endian size, then the bytes) and runs each. Prints the
 * counters. Built with sanitizers; each mutant stands in a block of its exact size. With an
 * argument: runs that file alone.
 */
#include <stdio.h>
#include <stdlib.h>

#include "run_one.h"

static int next(FILE *file, uint8_t **out_data, size_t *out_size) {
  uint64_t size = 0;
  if (fread(&size, sizeof size, 1, file) != 1 || size > (1u << 28)) return 0;
  *out_data = malloc(size ? size : 1);
  *out_size = (size_t)size;
  return fread(*out_data, 1, (size_t)size, file) == size;
}

int main(int argc, char **argv) {
  run_one_counts counts = {0};
  uint8_t *data = NULL;
  size_t size = 0;
  if (argc > 1) {
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL) return 2;
    data = malloc(1 << 24);
    size = fread(data, 1, 1 << 24, file);
    fclose(file);
    data = realloc(data, size ? size : 1);
    run_one(data, size, &counts);
    free(data);
  } else {
    while (next(stdin, &data, &size)) {
      run_one(data, size, &counts);
      free(data);
    }
  }
  printf("%llu %llu %llu %llu %llu\n", (unsigned long long)counts.files,
         (unsigned long long)counts.past_structure, (unsigned long long)counts.past_code,
         (unsigned long long)counts.calls, (unsigned long long)counts.returned);
  return 0;
}
