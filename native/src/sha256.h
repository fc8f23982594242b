/* SHA-256 (FIPS 180-4) of a block of memory. */
#ifndef NVM_SHA256_H
#define NVM_SHA256_H

#include <stddef.h>
#include <stdint.h>

void nvm_sha256(const void *data, size_t size, uint8_t out_digest[32]);

#endif
