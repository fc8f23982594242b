#include "msgpack.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void nvm_mp_init(nvm_mp *mp, const uint8_t *data, size_t size) {
  mp->begin = mp->at = data;
  mp->end = data + size;
  mp->part = "header";
  mp->table = NULL;
  mp->row = 0;
}

nvm_status nvm_mp_fail(const nvm_mp *mp, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  size_t byte = (size_t)(mp->at - mp->begin);
  if (mp->table == NULL) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "%s byte %zu: %s", mp->part, byte, text);
  }
  return nvm_fail(NVM_INVALID_EXECUTABLE, "%s byte %zu, %s[%u]: %s", mp->part, byte, mp->table,
                  mp->row, text);
}

/* What kind of value starts with that byte, for messages. */
static const char *kind_name(uint8_t byte) {
  if (byte <= 0x7f || byte >= 0xe0 || (byte >= 0xcc && byte <= 0xd3)) return "an int";
  if (byte <= 0x8f || byte == 0xde || byte == 0xdf) return "a map";
  if (byte <= 0x9f || byte == 0xdc || byte == 0xdd) return "an array";
  if (byte <= 0xbf || (byte >= 0xd9 && byte <= 0xdb)) return "a str";
  if (byte == 0xc0) return "nil";
  if (byte == 0xc2 || byte == 0xc3) return "a bool";
  if (byte >= 0xc4 && byte <= 0xc6) return "a bin";
  if (byte == 0xca || byte == 0xcb) return "a float";
  return "an ext or reserved byte";
}

static size_t left(const nvm_mp *mp) { return (size_t)(mp->end - mp->at); }

static nvm_status wrong(const nvm_mp *mp, const char *what, const char *expected) {
  if (left(mp) == 0) return nvm_mp_fail(mp, "%s: expected %s, the header ends", what, expected);
  return nvm_mp_fail(mp, "%s: expected %s, got %s", what, expected, kind_name(*mp->at));
}

/* Big-endian number of `size` bytes behind the type byte; moves past both. */
static nvm_status number(nvm_mp *mp, const char *what, uint32_t size, uint64_t *out_value) {
  if (left(mp) - 1 < size) return nvm_mp_fail(mp, "%s: the header ends inside it", what);
  uint64_t value = 0;
  for (uint32_t i = 1; i <= size; i++) value = value << 8 | mp->at[i];
  mp->at += 1 + size;
  *out_value = value;
  return NVM_OK;
}

static nvm_status container(nvm_mp *mp, const char *what, int is_map, uint32_t min_item,
                            uint32_t *out_count) {
  const char *expected = is_map ? "a map" : "an array";
  if (left(mp) == 0) return wrong(mp, what, expected);
  uint8_t byte = *mp->at, fix = is_map ? 0x80 : 0x90, wide = is_map ? 0xde : 0xdc;
  uint64_t count = 0;
  if ((byte & 0xf0) == fix) {
    count = byte & 0x0f;
    mp->at++;
  } else if (byte == wide || byte == wide + 1) {
    NVM_TRY(number(mp, what, byte == wide ? 2 : 4, &count));
  } else {
    return wrong(mp, what, expected);
  }
  if (count > left(mp) / min_item) {
    return nvm_mp_fail(mp, "%s: %llu items can't fit in the %zu bytes that are left", what,
                       (unsigned long long)count, left(mp));
  }
  *out_count = (uint32_t)count;
  return NVM_OK;
}

nvm_status nvm_mp_array(nvm_mp *mp, const char *what, uint32_t min_item, uint32_t *out_count) {
  return container(mp, what, 0, min_item, out_count);
}

nvm_status nvm_mp_tuple(nvm_mp *mp, const char *what, uint32_t count) {
  uint32_t got = 0;
  NVM_TRY(container(mp, what, 0, 1, &got));
  if (got != count) return nvm_mp_fail(mp, "%s: expected %u items, got %u", what, count, got);
  return NVM_OK;
}

nvm_status nvm_mp_map(nvm_mp *mp, const char *what, uint32_t *out_count) {
  return container(mp, what, 1, 2, out_count);
}

nvm_status nvm_mp_record(nvm_mp *mp, const char *what, uint32_t count) {
  uint32_t got = 0;
  NVM_TRY(container(mp, what, 1, 2, &got));
  if (got != count) return nvm_mp_fail(mp, "%s: expected %u keys, got %u", what, count, got);
  return NVM_OK;
}

