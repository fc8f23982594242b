/* Reads the safetensors format: a header length (64 bits, little-endian), a JSON object that maps
 * names to {"dtype", "shape", "data_offsets"}, then the tensors' bytes without gaps. The JSON is
 * read by this grammar alone; everything else is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "generated/nvm_dtype.h"
#include "msgpack.h"
#include "nvm_kernel.h"
#include "weights.h"

typedef struct reader {
  const uint8_t *begin, *at, *end;
  nvm_arena *arena;
} reader;

static nvm_status wrong(const reader *r, const char *what) {
  return nvm_fail(NVM_INVALID_WEIGHTS, "safetensors header, byte %zu: %s",
                  (size_t)(r->at - r->begin), what);
}

static void skip_space(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r')) {
    r->at++;
  }
}

/* Is `c` next, behind white space? Moves past it if so. */
static int accept(reader *r, char c) {
  skip_space(r);
  if (r->at == r->end || *r->at != (uint8_t)c) return 0;
  r->at++;
  return 1;
}

static nvm_status expect(reader *r, char c) {
  if (accept(r, c)) return NVM_OK;
  char text[] = "expected '?'";
  text[10] = c;
  return wrong(r, text);
}

/* --- strings ---------------------------------------------------------------------------------- */

static int hex4(const reader *r, const uint8_t *at, uint32_t *out) {
  uint32_t value = 0;
  if (r->end - at < 4) return 0;
  for (int i = 0; i < 4; i++) {
    uint8_t c = at[i];
    uint32_t digit = c >= '0' && c <= '9'   ? c - (uint32_t)'0'
                     : c >= 'a' && c <= 'f' ? c - (uint32_t)'a' + 10
                     : c >= 'A' && c <= 'F' ? c - (uint32_t)'A' + 10
                                            : 16;
    if (digit > 15) return 0;
    value = value << 4 | digit;
  }
  *out = value;
  return 1;
}

/* The code point of \uXXXX (r->at behind the u), of two such for a surrogate pair. */
static int code_point(reader *r, uint32_t *out) {
  uint32_t high = 0, low = 0;
  if (!hex4(r, r->at, &high)) return 0;
  r->at += 4;
  if (high >= 0xdc00 && high < 0xe000) return 0;
  if (high < 0xd800 || high >= 0xe000) {
    *out = high;
    return high != 0;
  }
  if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u' || !hex4(r, r->at + 2, &low) ||
      low < 0xdc00 || low >= 0xe000) {
    return 0;
  }
  r->at += 6;
  *out = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  return 1;
}

static char *put_utf8(char *to, uint32_t c) {
  if (c < 0x80) {
    *to++ = (char)c;
    return to;
  }
  if (c >= 0x10000) {
    *to++ = (char)(0xf0 | c >> 18);
    *to++ = (char)(0x80 | (c >> 12 & 0x3f));
  } else if (c >= 0x800) {
    *to++ = (char)(0xe0 | c >> 12);
  }
  *to++ = (char)(c < 0x800 ? 0xc0 | c >> 6 : 0x80 | (c >> 6 & 0x3f));
  *to++ = (char)(0x80 | (c & 0x3f));
  return to;
}

/* One escape (r->at behind the backslash) appended to `to`. 0: there is none such. */
static int unescape(reader *r, char **to) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) return 0;
  uint8_t c = *r->at++;
  uint32_t point = 0;
  if (c == 'u') {
    if (!code_point(r, &point)) return 0;
    *to = put_utf8(*to, point);
    return 1;
  }
  const char *found = c != 0 ? strchr(from, c) : NULL;
  if (found == NULL) return 0;
  *(*to)++ = into[found - from];
  return 1;
}

/* A string, as terminated UTF-8 without NUL. */
static nvm_status read_string(reader *r, const char **out_text) {
  NVM_TRY(expect(r, '"'));
  const uint8_t *close = r->at;
  while (close < r->end && *close != '"') close += *close == '\\' && r->end - close > 1 ? 2 : 1;
  if (close >= r->end) return wrong(r, "the string does not end");
  void *memory = NULL; /* no escape is shorter than what it stands for */
  NVM_TRY(nvm_arena_alloc(r->arena, (size_t)(close - r->at) + 1, 1, &memory));
  char *to = memory;
  while (r->at < close) {
    uint8_t c = *r->at++;
    if (c < 0x20) return wrong(r, "a control character in a string");
    if (c != '\\') {
      *to++ = (char)c;
    } else if (!unescape(r, &to)) {
      return wrong(r, "no such escape in a string");
    }
  }
  if (r->at != close) return wrong(r, "an escape goes beyond its string");
  r->at = close + 1;
  if (!nvm_is_text(memory, (size_t)(to - (char *)memory))) return wrong(r, "a string is not UTF-8");
  *out_text = memory;
  return NVM_OK;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* A whole number of at least 0. */
static nvm_status read_number(reader *r, int64_t *out_value) {
  int64_t value = 0;
  skip_space(r);
  const uint8_t *first = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') {
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *r->at - '0', &value)) {
      return wrong(r, "the number is too large");
    }
    r->at++;
  }
  if (r->at == first) return wrong(r, "expected a number >= 0");
  if (*first == '0' && r->at - first > 1) return wrong(r, "a number starts with 0");
  *out_value = value;
  return NVM_OK;
}

