/* Turns a checked loop-IR body into the interpreter's code (kernel_ir_code.h). Linear in the body;
 * nothing recurses.
 *
 * Each statement's expressions become instructions in postorder, shared ones once. An innermost
 * loop of stores and accumulations is also written as a row: what does not depend on its variable
 * goes before it, int64 that is linear in it becomes an affine, the rest works on vectors of turns.
 * Order of turns is kept where it can be seen: see row_allowed().
 */
#include <string.h>

#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "generated/nvm_loop_ir.h"
#include "kernel_ir_code.h"

enum { NOT_A_ROW = -1 }; /* besides nvm_status values: the loop can't be a row */

typedef struct level {
  uint32_t kind, end,
      middle;      /* statement numbers; middle: of an If that still has its other branch */
  uint32_t pc;     /* of NVM_IR_FOR or NVM_IR_IF */
  uint32_t row_pc; /* of NVM_IR_ROW, or NO_PC */
} level;
enum { NO_PC = 0xFFFFFFFF, NO_REF = 0xFFFFFFFF };

typedef struct buffer_use {
  uint32_t row;  /* the row that the rest is about */
  uint32_t list; /* first index entry of its stores */
  uint32_t uses; /* stores and loads */
} buffer_use;

typedef struct compiler {
  nvm_ir_insn *insns; /* these four grow here and move to ir at the end */
  uint32_t *index_list;
  nvm_ir_affine *affine;
  nvm_ir_row_loop *rows;
  nvm_kernel_ir *ir;
  const nvm_ir_body *body;
  uint32_t first_dim, first_var, first_local, first_temp, temps; /* cells */
  uint32_t max_temps, max_insns, max_refs, max_affine, max_rows;
  uint32_t n_refs, n_rows;
  uint64_t budget; /* expressions that may still be emitted */
  uint8_t *open;   /* by loop variable: bound here */

  uint32_t *refs;   /* by expression: where its value is */
  uint32_t *stamps; /* by expression: the scope in which refs[] is good */
  uint32_t scope;   /* now; cells and affines of a row are good for the whole row */
  uint32_t statement_scope;
  uint32_t *stack; /* of expressions, 2 bits used as "operands done" beside it */
  uint32_t stack_size;

  int in_row;
  uint32_t row, row_var; /* number (never 0) and loop variable */
  nvm_ir_insn *vector_code;
  uint32_t n_vector_code, max_vector_code;
  uint32_t n_virtual, max_virtual;
  uint32_t *ramps, *ramp_stamps; /* by affine: the vector it was spread to */
  uint32_t *last_use, *assigned, *free_registers;
  buffer_use *buffers;
  uint32_t *folded, *folded_op; /* by local: row that accumulates it, and how */
} compiler;

/* --- growing arrays --------------------------------------------------------------------------- */

static nvm_status grow(void **memory, uint32_t *capacity, uint32_t needed, size_t item) {
  if (needed <= *capacity) return NVM_OK;
  uint32_t bigger = *capacity ? *capacity * 2 : 64;
  if (bigger < needed) bigger = needed;
  void *grown = nvm_realloc(*memory, bigger * item);
  if (!grown) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a kernel");
  *memory = grown;
  *capacity = bigger;
  return NVM_OK;
}
#define GROW(array, capacity, needed) \
  NVM_TRY(grow((void **)&(array), &(capacity), (needed), sizeof *(array)))

static nvm_status append(compiler *c, nvm_ir_insn insn) {
  GROW(c->insns, c->max_insns, c->ir->n_insns + 1);
  c->insns[c->ir->n_insns++] = insn;
  return NVM_OK;
}

static nvm_status append_vector(compiler *c, nvm_ir_insn insn) {
  GROW(c->vector_code, c->max_vector_code, c->n_vector_code + 1);
  c->vector_code[c->n_vector_code++] = insn;
  return NVM_OK;
}

static uint32_t new_temp(compiler *c) {
  const uint32_t cell = c->first_temp + c->temps++;
  if (c->temps > c->max_temps) c->max_temps = c->temps;
  return cell;
}

