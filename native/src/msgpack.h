/* A bounded decoder of the msgpack header. It reads a fixed schema: the caller asks for what must
 * come next, so nothing is skipped, nothing recurses and nesting is as deep as the caller's code. A
 * count is refused before anything is allocated for it if the rest of the header could not hold
 * that many items. Every error is NVM_INVALID_EXECUTABLE with place, expected and got.
 */
#ifndef NVM_MSGPACK_H
#define NVM_MSGPACK_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct nvm_mp {
  const uint8_t *begin, *at, *end;
  const char *part;  /* for messages: what these bytes are, "header" */
  const char *table; /* which table and row is being read, or NULL */
  uint32_t row;
} nvm_mp;

void nvm_mp_init(nvm_mp *mp, const uint8_t *data, size_t size);

/* Fail at the current place: "header byte 12, functions[3]: <text>". */
nvm_status nvm_mp_fail(const nvm_mp *mp, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* An array of any length; an item takes at least min_item bytes. */
NVM_NODISCARD nvm_status nvm_mp_array(nvm_mp *mp, const char *what, uint32_t min_item,
                                      uint32_t *out_count);
/* An array of exactly `count` items. */
NVM_NODISCARD nvm_status nvm_mp_tuple(nvm_mp *mp, const char *what, uint32_t count);
/* A map of any size. */
NVM_NODISCARD nvm_status nvm_mp_map(nvm_mp *mp, const char *what, uint32_t *out_count);
/* A map of exactly `count` entries. */
NVM_NODISCARD nvm_status nvm_mp_record(nvm_mp *mp, const char *what, uint32_t count);
/* Exactly this key. */
NVM_NODISCARD nvm_status nvm_mp_key(nvm_mp *mp, const char *key);
/* An int with low <= value <= high. */
NVM_NODISCARD nvm_status nvm_mp_int(nvm_mp *mp, const char *what, int64_t low, int64_t high,
                                    int64_t *out_value);
NVM_NODISCARD nvm_status nvm_mp_u32(nvm_mp *mp, const char *what, uint32_t high,
                                    uint32_t *out_value);
NVM_NODISCARD nvm_status nvm_mp_bool(nvm_mp *mp, const char *what, uint8_t *out_value);
/* UTF-8 without NUL; out_text is borrowed from the header and not terminated. */
NVM_NODISCARD nvm_status nvm_mp_str(nvm_mp *mp, const char *what, const char **out_text,
                                    size_t *out_length);
NVM_NODISCARD nvm_status nvm_mp_bin(nvm_mp *mp, const char *what, const uint8_t **out_data,
                                    size_t *out_size);

/* Is this UTF-8 (shortest forms, no surrogates, at most U+10FFFF) without NUL? */
int nvm_is_text(const uint8_t *text, size_t length);

#endif
