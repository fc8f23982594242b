/* Memory of a VM: storage pools (one a device), cells of objects, and the list of what other
 * threads dropped.
 *
 * A heap is used by the thread that runs its VM. Other threads may only count storage and push on
 * `dropped`. It lives until its VM is destroyed and nothing outside holds a storage, result or
 * handle of it.
 */
#ifndef NVM_ALLOC_H
#define NVM_ALLOC_H

#include <stdatomic.h>
#include <string.h>

#include "nvm_object.h"
#include "status.h"

#if defined(__SANITIZE_ADDRESS__)
#define NVM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NVM_ASAN 1
#endif
#endif

/* --- the system's allocator; under NVM_TEST every place that allocates can be made to fail --- */
void *nvm_malloc(size_t size);
void *nvm_calloc(size_t size); /* zeroed; pages of large blocks stay untouched until written */
void *nvm_realloc(void *memory, size_t size);
void nvm_free(void *memory);
/* May the next allocation proceed? Always, unless a test asked for a failure. Devices ask too. */
int nvm_allocation_allowed(void);

/* What else the system may refuse: mappings, descriptors, libraries, threads. `refused`: what the
 * call gives then. Under NVM_TEST such a place is a site, as those that allocate are. */
#ifndef NVM_TEST
#define NVM_SYSTEM(call, refused) (call)
#endif

/* Under a sanitizer: memory of ours that nobody may touch now (gaps, free blocks, unused capacity).
 */
#ifdef NVM_ASAN
void __asan_poison_memory_region(void const volatile *memory, size_t size);
void __asan_unpoison_memory_region(void const volatile *memory, size_t size);
static inline void nvm_poison(const void *memory, size_t size) {
  __asan_poison_memory_region(memory, size);
}
static inline void nvm_unpoison(const void *memory, size_t size) {
  __asan_unpoison_memory_region(memory, size);
}
#else
static inline void nvm_poison(const void *memory, size_t size) { (void)memory, (void)size; }
static inline void nvm_unpoison(const void *memory, size_t size) { (void)memory, (void)size; }
#endif

/* --- size classes: exact to 16 units, then four to a doubling: at most 25 % more than asked --- */
enum { NVM_SIZE_CLASSES = 240, NVM_NO_CLASS = 0xFFFF };
#define NVM_MAX_BLOCK ((size_t)1 << 56)

/* Class of n >= 1 units; *out_units = its size. */
static inline uint32_t nvm_size_class(size_t n, size_t *out_units) {
  if (n <= 16) {
    *out_units = n;
    return (uint32_t)n - 1;
  }
  uint32_t log = 63u - (uint32_t)__builtin_clzll((unsigned long long)(n - 1));
  size_t quarter = (n - 1) >> (log - 2);
  *out_units = (quarter + 1) << (log - 2);
  return 16 + (log - 4) * 4 + (uint32_t)(quarter & 3);
}

enum { NVM_BLOCK_SHIFT = 6, NVM_CELL_SHIFT = 4, NVM_BLOCK_ALIGNMENT = 64 };

typedef struct nvm_pool {
  struct nvm_heap *heap;
  nvm_device *device;
  /* By kernel, what its launch is given: device code, or of the host an nvm_external to run in
   * place of the kernel (vm_devices.c). NULL: all run as host functions. */
  const void *const *code;
  void *modules[2]; /* owned: of external code, of device code */
  size_t cached;    /* bytes on the free lists */
  nvm_storage *free[NVM_SIZE_CLASSES];
} nvm_pool;

/* What any thread may push on a heap's release list: storage, handles, results. Same first members
 * as those. */
typedef struct nvm_dropped {
  nvm_object header;
  struct nvm_dropped *next;
} nvm_dropped;
enum { NVM_KIND_HANDLE = 100, NVM_KIND_RESULT = 101 };

typedef struct nvm_heap {
  atomic_size_t outside; /* the VM and everything that is held outside of it */
  atomic_int closed;     /* the VM is gone: storage is freed at once by who drops it */
  _Atomic(nvm_dropped *) dropped;
  uint32_t n_pools;
  nvm_pool *pools; /* by device index */
  int zero;        /* blocks are zeroed when handed out (docs/adr/0002) */

  void *cells[NVM_SIZE_CLASSES]; /* free cells */
  void *chunks;                  /* where small cells are cut from */
  char *chunk_at, *chunk_end;
  size_t chunk_bytes, large_cached;

  nvm_ref *refs; /* all cells of `ref`, for the collection of cycles */
  size_t n_refs, refs_threshold;
  struct nvm_handle *handles, *handles_free;
  struct nvm_result *results_free;
  /* results.c, set by nvm_results_attach: what becomes of a dropped result or handle, and of those
   * that are kept for the next run. */
  void (*recycle)(struct nvm_heap *heap, nvm_dropped *item);
  void (*free_cached)(struct nvm_heap *heap);
  struct nvm_walk *walk; /* results.c: path to the value at hand */
  size_t walk_capacity;
  nvm_object **marked;
  size_t n_marked, marked_capacity;
  int mark_failed;

  int64_t live_objects, live_bytes, peak_bytes, run_peak;
  int64_t object_cap, byte_cap; /* live counts at which the limits of this run are hit */
  uint64_t allocations, allocated_bytes;
  uint64_t copied_bytes, written_bytes; /* see nvm_vm_stats */
  uint64_t copies[2];                   /* of tensors: to devices, to the host */
  atomic_uint_fast64_t system_allocations;
  /* Called when a cap is hit: collects cycles; returns NVM_OK if that made room for `bytes` more.
   */
  nvm_status (*pressure)(void *vm, nvm_status code, int64_t bytes);
  nvm_status (*poll)(void *vm); /* whether long copies may go on; NULL: always */
  void *vm;
} nvm_heap;