static nvm_status new_vector(compiler *c, uint32_t *out_ref) {
  const uint32_t old = c->max_virtual;
  uint32_t capacity = old;
  GROW(c->last_use, capacity, c->n_virtual + 1);
  capacity = old;
  GROW(c->assigned, capacity, c->n_virtual + 1);
  capacity = old;
  GROW(c->free_registers, capacity, c->n_virtual + 1);
  c->max_virtual = capacity;
  *out_ref = NVM_IR_VECTOR | c->n_virtual++;
  return NVM_OK;
}

static nvm_status new_affine(compiler *c, nvm_ir_affine affine, uint32_t *out_ref) {
  const uint32_t old = c->max_affine;
  uint32_t capacity = old;
  GROW(c->affine, capacity, c->ir->n_affine + 1);
  capacity = old;
  GROW(c->ramps, capacity, c->ir->n_affine + 1);
  capacity = old;
  GROW(c->ramp_stamps, capacity, c->ir->n_affine + 1);
  c->max_affine = capacity;
  c->ramp_stamps[c->ir->n_affine] = 0;
  c->affine[c->ir->n_affine] = affine;
  *out_ref = NVM_IR_AFFINE | c->ir->n_affine++;
  return NVM_OK;
}

/* --- expressions ------------------------------------------------------------------------------ */

static uint32_t operand_count(const nvm_ir_record *node) {
  switch (node->kind) {
    case NVM_IR_NODE_LOAD:
      return node->rank;
    case NVM_IR_NODE_UNARY:
    case NVM_IR_NODE_CAST:
      return 1;
    case NVM_IR_NODE_BINARY:
    case NVM_IR_NODE_COMPARE:
    case NVM_IR_NODE_CHECKINDEX:
      return 2;
    case NVM_IR_NODE_SELECT:
      return 3;
    default:
      return 0;
  }
}

static uint32_t operand_of(const nvm_ir_body *body, const nvm_ir_record *node, uint32_t k) {
  if (node->kind == NVM_IR_NODE_LOAD) return body->indices[node->b + k];
  return k == 0 ? node->a : k == 1 ? node->b : node->c;
}

static int same_indices(const nvm_ir_body *body, uint32_t first, uint32_t second, uint32_t rank) {
  return memcmp(body->indices + first, body->indices + second, rank * sizeof(uint32_t)) == 0;
}

static nvm_status leaf(compiler *c, uint32_t number, const nvm_ir_record *node) {
  switch (node->kind) {
    case NVM_IR_NODE_CONST:
      c->refs[number] = c->body->constant_cells[number];
      return NVM_OK;
    case NVM_IR_NODE_DIMREF:
      c->refs[number] = c->first_dim + node->a;
      return NVM_OK;
    case NVM_IR_NODE_LOCAL:
      if (c->in_row && c->folded[node->a] == c->row) return NOT_A_ROW;
      c->refs[number] = c->first_local + node->a;
      return NVM_OK;
    default:
      if (!c->open[node->a]) {
        NVM_FAIL(NVM_INVALID_EXECUTABLE, "loop IR: expression %u: its loop is not around it",
                 number);
      }
      if (c->in_row && node->a == c->row_var) {
        return new_affine(c, (nvm_ir_affine){.op = NVM_IR_TURN}, &c->refs[number]);
      }
      c->refs[number] = c->first_var + node->a;
      return NVM_OK;
  }
}

