/* .npz files: zip archives of .npy files, as numpy.savez writes them (stored). What is compressed,
 * encrypted or larger than 4 GiB is refused by name. The directory at the end says what there is;
 * every offset and size is compared with the file before it is used, and checksums must hold. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tool.h"

enum {
  END = 0x06054b50,
  ENTRY = 0x02014b50,
  LOCAL = 0x04034b50,
  END_BYTES = 22,
  ENTRY_BYTES = 46,
  LOCAL_BYTES = 30,
  MOST_COMMENT = 65535
};

static uint32_t number(const unsigned char *at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint32_t)at[i] << (8 * i);
  return value;
}

static uint32_t checksum(const unsigned char *data, size_t size) {
  static uint32_t table[256];
  for (uint32_t i = 0; table[255] == 0 && i < 256; i++) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
    table[i] = value;
  }
  uint32_t sum = UINT32_MAX;
  for (size_t i = 0; i < size; i++) sum = sum >> 8 ^ table[(sum ^ data[i]) & 255];
  return ~sum;
}

/* --- reading ---------------------------------------------------------------------------------- */

static _Noreturn void bad(const char *path, const char *what) {
  mistake("%s: expected an .npz file, but %s", path, what);
}

/* Where the record at the end of the archive is, which only a comment may follow. */
static const unsigned char *find_end(const char *path, const unsigned char *bytes, size_t size) {
  for (size_t back = END_BYTES; back <= size && back <= END_BYTES + MOST_COMMENT; back++) {
    const unsigned char *at = bytes + size - back;
    if (number(at, 4) == END && number(at + 20, 2) == back - END_BYTES) return at;
  }
  bad(path, "it has no directory at its end");
}

/* The bytes of a member whose entry in the directory is at `entry`. */
static const char *contents(const char *path, const npz_member *m, const unsigned char *bytes,
                            size_t size, const unsigned char *entry) {
  const size_t method = number(entry + 10, 2), at = number(entry + 42, 4);
  if (number(entry + 8, 2) & 1) mistake("%s: array %s is encrypted", path, m->name);
  if (method != 0)
    mistake(
        "%s: array %s is compressed (method %zu); nvm-run reads what numpy.savez writes, not "
        "numpy.savez_compressed",
        path, m->name, method);
  if (m->size == UINT32_MAX || at == UINT32_MAX)
    mistake("%s: array %s: archives of more than 4 GiB are not supported", path, m->name);
  if (number(entry + 20, 4) != m->size) bad(path, "a stored array has two sizes");
  if (at > size || size - at < LOCAL_BYTES || number(bytes + at, 4) != LOCAL)
    bad(path, "its directory leads to no array");
  const size_t skip = LOCAL_BYTES + number(bytes + at + 26, 2) + number(bytes + at + 28, 2);
  if (skip > size - at || m->size > size - at - skip) bad(path, "an array in it is cut off");
  const unsigned char *data = bytes + at + skip;
  if (checksum(data, m->size) != number(entry + 16, 4))
    mistake("%s: array %s is damaged: its checksum differs", path, m->name);
  return (const char *)data;
}

