/* What the runtime tells about itself: which machine code a load took and why, fallbacks, failed
 * runs, trims, threads. Off by default; a statement that is off costs one load and a branch, and
 * none stands in the interpreter or between kernels. */
#ifndef NVM_LOG_H
#define NVM_LOG_H

#include <stdatomic.h>

#include "nvm_api.h"
#include "status.h"

/* Negative until the environment was read. */
extern atomic_int nvm_log_threshold;

/* Read NVM_LOG, once a process; the API's entries that may log call it. */
void nvm_log_init(void);

void nvm_log_write(int32_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

static inline int nvm_log_wants(int32_t level) {
  return atomic_load_explicit(&nvm_log_threshold, memory_order_relaxed) >= level;
}

/* level: ERROR, WARNING, INFO or DEBUG; one line of text. Arguments are evaluated only if wanted.
 */
#define NVM_LOG(level, ...)                                                                        \
  do {                                                                                             \
    if (NVM_UNLIKELY(nvm_log_wants(NVM_LOG_##level))) nvm_log_write(NVM_LOG_##level, __VA_ARGS__); \
  } while (0)

#endif