/* Is the value linear in the turn? Then it becomes an affine and *out_done is set. */
static nvm_status try_affine(compiler *c, uint32_t number, const nvm_ir_record *node,
                             int *out_done) {
  *out_done = 0;
  const int bounded = node->kind == NVM_IR_NODE_CHECKINDEX;
  if (!bounded && (node->kind != NVM_IR_NODE_BINARY || node->dtype != NVM_DTYPE_INT64))
    return NVM_OK;
  const uint32_t a = c->refs[node->a], b = c->refs[node->b];
  if ((a | b) & NVM_IR_VECTOR || !((a | b) & NVM_IR_AFFINE)) return NVM_OK;
  nvm_ir_affine affine = {.a = a, .b = b, .operand = node->c};
  if (bounded) {
    if (b & NVM_IR_AFFINE) return NVM_OK;
    affine.op = NVM_IR_BOUNDED;
  } else if (node->op == NVM_IR_BINARY_ADD) {
    affine.op = NVM_IR_PLUS;
  } else if (node->op == NVM_IR_BINARY_SUB) {
    affine.op = NVM_IR_MINUS;
  } else if (node->op == NVM_IR_BINARY_MUL && !(a & b & NVM_IR_AFFINE)) {
    affine.op = NVM_IR_TIMES;
    if (b & NVM_IR_AFFINE) { /* the affine first */
      affine.a = b;
      affine.b = a;
    }
  } else {
    return NVM_OK;
  }
  *out_done = 1;
  return new_affine(c, affine, &c->refs[number]);
}

/* The ref as a cell or vector. */
static nvm_status spread(compiler *c, uint32_t *ref) {
  if (*ref & NVM_IR_VECTOR || !(*ref & NVM_IR_AFFINE)) return NVM_OK;
  const uint32_t number = *ref & ~NVM_IR_AFFINE;
  if (c->ramp_stamps[number] != c->statement_scope) {
    nvm_ir_insn insn = {
        .code = NVM_IR_RAMP, .dtype = NVM_DTYPE_INT64, .in = {number, NO_REF, NO_REF}};
    NVM_TRY(new_vector(c, &insn.out));
    NVM_TRY(append_vector(c, insn));
    c->ramps[number] = insn.out;
    c->ramp_stamps[number] = c->statement_scope;
  }
  *ref = c->ramps[number];
  return NVM_OK;
}

/* Index refs of a Load or Store into ir->refs; *out_kind: the bits that occur among them. */
static nvm_status index_refs(compiler *c, uint32_t list, uint32_t rank, uint32_t *out_first,
                             uint32_t *out_kind) {
  GROW(c->index_list, c->max_refs, c->n_refs + rank);
  *out_first = c->n_refs;
  *out_kind = 0;
  for (uint32_t k = 0; k < rank; ++k) *out_kind |= c->refs[c->body->indices[list + k]];
  for (uint32_t k = 0; k < rank; ++k) {
    uint32_t ref = c->refs[c->body->indices[list + k]];
    if (*out_kind & NVM_IR_VECTOR) NVM_TRY(spread(c, &ref));
    c->index_list[c->n_refs++] = ref;
  }
  return NVM_OK;
}

static nvm_status load(compiler *c, uint32_t number, const nvm_ir_record *node) {
  nvm_ir_insn insn = {.code = NVM_IR_LOAD, .dtype = node->dtype, .rank = node->rank};
  uint32_t kind;
  insn.in[0] = node->a;
  insn.in[2] = NO_REF;
  buffer_use *use = &c->buffers[node->a];
  const int stored = c->in_row && use->row == c->row;
  use->uses++;
  if (stored && !same_indices(c->body, use->list, node->b, node->rank)) return NOT_A_ROW;
  NVM_TRY(index_refs(c, node->b, node->rank, &insn.in[1], &kind));
  if (!c->in_row || (!stored && !(kind & (NVM_IR_VECTOR | NVM_IR_AFFINE)))) {
    insn.out = c->refs[number] = new_temp(c);
    return append(c, insn);
  }
  if (kind & NVM_IR_VECTOR) {
    if (stored) return NOT_A_ROW;
  } else {
    insn.access = ++c->rows[c->n_rows].n_accesses;
    insn.distinct = (uint8_t)stored;
  }
  NVM_TRY(new_vector(c, &insn.out));
  c->refs[number] = insn.out;
  return append_vector(c, insn);
}

