#include "model.h"

#include <string.h>

enum { ALIGNMENT = 64, DEPTH = 24 };

static uint64_t little(const uint8_t *at, uint32_t bytes) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < bytes; i++) value |= (uint64_t)at[i] << (8 * i);
  return value;
}

static uint64_t big(const uint8_t *at, uint32_t bytes) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < bytes; i++) value = value << 8 | at[i];
  return value;
}

/* --- the index of the header ------------------------------------------------------------------ */

/* Bytes of the number behind a type byte that says how long or how many. */
static uint32_t length_bytes(uint8_t byte) {
  switch (byte) {
    case 0xc4:
    case 0xd9:
      return 1;
    case 0xc5:
    case 0xda:
    case 0xdc:
    case 0xde:
      return 2;
    default:
      return 4;
  }
}

/* Kind, length and place of the content of the value at `at`; 0 if it is none that the format has.
 */
static int describe(const uint8_t *data, size_t size, size_t at, node *out, uint64_t *out_length) {
  const uint8_t byte = data[at];
  uint32_t extra = 0;
  *out_length = 0;
  if (byte <= 0x7f || byte >= 0xe0) {
    out->kind = NODE_INT;
  } else if (byte <= 0x8f) {
    out->kind = NODE_MAP, *out_length = byte & 15;
  } else if (byte <= 0x9f) {
    out->kind = NODE_ARRAY, *out_length = byte & 15;
  } else if (byte <= 0xbf) {
    out->kind = NODE_STR, *out_length = byte & 31;
  } else if (byte == 0xc0) {
    out->kind = NODE_NIL;
  } else if (byte == 0xc2 || byte == 0xc3) {
    out->kind = NODE_BOOL;
  } else if (byte >= 0xcc && byte <= 0xd3) {
    out->kind = NODE_INT, extra = 1u << ((byte - 0xcc) & 3);
  } else if (byte >= 0xc4 && byte <= 0xc6) {
    out->kind = NODE_BIN, extra = length_bytes(byte);
  } else if (byte >= 0xd9 && byte <= 0xdb) {
    out->kind = NODE_STR, extra = length_bytes(byte);
  } else if (byte == 0xdc || byte == 0xdd) {
    out->kind = NODE_ARRAY, extra = length_bytes(byte);
  } else if (byte == 0xde || byte == 0xdf) {
    out->kind = NODE_MAP, extra = length_bytes(byte);
  } else {
    return 0;
  }
  if (size - at - 1 < extra) return 0;
  if (out->kind != NODE_INT && extra) *out_length = big(data + at + 1, extra);
  out->at = (uint32_t)at;
  out->body = (uint32_t)at + 1 + (out->kind == NODE_INT ? 0 : extra);
  out->end = (uint32_t)at + 1 + extra;
  return 1;
}

static int index_header(model *m) {
  uint32_t open[DEPTH], depth = 0;
  uint64_t left[DEPTH];
  size_t at = 0;
  m->n_nodes = 0;
  do {
    if (at >= m->header_size || m->n_nodes == MODEL_NODES) return 0;
    node *n = &m->nodes[m->n_nodes];
    uint64_t length = 0;
    if (!describe(m->header, m->header_size, at, n, &length)) return 0;
    at = n->end;
    n->count = 0;
    n->next = m->n_nodes + 1;
    if (n->kind == NODE_STR || n->kind == NODE_BIN) {
      if (length > m->header_size - at) return 0;
      at += length;
      n->end = (uint32_t)at;
    }
    if (depth) left[depth - 1]--;
    if ((n->kind == NODE_ARRAY || n->kind == NODE_MAP) && length) {
      if (depth == DEPTH || length > MODEL_NODES) return 0;
      n->count = (uint32_t)length;
      open[depth] = m->n_nodes;
      left[depth++] = n->kind == NODE_MAP ? 2 * length : length;
    }
    m->n_nodes++;
    while (depth && left[depth - 1] == 0) {
      node *closed = &m->nodes[open[--depth]];
      closed->end = (uint32_t)at;
      closed->next = m->n_nodes;
    }
  } while (depth);
  return m->nodes[0].kind == NODE_MAP && at == m->header_size;
}

