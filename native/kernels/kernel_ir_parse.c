/* Reads a serialized loop-IR body: structure, types and nesting, each in one linear pass over flat
 * arrays. */
#include <string.h>

#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "generated/nvm_loop_ir.h"
#include "kernel_ir_code.h"
#include "status.h"

enum { HEADER_SIZE = 32, RECORD_SIZE = 16 };
_Static_assert(sizeof(nvm_ir_record) == RECORD_SIZE, "records are read as they stand in the file");

#define BAD(...) NVM_FAIL(NVM_INVALID_EXECUTABLE, "loop IR: " __VA_ARGS__)

static uint32_t word(const uint8_t *data, size_t offset) {
  uint32_t value;
  memcpy(&value, data + offset, sizeof value);
  return value;
}

/* --- expressions ------------------------------------------------------------------------------ */

static nvm_status check_operand(const nvm_ir_body *body, uint32_t node, uint32_t operand,
                                uint8_t dtype) {
  if (operand >= node) BAD("expression %u refers to %u, which does not precede it", node, operand);
  if (body->nodes[operand].dtype != dtype) {
    BAD("expression %u needs an operand of %s, got %s", node, nvm_dtypes[dtype].name,
        nvm_dtypes[body->nodes[operand].dtype].name);
  }
  return NVM_OK;
}

/* Indices of a Load or Store: as many int64 expressions below `limit` as the operand has axes. */
static nvm_status check_indices(const nvm_ir_body *body, const char *what, uint32_t number,
                                const nvm_ir_record *record, uint32_t limit) {
  if (record->a >= body->sig->n_operands) {
    BAD("%s %u names operand %u of %u", what, number, record->a, body->sig->n_operands);
  }
  const nvm_operand *operand = &body->sig->operands[record->a];
  if (record->rank != operand->rank) {
    BAD("%s %u has %u indices for rank %u", what, number, record->rank, operand->rank);
  }
  if (record->b > body->n_indices || record->rank > body->n_indices - record->b) {
    BAD("%s %u: index entries out of range", what, number);
  }
  for (uint32_t k = 0; k < record->rank; ++k) {
    const uint32_t index = body->indices[record->b + k];
    if (index >= limit) BAD("%s %u refers to %u, which does not precede it", what, number, index);
    if (body->nodes[index].dtype != NVM_DTYPE_INT64)
      BAD("%s %u: an index is no int64", what, number);
  }
  return NVM_OK;
}

static nvm_status check_const(uint32_t node, const nvm_ir_record *record) {
  const uint64_t bits = record->b | (uint64_t)record->c << 32;
  const nvm_dtype_row *row = &nvm_dtypes[record->dtype];
  uint64_t canonical = bits;
  if (record->dtype == NVM_DTYPE_BOOL) {
    canonical = bits & 1;
  } else if (row->bits < 64) {
    const uint32_t shift = 64u - row->bits;
    canonical =
        row->is_signed ? (uint64_t)((int64_t)(bits << shift) >> shift) : bits << shift >> shift;
  }
  if (bits != canonical) BAD("expression %u: the literal does not fit %s", node, row->name);
  return NVM_OK;
}

static nvm_status check_leaf(const nvm_ir_body *body, uint32_t node, const nvm_ir_record *record) {
  switch (record->kind) {
    case NVM_IR_NODE_CONST:
      return check_const(node, record);
    case NVM_IR_NODE_LOOPVAR:
      if (record->a >= body->n_vars || record->dtype != NVM_DTYPE_INT64) {
        BAD("expression %u: no int64 loop variable %u", node, record->a);
      }
      return NVM_OK;
    case NVM_IR_NODE_LOCAL:
      if (record->a >= body->n_locals || record->dtype != body->local_dtypes[record->a]) {
        BAD("expression %u: no local %u of its dtype", node, record->a);
      }
      return NVM_OK;
    default:
      if (record->a >= (uint32_t)body->sig->n_dims + body->sig->n_attrs ||
          record->dtype != NVM_DTYPE_INT64) {
        BAD("expression %u: no int64 dim %u", node, record->a);
      }
      return NVM_OK;
  }
}

