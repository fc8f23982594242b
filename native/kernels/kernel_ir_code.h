/* The loop-IR interpreter's own code: what kernel_ir_parse.c checks, kernel_ir_compile.c writes and
 * kernel_ir_run.c runs.
 *
 * A value is named by a ref. Plain refs are cells: 8 bytes that hold one lane, laid out as
 *   [constants][in-dims and attributes][loop variables][locals][temporaries].
 * Inside a row (an innermost loop that runs many turns at once) there are two more kinds: refs with
 * NVM_IR_VECTOR name a register of `chunk` lanes, refs with NVM_IR_AFFINE an int64 that is base +
 * step * turn.
 */
#ifndef NVM_KERNEL_IR_CODE_H
#define NVM_KERNEL_IR_CODE_H

#include <stdatomic.h>

#include "arena.h"
#include "kernel_ir.h"
#include "kernel_ir_ops.h"
#include "status.h"

#define NVM_IR_VECTOR 0x80000000u
#define NVM_IR_AFFINE 0x40000000u
enum {
  NVM_IR_CHUNK = 256,
  NVM_IR_SMALL_CHUNK = 16,
  NVM_IR_ROW_BYTES = 1 << 16,
  NVM_IR_SPARES = 16
};

/* An expression or statement as in the file (docs/format.md, "Serialized loop IR"). */
typedef struct nvm_ir_record {
  uint8_t kind, dtype, op, rank;
  uint32_t a, b, c;
} nvm_ir_record;

enum nvm_ir_code {
  NVM_IR_OP,     /* out := fn(in[0], in[1], in[2]) */
  NVM_IR_LOAD,   /* out := buffer in[0] at rank refs from refs[in[1]] */
  NVM_IR_CHECK,  /* out := in[0] if below in[1]; in[2] = operand for the error */
  NVM_IR_RAMP,   /* out := lanes of affine in[0] (row only) */
  NVM_IR_STORE,  /* buffer in[0] at refs[in[1]] := in[2] */
  NVM_IR_SET,    /* cell out := in[0] */
  NVM_IR_FOLD,   /* cell out := out fold in[0] */
  NVM_IR_SETDIM, /* out-dim out := in[0] */
  NVM_IR_FOR,    /* cell out = 0 .. in[0] - 1; in[1] = pc behind the loop, in[2] = nesting depth */
  NVM_IR_NEXT,   /* end of the loop that starts at in[1]; cell out, in[2] = depth */
  NVM_IR_IF,     /* unless in[0] go to in[1] */
  NVM_IR_JUMP,   /* go to in[1] */
  NVM_IR_ROW /* rows[in[0]]; if it could not run as a row, go on with the loop behind it at in[1] */
};

typedef struct nvm_ir_insn {
  uint8_t code, dtype, rank;
  uint8_t half;     /* round the result to float16 */
  uint8_t distinct; /* LOAD, STORE in a row: needs a step other than 0 */
  uint32_t out, in[3];
  uint32_t access; /* LOAD, STORE in a row with affine indices: 1 + number, else 0 */
  union {
    nvm_ir_op op;
    nvm_ir_fold fold;
  } fn;
} nvm_ir_insn;

enum nvm_ir_affine_op { NVM_IR_TURN, NVM_IR_PLUS, NVM_IR_MINUS, NVM_IR_TIMES, NVM_IR_BOUNDED };

/* One int64 that is linear in the turn: computed once a row from cells and earlier ones. */
typedef struct nvm_ir_affine {
  uint8_t op;
  uint32_t a, b, operand; /* BOUNDED: b = bound, operand for the error */
} nvm_ir_affine;

typedef struct nvm_ir_row_loop {
  uint32_t extent;                 /* ref */
  uint32_t var;                    /* cell */
  uint32_t pre, body, end;         /* pcs: invariant cells, then what runs a chunk at a time */
  uint32_t first_affine, n_affine; /* into affine */
  uint32_t n_accesses;
  uint32_t behind; /* pc after the loop */
} nvm_ir_row_loop;

typedef struct nvm_ir_workspace nvm_ir_workspace;

struct nvm_kernel_ir {
  nvm_arena *arena;
  nvm_ir_insn *insns;
  uint32_t *refs;
  nvm_ir_affine *affine;
  nvm_ir_row_loop *rows;
  uint64_t *constants;
  uint32_t n_insns, n_constants, n_dims, n_vars, n_locals, n_cells, n_vectors, n_affine, n_accesses;
  uint32_t chunk; /* lanes of a vector register */
  _Atomic(nvm_ir_workspace *) spares[NVM_IR_SPARES];
};

/* What kernel_ir_parse.c hands to kernel_ir_compile.c: checked arrays. */
typedef struct nvm_ir_body {
  const nvm_signature *sig;
  uint32_t n_nodes, n_statements, n_indices, n_locals, n_vars, n_constants;
  const nvm_ir_record *nodes, *statements;
  const uint32_t *indices;
  const uint8_t *local_dtypes;
  const uint32_t *constant_cells; /* of Const expressions */
} nvm_ir_body;

/* Fill ir's code from a checked body. Errors: NVM_INVALID_EXECUTABLE for a variable out of scope or
 * too much code. */
NVM_NODISCARD nvm_status nvm_ir_compile(nvm_kernel_ir *ir, const nvm_ir_body *body);

#endif