/* An array of at most `room` numbers. */
static nvm_status read_numbers(reader *r, uint32_t room, int64_t *numbers, uint32_t *out_count) {
  uint32_t count = 0;
  NVM_TRY(expect(r, '['));
  if (!accept(r, ']')) {
    do {
      if (count == room) return wrong(r, "too many numbers");
      NVM_TRY(read_number(r, &numbers[count++]));
    } while (accept(r, ','));
    NVM_TRY(expect(r, ']'));
  }
  *out_count = count;
  return NVM_OK;
}

/* --- the header ------------------------------------------------------------------------------- */

/* "__metadata__": a map of strings, of no use here. */
static nvm_status skip_metadata(reader *r) {
  const char *text = NULL;
  NVM_TRY(expect(r, '{'));
  if (accept(r, '}')) return NVM_OK;
  do {
    NVM_TRY(read_string(r, &text));
    NVM_TRY(expect(r, ':'));
    NVM_TRY(read_string(r, &text));
  } while (accept(r, ','));
  return expect(r, '}');
}

static void set_dtype(nvm_weight_entry *entry, const char *name, uint32_t *out_itemsize) {
  static const struct {
    const char *name;
    int32_t dtype;
    uint32_t itemsize;
  } rows[] = {{"BOOL", NVM_DTYPE_BOOL, 1},
              {"I8", NVM_DTYPE_INT8, 1},
              {"I16", NVM_DTYPE_INT16, 2},
              {"I32", NVM_DTYPE_INT32, 4},
              {"I64", NVM_DTYPE_INT64, 8},
              {"U8", NVM_DTYPE_UINT8, 1},
              {"U16", NVM_DTYPE_UINT16, 2},
              {"U32", NVM_DTYPE_UINT32, 4},
              {"U64", NVM_DTYPE_UINT64, 8},
              {"F16", NVM_DTYPE_FLOAT16, 2},
              {"F32", NVM_DTYPE_FLOAT32, 4},
              {"F64", NVM_DTYPE_FLOAT64, 8},
              {"BF16", -1, 2},
              {"F8_E4M3", -1, 1},
              {"F8_E5M2", -1, 1}};
  entry->dtype = -1;
  entry->dtype_name = name;
  *out_itemsize = 0; /* unknown: the size is what the offsets say */
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    if (strcmp(rows[i].name, name) != 0) continue;
    entry->dtype = rows[i].dtype;
    *out_itemsize = rows[i].itemsize;
    if (entry->dtype >= 0) entry->dtype_name = nvm_dtypes[entry->dtype].name;
  }
}

/* {"dtype": ..., "shape": ..., "data_offsets": ...} in any order. offsets: begin, end. */
static nvm_status read_fields(reader *r, nvm_weight_entry *entry, int64_t offsets[2],
                              uint32_t *out_itemsize) {
  const char *key = NULL, *dtype = NULL;
  int64_t dims[NVM_MAX_RANK];
  uint32_t seen = 0, count = 0;
  NVM_TRY(expect(r, '{'));
  do {
    NVM_TRY(read_string(r, &key));
    NVM_TRY(expect(r, ':'));
    uint32_t bit = 0;
    if (strcmp(key, "dtype") == 0) {
      bit = 1;
      NVM_TRY(read_string(r, &dtype));
    } else if (strcmp(key, "shape") == 0) {
      bit = 2;
      NVM_TRY(read_numbers(r, NVM_MAX_RANK, dims, &entry->rank));
    } else if (strcmp(key, "data_offsets") == 0) {
      bit = 4;
      NVM_TRY(read_numbers(r, 2, offsets, &count));
      if (count != 2) return wrong(r, "data_offsets: expected two numbers");
    }
    if (bit == 0 || (seen & bit) != 0) return wrong(r, "a tensor has a field twice or too many");
    seen |= bit;
  } while (accept(r, ','));
  NVM_TRY(expect(r, '}'));
  if (seen != 7) return wrong(r, "a tensor lacks dtype, shape or data_offsets");
  void *own = NULL;
  NVM_TRY(nvm_arena_array(r->arena, entry->rank, sizeof(int64_t), &own));
  if (entry->rank > 0) memcpy(own, dims, entry->rank * sizeof(int64_t));
  entry->dims = own;
  set_dtype(entry, dtype, out_itemsize);
  return NVM_OK;
}

