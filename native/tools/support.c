/* Memory, files, dtypes and messages of nvm-run. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tool.h"

enum { ALIGNMENT = 64 };

typedef struct kept {
  struct kept *next;
} kept;

static kept *all_kept;
static char unfinished[4096]; /* the file that is written and has no name yet; "" if none is */

void mistake(const char *format, ...) {
  va_list values;
  va_start(values, format);
  fputs("error: ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  if (*unfinished) (void)unlink(unfinished);
  free_kept();
  exit(EXIT_MISTAKE);
}

void failed(const char *what) {
  const nvm_error *error = nvm_last_error();
  char place[640] = "";
  if (*error->function) snprintf(place, sizeof place, " (in @%.256s", error->function);
  if (*error->source)
    snprintf(place + strlen(place), sizeof place - strlen(place), "%s at %.256s:%u:%u",
             *place ? "" : " (", error->source, error->line, error->column);
  mistake("%s%s%s%s%s [%s]", what ? what : "", what ? ": " : "", error->message, place,
          *place ? ")" : "", nvm_status_name(error->code));
}

void *keep(size_t size) {
  kept *block = size > SIZE_MAX / 2
                    ? NULL
                    : aligned_alloc(ALIGNMENT, (size + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (!block) mistake("no memory for %zu bytes", size);
  block->next = all_kept;
  all_kept = block;
  return (char *)block + ALIGNMENT;
}

char *keep_text(const char *text, size_t length) {
  char *copy = keep(length + 1);
  memcpy(copy, text, length);
  copy[length] = 0;
  return copy;
}

void free_kept(void) {
  while (all_kept) {
    kept *next = all_kept->next;
    free(all_kept);
    all_kept = next;
  }
}

void *grow(void *array, size_t *capacity, size_t item) {
  size_t wanted = *capacity ? 2 * *capacity : 64;
  void *grown = wanted > SIZE_MAX / 2 / item ? NULL : keep(wanted * item);
  if (!grown) mistake("no memory for %zu values", wanted);
  if (*capacity) {
    memcpy(grown, array, *capacity * item);
    kept *block = (kept *)(void *)((char *)array - ALIGNMENT); /* the old one is done with */
    for (kept **at = &all_kept; *at; at = &(*at)->next) {
      if (*at != block) continue;
      *at = block->next;
      free(block);
      break;
    }
  }
  *capacity = wanted;
  return grown;
}

char *read_file(const char *path, size_t *out_size) {
  FILE *file = fopen(path, "rb");
  if (!file) mistake("%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t count = 0, capacity = 0;
  for (;;) {
    if (count + 1 >= capacity) text = grow(text, &capacity, 1);
    size_t got = fread(text + count, 1, capacity - count - 1, file);
    count += got;
    if (got == 0) break;
  }
  if (ferror(file)) mistake("%s: %s", path, strerror(errno));
  fclose(file);
  text[count] = 0;
  *out_size = count;
  return text;
}

/* --- files that are written --- */

static void give_up(int number) {
  (void)unlink(unfinished);
  (void)signal(number, SIG_DFL);
  (void)raise(number);
}

/* Where the file is made: beside `place`. */
static void name_unfinished(const char *place) {
  const char *slash = strrchr(place, '/');
  const int folder = slash ? (int)(slash + 1 - place) : 0;
  const int length =
      snprintf(unfinished, sizeof unfinished, "%.*s.nvm.%ld.tmp", folder, place, (long)getpid());
  if (length >= (int)sizeof unfinished) {
    *unfinished = 0;
    mistake("%s: %s", place, strerror(ENAMETOOLONG));
  }
  const int stopping[] = {SIGINT, SIGTERM, SIGHUP};
  for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
    if (signal(stopping[i], give_up) == SIG_IGN) (void)signal(stopping[i], SIG_IGN);
}

void check_output(const char *path) {
  struct stat found = {0};
  if (stat(path, &found) == 0 && !S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode)) return;
  char *whole = realpath(path, NULL), *folder = keep_text(path, strlen(path));
  if (whole && S_ISREG(found.st_mode)) folder = keep_text(whole, strlen(whole));
  free(whole);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[1] = 0;
  else
    folder = keep_text(".", 1);
  if (access(folder, W_OK | X_OK)) mistake("%s: %s", path, strerror(errno));
}

output create_file(const char *path) {
  output out = {.path = path};
  struct stat found;
  const int there = stat(path, &found) == 0;
  if (!there || S_ISREG(found.st_mode)) {
    char *whole = realpath(path, NULL); /* a link stays one */
    out.place = keep_text(whole ? whole : path, strlen(whole ? whole : path));
    free(whole);
    name_unfinished(out.place);
  }
  out.file = fopen(out.place ? unfinished : path, "wb");
  if (!out.file) {
    *unfinished = 0;
    mistake("%s: %s", path, strerror(errno));
  }
  return out;
}

void finish_file(output *out) {
  int code = ferror(out->file) ? errno : 0;
  if (fclose(out->file) && !code) code = errno;
  if (!code && out->place && rename(unfinished, out->place)) code = errno;
  if (code) mistake("%s: %s", out->path, strerror(code));
  *unfinished = 0;
}

/* --- dtypes --- */

const char *dtype_name(int32_t dtype) {
  return dtype >= 0 && dtype < (int32_t)NVM_DTYPE_COUNT ? nvm_dtypes[dtype].name : "unknown";
}

size_t dtype_size(int32_t dtype) { return nvm_dtypes[dtype].itemsize; }

int32_t dtype_of_name(const char *name, size_t length) {
  for (int32_t i = 0; i < (int32_t)NVM_DTYPE_COUNT; i++)
    if (strlen(nvm_dtypes[i].name) == length && memcmp(nvm_dtypes[i].name, name, length) == 0)
      return i;
  return -1;
}

int is_float(int32_t dtype) { return nvm_dtypes[dtype].is_float; }

int is_integer(int32_t dtype) { return nvm_dtypes[dtype].is_integer; }

int integer_fits(int32_t dtype, int negative, uint64_t size) {
  const nvm_dtype_row *row = &nvm_dtypes[dtype];
  const uint64_t most = row->is_signed    ? (UINT64_C(1) << (row->bits - 1)) - 1
                        : row->bits == 64 ? UINT64_MAX
                                          : (UINT64_C(1) << row->bits) - 1;
  if (!negative || size == 0) return size <= most;
  return row->is_signed && size - 1 <= most;
}

void write_integer(int32_t dtype, int negative, uint64_t size, void *to) {
  const uint64_t bits = negative ? 0 - size : size;
  memcpy(to, &bits, dtype_size(dtype)); /* little-endian */
}

/* Nearest float16, ties to even. */
static uint16_t half_of(double number) {
  const uint16_t sign = signbit(number) ? 0x8000 : 0;
  const double size = fabs(number);
  int exponent;
  if (isnan(number)) return sign | 0x7e00;
  if (size >= 65520.0) return sign | 0x7c00;
  if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)rint(size * 0x1p24));
  (void)frexp(size, &exponent);
  const uint32_t mantissa = (uint32_t)rint(ldexp(size, 11 - exponent)); /* 1024 .. 2048 */
  return (uint16_t)(sign | (uint16_t)(((uint32_t)(exponent + 14) << 10) + mantissa - 1024));
}

static double of_half(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const double mantissa = half & 1023, sign = half >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa ? (double)NAN : sign * (double)INFINITY;
  return sign * (exponent ? ldexp(mantissa + 1024, exponent - 25) : ldexp(mantissa, -24));
}

int write_float(int32_t dtype, double number, void *to) {
  if (dtype == NVM_DTYPE_FLOAT64) {
    memcpy(to, &number, sizeof number);
    return 1;
  }
  if (dtype == NVM_DTYPE_FLOAT32) {
    const float single = (float)number;
    memcpy(to, &single, sizeof single);
    return isfinite(single) || !isfinite(number);
  }
  const uint16_t half = half_of(number);
  memcpy(to, &half, sizeof half);
  return (half & 0x7c00) != 0x7c00 || !isfinite(number);
}

double read_float(int32_t dtype, const void *from) {
  double number;
  float single;
  uint16_t half;
  switch (dtype) {
    case NVM_DTYPE_FLOAT64:
      memcpy(&number, from, sizeof number);
      return number;
    case NVM_DTYPE_FLOAT32:
      memcpy(&single, from, sizeof single);
      return (double)single;
    default:
      memcpy(&half, from, sizeof half);
      return of_half(half);
  }
}

size_t shape_count(int32_t dtype, uint32_t rank, const int64_t *shape, const char *place) {
  size_t count = 1, bytes = dtype_size(dtype);
  int empty = 0;
  for (uint32_t a = 0; a < rank; a++) empty |= shape[a] == 0;
  for (uint32_t a = 0; a < rank && !empty; a++)
    if (shape[a] < 0 || __builtin_mul_overflow(count, (size_t)shape[a], &count) ||
        __builtin_mul_overflow(bytes, (size_t)shape[a], &bytes) || bytes > SIZE_MAX / 4)
      mistake("%s: the shape has more elements than fit into memory", place);
  return empty ? 0 : count;
}
