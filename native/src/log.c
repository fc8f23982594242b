/* Levels, and where lines go. See log.h. */
#include "log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

atomic_int nvm_log_threshold = -1;

static const char *const names[] = {"off", "error", "warning", "info", "debug"};
enum { N_LEVELS = sizeof names / sizeof *names };

/* Under lock, so that a line is not given to a callback that was just taken away. Recursive: what
 * a callback of a binding sets off may log too. */
static struct {
  pthread_mutex_t lock;
  nvm_log_fn write;
  void *context;
} sink;

static pthread_once_t once = PTHREAD_ONCE_INIT;

static void to_stderr(const char *text, size_t length) {
  const int kept = errno;
  while (length > 0) {
    const ssize_t written = write(STDERR_FILENO, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    text += written;
    length -= (size_t)written;
  }
  errno = kept;
}

static void emit(int32_t level, const char *message) {
  char line[LINE_BYTES + 64];
  const int length = snprintf(line, sizeof line, "nimblevm %s: %s\n", names[level], message);
  if (length > 0) to_stderr(line, (size_t)length < sizeof line ? (size_t)length : sizeof line - 1);
}

/* -1: no level's name */
static int32_t level_of(const char *text) {
  for (int32_t i = 0; i < N_LEVELS; i++)
    if (strcmp(text, names[i]) == 0) return i;
  return -1;
}

/* Also in a child of fork, where another thread may have had the lock. To take it before fork would
 * not do: who has it may wait for something that the forking thread holds, such as Python's lock.
 */
static void make_lock(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&sink.lock, &recursive);
  pthread_mutexattr_destroy(&recursive);
}

static void read_environment(void) {
  make_lock();
  (void)pthread_atfork(NULL, NULL, make_lock);
  const char *wanted = getenv("NVM_LOG");
  int32_t level = NVM_LOG_OFF;
  if (wanted && *wanted) {
    level = level_of(wanted);
    if (level < 0) {
      level = NVM_LOG_WARNING;
      emit(level, "NVM_LOG is none of off, error, warning, info, debug; taken as warning");
    }
  }
  atomic_store(&nvm_log_threshold, level);
}

void nvm_log_init(void) { (void)pthread_once(&once, read_environment); }

NVM_EXPORT void nvm_log_set(int32_t level, nvm_log_fn write, void *context) {
  nvm_log_init();
  pthread_mutex_lock(&sink.lock);
  sink.write = write;
  sink.context = context;
  if (level > NVM_LOG_DEBUG) level = NVM_LOG_DEBUG;
  if (level >= NVM_LOG_OFF) atomic_store(&nvm_log_threshold, level);
  pthread_mutex_unlock(&sink.lock);
}

NVM_EXPORT int32_t nvm_log_level(void) {
  nvm_log_init();
  return atomic_load(&nvm_log_threshold);
}

/* Files and callers say some of what a message has, names and texts: they write no lines of their
 * own. */
static void to_one_line(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < 0x20 || *text == 0x7f) *text = ' ';
}

void nvm_log_write(int32_t level, const char *format, ...) {
  char message[LINE_BYTES];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  to_one_line(message);
  pthread_mutex_lock(&sink.lock);
  if (sink.write)
    sink.write(sink.context, level, message);
  else
    emit(level, message);
  pthread_mutex_unlock(&sink.lock);
}
