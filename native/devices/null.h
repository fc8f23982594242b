/* What the null device recorded. */
#ifndef NVM_NULL_H
#define NVM_NULL_H

#include <stdatomic.h>

typedef struct nvm_null_counts {
  atomic_ullong allocs, frees, copies, syncs, launches;
} nvm_null_counts;

/* Of all null devices since the process started. */
const nvm_null_counts *nvm_null_totals(void);

#endif
