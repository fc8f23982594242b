/* In place of SHA-256 in the coverage-guided fuzzer, for speed: the reader checks digests as ever,
 * run_one repairs them with the same function. */
#include <string.h>

#include "sha256.h"

void nvm_sha256(const void *data, size_t size, uint8_t out[32]) {
  const uint8_t *at = data;
  uint64_t hash = 0xCBF29CE484222325u ^ size;
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  while (size-- > 0) hash = (hash ^ *at++) * 0x100000001B3u;
  for (int i = 0; i < 4; i++, hash = hash * 0x9E3779B97F4A7C15u + 1) memcpy(out + 8 * i, &hash, 8);
}