/* out_heap: owned. Its pools have no devices yet; those that they get are closed with it. */
NVM_NODISCARD nvm_status nvm_heap_create(uint32_t n_devices, nvm_heap **out_heap);
/* The VM's own reference, dropped when it is destroyed. All objects must be dead. */
void nvm_heap_close(nvm_heap *heap);
void nvm_heap_retain(nvm_heap *heap);  /* any thread */
void nvm_heap_release(nvm_heap *heap); /* any thread; the last one frees it */
/* Push something whose last outside reference went; then drops that reference to the heap. Any
 * thread. */
void nvm_heap_drop(nvm_heap *heap, nvm_dropped *item);
/* Take in what other threads dropped. */
void nvm_heap_drain(nvm_heap *heap);
/* Free cached blocks down to `keep` bytes per pool, and object chunks if no object lives and they
 * exceed `keep_cells`. */
void nvm_heap_trim(nvm_heap *heap, size_t keep, size_t keep_cells);
size_t nvm_heap_cached(const nvm_heap *heap);

/* --- storage --- */
/* A block of size >= 0 bytes on a device; contents undefined unless heap->zero. out_storage: owned.
 * Errors: OUT_OF_MEMORY, MEMORY_LIMIT. */
NVM_NODISCARD nvm_status nvm_storage_create(nvm_heap *heap, uint32_t device, size_t size,
                                            size_t alignment, nvm_storage **out_storage);
/* Wrap memory of the caller; release (may be NULL) is called once when the block dies. out_storage:
 * owned. */
NVM_NODISCARD nvm_status nvm_storage_borrow(nvm_heap *heap, const void *memory, size_t size,
                                            void (*release)(void *), void *owner,
                                            nvm_storage **out_storage);
/* The count is zero: back to the pool. */
void nvm_storage_recycle(nvm_heap *heap, nvm_storage *storage);

/* Use more or less of a block's capacity. */
static inline void nvm_storage_resize(nvm_heap *heap, nvm_storage *storage, size_t size) {
  storage->size = size;
#ifdef NVM_ASAN
  if (heap->pools[storage->device].device->vtable->host_accessible) {
    nvm_unpoison(storage->memory, size);
    nvm_poison((char *)storage->memory + size, storage->capacity - size);
  }
#else
  (void)heap;
#endif
}

static inline uint32_t *nvm_storage_count(nvm_storage *storage) {
  return &storage->header.refcount;
}

static inline void nvm_storage_retain(nvm_storage *storage) {
  __atomic_fetch_add(nvm_storage_count(storage), 1u, __ATOMIC_RELAXED);
}

static inline int nvm_storage_unique(nvm_storage *storage) {
  return __atomic_load_n(nvm_storage_count(storage), __ATOMIC_ACQUIRE) == 1;
}

/* By the VM's thread. A count of one is ours alone, so that needs no locked instruction. */
static inline void nvm_storage_release(nvm_heap *heap, nvm_storage *storage) {
  if (nvm_storage_unique(storage) ||
      __atomic_fetch_sub(nvm_storage_count(storage), 1u, __ATOMIC_ACQ_REL) == 1)
    nvm_storage_recycle(heap, storage);
}

NVM_NODISCARD nvm_status nvm_heap_over(nvm_heap *heap, nvm_status code, int64_t bytes);

/* --- cells --- */
enum { NVM_SMALL_CELL = 16 }; /* units up to which classes are exact */
#define NVM_LARGE_CELL 8192
/* Memory from the free lists or the chunks; NULL: no memory. */
void *nvm_cell_take(nvm_heap *heap, size_t size);
void nvm_cell_give(nvm_heap *heap, void *cell, size_t size);

/* A cell for an object, which counts against the limits. out_cell: owned. Errors: OUT_OF_MEMORY,
 * OBJECT_LIMIT, MEMORY_LIMIT. */
NVM_NODISCARD nvm_status nvm_cell_create_slow(nvm_heap *heap, size_t size, void **out_cell);
NVM_NODISCARD static inline nvm_status nvm_cell_create(nvm_heap *heap, size_t size,
                                                       void **out_cell) {
  const size_t units = (size + 15) >> NVM_CELL_SHIFT;
  if (NVM_UNLIKELY(units > NVM_SMALL_CELL || heap->live_objects >= heap->object_cap ||
                   heap->live_bytes + (int64_t)size > heap->byte_cap || !heap->cells[units - 1]))
    return nvm_cell_create_slow(heap, size, out_cell);
  heap->live_objects++;
  heap->live_bytes += (int64_t)size;
  *out_cell = heap->cells[units - 1];
  memcpy(&heap->cells[units - 1], *out_cell, sizeof *out_cell);
  return NVM_OK;
}

static inline void nvm_cell_free(nvm_heap *heap, void *cell, size_t size) {
  const size_t units = (size + 15) >> NVM_CELL_SHIFT;
  heap->live_objects--;
  heap->live_bytes -= (int64_t)size;
#ifndef NVM_ASAN
  if (NVM_LIKELY(units <= NVM_SMALL_CELL)) {
    memcpy(cell, &heap->cells[units - 1], sizeof cell);
    heap->cells[units - 1] = cell;
    return;
  }
#else
  (void)units;
#endif
  nvm_cell_give(heap, cell, size);
}

#ifdef NVM_TEST
#include "alloc_test.h"
#endif

#endif