static nvm_status operation(compiler *c, uint32_t number, const nvm_ir_record *node) {
  const uint32_t count = operand_count(node);
  const uint8_t first = c->body->nodes[node->a].dtype;
  nvm_ir_insn insn = {.code = NVM_IR_OP, .dtype = node->dtype, .in = {NO_REF, NO_REF, NO_REF}};
  insn.half = node->dtype == NVM_DTYPE_FLOAT16 && node->kind != NVM_IR_NODE_SELECT;
  uint32_t kind = 0;
  for (uint32_t k = 0; k < count; ++k) {
    insn.in[k] = c->refs[operand_of(c->body, node, k)];
    kind |= insn.in[k];
  }
  switch (node->kind) {
    case NVM_IR_NODE_UNARY:
      insn.fn.op = nvm_ir_unary(node->op, first);
      break;
    case NVM_IR_NODE_BINARY:
      insn.fn.op = nvm_ir_binary(node->op, node->dtype);
      break;
    case NVM_IR_NODE_COMPARE:
      insn.fn.op = nvm_ir_compare(node->op, first);
      break;
    case NVM_IR_NODE_SELECT:
      insn.fn.op = nvm_ir_select(node->dtype);
      break;
    case NVM_IR_NODE_CAST:
      insn.fn.op = nvm_ir_cast(node->dtype, first);
      break;
    default:
      insn.code = NVM_IR_CHECK;
      insn.in[2] = node->c;
  }
  if (!(kind & (NVM_IR_VECTOR | NVM_IR_AFFINE))) {
    insn.out = c->refs[number] = new_temp(c);
    return append(c, insn);
  }
  for (uint32_t k = 0; k < count; ++k) NVM_TRY(spread(c, &insn.in[k]));
  NVM_TRY(new_vector(c, &insn.out));
  c->refs[number] = insn.out;
  return append_vector(c, insn);
}

static nvm_status emit(compiler *c, uint32_t number) {
  const nvm_ir_record *node = &c->body->nodes[number];
  if (c->budget == 0) NVM_FAIL(NVM_INVALID_EXECUTABLE, "loop IR: statements use too much");
  --c->budget;
  if (node->kind <= NVM_IR_NODE_DIMREF) return leaf(c, number, node);
  if (node->kind == NVM_IR_NODE_LOAD) return load(c, number, node);
  int done = 0;
  if (c->in_row) NVM_TRY(try_affine(c, number, node, &done));
  return done ? NVM_OK : operation(c, number, node);
}

/* Emit what `root` needs, operands first. Afterwards c->refs[root] is its value. */
static nvm_status expression(compiler *c, uint32_t root) {
  uint32_t depth = 0;
  GROW(c->stack, c->stack_size, 1);
  c->stack[depth++] = root << 1;
  while (depth) {
    const uint32_t top = c->stack[--depth], number = top >> 1;
    if (c->stamps[number] == c->statement_scope) continue;
    if (c->in_row && c->stamps[number] == c->row) continue;
    if (top & 1) {
      NVM_TRY(emit(c, number));
      c->stamps[number] =
          c->in_row && !(c->refs[number] & NVM_IR_VECTOR) ? c->row : c->statement_scope;
      continue;
    }
    const nvm_ir_record *node = &c->body->nodes[number];
    const uint32_t count = operand_count(node);
    GROW(c->stack, c->stack_size, depth + count + 1);
    c->stack[depth++] = top | 1;
    for (uint32_t k = count; k > 0; --k) c->stack[depth++] = operand_of(c->body, node, k - 1) << 1;
  }
  return NVM_OK;
}

/* --- statements ------------------------------------------------------------------------------- */

static void begin_statement(compiler *c) { c->statement_scope = ++c->scope; }