/* One int as a 64-bit pattern and whether it is negative. */
static nvm_status any_int(nvm_mp *mp, const char *what, uint64_t *out_bits, int *out_negative) {
  if (left(mp) == 0) return wrong(mp, what, "an int");
  uint8_t byte = *mp->at;
  *out_negative = 0;
  if (byte <= 0x7f || byte >= 0xe0) {
    *out_bits = (uint64_t)(int64_t)(int8_t)byte;
    *out_negative = byte >= 0xe0;
    mp->at++;
    return NVM_OK;
  }
  if (byte < 0xcc || byte > 0xd3) return wrong(mp, what, "an int");
  uint32_t size = 1u << ((byte - 0xcc) & 3);
  NVM_TRY(number(mp, what, size, out_bits));
  if (byte >= 0xd0) {
    uint32_t shift = 64 - 8 * size;
    int64_t value = (int64_t)(*out_bits << shift) >> shift;
    *out_bits = (uint64_t)value;
    *out_negative = value < 0;
  }
  return NVM_OK;
}

nvm_status nvm_mp_int(nvm_mp *mp, const char *what, int64_t low, int64_t high, int64_t *out_value) {
  uint64_t bits = 0;
  int negative = 0;
  NVM_TRY(any_int(mp, what, &bits, &negative));
  int64_t value = (int64_t)bits;
  if (!negative && bits > INT64_MAX) {
    return nvm_mp_fail(mp, "%s: %llu does not fit int64", what, (unsigned long long)bits);
  }
  if (value < low || value > high) {
    return nvm_mp_fail(mp, "%s: expected %lld .. %lld, got %lld", what, (long long)low,
                       (long long)high, (long long)value);
  }
  *out_value = value;
  return NVM_OK;
}

nvm_status nvm_mp_u32(nvm_mp *mp, const char *what, uint32_t high, uint32_t *out_value) {
  int64_t value = 0;
  NVM_TRY(nvm_mp_int(mp, what, 0, high, &value));
  *out_value = (uint32_t)value;
  return NVM_OK;
}

nvm_status nvm_mp_bool(nvm_mp *mp, const char *what, uint8_t *out_value) {
  if (left(mp) == 0 || (*mp->at != 0xc2 && *mp->at != 0xc3)) return wrong(mp, what, "a bool");
  *out_value = *mp->at == 0xc3;
  mp->at++;
  return NVM_OK;
}

int nvm_is_text(const uint8_t *s, size_t n) {
  for (size_t i = 0; i < n;) {
    uint8_t b = s[i];
    if (b == 0) return 0;
    if (b < 0x80) {
      i++;
      continue;
    }
    uint32_t extra = b >= 0xf0 ? 3u : b >= 0xe0 ? 2u : 1u;
    if (b < 0xc2 || b > 0xf4 || n - i <= extra) return 0;
    uint8_t second = s[i + 1];
    if ((b == 0xe0 && second < 0xa0) || (b == 0xed && second > 0x9f) ||
        (b == 0xf0 && second < 0x90) || (b == 0xf4 && second > 0x8f)) {
      return 0;
    }
    for (uint32_t k = 1; k <= extra; k++) {
      if ((s[i + k] & 0xc0) != 0x80) return 0;
    }
    i += 1 + extra;
  }
  return 1;
}

/* Bytes of a str (is_str) or bin. */
static nvm_status raw(nvm_mp *mp, const char *what, int is_str, const uint8_t **out_data,
                      size_t *out_size) {
  const char *expected = is_str ? "a str" : "a bin";
  if (left(mp) == 0) return wrong(mp, what, expected);
  uint8_t byte = *mp->at, first = is_str ? 0xd9 : 0xc4;
  uint64_t size = 0;
  if (is_str && (byte & 0xe0) == 0xa0) {
    size = byte & 0x1f;
    mp->at++;
  } else if (byte >= first && byte <= first + 2) {
    NVM_TRY(number(mp, what, 1u << (byte - first), &size));
  } else {
    return wrong(mp, what, expected);
  }
  if (size > left(mp)) {
    return nvm_mp_fail(mp, "%s: %llu bytes announced, %zu are left", what, (unsigned long long)size,
                       left(mp));
  }
  *out_data = mp->at;
  *out_size = (size_t)size;
  mp->at += size;
  return NVM_OK;
}

nvm_status nvm_mp_str(nvm_mp *mp, const char *what, const char **out_text, size_t *out_length) {
  const uint8_t *data = NULL;
  size_t size = 0;
  NVM_TRY(raw(mp, what, 1, &data, &size));
  if (!nvm_is_text(data, size)) {
    return nvm_mp_fail(mp, "%s: expected UTF-8 without NUL characters", what);
  }
  *out_text = (const char *)data;
  *out_length = size;
  return NVM_OK;
}

nvm_status nvm_mp_bin(nvm_mp *mp, const char *what, const uint8_t **out_data, size_t *out_size) {
  return raw(mp, what, 0, out_data, out_size);
}

nvm_status nvm_mp_key(nvm_mp *mp, const char *key) {
  const uint8_t *data = NULL;
  size_t size = 0;
  NVM_TRY(raw(mp, key, 1, &data, &size));
  if (size != strlen(key) || memcmp(data, key, size) != 0) {
    return nvm_mp_fail(mp, "expected the key \"%s\"", key);
  }
  return NVM_OK;
}