/* Whether "bits" turns one dtype into the other. */
static int reinterprets(uint8_t from, uint8_t to) {
  switch (from) {
    case NVM_DTYPE_FLOAT32:
      return to == NVM_DTYPE_INT32 || to == NVM_DTYPE_UINT32;
    case NVM_DTYPE_FLOAT64:
      return to == NVM_DTYPE_INT64 || to == NVM_DTYPE_UINT64;
    case NVM_DTYPE_INT32:
    case NVM_DTYPE_UINT32:
      return to == NVM_DTYPE_FLOAT32;
    case NVM_DTYPE_INT64:
    case NVM_DTYPE_UINT64:
      return to == NVM_DTYPE_FLOAT64;
    default:
      return 0;
  }
}

static nvm_status check_operation(const nvm_ir_body *body, uint32_t node,
                                  const nvm_ir_record *record) {
  const uint8_t dtype = record->dtype;
  const uint8_t first = record->a < node ? body->nodes[record->a].dtype : 0;
  int known = 1;
  switch (record->kind) {
    case NVM_IR_NODE_UNARY: {
      const int test = record->op >= NVM_IR_UNARY_ISNAN && record->op <= NVM_IR_UNARY_ISFINITE;
      const int bits = record->op == NVM_IR_UNARY_BITS;
      if (test && dtype != NVM_DTYPE_BOOL) BAD("expression %u: a test gives bool", node);
      if (bits && !reinterprets(first, dtype)) BAD("expression %u: bits of another width", node);
      NVM_TRY(check_operand(body, node, record->a, test || bits ? first : dtype));
      known = nvm_ir_unary(record->op, first) != NULL;
      break;
    }
    case NVM_IR_NODE_BINARY:
      NVM_TRY(check_operand(body, node, record->a, dtype));
      NVM_TRY(check_operand(body, node, record->b, dtype));
      known = nvm_ir_binary(record->op, dtype) != NULL;
      break;
    case NVM_IR_NODE_COMPARE:
      NVM_TRY(check_operand(body, node, record->a, first));
      NVM_TRY(check_operand(body, node, record->b, first));
      known = dtype == NVM_DTYPE_BOOL && nvm_ir_compare(record->op, first) != NULL;
      break;
    case NVM_IR_NODE_SELECT:
      NVM_TRY(check_operand(body, node, record->a, NVM_DTYPE_BOOL));
      NVM_TRY(check_operand(body, node, record->b, dtype));
      NVM_TRY(check_operand(body, node, record->c, dtype));
      break;
    case NVM_IR_NODE_CAST:
      NVM_TRY(check_operand(body, node, record->a, first));
      break;
    default: /* CheckIndex */
      NVM_TRY(check_operand(body, node, record->a, NVM_DTYPE_INT64));
      NVM_TRY(check_operand(body, node, record->b, NVM_DTYPE_INT64));
      known = dtype == NVM_DTYPE_INT64 && record->c < body->sig->n_operands;
  }
  if (!known) BAD("expression %u: operation %u is not defined here", node, record->op);
  return NVM_OK;
}

static nvm_status check_nodes(const nvm_ir_body *body) {
  for (uint32_t node = 0; node < body->n_nodes; ++node) {
    const nvm_ir_record *record = &body->nodes[node];
    if (record->dtype >= NVM_DTYPE_COUNT) BAD("expression %u: unknown dtype", node);
    if (record->kind <= NVM_IR_NODE_DIMREF) {
      NVM_TRY(check_leaf(body, node, record));
    } else if (record->kind == NVM_IR_NODE_LOAD) {
      NVM_TRY(check_indices(body, "load", node, record, node));
      if (record->dtype != body->sig->operands[record->a].dtype) {
        BAD("load %u: expected %s, got %s", node,
            nvm_dtypes[body->sig->operands[record->a].dtype].name, nvm_dtypes[record->dtype].name);
      }
    } else if (record->kind < NVM_IR_NODE_COUNT) {
      NVM_TRY(check_operation(body, node, record));
    } else {
      BAD("expression %u: unknown kind %u", node, record->kind);
    }
  }
  return NVM_OK;
}

/* --- statements ------------------------------------------------------------------------------- */

static nvm_status check_value(const nvm_ir_body *body, uint32_t number, uint32_t node,
                              uint8_t dtype) {
  if (node >= body->n_nodes) BAD("statement %u refers to expression %u", number, node);
  if (body->nodes[node].dtype != dtype) {
    BAD("statement %u: expected %s, got %s", number, nvm_dtypes[dtype].name,
        nvm_dtypes[body->nodes[node].dtype].name);
  }
  return NVM_OK;
}

