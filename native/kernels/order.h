/* What sort.c, search.c, unique.c and vision.c share: an order-preserving key for every dtype, and
 * a stable sort of positions by keys.
 *
 * Order: NaN is greater than everything and equal to NaN; -0 equals 0; false < true.
 */
#ifndef NVM_KERNELS_ORDER_H
#define NVM_KERNELS_ORDER_H

#include "nvm_kernel.h"

/* Elements to walk before asking whether to go on: about 1 ms. */
enum { NVM_POLL_EVERY = 1 << 18 };

/* Ask now and then whether to go on. `work` counts the elements since the last question. */
nvm_status nvm_order_charge(const nvm_kernel_ctx *ctx, int64_t elements, int64_t *work);

/* Where the piece of a loop to n that starts at `begin` ends. */
static inline int64_t nvm_order_end(int64_t begin, int64_t n) {
  return n - begin < NVM_POLL_EVERY ? n : begin + NVM_POLL_EVERY;
}

/* Walks [0, n) in pieces [begin, end), asks after each whether to go on, and ends with the answer
 * in `status`, which has to be NVM_OK before. */
#define NVM_PIECES(ctx, n, work, status, begin, end)                                    \
  for (int64_t begin = 0, end = nvm_order_end(0, n); (status) == NVM_OK && begin < (n); \
       (status) = nvm_order_charge(ctx, end - begin, work), begin = end,                \
               end = nvm_order_end(begin, n))

/* The key of element i of a compact array: keys compare as the elements do. */
uint64_t nvm_order_key(int dtype, const void *data, int64_t i);

/* Keys of data[start + i * stride] for i < count, each xor `flip` (0 ascending, UINT64_MAX
 * descending). */
void nvm_order_keys(int dtype, const void *data, int64_t start, int64_t stride, int64_t count,
                    uint64_t flip, uint64_t *keys);

/* Sort places 0..n-1 by keys, stable. scratch: 4 * n words whose first n are the keys. Returns the
 * sorted places, *out_keys the sorted keys, both inside scratch; *out_spare 2 * n words of it that
 * are free. NULL: stop, *status says why. */
int64_t *nvm_order_sort(const nvm_kernel_ctx *ctx, uint64_t *scratch, int64_t n, int64_t *work,
                        uint64_t **out_keys, uint64_t **out_spare, nvm_status *status);

/* Copy element `from` of source to element `to` of target. */
void nvm_order_copy(int itemsize, void *target, int64_t to, const void *source, int64_t from);

#endif