uint32_t model_key(const model *m, uint32_t map, const char *key) {
  if (m->nodes[map].kind != NODE_MAP) return 0;
  const size_t length = strlen(key);
  uint32_t name = map + 1;
  for (uint32_t i = 0; i < m->nodes[map].count; i++) {
    const node *n = &m->nodes[name];
    const uint32_t value = n->next;
    if (n->kind == NODE_STR && n->end - n->body == length &&
        memcmp(m->header + n->body, key, length) == 0) {
      return value;
    }
    name = m->nodes[value].next;
  }
  return 0;
}

uint32_t model_element(const model *m, uint32_t array, uint32_t index) {
  if (m->nodes[array].kind != NODE_ARRAY || index >= m->nodes[array].count) return 0;
  uint32_t at = array + 1;
  while (index-- > 0) at = m->nodes[at].next;
  return at;
}

uint32_t model_table(const model *m, const char *table) { return model_key(m, 0, table); }

uint32_t model_count(const model *m, const char *table) {
  const uint32_t number = model_table(m, table);
  return number ? m->nodes[number].count : 0;
}

int64_t model_int(const model *m, uint32_t number) {
  const node *n = &m->nodes[number];
  if (n->kind != NODE_INT) return 0;
  const uint8_t byte = m->header[n->at];
  const uint32_t bytes = n->end - n->at - 1;
  if (bytes == 0) return (int8_t)byte;
  const uint64_t value = big(m->header + n->at + 1, bytes);
  const uint32_t shift = 64 - 8 * bytes;
  return byte >= 0xd0 ? (int64_t)(value << shift) >> shift : (int64_t)value;
}

/* --- changes ---------------------------------------------------------------------------------- */

size_t model_encode_int(int64_t value, uint8_t *out) {
  uint32_t bytes = 8;
  if (value >= -32 && value < 128) {
    out[0] = (uint8_t)value;
    return 1;
  }
  if (value >= 0) {
    bytes = value < 1 << 8 ? 1 : value < 1 << 16 ? 2 : value < (int64_t)1 << 32 ? 4 : 8;
    out[0] = (uint8_t)(0xcc + (bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3));
  } else {
    out[0] = 0xd3;
  }
  for (uint32_t i = 0; i < bytes; i++)
    out[1 + i] = (uint8_t)((uint64_t)value >> 8 * (bytes - 1 - i));
  return 1 + bytes;
}

int model_splice(model *m, size_t at, size_t removed, const uint8_t *bytes, size_t size) {
  if (m->header_size - removed + size > MODEL_HEADER) return 0;
  uint8_t kept[MODEL_HEADER / 4];
  const size_t old_size = m->header_size;
  if (removed > sizeof kept) return 0;
  memcpy(kept, m->header + at, removed);
  memmove(m->header + at + size, m->header + at + removed, old_size - at - removed);
  memcpy(m->header + at, bytes, size);
  m->header_size = old_size - removed + size;
  if (index_header(m)) return 1;
  memmove(m->header + at + removed, m->header + at + size, old_size - at - removed);
  memcpy(m->header + at, kept, removed);
  m->header_size = old_size;
  index_header(m);
  return 0;
}

int model_set_int(model *m, uint32_t number, int64_t value) {
  uint8_t bytes[9];
  const node *n = &m->nodes[number];
  if (n->kind != NODE_INT) return 0;
  if (model_int(m, number) == value) return 1;
  return model_splice(m, n->at, n->end - n->at, bytes, model_encode_int(value, bytes));
}

int model_repeat(model *m, uint32_t array, uint32_t index, int grow) {
  static uint8_t content[MODEL_HEADER];
  const node *n = &m->nodes[array];
  const uint32_t element = model_element(m, array, index);
  if (!element) return 0;
  const node *e = &m->nodes[element];
  const uint32_t count = n->count + (grow ? 1 : (uint32_t)-1), width = e->end - e->at;
  size_t size = 0;
  if (count < 16) {
    content[size++] = (uint8_t)(0x90 | count);
  } else if (count < 1 << 16) {
    content[size++] = 0xdc;
    content[size++] = (uint8_t)(count >> 8);
    content[size++] = (uint8_t)count;
  } else {
    return 0;
  }
  const uint32_t before = (grow ? e->end : e->at) - n->body;
  if (size + (n->end - n->body) + width > sizeof content) return 0;
  memcpy(content + size, m->header + n->body, before);
  size += before;
  if (grow) memcpy(content + size, m->header + e->at, width), size += width;
  memcpy(content + size, m->header + e->end, n->end - e->end);
  size += n->end - e->end;
  return model_splice(m, n->at, n->end - n->at, content, size);
}