static nvm_status read_tensor(reader *r, nvm_weights *weights, const char *name,
                              const uint8_t *data, size_t size) {
  nvm_weight_entry *entry = NULL;
  int64_t offsets[2] = {0, 0}, bytes = 0;
  uint32_t itemsize = 0;
  NVM_TRY(nvm_weights_new(weights, &entry));
  entry->name = name;
  entry->stays = 1;
  entry->is_private = weights->mapping == NULL;
  NVM_TRY(read_fields(r, entry, offsets, &itemsize));
  if (offsets[0] > offsets[1] || (uint64_t)offsets[1] > size) {
    return wrong(r, "data_offsets lie outside of the file");
  }
  entry->data = data + offsets[0];
  entry->size = (size_t)(offsets[1] - offsets[0]);
  bytes = itemsize;
  int overflow = 0;
  for (uint32_t i = 0; i < entry->rank; i++) {
    overflow |= __builtin_mul_overflow(bytes, entry->dims[i], &bytes);
  }
  if (overflow || (itemsize != 0 && (uint64_t)bytes != entry->size)) {
    return wrong(r, "data_offsets do not fit dtype and shape");
  }
  return NVM_OK;
}

static int by_place(const void *a, const void *b) {
  const nvm_weight_entry *x = a, *y = b;
  if (x->data != y->data) return x->data < y->data ? -1 : 1;
  return (x->size > y->size) - (x->size < y->size);
}

/* The tensors lie side by side and fill the file; no name occurs twice. */
static nvm_status check_cover(nvm_weights *weights, const uint8_t *data, size_t size) {
  const uint8_t *at = data;
  if (weights->count > 0) {
    qsort(weights->entries, weights->count, sizeof *weights->entries, by_place);
  }
  for (uint32_t i = 0; i < weights->count; i++) {
    const nvm_weight_entry *entry = &weights->entries[i];
    if (entry->data != at) {
      return nvm_fail(NVM_INVALID_WEIGHTS,
                      "safetensors: the bytes of %s start at %zu, expected %zu", entry->name,
                      (size_t)(entry->data - data), (size_t)(at - data));
    }
    at += entry->size;
  }
  if (at != data + size) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "safetensors: %zu bytes behind the last tensor",
                    (size_t)(data + size - at));
  }
  nvm_weights_sort(weights);
  for (uint32_t i = 1; i < weights->count; i++) {
    if (strcmp(weights->entries[i - 1].name, weights->entries[i].name) == 0) {
      return nvm_fail(NVM_INVALID_WEIGHTS, "safetensors: %s occurs twice",
                      weights->entries[i].name);
    }
  }
  return NVM_OK;
}

nvm_status nvm_safetensors_read(nvm_weights *weights, const uint8_t *file, size_t size) {
  uint64_t header = 0;
  for (uint32_t i = 0; i < 8; i++) header |= (uint64_t)file[i] << (8 * i);
  if (header > size - 8) {
    return nvm_fail(NVM_INVALID_WEIGHTS,
                    "no safetensors file: a header of %llu bytes in a file of %zu",
                    (unsigned long long)header, size);
  }
  void *copy = NULL; /* what is mapped may change between two looks at it */
  NVM_TRY(nvm_arena_alloc(weights->arena, (size_t)header, 1, &copy));
  memcpy(copy, file + 8, (size_t)header);
  reader r = {copy, copy, (const uint8_t *)copy + header, weights->arena};
  const uint8_t *data = file + 8 + header;
  NVM_TRY(expect(&r, '{'));
  if (!accept(&r, '}')) {
    do {
      const char *name = NULL;
      NVM_TRY(read_string(&r, &name));
      NVM_TRY(expect(&r, ':'));
      if (strcmp(name, "__metadata__") == 0) {
        NVM_TRY(skip_metadata(&r));
      } else {
        NVM_TRY(read_tensor(&r, weights, name, data, (size_t)(file + size - data)));
      }
    } while (accept(&r, ','));
    NVM_TRY(expect(&r, '}'));
  }
  skip_space(&r);
  if (r.at != r.end) return wrong(&r, "bytes behind the header's object");
  return check_cover(weights, data, (size_t)(file + size - data));
}
