/* .npy files, format versions 1 to 3: a magic, the length of a header, the header (a Python dict
 * with exactly the keys descr, fortran_order and shape), the elements. Everything is bounded by the
 * file's size; no part of the header is believed before it is checked. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tool.h"

enum { MAX_HEADER = 65536, PREFIX = 8 };

typedef struct header {
  const char *path;
  const char *bytes; /* of the file, not read yet */
  size_t left;
  const char *at, *end;
  int has_descr, has_order, has_shape;
  int32_t dtype;
  int fortran;
  uint32_t rank;
  int64_t shape[MAX_RANK];
} header;

static _Noreturn void bad(const header *h, const char *what) {
  mistake("%s: expected a .npy file, but %s", h->path, what);
}

static void skip_space(header *h) {
  while (h->at < h->end && (*h->at == ' ' || *h->at == '\n' || *h->at == '\t')) h->at++;
}

static int take(header *h, char wanted) {
  skip_space(h);
  if (h->at == h->end || *h->at != wanted) return 0;
  h->at++;
  return 1;
}

static void need(header *h, char wanted) {
  char what[] = "its header has no ' ' where it belongs";
  what[strlen("its header has no '")] = wanted;
  if (!take(h, wanted)) bad(h, what);
}

static int take_word(header *h, const char *word) {
  const size_t length = strlen(word);
  skip_space(h);
  if ((size_t)(h->end - h->at) < length || memcmp(h->at, word, length) != 0) return 0;
  h->at += length;
  return 1;
}

/* The text between two quotes of one kind. */
static const char *take_string(header *h, size_t *out_length) {
  skip_space(h);
  if (h->at == h->end || (*h->at != '\'' && *h->at != '"'))
    bad(h, "its header has no string where one belongs");
  const char quote = *h->at++, *start = h->at;
  while (h->at < h->end && *h->at != quote) h->at++;
  if (h->at == h->end) bad(h, "a string in its header does not end");
  *out_length = (size_t)(h->at - start);
  h->at++;
  return start;
}

static void take_descr(header *h) {
  size_t length;
  const char *text = take_string(h, &length);
  h->dtype = -1;
  if (length == 3 && strchr("<|=>", text[0]))
    for (int32_t i = 0; i < (int32_t)NVM_DTYPE_COUNT; i++) {
      const char kind = is_float(i)               ? 'f'
                        : i == NVM_DTYPE_BOOL     ? 'b'
                        : nvm_dtypes[i].is_signed ? 'i'
                                                  : 'u';
      if (text[1] == kind && text[2] == (char)('0' + dtype_size(i))) h->dtype = i;
    }
  if (h->dtype >= 0 && text[0] == '>' && dtype_size(h->dtype) > 1) h->dtype = -1;
  if (h->dtype < 0)
    mistake(
        "%s: dtype %.*s is not supported; supported are bool, integers and floats in the machine's "
        "byte order",
        h->path, length < 40 ? (int)length : 40, text);
}

static void take_shape(header *h) {
  need(h, '(');
  h->rank = 0;
  while (!take(h, ')')) {
    int64_t size = 0;
    skip_space(h);
    if (h->at == h->end || *h->at < '0' || *h->at > '9')
      bad(h, "its shape has something else than numbers");
    for (; h->at < h->end && *h->at >= '0' && *h->at <= '9'; h->at++)
      if (__builtin_mul_overflow(size, 10, &size) ||
          __builtin_add_overflow(size, *h->at - '0', &size))
        bad(h, "a size in its shape is too large");
    (void)take(h, 'L'); /* written by Python 2 */
    if (h->rank == MAX_RANK) mistake("%s: an array of more than %d axes", h->path, MAX_RANK);
    h->shape[h->rank++] = size;
    if (!take(h, ',')) {
      need(h, ')');
      break;
    }
  }
}

static void take_header(header *h) {
  need(h, '{');
  while (!take(h, '}')) {
    size_t length;
    const char *key = take_string(h, &length);
    need(h, ':');
    if (length == 5 && memcmp(key, "descr", 5) == 0 && !h->has_descr++) {
      take_descr(h);
    } else if (length == 13 && memcmp(key, "fortran_order", 13) == 0 && !h->has_order++) {
      h->fortran = take_word(h, "True");
      if (!h->fortran && !take_word(h, "False"))
        bad(h, "its fortran_order is neither True nor False");
    } else if (length == 5 && memcmp(key, "shape", 5) == 0 && !h->has_shape++) {
      take_shape(h);
    } else {
      bad(h, "its header has a key twice, or one that it should not have");
    }
    if (!take(h, ',')) {
      need(h, '}');
      break;
    }
  }
  skip_space(h);
  if (h->at != h->end) bad(h, "something stands behind its header");
  if (!h->has_descr || !h->has_order || !h->has_shape) bad(h, "its header lacks a key");
}