static nvm_status simple(compiler *c, const nvm_ir_record *s) {
  nvm_ir_insn insn = {.in = {NO_REF, NO_REF, NO_REF}};
  uint32_t kind;
  begin_statement(c);
  if (s->kind == NVM_IR_STMT_STORE) {
    for (uint32_t k = 0; k < s->rank; ++k) NVM_TRY(expression(c, c->body->indices[s->b + k]));
    NVM_TRY(expression(c, s->c));
    insn.code = NVM_IR_STORE;
    insn.dtype = c->body->sig->operands[s->a].dtype;
    insn.rank = s->rank;
    insn.in[0] = s->a;
    insn.in[2] = c->refs[s->c];
    if (c->in_row) NVM_TRY(spread(c, &insn.in[2]));
    NVM_TRY(index_refs(c, s->b, s->rank, &insn.in[1], &kind));
    if (!c->in_row) return append(c, insn);
    if (!(kind & NVM_IR_VECTOR)) insn.access = ++c->rows[c->n_rows].n_accesses;
    return append_vector(c, insn);
  }
  NVM_TRY(expression(c, s->b));
  insn.in[0] = c->refs[s->b];
  insn.out = s->a;
  if (s->kind == NVM_IR_STMT_SETDIM) {
    insn.code = NVM_IR_SETDIM;
    return append(c, insn);
  }
  insn.out = c->first_local + s->a;
  insn.dtype = c->body->local_dtypes[s->a];
  if (s->kind == NVM_IR_STMT_SETLOCAL) {
    insn.code = NVM_IR_SET;
    return append(c, insn);
  }
  insn.code = NVM_IR_FOLD;
  insn.half = insn.dtype == NVM_DTYPE_FLOAT16;
  insn.fn.fold = nvm_ir_fold_of(s->op, insn.dtype);
  if (!c->in_row) return append(c, insn);
  NVM_TRY(spread(c, &insn.in[0]));
  return append_vector(c, insn);
}

/* --- rows ------------------------------------------------------------------------------------- */

/* May the loop at `number` run statement by statement over many turns? Its body must be stores and
 * accumulations; a local is accumulated one way only; all stores of a buffer have the same indices
 * (loads too, see load()). What is read must not be accumulated here: leaf() looks. */
static int row_allowed(compiler *c, uint32_t number) {
  const nvm_ir_record *statements = c->body->statements;
  const uint32_t end = statements[number].c;
  if (end == number + 1) return 0;
  for (uint32_t k = number + 1; k < end; ++k) {
    const nvm_ir_record *s = &statements[k];
    if (s->kind == NVM_IR_STMT_ACCUMULATE) {
      if (c->folded[s->a] == c->row && c->folded_op[s->a] != s->op) return 0;
      c->folded[s->a] = c->row;
      c->folded_op[s->a] = s->op;
    } else if (s->kind == NVM_IR_STMT_STORE) {
      buffer_use *use = &c->buffers[s->a];
      if (use->row != c->row) {
        *use = (buffer_use){.row = c->row, .list = s->b, .uses = 1};
      } else if (same_indices(c->body, use->list, s->b, s->rank)) {
        use->uses++;
      } else {
        return 0;
      }
    } else {
      return 0;
    }
  }
  return 1;
}

/* The refs that an instruction of a row reads (besides the value of a store). */
static uint32_t *insn_refs(const compiler *c, nvm_ir_insn *insn, uint32_t *out_count) {
  if (insn->code == NVM_IR_LOAD || insn->code == NVM_IR_STORE) {
    *out_count = insn->rank;
    return c->index_list + insn->in[1];
  }
  *out_count = insn->code == NVM_IR_RAMP ? 0 : insn->code == NVM_IR_CHECK ? 2 : 3;
  return insn->in;
}

static void note_use(compiler *c, uint32_t ref, uint32_t at) {
  if (ref != NO_REF && ref & NVM_IR_VECTOR) c->last_use[ref & ~NVM_IR_VECTOR] = at;
}

static uint32_t physical(compiler *c, uint32_t ref) {
  if (ref == NO_REF || !(ref & NVM_IR_VECTOR)) return ref;
  return NVM_IR_VECTOR | c->assigned[ref & ~NVM_IR_VECTOR];
}

/* Give the vectors of one statement's code registers; a register is free again after its last
 * reader. */
