#include "arena.h"

#include <stdint.h>
#include <string.h>

#include "alloc.h"

#ifdef NVM_TEST
enum { CHUNK = 1024 };
#else
enum { CHUNK = 16384 };
#endif
#ifdef NVM_ASAN
enum { GAP = 16 }; /* bytes behind each allocation that nobody may touch */
#else
enum { GAP = 0 };
#endif
enum { MAX_ALIGNMENT = 64 };

typedef struct chunk {
  struct chunk *next;
  char *memory; /* aligned to MAX_ALIGNMENT, zeroed */
} chunk;

struct nvm_arena {
  chunk *chunks;
  char *at;
  size_t left;
};

nvm_status(nvm_arena_create)(nvm_arena **out_arena) {
  *out_arena = nvm_calloc(sizeof **out_arena);
  if (*out_arena == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for a program");
  return NVM_OK;
}

void nvm_arena_destroy(nvm_arena *arena) {
  if (arena == NULL) return;
  for (chunk *c = arena->chunks; c != NULL;) {
    chunk *next = c->next;
    nvm_free(c);
    c = next;
  }
  nvm_free(arena);
}

/* A chunk of its own for `size` bytes. calloc, so that the pages of large ones stay untouched until
 * written. */
static nvm_status add_chunk(nvm_arena *arena, size_t size, char **out_memory) {
  if (size > SIZE_MAX / 2) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %zu bytes", size);
  chunk *c = nvm_calloc(sizeof(chunk) + MAX_ALIGNMENT + size);
  if (c == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %zu bytes of a program", size);
  uintptr_t start = (uintptr_t)(c + 1);
  c->memory = (char *)(c + 1) + (-start & (MAX_ALIGNMENT - 1));
  c->next = arena->chunks;
  arena->chunks = c;
  nvm_poison(c->memory, size);
  *out_memory = c->memory;
  return NVM_OK;
}

nvm_status(nvm_arena_alloc)(nvm_arena *arena, size_t size, size_t alignment, void **out_memory) {
  char *memory = NULL;
  if (size > CHUNK / 4) {
    NVM_TRY(add_chunk(arena, size, &memory));
    nvm_unpoison(memory, size);
    *out_memory = memory;
    return NVM_OK;
  }
  size_t padding = (size_t)(-(uintptr_t)arena->at & (alignment - 1));
  if (arena->at == NULL || arena->left < padding || arena->left - padding < size + GAP) {
    NVM_TRY(add_chunk(arena, CHUNK, &memory));
    arena->at = memory;
    arena->left = CHUNK;
    padding = 0;
  }
  *out_memory = arena->at + padding;
  nvm_unpoison(*out_memory, size);
  arena->at += padding + size + GAP;
  arena->left -= padding + size + GAP;
  return NVM_OK;
}

nvm_status(nvm_arena_array)(nvm_arena *arena, size_t count, size_t item, void **out_memory) {
  if (count > SIZE_MAX / item) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %zu items", count);
  return nvm_arena_alloc(arena, count * item, 16, out_memory);
}

nvm_status(nvm_arena_string)(nvm_arena *arena, const char *text, size_t length,
                             const char **out_text) {
  void *memory = NULL;
  NVM_TRY(nvm_arena_alloc(arena, length + 1, 1, &memory));
  if (length > 0) memcpy(memory, text, length);
  *out_text = memory;
  return NVM_OK;
}
