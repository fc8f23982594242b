/* A loaded program: what program.c reads, verify.c checks and the interpreter runs. Immutable after
 * load. */
#ifndef NVM_PROGRAM_H
#define NVM_PROGRAM_H

#include <stdatomic.h>

#include "nvm_api.h"
#include "nvm_kernel.h"
#include "nvm_object.h"

typedef struct nvm_kernel_ir nvm_kernel_ir; /* kernel_ir.h */

typedef struct nvm_param {
  const char *name;
  uint32_t type;
  uint8_t kind; /* 0 object, 1 int register */
} nvm_param;

typedef struct nvm_dim_slot {
  const char *name;
  int32_t param; /* binding parameter or -1 */
  const int64_t
      *program; /* postfix (enum nvm_dim_op) over slots, NULL: bound at first occurrence */
  uint32_t n_words;
} nvm_dim_slot;

typedef struct nvm_function {
  const char *name;
  uint8_t is_public, result_kind;
  uint32_t n_params;
  const nvm_param *params;
  const uint8_t *kinds; /* of the parameters: 0 object, 1 int register */
  uint32_t n_int_params, n_obj_params;
  uint32_t result_type;
  uint32_t n_ints, n_objs;
  const uint32_t *code;
  uint32_t n_words;
  uint32_t n_dims;
  const nvm_dim_slot *dims;
  uint32_t n_checked;
  const char *const *checked;
  const uint8_t *spans;
  uint32_t n_span_bytes;
} nvm_function;

typedef struct nvm_type {
  const int64_t *words; /* docs/format.md, "Types" */
  uint32_t n_words;
} nvm_type;

typedef struct nvm_adt_def {
  const char *name;
  uint32_t n_type_params, first, count;
} nvm_adt_def;

typedef struct nvm_ctor {
  const char *name;
  int32_t adt;
  uint32_t tag, n_fields;
  const uint32_t *field_types;
} nvm_ctor;

typedef struct nvm_note {
  const char *text;
  int32_t source;
  uint32_t line, column;
} nvm_note;

typedef struct nvm_kernel {
  const char *name;
  uint8_t kind; /* 0 IR, 1 C, 2 external */
  nvm_signature signature;
  uint32_t number;         /* its place in the table */
  nvm_kernel_fn fn;        /* host function: machine code or C kernel; NULL: run ir */
  const nvm_kernel_ir *ir; /* checked, NULL for C kernels */
} nvm_kernel;

typedef struct nvm_section {
  uint8_t kind;
  const uint8_t *data;
  size_t size;
  const char *target;
  const char *why; /* native code: why it is not used; "" for other kinds and what is used */
} nvm_section;

/* A tensor that stays outside of the file: what bind.c takes its bytes from must look like this. */
typedef struct nvm_weight {
  const char *name;
  uint32_t dtype, rank;
  const int64_t *dims;
  int64_t elements;
  size_t size;           /* bytes */
  const uint8_t *digest; /* SHA-256 of the bytes, or NULL: any are taken */
} nvm_weight;

/* Where a constant's elements lie in a weight (docs/format.md, "Late-bound constants"). */
typedef struct nvm_late {
  int32_t weight; /* -1: the constant is in the file */
  uint32_t n_axes;
  const int64_t *layout; /* base, limit, then of each axis: sizes, strides, steps */
} nvm_late;

enum {
  NVM_LAYOUT_HEAD = 2,
  NVM_LAYOUT_GROWTH = 16 /* elements of a constant for one of a weight */
};

struct nvm_program {
  atomic_uint refcount;
  uint32_t flags;
  uint32_t version;           /* of the file's format */
  struct nvm_program *parent; /* retained: the program that this one binds weights to, or NULL */
  void *bound;                /* owned: what constants point into, or NULL */
  void (*release_bound)(void *bound);
  struct nvm_arena
      *copies; /* owned: verified copies of weights that constants point into, or NULL */
  struct nvm_arena *arena; /* owns all tables and strings below (program.c) */
  uint32_t n_functions, n_types, n_adts, n_ctors, n_constants, n_kernels, n_notes, n_sources,
      n_devices, n_sections, n_weights;
  const nvm_function *functions;
  const nvm_type *types;
  const nvm_adt_def *adts;
  const nvm_ctor *ctors;
  nvm_tensor *const
      *constants; /* immortal tensors; data points into the mapping, NULL: not bound */
  const nvm_weight *weights;
  const nvm_late *late;     /* of each constant */
  const char *weights_file; /* where the weights lie, seen from the file's folder, or "" */
  const nvm_kernel *kernels;
  const nvm_note *notes;
  const char *const *sources;
  const char *const *devices; /* by index: backends in order of preference, comma between */
  const nvm_section *sections;
  const uint32_t *by_name; /* indices of the functions in the order of their names */
  const uint8_t *header;   /* the msgpack header, private copy */
  size_t header_size;
  const uint8_t *signature; /* the signature block, private copy, or NULL */
  size_t signature_size;
  const char *const *producer; /* key, value, key, value, ..., NULL */
  const char *warning;         /* why machine code is not used, "" if it is or there is none */
  void *mapping;               /* munmap'ed at release, or NULL */
  size_t mapping_size;
  struct nvm_native_code *native; /* native_code.c */
  int32_t native_section;         /* where it came from; meaningless without `native` */
};

#endif