static void assign_registers(compiler *c, uint32_t first) {
  uint32_t n_free = 0, used = 0, count;
  for (uint32_t at = first; at < c->n_vector_code; ++at) {
    nvm_ir_insn *insn = &c->vector_code[at];
    const uint32_t *refs = insn_refs(c, insn, &count);
    for (uint32_t k = 0; k < count; ++k) note_use(c, refs[k], at);
    if (insn->code == NVM_IR_STORE) note_use(c, insn->in[2], at);
    if (insn->code < NVM_IR_STORE) note_use(c, insn->out, at);
  }
  for (uint32_t at = first; at < c->n_vector_code; ++at) {
    nvm_ir_insn *insn = &c->vector_code[at];
    uint32_t dying[NVM_MAX_RANK + 2], n_dying = 0;
    uint32_t *refs = insn_refs(c, insn, &count);
    for (uint32_t k = 0; k <= count; ++k) {
      uint32_t *ref = k < count ? &refs[k] : insn->code == NVM_IR_STORE ? &insn->in[2] : NULL;
      if (!ref || *ref == NO_REF || !(*ref & NVM_IR_VECTOR)) continue;
      const uint32_t number = *ref & ~NVM_IR_VECTOR;
      if (c->last_use[number] == at) {
        dying[n_dying++] = c->assigned[number];
        c->last_use[number] = NO_PC; /* the same vector twice dies once */
      }
      *ref = physical(c, *ref);
    }
    if (insn->code <
        NVM_IR_STORE) { /* before the inputs are freed: output and inputs never overlap */
      const uint32_t number = insn->out & ~NVM_IR_VECTOR;
      c->assigned[number] = n_free ? c->free_registers[--n_free] : used++;
      insn->out = physical(c, insn->out);
    }
    while (n_dying) c->free_registers[n_free++] = dying[--n_dying];
  }
  if (used > c->ir->n_vectors) c->ir->n_vectors = used;
}

static nvm_status row_body(compiler *c, uint32_t number) {
  const nvm_ir_record *statements = c->body->statements;
  nvm_ir_row_loop *row = &c->rows[c->n_rows];
  row->pre = c->ir->n_insns;
  row->first_affine = c->ir->n_affine;
  for (uint32_t k = number + 1; k < statements[number].c; ++k) {
    const uint32_t first = c->n_vector_code;
    c->n_virtual = 0;
    NVM_TRY(simple(c, &statements[k]));
    assign_registers(c, first);
  }
  for (uint32_t k = 0; k < c->n_vector_code;
       ++k) { /* now all loads of the stored buffers are known */
    nvm_ir_insn *insn = &c->vector_code[k];
    if (insn->code != NVM_IR_STORE || c->buffers[insn->in[0]].uses == 1) continue;
    if (!insn->access) return NOT_A_ROW;
    insn->distinct = 1;
  }
  row->body = c->ir->n_insns;
  for (uint32_t k = 0; k < c->n_vector_code; ++k) NVM_TRY(append(c, c->vector_code[k]));
  row->end = c->ir->n_insns;
  row->n_affine = c->ir->n_affine - row->first_affine;
  if (row->n_accesses > c->ir->n_accesses) c->ir->n_accesses = row->n_accesses;
  return NVM_OK;
}

/* Write the loop at `number` as a row before its general form. *out_pc: of NVM_IR_ROW, NO_PC if it
 * can't be one. */
