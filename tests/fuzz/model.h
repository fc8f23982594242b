/* An executable file taken apart for mutation: msgpack header with an index of its values,
 * sections, and behind the file the script of calls (run_one.h). Writing it out repairs what
 * follows from the parts: sizes, offsets, padding. Digests are run_one's.
 */
#ifndef NVM_FUZZ_MODEL_H
#define NVM_FUZZ_MODEL_H

#include <stddef.h>
#include <stdint.h>

enum {
  MODEL_FIXED = 96,
  MODEL_HEADER = 1 << 15,
  MODEL_SECTION = 1 << 14,
  MODEL_SECTIONS = 6,
  MODEL_SCRIPT = 256,
  MODEL_SIGNATURE = 128,
  MODEL_NODES = 1 << 13
};

enum node_kind { NODE_NIL, NODE_BOOL, NODE_INT, NODE_STR, NODE_BIN, NODE_ARRAY, NODE_MAP };

/* A value of the msgpack header. */
typedef struct node {
  uint32_t at, body, end; /* bytes: of its type byte, of its content, behind it */
  uint32_t next;          /* number of the node behind its subtree */
  uint32_t count;         /* elements of an array, pairs of a map */
  uint8_t kind;
} node;

typedef struct model {
  uint8_t fixed[MODEL_FIXED];
  uint8_t header[MODEL_HEADER];
  size_t header_size;
  uint8_t sections[MODEL_SECTIONS][MODEL_SECTION];
  size_t section_size[MODEL_SECTIONS];
  uint32_t n_sections;
  uint8_t signature[MODEL_SIGNATURE]; /* of a file that says it is signed */
  size_t signature_size;
  uint8_t script[MODEL_SCRIPT];
  size_t script_size;
  node nodes[MODEL_NODES];
  uint32_t n_nodes;
} model;

/* 0: these bytes can't be taken apart. */
int model_read(model *m, const uint8_t *data, size_t size);
/* Bytes written, 0 if they do not fit. */
size_t model_write(model *m, uint8_t *out, size_t capacity);

/* Numbers of nodes; 0 (the header's map itself): there is none. */
uint32_t model_key(const model *m, uint32_t map, const char *key);
uint32_t model_element(const model *m, uint32_t array, uint32_t index);
/* The value of a top-level key, and of its element's key. */
uint32_t model_table(const model *m, const char *table);
uint32_t model_count(const model *m, const char *table);
int64_t model_int(const model *m, uint32_t number);

/* Changes of the header. All of them renumber the nodes; 0: no room, nothing changed. */
int model_splice(model *m, size_t at, size_t removed, const uint8_t *bytes, size_t size);
int model_set_int(model *m, uint32_t number, int64_t value);
/* Repeat (`grow`) or drop an element of an array. */
int model_repeat(model *m, uint32_t array, uint32_t index, int grow);

/* Change of a section. */
int model_section_splice(model *m, uint32_t section, size_t at, size_t removed,
                         const uint8_t *bytes, size_t size);

/* Encode an int; returns how many of the 9 bytes were used. */
size_t model_encode_int(int64_t value, uint8_t *out);

#endif
