/* What the parts of nvm-run share. A program that ends at the first mistake: memory comes from one
 * arena and is freed at the end. */
#ifndef NVM_TOOL_H
#define NVM_TOOL_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "nvm_api.h"

enum { MAX_RANK = 8, EXIT_MISTAKE = 2 };

/* Print "error: ..." as one paragraph and exit with 2. */
_Noreturn void mistake(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for what the library's error record says; `what` opens the text, NULL: nothing. */
_Noreturn void failed(const char *what);

/* Memory that lives until the end, aligned to 64 bytes, not cleared. Ends the program without
 * memory. */
void *keep(size_t size);
char *keep_text(const char *text, size_t length);
void free_kept(void);

/* An array that grows; items are moved when it does. */
#define PUSH(array, count, capacity, item)                                            \
  do {                                                                                \
    if ((count) == (capacity)) (array) = grow((array), &(capacity), sizeof *(array)); \
    (array)[(count)++] = (item);                                                      \
  } while (0)
void *grow(void *array, size_t *capacity, size_t item);

/* A whole file. *out_size: its bytes, behind which a NUL stands. Kept. */
char *read_file(const char *path, size_t *out_size);

/* A file to write to. It takes its name, in place of one that has it, when it is finished; if the
 * program ends before, all is as it was. What is no file, as a pipe, is written to. One at a time.
 */
typedef struct output {
  FILE *file;
  const char *path;  /* for messages */
  const char *place; /* kept; NULL for what is no file */
} output;
output create_file(const char *path);
/* A mistake for a file, or the files of a folder, that can't be made: told before the work. */
void check_output(const char *path);
void finish_file(output *out);

/* --- dtypes --- */
const char *dtype_name(int32_t dtype);
size_t dtype_size(int32_t dtype);
int32_t dtype_of_name(const char *name, size_t length); /* -1: none */
int is_float(int32_t dtype);
int is_integer(int32_t dtype); /* bool is none */
/* Whether an integer of that sign and size is in an integer dtype's range. */
int integer_fits(int32_t dtype, int negative, uint64_t size);
void write_integer(int32_t dtype, int negative, uint64_t size, void *to);
/* 0 if a finite number is too large for a float dtype. */
int write_float(int32_t dtype, double number, void *to);
double read_float(int32_t dtype, const void *from);
/* Number of elements; ends the program if the bytes of the shape overflow. */
size_t shape_count(int32_t dtype, uint32_t rank, const int64_t *shape, const char *place);

/* --- npy.c --- */
/* The array in a .npy file, kept; ends the program with a message that names the file. */
nvm_arg read_npy(const char *path);
/* The same of bytes that stay where they are; `path`: for messages. */
nvm_arg parse_npy(const char *path, const char *bytes, size_t size);
void write_npy(const char *path, const nvm_out *tensor);
/* The bytes of such a file, kept. */
char *format_npy(const char *place, const nvm_out *tensor, size_t *out_size);

/* --- npz.c --- */
typedef struct npz_member {
  const char *name; /* without .npy */
  const char *bytes;
  size_t size;
} npz_member;

/* The arrays in an .npz file, kept, in its order. */
npz_member *read_npz(const char *path, size_t *out_count);
void write_npz(const char *path, const npz_member *members, size_t count);

/* --- json.c --- */
enum { JSON_NULL, JSON_BOOL, JSON_INT, JSON_FLOAT, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* Values stand in preorder; an object's are key, value, key, value. */
typedef struct json_node {
  uint8_t kind;
  uint8_t negative;  /* int */
  uint8_t too_large; /* int: more than 64 bits */
  uint32_t count;    /* array: items; object: pairs; string: bytes */
  size_t span;       /* values in it, itself included: the next one stands that much further on */
  union {
    double number;    /* float, and int as near as a double gets */
    const char *text; /* string, UTF-8, with a NUL behind it */
  } u;
  uint64_t size; /* int: without its sign; bool: 0 or 1 */
} json_node;

typedef struct json {
  json_node *nodes;
  size_t count, capacity;
} json;

/* Parse a text; `where` opens the message. */
json parse_json(const char *text, size_t size, const char *where);
/* The value of a key, or NULL. */
const json_node *json_member(const json_node *object, const char *key);
/* A number as Python writes it, the shortest that reads back the same. */
enum { NUMBER_BYTES = 64 }; /* room for that */
const char *double_text(double number, char *text);

/* --- values.c: the forms of `nimblevm run` --- */
typedef struct arguments {
  nvm_arg *items;
  size_t count, capacity;
} arguments;

/* A function of a program, whose dim names are shown in messages. */
typedef struct target {
  const nvm_program *program;
  uint32_t function;
} target;

/* Append the value of a JSON text for a type. `place`: "parameter %x". */
void add_json(const target *to, const json_node *node, uint32_t type, const char *place,
              arguments *out);
/* Write a value. elements: larger tensors are written as their type, SIZE_MAX: all whole; limit:
 * characters after which the text is cut. */
void write_value(void *file, const nvm_program *program, const nvm_out *value, size_t elements,
                 size_t limit);

#endif