npz_member *read_npz(const char *path, size_t *out_count) {
  size_t size, n = 0;
  const unsigned char *bytes = (const unsigned char *)read_file(path, &size);
  const unsigned char *end = find_end(path, bytes, size);
  const size_t count = number(end + 10, 2), length = number(end + 12, 4), at = number(end + 16, 4);
  if (number(end + 4, 4) != 0 || number(end + 8, 2) != count) bad(path, "it has several parts");
  if (count == 65535 || at == UINT32_MAX)
    mistake("%s: archives of more than 4 GiB or 65,534 arrays are not supported", path);
  if (at > (size_t)(end - bytes) || length > (size_t)(end - bytes) - at)
    bad(path, "its directory lies outside");
  npz_member *members = keep((count + 1) * sizeof *members);
  const unsigned char *entry = bytes + at;
  for (size_t left = length; n < count; n++) {
    if (left < ENTRY_BYTES || number(entry, 4) != ENTRY) bad(path, "its directory is cut off");
    const size_t name = number(entry + 28, 2);
    const size_t whole = ENTRY_BYTES + name + number(entry + 30, 2) + number(entry + 32, 2);
    if (whole > left) bad(path, "its directory is cut off");
    const char *text = (const char *)entry + ENTRY_BYTES;
    if (memchr(text, 0, name)) bad(path, "a name in it holds NUL");
    const int suffix = name >= 4 && memcmp(text + name - 4, ".npy", 4) == 0 ? 4 : 0;
    members[n].name = keep_text(text, name - (size_t)suffix);
    members[n].size = number(entry + 24, 4);
    members[n].bytes = contents(path, &members[n], bytes, size, entry);
    entry += whole;
    left -= whole;
  }
  *out_count = n;
  return members;
}

/* --- writing ---------------------------------------------------------------------------------- */

typedef struct writer {
  output out;
  size_t at; /* bytes written */
} writer;

static void put(writer *w, const void *data, size_t size) {
  if (size) fwrite(data, 1, size, w->out.file);
  w->at += size;
  if (w->at > INT32_MAX) mistake("%s: archives of more than 2 GiB are not written", w->out.path);
}

static void put_numbers(writer *w, const uint32_t (*numbers)[2], size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned char bytes[4];
    for (uint32_t k = 0; k < numbers[i][1]; k++)
      bytes[k] = (unsigned char)(numbers[i][0] >> (8 * k));
    put(w, bytes, numbers[i][1]);
  }
}

/* What an entry and a local header share: version, flags, method, time, date (1 January 1980),
 * checksum, sizes, lengths of name and extra field. */
static void put_member(writer *w, const npz_member *m, uint32_t sum) {
  const uint32_t size = (uint32_t)m->size, name = (uint32_t)strlen(m->name) + 4;
  const uint32_t fields[][2] = {{20, 2},  {0, 2},    {0, 2},    {0, 2},    {0x21, 2},
                                {sum, 4}, {size, 4}, {size, 4}, {name, 2}, {0, 2}};
  put_numbers(w, fields, sizeof fields / sizeof *fields);
}

static void put_name(writer *w, const npz_member *m) {
  put(w, m->name, strlen(m->name));
  put(w, ".npy", 4);
}

void write_npz(const char *path, const npz_member *members, size_t count) {
  writer w = {.out = create_file(path)};
  uint32_t *at = keep((count + 1) * sizeof *at), *sums = keep((count + 1) * sizeof *sums);
  for (size_t i = 0; i < count; i++) {
    const npz_member *m = &members[i];
    at[i] = (uint32_t)w.at;
    sums[i] = checksum((const unsigned char *)m->bytes, m->size);
    put_numbers(&w, (const uint32_t[][2]){{LOCAL, 4}}, 1);
    put_member(&w, m, sums[i]);
    put_name(&w, m);
    put(&w, m->bytes, m->size);
  }
  const uint32_t directory = (uint32_t)w.at, n = (uint32_t)count;
  for (size_t i = 0; i < count; i++) {
    put_numbers(&w, (const uint32_t[][2]){{ENTRY, 4}, {20, 2}}, 2);
    put_member(&w, &members[i], sums[i]);
    /* length of a comment, disk, attributes (two), place */
    put_numbers(&w, (const uint32_t[][2]){{0, 2}, {0, 2}, {0, 2}, {0, 4}, {at[i], 4}}, 5);
    put_name(&w, &members[i]);
  }
  const uint32_t length = (uint32_t)w.at - directory;
  const uint32_t end[][2] = {{END, 4}, {0, 4}, {n, 2}, {n, 2}, {length, 4}, {directory, 4}, {0, 2}};
  put_numbers(&w, end, sizeof end / sizeof *end);
  finish_file(&w.out);
}
