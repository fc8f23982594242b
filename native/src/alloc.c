/* Pools, cells and the release list. See alloc.h. */
#include "alloc.h"

#include <stdlib.h>

#define CHUNK_BYTES ((size_t)64 << 10)
#define LARGE_CACHE ((size_t)16 << 20)

#ifdef NVM_TEST
static atomic_int_fast64_t held;
int64_t nvm_test_held(void) { return atomic_load(&held); }
#define HOLD(memory, count) \
  (void)((memory) != NULL && (atomic_fetch_add_explicit(&held, (count), memory_order_relaxed), 1))
#else
#define HOLD(memory, count) (void)0
#endif

int(nvm_allocation_allowed)(void) { return 1; }

void *(nvm_malloc)(size_t size) {
  void *memory = malloc(size ? size : 1);
  HOLD(memory, 1);
  return memory;
}

void *(nvm_calloc)(size_t size) {
  void *memory = calloc(1, size ? size : 1);
  HOLD(memory, 1);
  return memory;
}

void *(nvm_realloc)(void *memory, size_t size) {
  if (!memory) return (nvm_malloc)(size);
  return realloc(memory, size ? size : 1);
}

void nvm_free(void *memory) {
  HOLD(memory, -1);
  free(memory);
}

#ifdef NVM_TEST
static atomic_int_fast64_t fail_at;
static _Atomic(nvm_alloc_site *) fail_site;
extern nvm_alloc_site __start_nvm_alloc_sites[], __stop_nvm_alloc_sites[];

int64_t nvm_test_fail_allocation(int64_t n) { return atomic_exchange(&fail_at, n); }

void nvm_test_fail_site(nvm_alloc_site *site) { atomic_store(&fail_site, site); }

static const char *_Atomic fail_file;

void nvm_test_fail_file(const char *file) { atomic_store(&fail_file, file); }

nvm_alloc_site *nvm_test_sites(size_t *out_count) {
  *out_count = (size_t)(__stop_nvm_alloc_sites - __start_nvm_alloc_sites);
  return __start_nvm_alloc_sites;
}

int nvm_test_allow(nvm_alloc_site *site) {
  nvm_alloc_site *chosen = site;
  atomic_fetch_add_explicit(&site->passed, 1, memory_order_relaxed);
  const int by_number = atomic_load(&fail_at) != 0 && atomic_fetch_sub(&fail_at, 1) == 1;
  const int by_site = atomic_compare_exchange_strong(&fail_site, &chosen, NULL);
  const char *file = atomic_load(&fail_file);
  const int by_file = file != NULL && site->system && strstr(site->file, file) != NULL;
  if (!by_number && !by_site && !by_file) return 1;
  atomic_fetch_add_explicit(&site->failed, 1, memory_order_relaxed);
  return 0;
}

nvm_status nvm_test_refuse(void) { NVM_FAIL(NVM_OUT_OF_MEMORY, "a test refused this allocation"); }
#endif

#define heap_malloc(heap, size)                                                     \
  (atomic_fetch_add_explicit(&(heap)->system_allocations, 1, memory_order_relaxed), \
   nvm_malloc(size))

/* --- heap ------------------------------------------------------------------------------------- */

NVM_COLD static void close_pools(nvm_heap *heap) {
  for (uint32_t i = 0; i < heap->n_pools; i++)
    if (heap->pools[i].device) heap->pools[i].device->vtable->close(heap->pools[i].device);
  nvm_free(heap->pools);
}

NVM_COLD nvm_status nvm_heap_create(uint32_t n_devices, nvm_heap **out_heap) {
  nvm_heap *heap = nvm_malloc(sizeof *heap);
  nvm_pool *pools = nvm_malloc(n_devices * sizeof *pools);
  if (!heap || !pools) {
    nvm_free(heap);
    nvm_free(pools);
    NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a VM's heap");
  }
  memset(heap, 0, sizeof *heap);
  memset(pools, 0, n_devices * sizeof *pools);
  atomic_init(&heap->outside, 1);
  heap->object_cap = heap->byte_cap = INT64_MAX;
  heap->refs_threshold = 1u << 16;
  heap->pools = pools;
  heap->n_pools = n_devices;
  for (uint32_t i = 0; i < n_devices; i++) pools[i].heap = heap;
  *out_heap = heap;
  return NVM_OK;
}

NVM_COLD static void free_chunks(nvm_heap *heap) {
  while (heap->chunks) {
    void *next;
    memcpy(&next, heap->chunks, sizeof next);
    nvm_free(heap->chunks);
    heap->chunks = next;
  }
  size_t units;
  uint32_t first_large = nvm_size_class((NVM_LARGE_CELL >> NVM_CELL_SHIFT) + 1, &units);
  for (uint32_t c = 0; c < first_large; c++) heap->cells[c] = NULL;
  heap->chunk_at = heap->chunk_end = NULL;
  heap->chunk_bytes = 0;
}

