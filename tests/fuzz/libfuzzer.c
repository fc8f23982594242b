/* libFuzzer's target and mutator: the reader, the verifier, the kernel-IR interpreter and the call
 * checks. See run_one.h for what an input is.
 */
#include <string.h>

#include "mutator.h"
#include "run_one.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max_size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t max_size, unsigned seed);

static run_one_counts counts;
static model here, there;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run_one(data, size, &counts);
  return 0;
}

static rng seeded(unsigned seed) {
  rng r = {seed * 0x9E3779B97F4A7C15u + 0x1234567u};
  (void)rng_below(&r, 2);
  return r;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed) {
  rng r = seeded(seed);
  if (rng_below(&r, 24) == 0 || !model_read(&here, data, size))
    return LLVMFuzzerMutate(data, size, max_size);
  for (uint32_t turns = 1 + rng_below(&r, 3); turns > 0; turns--) mutate(&here, &r);
  const size_t written = model_write(&here, data, max_size);
  return written ? written : LLVMFuzzerMutate(data, size, max_size);
}

/* Sections or the script of another file. */
size_t LLVMFuzzerCustomCrossOver(const uint8_t *first, size_t first_size, const uint8_t *second,
                                 size_t second_size, uint8_t *out, size_t max_size, unsigned seed) {
  rng r = seeded(seed);
  if (!model_read(&here, first, first_size) || !model_read(&there, second, second_size)) return 0;
  if (rng_below(&r, 3) == 0) {
    const uint32_t section = rng_below(&r, 3);
    here.section_size[section] = there.section_size[section];
    memcpy(here.sections[section], there.sections[section], there.section_size[section]);
  } else {
    here.script_size = there.script_size;
    memcpy(here.script, there.script, there.script_size);
  }
  return model_write(&here, out, max_size);
}