static const char *take_bytes(header *h, size_t size) {
  if (size > h->left) bad(h, "it ends too early");
  const char *bytes = h->bytes;
  h->bytes += size;
  h->left -= size;
  return bytes;
}

nvm_arg parse_npy(const char *path, const char *bytes, size_t size) {
  header h = {.path = path, .bytes = bytes, .left = size};
  unsigned char length[4] = {0};
  const unsigned char *prefix = (const unsigned char *)take_bytes(&h, PREFIX);
  if (memcmp(prefix, "\x93NUMPY", 6) != 0) bad(&h, "it does not begin as one");
  if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
    bad(&h, "its version is not 1.0, 2.0 or 3.0");
  const size_t wide = prefix[6] == 1 ? 2 : 4;
  memcpy(length, take_bytes(&h, wide), wide);
  const size_t header_size =
      length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16 | (size_t)length[3] << 24;
  if (header_size > MAX_HEADER) bad(&h, "its header is longer than 64 KiB");
  h.at = take_bytes(&h, header_size);
  h.end = h.at + header_size;
  take_header(&h);
  const size_t wanted = shape_count(h.dtype, h.rank, h.shape, path) * dtype_size(h.dtype);
  if (wanted > h.left) bad(&h, "it has fewer elements than its shape says");
  const char *data = h.bytes; /* the library copies what is not aligned */
  int64_t *shape = keep(2 * MAX_RANK * sizeof *shape), *strides = shape + MAX_RANK, stride = 1;
  for (uint32_t a = 0; a < h.rank; a++) {
    shape[a] = h.shape[a];
    strides[a] = stride;
    if (wanted) stride *= h.shape[a];
  }
  nvm_arg arg = nvm_arg_tensor(h.dtype, h.rank, shape, data);
  if (h.fortran) arg.strides = strides;
  return arg;
}

nvm_arg read_npy(const char *path) {
  const header h = {.path = path};
  struct stat status;
  size_t size;
  if (stat(path, &status)) mistake("%s: %s", path, strerror(errno));
  if (!S_ISREG(status.st_mode)) bad(&h, "it is no regular file");
  const char *bytes = read_file(path, &size);
  return parse_npy(path, bytes, size);
}

char *format_npy(const char *place, const nvm_out *tensor, size_t *out_size) {
  char text[512];
  const int32_t dtype = tensor->dtype;
  const char kind = is_float(dtype)               ? 'f'
                    : dtype == NVM_DTYPE_BOOL     ? 'b'
                    : nvm_dtypes[dtype].is_signed ? 'i'
                                                  : 'u';
  int used = snprintf(text, sizeof text, "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (",
                      dtype_size(dtype) == 1 ? '|' : '<', kind, dtype_size(dtype));
  for (uint32_t a = 0; a < tensor->rank; a++)
    used +=
        snprintf(text + used, sizeof text - (size_t)used, "%s%lld%s", a ? " " : "",
                 (long long)tensor->shape[a], a + 1 < tensor->rank || tensor->rank == 1 ? "," : "");
  used += snprintf(text + used, sizeof text - (size_t)used, "), }");
  const int padding = (64 - (10 + used + 1) % 64) % 64;
  const int size = used + padding + 1;
  const unsigned char prefix[10] = {
      0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)(size & 255), (unsigned char)(size >> 8)};
  const size_t bytes = shape_count(dtype, tensor->rank, tensor->shape, place) * dtype_size(dtype);
  char *file = keep(sizeof prefix + (size_t)size + bytes + 1);
  memcpy(file, prefix, sizeof prefix);
  sprintf(file + sizeof prefix, "%s%*s\n", text, padding, "");
  if (bytes) memcpy(file + sizeof prefix + size, tensor->data, bytes);
  *out_size = sizeof prefix + (size_t)size + bytes;
  return file;
}

void write_npy(const char *path, const nvm_out *tensor) {
  size_t size;
  const char *bytes = format_npy(path, tensor, &size);
  output out = create_file(path);
  fwrite(bytes, 1, size, out.file);
  finish_file(&out);
}