NVM_COLD static void free_large_cells(nvm_heap *heap) {
  size_t units;
  uint32_t first = nvm_size_class((NVM_LARGE_CELL >> NVM_CELL_SHIFT) + 1, &units);
  for (uint32_t c = first; c < NVM_SIZE_CLASSES; c++)
    while (heap->cells[c]) {
      void *cell = heap->cells[c];
      memcpy(&heap->cells[c], cell, sizeof cell);
      nvm_free(cell);
    }
  heap->large_cached = 0;
}

NVM_COLD static void free_block(nvm_pool *pool, nvm_storage *storage) {
  pool->device->vtable->free(pool->device, storage->memory, storage->capacity);
  nvm_free(storage);
}

NVM_COLD static void trim_pool(nvm_pool *pool, size_t keep) {
  for (uint32_t c = NVM_SIZE_CLASSES; c-- > 0 && pool->cached > keep;)
    while (pool->free[c] && pool->cached > keep) {
      nvm_storage *storage = pool->free[c];
      pool->free[c] = storage->next;
      pool->cached -= storage->capacity;
      free_block(pool, storage);
    }
}

NVM_COLD void nvm_heap_trim(nvm_heap *heap, size_t keep, size_t keep_cells) {
  for (uint32_t i = 0; i < heap->n_pools; i++) trim_pool(&heap->pools[i], keep);
  if (heap->live_objects == 0 && heap->chunk_bytes > keep_cells) free_chunks(heap);
  if (heap->large_cached > keep_cells) free_large_cells(heap);
}

size_t nvm_heap_cached(const nvm_heap *heap) {
  size_t bytes = heap->chunk_bytes + heap->large_cached;
  for (uint32_t i = 0; i < heap->n_pools; i++) bytes += heap->pools[i].cached;
  return bytes;
}

void nvm_heap_retain(nvm_heap *heap) {
  atomic_fetch_add_explicit(&heap->outside, 1, memory_order_relaxed);
}

NVM_COLD void nvm_heap_release(nvm_heap *heap) {
  if (atomic_fetch_sub_explicit(&heap->outside, 1, memory_order_acq_rel) != 1) return;
  nvm_heap_drain(heap);
  nvm_heap_trim(heap, 0, 0);
  free_chunks(heap);
  if (heap->free_cached) heap->free_cached(heap);
  nvm_free(heap->marked);
  close_pools(heap);
  nvm_free(heap);
}

NVM_COLD void nvm_heap_close(nvm_heap *heap) {
  atomic_store_explicit(&heap->closed, 1, memory_order_release);
  nvm_heap_drain(heap);
  nvm_heap_trim(heap, 0, 0);
  nvm_heap_release(heap);
}

void nvm_heap_drop(nvm_heap *heap, nvm_dropped *item) {
  /* Nobody will drain soon once the VM is gone: give large memory back at once. Devices' free is
   * thread-safe. */
  if (item->header.kind == NVM_KIND_STORAGE &&
      atomic_load_explicit(&heap->closed, memory_order_acquire)) {
    nvm_storage *storage = (nvm_storage *)item;
    free_block(storage->pool, storage);
  } else {
    nvm_dropped *head = atomic_load_explicit(&heap->dropped, memory_order_relaxed);
    do item->next = head;
    while (!atomic_compare_exchange_weak_explicit(&heap->dropped, &head, item, memory_order_release,
                                                  memory_order_relaxed));
  }
  nvm_heap_release(heap);
}

void nvm_heap_drain(nvm_heap *heap) {
  if (!atomic_load_explicit(&heap->dropped, memory_order_relaxed)) return;
  nvm_dropped *item = atomic_exchange_explicit(&heap->dropped, NULL, memory_order_acquire);
  while (item) {
    nvm_dropped *next = item->next;
    if (item->header.kind == NVM_KIND_STORAGE)
      nvm_storage_recycle(heap, (nvm_storage *)item);
    else
      heap->recycle(heap, item);
    item = next;
  }
}

NVM_COLD nvm_status nvm_heap_over(nvm_heap *heap, nvm_status code, int64_t bytes) {
  if (heap->pressure) return heap->pressure(heap->vm, code, bytes);
  NVM_FAIL(code, "limit reached: %lld objects, %lld bytes", (long long)heap->live_objects,
           (long long)heap->live_bytes);
}

