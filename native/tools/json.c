/* JSON text to values in preorder, without recursion: values may be a million levels deep. NaN,
 * Infinity and -Infinity are numbers, as in Python's json. A name that stands twice in an object is
 * an error. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

enum { MAX_NAMES = 4096 };

typedef struct reader {
  const char *where;
  const char *text, *at, *end;
  json out;
  size_t *open; /* containers that are open, outermost first: their nodes */
  size_t n_open, open_capacity;
} reader;

static _Noreturn void bad(const reader *r, const char *what) {
  size_t line = 1, column = 1;
  for (const char *at = r->text; at < r->at; at++) {
    column++;
    if (*at == '\n') {
      line++;
      column = 1;
    }
  }
  mistake("%s: no JSON: line %zu, column %zu: %s", r->where, line, column, what);
}

static char peek(reader *r) {
  while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
    r->at++;
  return r->at < r->end ? *r->at : 0;
}

static json_node *add(reader *r, uint8_t kind) {
  json_node node = {.kind = kind, .span = 1};
  PUSH(r->out.nodes, r->out.count, r->out.capacity, node);
  return &r->out.nodes[r->out.count - 1];
}

/* --- strings --- */

static uint32_t hex4(reader *r) {
  uint32_t code = 0;
  if (r->end - r->at < 4) bad(r, "a \\u escape needs four digits");
  for (int i = 0; i < 4; i++, r->at++) {
    const char c = *r->at;
    const int digit = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : -1;
    if (digit < 0) bad(r, "a \\u escape needs four digits");
    code = code << 4 | (uint32_t)digit;
  }
  return code;
}

static char *add_utf8(char *to, uint32_t code) {
  if (code < 0x80) {
    *to++ = (char)code;
  } else if (code < 0x800) {
    *to++ = (char)(0xc0 | code >> 6);
    *to++ = (char)(0x80 | (code & 63));
  } else if (code < 0x10000) {
    *to++ = (char)(0xe0 | code >> 12);
    *to++ = (char)(0x80 | (code >> 6 & 63));
    *to++ = (char)(0x80 | (code & 63));
  } else {
    *to++ = (char)(0xf0 | code >> 18);
    *to++ = (char)(0x80 | (code >> 12 & 63));
    *to++ = (char)(0x80 | (code >> 6 & 63));
    *to++ = (char)(0x80 | (code & 63));
  }
  return to;
}

static char *add_escape(reader *r, char *to) {
  static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
  if (r->at == r->end) bad(r, "a string does not end");
  const char c = *r->at++;
  if (c != 'u') {
    const char *found = c ? strchr(from, c) : NULL;
    if (!found) bad(r, "no such escape");
    *to++ = into[found - from];
    return to;
  }
  uint32_t code = hex4(r);
  if (code >= 0xd800 && code < 0xdc00 && r->end - r->at >= 6 && r->at[0] == '\\' &&
      r->at[1] == 'u') {
    r->at += 2;
    const uint32_t low = hex4(r);
    if (low < 0xdc00 || low > 0xdfff) bad(r, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xd800 && code < 0xe000) {
    bad(r, "half of a surrogate pair");
  }
  return add_utf8(to, code);
}

static void add_string(reader *r) {
  const char *start = ++r->at;
  while (r->at < r->end && *r->at != '"') r->at += *r->at == '\\' ? 2 : 1;
  if (r->at >= r->end) {
    r->at = r->end;
    bad(r, "a string does not end");
  }
  char *text = keep((size_t)(r->at - start) + 1), *to = text; /* escapes only shrink */
  r->at = start;
  while (*r->at != '"') {
    if ((unsigned char)*r->at < 0x20) bad(r, "a control character in a string");
    if (*r->at == '\\') {
      r->at++;
      to = add_escape(r, to);
    } else {
      *to++ = *r->at++;
    }
  }
  r->at++;
  *to = 0;
  json_node *node = add(r, JSON_STRING);
  node->u.text = text;
  node->count = (uint32_t)(to - text);
}

/* --- numbers and words --- */

static void add_number(reader *r) {
  const char *start = r->at, *digits;
  int is_float_text = 0;
  if (*r->at == '-') r->at++;
  digits = r->at;
  while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
  if (r->at == digits) bad(r, "expected a value");
  if (*digits == '0' && r->at > digits + 1) {
    r->at = digits + 1;
    bad(r, "a number that begins with 0");
  }
  if (r->at < r->end && *r->at == '.') {
    const char *fraction = ++r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    if (r->at == fraction) bad(r, "a fraction without digits");
    is_float_text = 1;
  }
  if (r->at < r->end && (*r->at == 'e' || *r->at == 'E')) {
    r->at++;
    if (r->at < r->end && (*r->at == '+' || *r->at == '-')) r->at++;
    const char *exponent = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    if (r->at == exponent) bad(r, "an exponent without digits");
    is_float_text = 1;
  }
  json_node *node = add(r, is_float_text ? JSON_FLOAT : JSON_INT);
  node->negative = *start == '-';
  node->u.number = strtod(start, NULL); /* the text ends with a NUL */
  for (const char *at = digits; !is_float_text && at < r->at; at++)
    if (__builtin_mul_overflow(node->size, 10u, &node->size) ||
        __builtin_add_overflow(node->size, (uint64_t)(*at - '0'), &node->size))
      node->too_large = 1;
}

static void add_word(reader *r) {
  static const struct {
    const char *text;
    uint8_t kind, value;
    double number;
  } words[] = {{"true", JSON_BOOL, 1, 0},
               {"false", JSON_BOOL, 0, 0},
               {"null", JSON_NULL, 0, 0},
               {"NaN", JSON_FLOAT, 0, (double)NAN},
               {"Infinity", JSON_FLOAT, 0, (double)INFINITY},
               {"-Infinity", JSON_FLOAT, 0, -(double)INFINITY}};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    const size_t length = strlen(words[i].text);
    if ((size_t)(r->end - r->at) < length || memcmp(r->at, words[i].text, length) != 0) continue;
    r->at += length;
    json_node *node = add(r, words[i].kind);
    node->size = words[i].value;
    node->u.number = words[i].number;
    return;
  }
  add_number(r);
}

