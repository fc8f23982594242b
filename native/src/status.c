/* The thread-local error record. Fixed buffers: reporting that memory ran out must not need any. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#ifndef NVM_VERSION
#define NVM_VERSION "unknown"
#endif
#define NVM_FORMAT_VERSION 2u

enum { MESSAGE_BYTES = 2048, NAME_BYTES = 256, TRACE_BYTES = 8192 };

typedef struct record {
  nvm_error error;
  size_t trace_length;
  char message[MESSAGE_BYTES];
  char function[NAME_BYTES];
  char source[NAME_BYTES];
  char trace[TRACE_BYTES];
} record;

static _Thread_local record current;

static void copy_text(char *to, size_t size, const char *text) {
  size_t length = text ? strlen(text) : 0;
  if (length >= size) length = size - 1;
  if (length) memcpy(to, text, length);
  to[length] = 0;
}

void nvm_error_clear(void) {
  record *r = &current;
  r->error = (nvm_error){.code = NVM_OK,
                         .message = r->message,
                         .function = r->function,
                         .source = r->source,
                         .trace = r->trace};
  r->message[0] = r->function[0] = r->source[0] = r->trace[0] = 0;
  r->trace_length = 0;
}

nvm_status nvm_ok(void) {
  nvm_error_clear();
  return NVM_OK;
}

nvm_status nvm_fail(nvm_status code, const char *format, ...) {
  nvm_error_clear();
  current.error.code = code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(current.message, sizeof current.message, format, arguments);
  va_end(arguments);
  return code;
}

void nvm_error_set_place(const char *function, uint32_t pc, const char *source, uint32_t line,
                         uint32_t column) {
  copy_text(current.function, sizeof current.function, function);
  copy_text(current.source, sizeof current.source, source);
  current.error.pc = pc;
  current.error.line = line;
  current.error.column = column;
}

void nvm_error_add_trace(const char *format, ...) {
  size_t left = sizeof current.trace - current.trace_length;
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(current.trace + current.trace_length, left, format, arguments);
  va_end(arguments);
  if (written > 0) current.trace_length += (size_t)written < left ? (size_t)written : left - 1;
}

NVM_EXPORT const nvm_error *nvm_last_error(void) {
  if (!current.error.message) nvm_error_clear();
  return &current.error;
}

NVM_EXPORT const char *nvm_status_name(nvm_status status) {
#define ROW(number, name, meaning) #name,
  static const char *const names[] = {NVM_STATUSES(ROW)};
#undef ROW
  return (uint32_t)status < sizeof names / sizeof *names ? names[status] : "UNKNOWN";
}

NVM_EXPORT const char *nvm_status_text(nvm_status status) {
#define ROW(number, name, meaning) meaning,
  static const char *const texts[] = {NVM_STATUSES(ROW)};
#undef ROW
  return (uint32_t)status < sizeof texts / sizeof *texts ? texts[status] : "no status of nimblevm";
}

NVM_EXPORT const char *nvm_version(void) { return NVM_VERSION; }

NVM_EXPORT uint32_t nvm_format_version(void) { return NVM_FORMAT_VERSION; }