static nvm_status try_row(compiler *c, uint32_t number, uint32_t extent, uint32_t *out_pc) {
  const uint32_t insns = c->ir->n_insns, refs = c->n_refs, affine = c->ir->n_affine;
  const uint32_t temps = c->temps;
  const uint64_t budget = c->budget;
  *out_pc = NO_PC;
  c->row = ++c->scope;
  if (!row_allowed(c, number)) return NVM_OK;
  GROW(c->rows, c->max_rows, c->n_rows + 1);
  c->rows[c->n_rows] = (nvm_ir_row_loop){.extent = extent};
  c->in_row = 1;
  c->row_var = c->body->statements[number].a;
  c->n_vector_code = 0;
  nvm_ir_insn insn = {.code = NVM_IR_ROW, .in = {c->n_rows, NO_REF, NO_REF}};
  nvm_status status = append(c, insn);
  if (status == NVM_OK) status = row_body(c, number);
  c->in_row = 0;
  c->row = 0;
  if (status == NOT_A_ROW) {
    c->ir->n_insns = insns;
    c->n_refs = refs;
    c->ir->n_affine = affine;
    c->temps = temps;
    c->budget = budget;
    return NVM_OK;
  }
  NVM_TRY(status);
  c->temps = temps;
  c->budget = budget; /* the general form costs as much again: counted once */
  c->insns[insns].in[1] = c->ir->n_insns;
  c->n_rows++;
  *out_pc = insns;
  return NVM_OK;
}

/* --- control flow ----------------------------------------------------------------------------- */

static nvm_status open_loop(compiler *c, uint32_t number, uint32_t depth, level *out) {
  const nvm_ir_record *s = &c->body->statements[number];
  if (c->open[s->a])
    NVM_FAIL(NVM_INVALID_EXECUTABLE, "loop IR: loop %u binds a bound variable", number);
  c->temps = 0;
  begin_statement(c);
  NVM_TRY(expression(c, s->b));
  const uint32_t extent = c->refs[s->b];
  c->open[s->a] = 1;
  NVM_TRY(try_row(c, number, extent, &out->row_pc));
  nvm_ir_insn insn = {.code = NVM_IR_FOR, .out = c->first_var + s->a, .in = {extent, 0, depth}};
  out->pc = c->ir->n_insns;
  out->kind = NVM_IR_STMT_FOR;
  out->end = s->c;
  out->middle = NO_PC;
  return append(c, insn);
}

static nvm_status open_branch(compiler *c, uint32_t number, level *out) {
  const nvm_ir_record *s = &c->body->statements[number];
  c->temps = 0;
  begin_statement(c);
  NVM_TRY(expression(c, s->a));
  nvm_ir_insn insn = {.code = NVM_IR_IF, .in = {c->refs[s->a], 0, NO_REF}};
  out->pc = c->ir->n_insns;
  out->kind = NVM_IR_STMT_IF;
  out->end = s->c;
  out->middle = s->b < s->c ? s->b : NO_PC;
  return append(c, insn);
}

static nvm_status close_level(compiler *c, const level *top) {
  const nvm_kernel_ir *ir = c->ir;
  if (top->kind == NVM_IR_STMT_FOR) {
    const nvm_ir_insn loop = c->insns[top->pc];
    c->open[loop.out - c->first_var] = 0;
    nvm_ir_insn insn = {.code = NVM_IR_NEXT, .out = loop.out, .in = {NO_REF, top->pc, loop.in[2]}};
    NVM_TRY(append(c, insn));
    if (top->row_pc != NO_PC) c->rows[c->insns[top->row_pc].in[0]].behind = ir->n_insns;
  }
  c->insns[top->pc].in[1] = ir->n_insns;
  return NVM_OK;
}

/* Between the branches: the first one jumps over the second. */
static nvm_status turn_level(compiler *c, level *top) {
  const uint32_t jump = c->ir->n_insns;
  NVM_TRY(append(c, (nvm_ir_insn){.code = NVM_IR_JUMP, .in = {NO_REF, 0, NO_REF}}));
  c->insns[top->pc].in[1] = c->ir->n_insns;
  top->pc = jump;
  top->middle = NO_PC;
  return NVM_OK;
}

static nvm_status statements(compiler *c) {
  level levels[NVM_IR_MAX_NESTING];
  uint32_t depth = 0;
  for (uint32_t number = 0;; ++number) {
    while (depth) {
      level *top = &levels[depth - 1];
      if (top->middle == number) {
        NVM_TRY(turn_level(c, top));
      } else if (top->end == number) {
        NVM_TRY(close_level(c, top));
        --depth;
      } else {
        break;
      }
    }
    if (number == c->body->n_statements) return NVM_OK;
    const nvm_ir_record *s = &c->body->statements[number];
    if (s->kind == NVM_IR_STMT_FOR) {
      NVM_TRY(open_loop(c, number, depth, &levels[depth]));
      ++depth;
    } else if (s->kind == NVM_IR_STMT_IF) {
      NVM_TRY(open_branch(c, number, &levels[depth]));
      ++depth;
    } else {
      c->temps = 0;
      NVM_TRY(simple(c, s));
    }
  }
}

