/* The error record of a thread and the macros that pass statuses on. */
#ifndef NVM_STATUS_H
#define NVM_STATUS_H

#include <stddef.h>
#include <stdint.h>

#include "nvm_api.h"

#define NVM_NODISCARD   __attribute__((warn_unused_result))
#define NVM_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define NVM_LIKELY(x)   __builtin_expect(!!(x), 1)
/* Runs when something failed, or once a VM: built for size. */
#define NVM_COLD   __attribute__((cold, noinline))
#define NVM_EXPORT __attribute__((visibility("default")))

/* Return from the calling function if expr is not NVM_OK. */
#define NVM_TRY(expr)                                                    \
  do {                                                                   \
    nvm_status nvm_try_status_ = (expr);                                 \
    if (NVM_UNLIKELY(nvm_try_status_ != NVM_OK)) return nvm_try_status_; \
  } while (0)

/* Record an error and return its code. */
#define NVM_FAIL(code, ...) return nvm_fail((code), __VA_ARGS__)

/* Start a new error: sets code and message (cut to the record's size), clears the place. Returns
 * code. */
NVM_NODISCARD nvm_status nvm_fail(nvm_status code, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

/* Forget the thread's error. */
void nvm_error_clear(void);
/* NVM_OK and no error on record: how a call of the API ends that did not clear it before. */
nvm_status nvm_ok(void);

/* Add the place of the error on record. Strings are copied; NULL reads as "". */
void nvm_error_set_place(const char *function, uint32_t pc, const char *source, uint32_t line,
                         uint32_t column);

/* Append text to the trace of the error on record; cut silently when the record is full. */
void nvm_error_add_trace(const char *format, ...) __attribute__((format(printf, 1, 2), cold));

#endif