static nvm_status check_simple(const nvm_ir_body *body, uint32_t number,
                               const nvm_ir_record *record) {
  switch (record->kind) {
    case NVM_IR_STMT_STORE: {
      NVM_TRY(check_indices(body, "store", number, record, body->n_nodes));
      const nvm_operand *operand = &body->sig->operands[record->a];
      if (operand->role == NVM_ROLE_IN) BAD("store %u writes input %u", number, record->a);
      return check_value(body, number, record->c, operand->dtype);
    }
    case NVM_IR_STMT_SETLOCAL:
    case NVM_IR_STMT_ACCUMULATE:
      if (record->a >= body->n_locals) BAD("statement %u: no local %u", number, record->a);
      if (record->kind == NVM_IR_STMT_ACCUMULATE &&
          !nvm_ir_fold_of(record->op, body->local_dtypes[record->a])) {
        BAD("statement %u: operation %u is not defined here", number, record->op);
      }
      return check_value(body, number, record->b, body->local_dtypes[record->a]);
    default: /* SetDim */
      if (record->a >= body->sig->n_out_dims) BAD("statement %u: no out-dim %u", number, record->a);
      return check_value(body, number, record->b, NVM_DTYPE_INT64);
  }
}

/* For and If enclose the statements up to their ends; ends must nest. */
static nvm_status check_statements(const nvm_ir_body *body) {
  uint32_t ends[NVM_IR_MAX_NESTING * 2], depth = 0;
  uint32_t levels = 0; /* entries of `ends`: an If pushes two */
  uint8_t pushed[NVM_IR_MAX_NESTING];
  for (uint32_t number = 0; number < body->n_statements; ++number) {
    while (levels && ends[levels - 1] == number) {
      --levels;
      if (--pushed[depth - 1] == 0) --depth;
    }
    const uint32_t limit = levels ? ends[levels - 1] : body->n_statements;
    const nvm_ir_record *record = &body->statements[number];
    if (record->kind >= NVM_IR_STMT_COUNT) BAD("statement %u: unknown kind", number);
    const int loop = record->kind == NVM_IR_STMT_FOR;
    if (!loop && record->kind != NVM_IR_STMT_IF) {
      NVM_TRY(check_simple(body, number, record));
      continue;
    }
    if (record->c <= number || record->c > limit) BAD("statement %u: its end is outside", number);
    if (depth == NVM_IR_MAX_NESTING) BAD("statement %u nests too deep", number);
    pushed[depth] = loop ? 1 : 2;
    ends[levels++] = record->c;
    if (loop) {
      if (record->a >= body->n_vars || record->op > 1) BAD("loop %u: bad variable", number);
      NVM_TRY(check_value(body, number, record->b, NVM_DTYPE_INT64));
    } else {
      if (record->b <= number || record->b > record->c) BAD("branch %u: bad middle", number);
      NVM_TRY(check_value(body, number, record->a, NVM_DTYPE_BOOL));
      ends[levels++] = record->b;
    }
    ++depth;
  }
  return NVM_OK;
}

/* --- the whole -------------------------------------------------------------------------------- */

static nvm_status read_counts(const uint8_t *data, size_t size, nvm_ir_body *body) {
  if (size < HEADER_SIZE || memcmp(data, "NLIR", 4) != 0)
    BAD("expected a body, got %zu bytes", size);
  if (word(data, 4) != NVM_IR_VERSION) BAD("expected version 1, got %u", word(data, 4));
  body->n_nodes = word(data, 8);
  body->n_statements = word(data, 12);
  body->n_indices = word(data, 16);
  body->n_locals = word(data, 20);
  body->n_vars = word(data, 24);
  if (body->n_nodes > NVM_IR_MAX_NODES || body->n_statements > NVM_IR_MAX_STATEMENTS ||
      body->n_indices > NVM_IR_MAX_NODES * NVM_MAX_RANK || body->n_locals > NVM_IR_MAX_LOCALS ||
      body->n_vars > body->n_statements) {
    BAD("more expressions, statements or variables than a body may have");
  }
  if (word(data, 28) != body->sig->n_operands) {
    BAD("expected %u operands, got %u", body->sig->n_operands, word(data, 28));
  }
  size_t need = HEADER_SIZE + (size_t)RECORD_SIZE * (body->n_nodes + body->n_statements) +
                (size_t)4 * body->n_indices + body->n_locals;
  need = (need + 7) & ~(size_t)7;
  if (size != need) BAD("expected %zu bytes, got %zu", need, size);
  return NVM_OK;
}