/* --- the whole -------------------------------------------------------------------------------- */

/* Move a grown array to the arena. */
static nvm_status keep(nvm_arena *arena, const void *array, size_t count, size_t item,
                       void **out_kept) {
  NVM_TRY(nvm_arena_array(arena, count, item, out_kept));
  if (count) memcpy(*out_kept, array, count * item);
  return NVM_OK;
}

static nvm_status keep_all(compiler *c, nvm_kernel_ir *ir) {
  void *insns, *refs, *affine, *rows;
  NVM_TRY(keep(ir->arena, c->insns, ir->n_insns, sizeof *ir->insns, &insns));
  NVM_TRY(keep(ir->arena, c->index_list, c->n_refs, sizeof *ir->refs, &refs));
  NVM_TRY(keep(ir->arena, c->affine, ir->n_affine, sizeof *ir->affine, &affine));
  NVM_TRY(keep(ir->arena, c->rows, c->n_rows, sizeof *ir->rows, &rows));
  ir->insns = insns;
  ir->refs = refs;
  ir->affine = affine;
  ir->rows = rows;
  return NVM_OK;
}

static nvm_status compile(compiler *c, nvm_arena *scratch) {
  const nvm_ir_body *body = c->body;
  void *memory;
#define TABLE(field, count)                                              \
  NVM_TRY(nvm_arena_array(scratch, (count), sizeof *c->field, &memory)); \
  c->field = memory
  TABLE(refs, body->n_nodes);
  TABLE(stamps, body->n_nodes);
  TABLE(open, body->n_vars);
  TABLE(buffers, body->sig->n_operands);
  TABLE(folded, body->n_locals);
  TABLE(folded_op, body->n_locals);
#undef TABLE
  c->first_dim = body->n_constants;
  c->first_var = c->first_dim + body->sig->n_dims + body->sig->n_attrs;
  c->first_local = c->first_var + body->n_vars;
  c->first_temp = c->first_local + body->n_locals;
  c->budget = 16ull * body->n_nodes + 4096;
  GROW(c->index_list, c->max_refs, 1); /* never NULL, so that offsets may be taken */
  return statements(c);
}

nvm_status nvm_ir_compile(nvm_kernel_ir *ir, const nvm_ir_body *body) {
  compiler c = {.ir = ir, .body = body};
  nvm_arena *scratch = NULL;
  nvm_status status = nvm_arena_create(&scratch);
  if (status == NVM_OK) status = compile(&c, scratch);
  ir->n_constants = body->n_constants;
  ir->n_dims = (uint32_t)body->sig->n_dims + body->sig->n_attrs;
  ir->n_vars = body->n_vars;
  ir->n_locals = body->n_locals;
  ir->n_cells = c.first_temp + c.max_temps;
  ir->chunk = NVM_IR_CHUNK;
  while (ir->chunk > NVM_IR_SMALL_CHUNK &&
         (uint64_t)ir->chunk * ir->n_vectors * 8 > NVM_IR_ROW_BYTES) {
    ir->chunk /= 2;
  }
  if (status == NVM_OK) status = keep_all(&c, ir);
  nvm_free(c.insns);
  nvm_free(c.index_list);
  nvm_free(c.affine);
  nvm_free(c.rows);
  nvm_free(c.stack);
  nvm_free(c.vector_code);
  nvm_free(c.ramps);
  nvm_free(c.ramp_stamps);
  nvm_free(c.last_use);
  nvm_free(c.assigned);
  nvm_free(c.free_registers);
  nvm_arena_destroy(scratch);
  return status;
}
