/* Failing allocations, in builds with NVM_TEST: each place in the source that calls one of the
 * functions below is a site. A test lets the n-th allocation fail, or the next one of a site.
 */
#ifndef NVM_ALLOC_TEST_H
#define NVM_ALLOC_TEST_H

#include <errno.h>
#include <stdatomic.h>

typedef struct nvm_alloc_site {
  _Alignas(32) const char *file; /* all of one size: they stand in a section of their own */
  int line, system;              /* system: not for memory */
  atomic_uint passed, failed;    /* how often it was asked, and refused */
} nvm_alloc_site;

/* Let the n-th allocation from now fail (1 = the next); 0 = none. Returns what was left to count.
 */
int64_t nvm_test_fail_allocation(int64_t n);
/* Blocks from nvm_malloc and its like that have not been freed. */
int64_t nvm_test_held(void);
/* Let the next allocation of a site fail; NULL = none. */
void nvm_test_fail_site(nvm_alloc_site *site);
/* All sites of the program, those never reached too. */
nvm_alloc_site *nvm_test_sites(size_t *out_count);
int nvm_test_allow(nvm_alloc_site *site);
nvm_status nvm_test_refuse(void);
/* Let all that a source file asks the system for, but memory, fail ("native_code.c"); NULL = none.
 */
void nvm_test_fail_file(const char *file);

#define NVM_SITE(is_system)                                                           \
  __extension__({                                                                     \
    static nvm_alloc_site site_ __attribute__((section("nvm_alloc_sites"), used)) = { \
        .file = __FILE__, .line = __LINE__, .system = (is_system)};                   \
    &site_;                                                                           \
  })
#define NVM_ALLOC_SITE() NVM_SITE(0)
#define NVM_SYSTEM(call, refused) \
  (nvm_test_allow(NVM_SITE(1)) ? (call) : (errno = ENOMEM, (refused)))
#define NVM_OR_NULL(call) (nvm_test_allow(NVM_ALLOC_SITE()) ? (call) : NULL)
#define NVM_OR_FAIL(call) (nvm_test_allow(NVM_ALLOC_SITE()) ? (call) : nvm_test_refuse())

#define nvm_allocation_allowed()         nvm_test_allow(NVM_ALLOC_SITE())
#define nvm_malloc(size)                 NVM_OR_NULL((nvm_malloc)(size))
#define nvm_calloc(size)                 NVM_OR_NULL((nvm_calloc)(size))
#define nvm_realloc(memory, size)        NVM_OR_NULL((nvm_realloc)((memory), (size)))
#define nvm_cell_take(heap, size)        NVM_OR_NULL((nvm_cell_take)((heap), (size)))
#define nvm_cell_create(heap, size, out) NVM_OR_FAIL((nvm_cell_create)((heap), (size), (out)))
#define nvm_storage_create(heap, device, size, alignment, out) \
  NVM_OR_FAIL((nvm_storage_create)((heap), (device), (size), (alignment), (out)))

#endif