/* Copy the arrays, so that they are aligned and nobody can change them after the checks. */
static nvm_status copy_arrays(nvm_arena *arena, const uint8_t *data, nvm_ir_body *body) {
  void *nodes, *statements, *indices, *locals;
  const size_t node_bytes = (size_t)RECORD_SIZE * body->n_nodes;
  const size_t statement_bytes = (size_t)RECORD_SIZE * body->n_statements;
  const size_t index_bytes = (size_t)4 * body->n_indices;
  NVM_TRY(nvm_arena_alloc(arena, node_bytes, 16, &nodes));
  NVM_TRY(nvm_arena_alloc(arena, statement_bytes, 16, &statements));
  NVM_TRY(nvm_arena_alloc(arena, index_bytes, 16, &indices));
  NVM_TRY(nvm_arena_alloc(arena, body->n_locals, 16, &locals));
  data += HEADER_SIZE;
  memcpy(nodes, data, node_bytes);
  memcpy(statements, data + node_bytes, statement_bytes);
  memcpy(indices, data + node_bytes + statement_bytes, index_bytes);
  memcpy(locals, data + node_bytes + statement_bytes + index_bytes, body->n_locals);
  body->nodes = nodes;
  body->statements = statements;
  body->indices = indices;
  body->local_dtypes = locals;
  for (uint32_t k = 0; k < body->n_locals; ++k) {
    if (body->local_dtypes[k] >= NVM_DTYPE_COUNT) BAD("local %u: unknown dtype", k);
  }
  return NVM_OK;
}

static uint64_t lane_of(const nvm_ir_record *record) {
  const uint64_t bits = record->b | (uint64_t)record->c << 32;
  if (record->dtype != NVM_DTYPE_FLOAT16) return bits;
  const float value = nvm_half_to_float((uint16_t)bits);
  uint32_t lane;
  memcpy(&lane, &value, sizeof lane);
  return lane;
}

static nvm_status place_constants(nvm_kernel_ir *ir, nvm_arena *arena, nvm_ir_body *body) {
  void *memory;
  for (uint32_t node = 0; node < body->n_nodes; ++node) {
    body->n_constants += body->nodes[node].kind == NVM_IR_NODE_CONST;
  }
  NVM_TRY(nvm_arena_array(ir->arena, body->n_constants, sizeof(uint64_t), &memory));
  ir->constants = memory;
  NVM_TRY(nvm_arena_array(arena, body->n_nodes, sizeof(uint32_t), &memory));
  uint32_t *cells = memory, next = 0;
  for (uint32_t node = 0; node < body->n_nodes; ++node) {
    if (body->nodes[node].kind != NVM_IR_NODE_CONST) continue;
    ir->constants[next] = lane_of(&body->nodes[node]);
    cells[node] = next++;
  }
  body->constant_cells = cells;
  return NVM_OK;
}

static nvm_status parse(const uint8_t *data, size_t size, nvm_ir_body *body, nvm_arena *scratch,
                        nvm_kernel_ir *ir) {
  NVM_TRY(read_counts(data, size, body));
  NVM_TRY(copy_arrays(scratch, data, body));
  NVM_TRY(check_nodes(body));
  NVM_TRY(check_statements(body));
  NVM_TRY(place_constants(ir, scratch, body));
  return nvm_ir_compile(ir, body);
}

nvm_status nvm_kernel_ir_parse(const uint8_t *data, size_t size, const nvm_signature *sig,
                               nvm_kernel_ir **out_ir) {
  *out_ir = NULL;
  nvm_kernel_ir *ir = nvm_malloc(sizeof *ir);
  if (!ir) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a kernel");
  memset(ir, 0, sizeof *ir);
  nvm_ir_body body = {.sig = sig};
  nvm_arena *scratch = NULL;
  nvm_status status = nvm_arena_create(&ir->arena);
  if (status == NVM_OK) status = nvm_arena_create(&scratch);
  if (status == NVM_OK) status = parse(data, size, &body, scratch, ir);
  nvm_arena_destroy(scratch);
  if (status != NVM_OK) {
    nvm_kernel_ir_free(ir);
    return status;
  }
  *out_ir = ir;
  return NVM_OK;
}

void nvm_kernel_ir_free(nvm_kernel_ir *ir) {
  if (!ir) return;
  for (int k = 0; k < NVM_IR_SPARES; ++k) nvm_free(atomic_load(&ir->spares[k]));
  nvm_arena_destroy(ir->arena);
  nvm_free(ir);
}