/* --- storage ---------------------------------------------------------------------------------- */

NVM_COLD static nvm_status new_block(nvm_pool *pool, size_t capacity, size_t alignment,
                                     nvm_storage **out_storage) {
  nvm_heap *heap = pool->heap;
  nvm_storage *storage = heap_malloc(heap, sizeof *storage);
  if (!storage) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a block's header");
  memset(storage, 0, sizeof *storage);
  const nvm_device_vtable *vtable = pool->device->vtable;
  atomic_fetch_add_explicit(&heap->system_allocations, 1, memory_order_relaxed);
  nvm_status status = vtable->alloc(pool->device, capacity, alignment, &storage->memory);
  if (status == NVM_OUT_OF_MEMORY &&
      nvm_heap_cached(heap)) { /* our own cache may be what is missing */
    nvm_heap_trim(heap, 0, SIZE_MAX);
    status = vtable->alloc(pool->device, capacity, alignment, &storage->memory);
  }
  if (status != NVM_OK) {
    nvm_free(storage);
    return status;
  }
  storage->header.kind = NVM_KIND_STORAGE;
  storage->pool = pool;
  storage->capacity = capacity;
  *out_storage = storage;
  return NVM_OK;
}

/* The block of a VM of strangers' programs; in memory that the host can't reach: zeros by copying.
 */
NVM_COLD static nvm_status clear_block(nvm_pool *pool, nvm_storage *storage) {
  if (pool->device->vtable->host_accessible) {
    nvm_unpoison(storage->memory, storage->capacity);
    memset(storage->memory, 0, storage->capacity);
    return NVM_OK;
  }
  void *zeros = nvm_calloc(storage->capacity);
  const nvm_status status = zeros ? pool->device->vtable->copy_from_host(
                                        pool->device, storage->memory, 0, zeros, storage->capacity)
                                  : nvm_fail(NVM_OUT_OF_MEMORY, "no memory to clear a block");
  nvm_free(zeros);
  if (status != NVM_OK) free_block(pool, storage);
  return status;
}

nvm_status(nvm_storage_create)(nvm_heap *heap, uint32_t device, size_t size, size_t alignment,
                               nvm_storage **out_storage) {
  if (NVM_UNLIKELY(size > NVM_MAX_BLOCK))
    NVM_FAIL(NVM_OUT_OF_MEMORY, "a block of %zu bytes was asked for", size);
  size_t units;
  uint32_t size_class = nvm_size_class(size ? (size + 63) >> NVM_BLOCK_SHIFT : 1, &units);
  size_t capacity = units << NVM_BLOCK_SHIFT;
  if (NVM_UNLIKELY(heap->live_bytes + (int64_t)capacity > heap->byte_cap))
    NVM_TRY(nvm_heap_over(heap, NVM_MEMORY_LIMIT, (int64_t)capacity));
  nvm_pool *pool = &heap->pools[device];
  nvm_storage *storage = pool->free[size_class];
  if (NVM_LIKELY(storage && alignment <= NVM_BLOCK_ALIGNMENT)) {
    pool->free[size_class] = storage->next;
    pool->cached -= capacity;
  } else {
    size_t wanted = alignment <= NVM_BLOCK_ALIGNMENT ? NVM_BLOCK_ALIGNMENT : alignment;
    NVM_TRY(new_block(pool, capacity, wanted, &storage));
    storage->size_class = (uint16_t)(wanted == NVM_BLOCK_ALIGNMENT ? size_class : NVM_NO_CLASS);
    storage->device = (uint16_t)device;
  }
  if (NVM_UNLIKELY(heap->zero)) NVM_TRY(clear_block(pool, storage));
  storage->header.refcount = 1;
  storage->header.flags = 0;
  storage->size = size;
  heap->live_bytes += (int64_t)capacity;
  if (heap->live_bytes > heap->run_peak) heap->run_peak = heap->live_bytes;
  heap->allocations++;
  heap->allocated_bytes += capacity;
#if defined(NVM_ASAN) || defined(NVM_TEST)
  if (pool->device->vtable->host_accessible) {
    nvm_unpoison(storage->memory, capacity);
#ifdef NVM_TEST
    if (!heap->zero) memset(storage->memory, 0xA5, capacity);
#endif
    nvm_poison((char *)storage->memory + size, capacity - size);
  }
#endif
  *out_storage = storage;
  return NVM_OK;
}