/* --- containers --- */

/* Read the name of the next member of the object that is innermost. */
static void add_name(reader *r) {
  if (peek(r) != '"') bad(r, "expected a name in double quotes");
  const char *start = r->at;
  add_string(r);
  const json_node *object = &r->out.nodes[r->open[r->n_open - 1]];
  const json_node *name = &r->out.nodes[r->out.count - 1];
  if (object->count == MAX_NAMES) bad(r, "an object with more than 4096 names");
  for (const json_node *key = object + 1; key < name; key += 1 + key[1].span)
    if (key->count == name->count && memcmp(key->u.text, name->u.text, key->count) == 0) {
      r->at = start;
      bad(r, "the name stands twice");
    }
  if (peek(r) != ':') bad(r, "expected :");
  r->at++;
}

/* Close the innermost container if it ends here. */
static int closes(reader *r) {
  json_node *node = &r->out.nodes[r->open[r->n_open - 1]];
  if (peek(r) != (node->kind == JSON_OBJECT ? '}' : ']')) return 0;
  r->at++;
  node->span = r->out.count - r->open[r->n_open - 1];
  r->n_open--;
  return 1;
}

/* A value is complete; so may be the containers around it. Returns 1 at the end of the text. */
static int complete(reader *r) {
  while (r->n_open) {
    json_node *container = &r->out.nodes[r->open[r->n_open - 1]];
    if (++container->count == UINT32_MAX) bad(r, "too many values");
    if (peek(r) == ',') {
      r->at++;
      if (container->kind == JSON_OBJECT) add_name(r);
      return 0;
    }
    const int is_object = container->kind == JSON_OBJECT;
    if (!closes(r)) bad(r, is_object ? "expected , or }" : "expected , or ]");
  }
  if (peek(r) || r->at != r->end) bad(r, "expected the end of the text");
  return 1;
}

json parse_json(const char *text, size_t size, const char *where) {
  reader r = {.where = where, .text = text, .at = text, .end = text + size};
  if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) r.at += 3; /* of some editors */
  for (;;) {
    const char first = peek(&r);
    if (first == '[' || first == '{') {
      add(&r, first == '{' ? JSON_OBJECT : JSON_ARRAY);
      PUSH(r.open, r.n_open, r.open_capacity, r.out.count - 1);
      r.at++;
      if (!closes(&r)) {
        if (first == '{') add_name(&r);
        continue;
      }
    } else if (first == '"') {
      add_string(&r);
    } else {
      add_word(&r);
    }
    if (complete(&r)) return r.out;
  }
}

const json_node *json_member(const json_node *object, const char *key) {
  const json_node *name = object + 1;
  for (uint32_t i = 0; object->kind == JSON_OBJECT && i < object->count; i++) {
    if (strcmp(name->u.text, key) == 0) return name + 1;
    name += 1 + name[1].span;
  }
  return NULL;
}

/* --- and out --- */

const char *double_text(double number, char *text) {
  char digits[NUMBER_BYTES];
  int count = 1;
  if (isnan(number)) return strcpy(text, "NaN");
  if (isinf(number)) return strcpy(text, number < 0 ? "-Infinity" : "Infinity");
  for (; count <= 17; count++) {
    snprintf(digits, sizeof digits, "%.*e", count - 1, number);
    if (strtod(digits, NULL) == number) break;
    char *last = strchr(digits, 'e') - 1; /* above a power of two the next one may read back too */
    if (*last >= '0' && *last < '9' && ++*last && strtod(digits, NULL) == number) break;
  }
  const char *sign = *digits == '-' ? "-" : "", *mantissa = digits + (*digits == '-');
  const int exponent = atoi(strchr(digits, 'e') + 1);
  char plain[24] = {mantissa[0]}; /* the digits without their point */
  if (count > 1) memcpy(plain + 1, mantissa + 2, (size_t)count - 1);
  if (exponent < -4 || exponent >= 16)
    snprintf(text, NUMBER_BYTES, "%s%c%s%s%s", sign, plain[0], count > 1 ? "." : "", plain + 1,
             strchr(digits, 'e'));
  else if (exponent < 0)
    snprintf(text, NUMBER_BYTES, "%s0.%.*s%s", sign, -exponent - 1, "0000", plain);
  else if (count <= exponent + 1)
    snprintf(text, NUMBER_BYTES, "%s%s%.*s.0", sign, plain, exponent + 1 - count,
             "0000000000000000");
  else
    snprintf(text, NUMBER_BYTES, "%s%.*s.%s", sign, exponent + 1, plain, plain + exponent + 1);
  return text;
}
