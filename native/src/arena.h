/* Memory that is freed all at once: what a program's tables and strings live in. Not thread-safe.
 */
#ifndef NVM_ARENA_H
#define NVM_ARENA_H

#include <stddef.h>

#include "status.h"

typedef struct nvm_arena nvm_arena;

/* out_arena: owned. */
NVM_NODISCARD nvm_status nvm_arena_create(nvm_arena **out_arena);
void nvm_arena_destroy(nvm_arena *arena); /* NULL ok */
/* size bytes (0 ok), zeroed, aligned to `alignment` (a power of two <= 64). out_memory: borrowed
 * from the arena. */
NVM_NODISCARD nvm_status nvm_arena_alloc(nvm_arena *arena, size_t size, size_t alignment,
                                         void **out_memory);
/* count items of `item` bytes, zeroed, aligned to 16. */
NVM_NODISCARD nvm_status nvm_arena_array(nvm_arena *arena, size_t count, size_t item,
                                         void **out_memory);
/* A copy with a NUL behind it. */
NVM_NODISCARD nvm_status nvm_arena_string(nvm_arena *arena, const char *text, size_t length,
                                          const char **out_text);

#ifdef NVM_TEST
#include "alloc.h"
#define nvm_arena_create(out) NVM_OR_FAIL((nvm_arena_create)(out))
#define nvm_arena_alloc(arena, size, alignment, out) \
  NVM_OR_FAIL((nvm_arena_alloc)((arena), (size), (alignment), (out)))
#define nvm_arena_array(arena, count, item, out) \
  NVM_OR_FAIL((nvm_arena_array)((arena), (count), (item), (out)))
#define nvm_arena_string(arena, text, length, out) \
  NVM_OR_FAIL((nvm_arena_string)((arena), (text), (length), (out)))
#endif

#endif