nvm_status nvm_storage_borrow(nvm_heap *heap, const void *memory, size_t size,
                              void (*release)(void *), void *owner, nvm_storage **out_storage) {
  nvm_storage *storage = nvm_cell_take(heap, sizeof *storage);
  if (!storage) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a block's header");
  memset(storage, 0, sizeof *storage);
  storage->header =
      (nvm_object){.refcount = 1, .kind = NVM_KIND_STORAGE, .flags = NVM_FLAG_READONLY};
  storage->memory = (void *)(uintptr_t)memory; /* only read: NVM_FLAG_READONLY */
  storage->size = storage->capacity = size;
  storage->release = release;
  storage->owner = owner;
  *out_storage = storage;
  return NVM_OK;
}

void nvm_storage_recycle(nvm_heap *heap, nvm_storage *storage) {
  nvm_pool *pool = storage->pool;
  if (NVM_UNLIKELY(!pool)) {
    if (storage->release) storage->release(storage->owner);
    nvm_cell_give(heap, storage, sizeof *storage);
    return;
  }
  heap->live_bytes -= (int64_t)storage->capacity;
  if (NVM_UNLIKELY(storage->size_class == NVM_NO_CLASS)) {
    free_block(pool, storage);
    return;
  }
  if (pool->device->vtable->host_accessible) nvm_poison(storage->memory, storage->capacity);
  storage->next = pool->free[storage->size_class];
  pool->free[storage->size_class] = storage;
  pool->cached += storage->capacity;
}

NVM_EXPORT void nvm_storage_retain_handle(void *storage) {
  nvm_storage *block = storage;
  nvm_storage_retain(block);
  nvm_heap_retain(block->pool->heap);
}

NVM_EXPORT void nvm_storage_release_handle(void *storage) {
  nvm_storage *block = storage;
  nvm_heap *heap = block->pool->heap;
  if (__atomic_fetch_sub(nvm_storage_count(block), 1u, __ATOMIC_ACQ_REL) == 1)
    nvm_heap_drop(heap, (nvm_dropped *)block);
  else
    nvm_heap_release(heap);
}

/* --- cells ------------------------------------------------------------------------------------ */

void *(nvm_cell_take)(nvm_heap * heap, size_t size) {
#ifdef NVM_ASAN
  return heap_malloc(heap, size); /* exact and unpooled, so that the sanitizer sees each object */
#else
  size_t units;
  const uint32_t size_class = nvm_size_class((size + 15) >> NVM_CELL_SHIFT, &units);
  const size_t bytes = units << NVM_CELL_SHIFT;
  void *cell = heap->cells[size_class];
  if (cell) {
    memcpy(&heap->cells[size_class], cell, sizeof cell);
    if (bytes > NVM_LARGE_CELL) heap->large_cached -= bytes;
    return cell;
  }
  if (bytes > NVM_LARGE_CELL) return heap_malloc(heap, bytes);
  if ((size_t)(heap->chunk_end - heap->chunk_at) < bytes) {
    char *chunk = heap_malloc(heap, CHUNK_BYTES);
    if (!chunk) return NULL;
    memcpy(chunk, &heap->chunks, sizeof heap->chunks);
    heap->chunks = chunk;
    heap->chunk_at = chunk + 16;
    heap->chunk_end = chunk + CHUNK_BYTES;
    heap->chunk_bytes += CHUNK_BYTES;
  }
  cell = heap->chunk_at;
  heap->chunk_at += bytes;
  return cell;
#endif
}

void nvm_cell_give(nvm_heap *heap, void *cell, size_t size) {
#ifdef NVM_ASAN
  (void)heap;
  (void)size;
  nvm_free(cell);
#else
  size_t units;
  const uint32_t size_class = nvm_size_class((size + 15) >> NVM_CELL_SHIFT, &units);
  const size_t bytes = units << NVM_CELL_SHIFT;
  if (bytes > NVM_LARGE_CELL) {
    if (heap->large_cached + bytes > LARGE_CACHE) {
      nvm_free(cell);
      return;
    }
    heap->large_cached += bytes;
  }
  memcpy(cell, &heap->cells[size_class], sizeof cell);
  heap->cells[size_class] = cell;
#endif
}

NVM_COLD nvm_status nvm_cell_create_slow(nvm_heap *heap, size_t size, void **out_cell) {
  if (heap->live_objects >= heap->object_cap) NVM_TRY(nvm_heap_over(heap, NVM_OBJECT_LIMIT, 0));
  if (heap->live_bytes + (int64_t)size > heap->byte_cap)
    NVM_TRY(nvm_heap_over(heap, NVM_MEMORY_LIMIT, (int64_t)size));
  *out_cell = (nvm_cell_take)(heap, size);
  if (!*out_cell) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for an object of %zu bytes", size);
  heap->live_objects++;
  heap->live_bytes += (int64_t)size;
  return NVM_OK;
}