int model_section_splice(model *m, uint32_t section, size_t at, size_t removed,
                         const uint8_t *bytes, size_t size) {
  size_t *total = &m->section_size[section];
  if (at > *total || removed > *total - at || *total - removed + size > MODEL_SECTION) return 0;
  uint8_t *data = m->sections[section];
  memmove(data + at + size, data + at + removed, *total - at - removed);
  if (size) memcpy(data + at, bytes, size);
  *total = *total - removed + size;
  return 1;
}

/* --- whole files ------------------------------------------------------------------------------ */

int model_read(model *m, const uint8_t *data, size_t size) {
  if (size < MODEL_FIXED) return 0;
  const uint64_t header_size = little(data + 16, 8);
  uint64_t file_size = little(data + 24, 8);
  if (file_size < MODEL_FIXED || file_size > size) file_size = size;
  if (header_size == 0 || header_size > MODEL_HEADER || header_size > file_size - MODEL_FIXED)
    return 0;
  memcpy(m->fixed, data, MODEL_FIXED);
  memcpy(m->header, data + MODEL_FIXED, header_size);
  m->header_size = header_size;
  if (!index_header(m)) return 0;
  const uint64_t first = (MODEL_FIXED + header_size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  const uint32_t rows = model_table(m, "sections");
  m->n_sections = m->nodes[rows].kind == NODE_ARRAY ? m->nodes[rows].count : 0;
  if (m->n_sections < 3 || m->n_sections > MODEL_SECTIONS || first > file_size) return 0;
  for (uint32_t i = 0; i < m->n_sections; i++) {
    const uint32_t row = model_element(m, rows, i);
    const uint64_t offset = (uint64_t)model_int(m, model_element(m, row, 1));
    const uint64_t length = (uint64_t)model_int(m, model_element(m, row, 2));
    if (offset > file_size - first || length > file_size - first - offset || length > MODEL_SECTION)
      return 0;
    memcpy(m->sections[i], data + first + offset, length);
    m->section_size[i] = length;
  }
  m->signature_size =
      m->fixed[12] & 1 && file_size >= first + MODEL_SIGNATURE ? MODEL_SIGNATURE : 0;
  memcpy(m->signature, data + file_size - m->signature_size, m->signature_size);
  m->script_size = size - file_size < MODEL_SCRIPT ? size - file_size : MODEL_SCRIPT;
  memcpy(m->script, data + file_size, m->script_size);
  return 1;
}

static void repair_table(model *m) {
  uint64_t end = 0;
  for (uint32_t i = 0; i < m->n_sections; i++) {
    for (uint32_t field = 1; field < 3; field++) {
      const uint32_t row = model_element(m, model_table(m, "sections"), i);
      const uint32_t number = row ? model_element(m, row, field) : 0;
      end = field == 1 ? (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : end;
      if (number) model_set_int(m, number, (int64_t)(field == 1 ? end : m->section_size[i]));
    }
    end += m->section_size[i];
  }
}

size_t model_write(model *m, uint8_t *out, size_t capacity) {
  repair_table(m);
  size_t end = MODEL_FIXED + m->header_size, total = end;
  for (uint32_t i = 0; i < m->n_sections; i++)
    total = (total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + m->section_size[i];
  if (m->signature_size) total = (total + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT + MODEL_SIGNATURE;
  if (total + m->script_size > capacity) return 0;
  memset(out, 0, total);
  memcpy(out, m->fixed, MODEL_FIXED);
  const uint64_t header_size = m->header_size, file_size = total;
  memcpy(out + 16, &header_size, sizeof header_size);
  memcpy(out + 24, &file_size, sizeof file_size);
  memcpy(out + MODEL_FIXED, m->header, m->header_size);
  for (uint32_t i = 0; i < m->n_sections; i++) {
    end = (end + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    memcpy(out + end, m->sections[i], m->section_size[i]);
    end += m->section_size[i];
  }
  memcpy(out + total - m->signature_size, m->signature, m->signature_size);
  memcpy(out + total, m->script, m->script_size);
  return total + m->script_size;
}
