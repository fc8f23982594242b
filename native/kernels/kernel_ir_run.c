/* Runs a kernel's code (kernel_ir_code.h). Every access to a buffer is checked here, so any checked
 * body is safe.
 *
 * Lanes cost 1 to 10 ns; `work` counts them, and the caller is asked every POLL_WORK whether to go
 * on.
 */
#include <string.h>

#include "alloc.h"
#include "dim_program.h"
#include "generated/nvm_dtype.h"
#include "kernel_ir_code.h"

enum {
  POLL_WORK = NVM_IR_POLL_WORK,
  NOT_THIS_TIME = -1
}; /* the row can't run as one: take the general loop */

/* Holds a lane of any type. */
typedef uint64_t __attribute__((may_alias)) cell;

typedef struct access {
  char *at;     /* element of turn 0 */
  int64_t step; /* elements a turn */
} access;

typedef struct view {
  const void *lanes;
  uint32_t step; /* 0: the same for all lanes */
} view;

typedef struct linear {
  int64_t base, step;
} linear;

struct nvm_ir_workspace {
  cell *cells;
  view *views;      /* by vector register */
  uint64_t *lanes;  /* chunk lanes of 8 bytes a register */
  linear *linears;  /* by affine */
  access *accesses; /* of the row that runs */
  int64_t *offsets; /* chunk */
};

typedef struct run {
  const nvm_kernel_ir *ir;
  const nvm_signature *sig;
  const nvm_kernel_ctx *ctx;
  void *const *bufs;
  int64_t *dims;
  nvm_ir_workspace *ws;
  uint64_t work;
  int64_t limits[NVM_IR_MAX_NESTING];
  int64_t sizes[NVM_MAX_OPERANDS][NVM_MAX_RANK]; /* actual size of each axis */
  uint8_t spread[NVM_MAX_OPERANDS]; /* bit k: axis k is broadcast (size 1, any index reads 0) */
} run;

static nvm_status fail(const run *r, nvm_status code, uint32_t operand, int64_t index,
                       int64_t bound) {
  return r->ctx->fail(r->ctx, code, (int32_t)operand, index, bound);
}

static nvm_status fail_division(const run *r) {
  return r->ctx->fail(r->ctx, NVM_DIVISION_BY_ZERO, -1, 0, 0);
}

static nvm_status charge(run *r, uint64_t work) {
  r->work += work;
  if (NVM_LIKELY(r->work < POLL_WORK)) return NVM_OK;
  r->work = 0;
  return r->ctx->poll ? r->ctx->poll(r->ctx) : NVM_OK;
}

/* --- sizes ------------------------------------------------------------------------------------ */

static nvm_status axis_size(const run *r, const nvm_axis *axis, int64_t *out_size) {
  const size_t value = (size_t)axis->value;
  *out_size = axis->value;
  if (axis->kind == NVM_AXIS_CONST) return NVM_OK;
  if (axis->kind == NVM_AXIS_DIM && value < r->ir->n_dims) {
    *out_size = r->dims[value];
    return NVM_OK;
  }
  if (axis->kind == NVM_AXIS_EXPR && value < r->sig->n_expr_words)
    return nvm_dim_program(r->sig->exprs + value, r->sig->n_expr_words - value, r->dims,
                           r->ir->n_dims, out_size);
  NVM_FAIL(NVM_DIM_OVERFLOW, "the size of a kernel operand can't be computed");
}

/* The sizes of all operands; their byte sizes must fit int64. */
static nvm_status find_sizes(run *r) {
  const int64_t *pitch = r->dims + r->ir->n_dims;
  for (uint32_t k = 0; k < r->sig->n_operands; ++k) {
    const nvm_operand *operand = &r->sig->operands[k];
    int64_t bytes = nvm_dtypes[operand->dtype].itemsize;
    r->spread[k] = 0;
    for (uint32_t axis = 0; axis < operand->rank; ++axis) {
      int64_t size = 0;
      NVM_TRY(axis_size(r, &operand->axes[axis], &size));
      if (operand->axes[axis].broadcast) {
        size = *pitch++;
        if (size == 1) r->spread[k] |= (uint8_t)(1u << axis);
      }
      if (size < 0 || (size > 0 && __builtin_mul_overflow(bytes, size, &bytes))) {
        NVM_FAIL(NVM_DIM_OVERFLOW, "operand %u of a kernel: axis %u has size %lld", k, axis,
                 (long long)size);
      }
      r->sizes[k][axis] = size;
    }
  }
  return NVM_OK;
}

/* --- one lane --------------------------------------------------------------------------------- */

static inline int64_t cell_int(const run *r, uint32_t ref) { return (int64_t)r->ws->cells[ref]; }

/* Element offset of a Load or Store whose indices are cells. */
static nvm_status element(const run *r, const nvm_ir_insn *insn, int64_t *out_offset) {
  const uint32_t operand = insn->in[0];
  const uint32_t *refs = r->ir->refs + insn->in[1];
  int64_t offset = 0;
  for (uint32_t axis = 0; axis < insn->rank; ++axis) {
    const int64_t size = r->sizes[operand][axis];
    int64_t index = cell_int(r, refs[axis]);
    if (r->spread[operand] >> axis & 1) index = 0;
    if (NVM_UNLIKELY((uint64_t)index >= (uint64_t)size)) {
      return fail(r, NVM_INDEX_OUT_OF_RANGE, operand, index, size);
    }
    offset = offset * size + index;
  }
  *out_offset = offset;
  return NVM_OK;
}

static nvm_status one_move(const run *r, const nvm_ir_insn *insn) {
  int64_t offset = 0;
  cell *cells = r->ws->cells;
  NVM_TRY(element(r, insn, &offset));
  char *at = (char *)r->bufs[insn->in[0]] + offset * nvm_dtypes[insn->dtype].itemsize;
  if (insn->code == NVM_IR_LOAD) {
    nvm_ir_read(&cells[insn->out], at, 0, 1, insn->dtype);
  } else {
    nvm_ir_write(at, 0, &cells[insn->in[2]], 0, 1, insn->dtype);
  }
  return NVM_OK;
}

static inline nvm_status one_op(const run *r, const nvm_ir_insn *insn) {
  cell *cells = r->ws->cells;
  nvm_ir_row row = {.out = &cells[insn->out], .n = 1};
  for (uint32_t k = 0; k < 3; ++k)
    row.in[k] = insn->in[k] == UINT32_MAX ? cells : &cells[insn->in[k]];
  if (NVM_UNLIKELY(insn->fn.op(&row))) return fail_division(r);
  if (insn->half) nvm_ir_round_half(row.out, 1);
  return NVM_OK;
}

/* An instruction that works on cells and does not branch. */
static nvm_status one(const run *r, const nvm_ir_insn *insn) {
  cell *cells = r->ws->cells;
  switch (insn->code) {
    case NVM_IR_OP:
      return one_op(r, insn);
    case NVM_IR_LOAD:
    case NVM_IR_STORE:
      return one_move(r, insn);
    case NVM_IR_CHECK: {
      const int64_t index = cell_int(r, insn->in[0]), bound = cell_int(r, insn->in[1]);
      if (index < 0 || index >= bound)
        return fail(r, NVM_INDEX_OUT_OF_RANGE, insn->in[2], index, bound);
      cells[insn->out] = (uint64_t)index;
      return NVM_OK;
    }
    case NVM_IR_SET:
      cells[insn->out] = cells[insn->in[0]];
      return NVM_OK;
    case NVM_IR_FOLD:
      insn->fn.fold(&cells[insn->out], &cells[insn->in[0]], 0, 1);
      if (insn->half) nvm_ir_round_half((float *)(void *)&cells[insn->out], 1);
      return NVM_OK;
    default: { /* NVM_IR_SETDIM */
      const uint32_t first = r->ir->n_dims + r->sig->n_pitches;
      r->dims[first + insn->out] = cell_int(r, insn->in[0]);
      return NVM_OK;
    }
  }
}

/* --- rows ------------------------------------------------------------------------------------- */

/* Value of turn `turn`, wrapping; *out_exact: base + step * turn did not wrap. */
static int64_t turn_value(linear l, int64_t turn, int *out_exact) {
  int64_t product, sum;
  *out_exact = !__builtin_mul_overflow(l.step, turn, &product);
  *out_exact &= !__builtin_add_overflow(l.base, product, &sum);
  return sum;
}

static linear linear_of(const run *r, uint32_t ref) {
  if (ref & NVM_IR_AFFINE) return r->ws->linears[ref & ~NVM_IR_AFFINE];
  return (linear){cell_int(r, ref), 0};
}

/* Are all of n turns within [0, bound)? If not, the general loop finds the turn to blame. */
static int all_within(linear l, int64_t n, int64_t bound) {
  int exact;
  const int64_t last = turn_value(l, n - 1, &exact);
  return exact && l.base >= 0 && l.base < bound && last >= 0 && last < bound;
}

static nvm_status find_linears(run *r, const nvm_ir_row_loop *row, int64_t n) {
  for (uint32_t k = row->first_affine; k < row->first_affine + row->n_affine; ++k) {
    const nvm_ir_affine *affine = &r->ir->affine[k];
    linear *out = &r->ws->linears[k];
    if (affine->op == NVM_IR_TURN) {
      *out = (linear){0, 1};
      continue;
    }
    const linear a = linear_of(r, affine->a), b = linear_of(r, affine->b);
    switch (affine->op) {
      case NVM_IR_PLUS:
        out->base = (int64_t)((uint64_t)a.base + (uint64_t)b.base);
        out->step = (int64_t)((uint64_t)a.step + (uint64_t)b.step);
        break;
      case NVM_IR_MINUS:
        out->base = (int64_t)((uint64_t)a.base - (uint64_t)b.base);
        out->step = (int64_t)((uint64_t)a.step - (uint64_t)b.step);
        break;
      case NVM_IR_TIMES:
        out->base = (int64_t)((uint64_t)a.base * (uint64_t)b.base);
        out->step = (int64_t)((uint64_t)a.step * (uint64_t)b.base);
        break;
      default:
        if (!all_within(a, n, b.base)) return NOT_THIS_TIME;
        *out = a;
    }
  }
  return NVM_OK;
}

/* Where an access starts and how it moves: all n turns are checked here. */
static nvm_status find_access(run *r, const nvm_ir_insn *insn, int64_t n) {
  const uint32_t operand = insn->in[0];
  const uint32_t *refs = r->ir->refs + insn->in[1];
  linear offset = {0, 0};
  for (uint32_t axis = 0; axis < insn->rank; ++axis) {
    const int64_t size = r->sizes[operand][axis];
    linear index = linear_of(r, refs[axis]);
    if (r->spread[operand] >> axis & 1) index = (linear){0, 0};
    if (NVM_UNLIKELY(!all_within(index, n, size))) return NOT_THIS_TIME;
    if (n == 1) index.step = 0; /* no second turn vouches for it */
    offset.base = offset.base * size + index.base;
    offset.step = offset.step * size + index.step;
  }
  if (insn->distinct && offset.step == 0 && n > 1) return NOT_THIS_TIME;
  access *out = &r->ws->accesses[insn->access - 1];
  out->at = (char *)r->bufs[operand] + offset.base * nvm_dtypes[insn->dtype].itemsize;
  out->step = offset.step;
  return NVM_OK;
}

/* What a row needs before its first turn. NOT_THIS_TIME leaves everything as it was but for
 * temporaries. */
static nvm_status prepare_row(run *r, const nvm_ir_row_loop *row, int64_t n) {
  for (uint32_t pc = row->pre; pc < row->body; ++pc) NVM_TRY(one(r, &r->ir->insns[pc]));
  NVM_TRY(find_linears(r, row, n));
  for (uint32_t pc = row->body; pc < row->end; ++pc) {
    if (r->ir->insns[pc].access) NVM_TRY(find_access(r, &r->ir->insns[pc], n));
  }
  return NVM_OK;
}

static inline view view_of(const run *r, uint32_t ref) {
  if (ref & NVM_IR_VECTOR) return r->ws->views[ref & ~NVM_IR_VECTOR];
  return (view){&r->ws->cells[ref], 0};
}

/* The memory of vector `ref`, which becomes what the vector shows. */
static inline void *own_lanes(const run *r, uint32_t ref) {
  const uint32_t number = ref & ~NVM_IR_VECTOR;
  void *lanes = r->ws->lanes + (size_t)number * r->ir->chunk;
  r->ws->views[number] = (view){lanes, 1};
  return lanes;
}

/* Offsets of a Load or Store that has an index which is no linear function of the turn. */
static nvm_status find_offsets(const run *r, const nvm_ir_insn *insn, int64_t n) {
  const uint32_t operand = insn->in[0];
  const uint32_t *refs = r->ir->refs + insn->in[1];
  int64_t *offsets = r->ws->offsets;
  memset(offsets, 0, (size_t)n * sizeof *offsets);
  for (uint32_t axis = 0; axis < insn->rank; ++axis) {
    const int64_t size = r->sizes[operand][axis];
    const view v = view_of(r, refs[axis]);
    const int64_t *index = v.lanes, step = v.step;
    if (r->spread[operand] >> axis & 1) continue;
    int outside = 0;
    for (int64_t i = 0; i < n; ++i) outside |= (uint64_t)index[i * step] >= (uint64_t)size;
    if (NVM_UNLIKELY(outside)) {
      int64_t i = 0;
      while ((uint64_t)index[i * step] < (uint64_t)size) ++i;
      return fail(r, NVM_INDEX_OUT_OF_RANGE, operand, index[i * step], size);
    }
    for (int64_t i = 0; i < n; ++i) offsets[i] = offsets[i] * size + index[i * step];
  }
  return NVM_OK;
}

static nvm_status row_load(const run *r, const nvm_ir_insn *insn, int64_t turn, int64_t n) {
  const uint8_t dtype = insn->dtype;
  const int64_t size = nvm_dtypes[dtype].itemsize;
  if (!insn->access) {
    NVM_TRY(find_offsets(r, insn, n));
    nvm_ir_gather(own_lanes(r, insn->out), r->bufs[insn->in[0]], r->ws->offsets, n, dtype);
    return NVM_OK;
  }
  const access a = r->ws->accesses[insn->access - 1];
  const char *at = a.at + a.step * turn * size;
  const int as_is = dtype != NVM_DTYPE_BOOL && dtype != NVM_DTYPE_FLOAT16;
  if (as_is && (a.step == 0 || a.step == 1)) {
    r->ws->views[insn->out & ~NVM_IR_VECTOR] = (view){at, (uint32_t)a.step};
  } else if (a.step == 0) {
    nvm_ir_read(own_lanes(r, insn->out), at, 0, 1, dtype);
    r->ws->views[insn->out & ~NVM_IR_VECTOR].step = 0;
  } else {
    nvm_ir_read(own_lanes(r, insn->out), at, a.step, n, dtype);
  }
  return NVM_OK;
}

static nvm_status row_store(const run *r, const nvm_ir_insn *insn, int64_t turn, int64_t n) {
  const view value = view_of(r, insn->in[2]);
  if (!insn->access) {
    NVM_TRY(find_offsets(r, insn, n));
    nvm_ir_scatter(r->bufs[insn->in[0]], r->ws->offsets, value.lanes, value.step, n, insn->dtype);
    return NVM_OK;
  }
  const access a = r->ws->accesses[insn->access - 1];
  nvm_ir_write(a.at + a.step * turn * nvm_dtypes[insn->dtype].itemsize, a.step, value.lanes,
               value.step, n, insn->dtype);
  return NVM_OK;
}

static nvm_status row_op(const run *r, const nvm_ir_insn *insn, int64_t n) {
  nvm_ir_row row = {.n = n};
  for (uint32_t k = 0; k < 3 && insn->in[k] != UINT32_MAX; ++k) {
    const view v = view_of(r, insn->in[k]);
    row.in[k] = v.lanes;
    row.step[k] = v.step;
  }
  row.out = own_lanes(r, insn->out);
  if (NVM_UNLIKELY(insn->fn.op(&row))) return fail_division(r);
  if (insn->half) nvm_ir_round_half(row.out, n);
  return NVM_OK;
}

static nvm_status row_check(const run *r, const nvm_ir_insn *insn, int64_t n) {
  const view index = view_of(r, insn->in[0]), bound = view_of(r, insn->in[1]);
  const int64_t *i64 = index.lanes, *bounds = bound.lanes;
  int64_t *out = own_lanes(r, insn->out);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = i64[i * index.step], limit = bounds[i * bound.step];
    if (value < 0 || value >= limit)
      return fail(r, NVM_INDEX_OUT_OF_RANGE, insn->in[2], value, limit);
    out[i] = value;
  }
  return NVM_OK;
}

static void row_ramp(const run *r, const nvm_ir_insn *insn, int64_t turn, int64_t n) {
  const linear l = r->ws->linears[insn->in[0]];
  uint64_t *out = own_lanes(r, insn->out);
  for (int64_t i = 0; i < n; ++i)
    out[i] = (uint64_t)l.base + (uint64_t)l.step * (uint64_t)(turn + i);
}

static nvm_status row_insn(const run *r, const nvm_ir_insn *insn, int64_t turn, int64_t n) {
  switch (insn->code) {
    case NVM_IR_OP:
      return row_op(r, insn, n);
    case NVM_IR_LOAD:
      return row_load(r, insn, turn, n);
    case NVM_IR_STORE:
      return row_store(r, insn, turn, n);
    case NVM_IR_CHECK:
      return row_check(r, insn, n);
    case NVM_IR_RAMP:
      row_ramp(r, insn, turn, n);
      return NVM_OK;
    default: { /* NVM_IR_FOLD */
      const view value = view_of(r, insn->in[0]);
      insn->fn.fold(&r->ws->cells[insn->out], value.lanes, value.step, n);
      if (insn->half) nvm_ir_round_half((float *)(void *)&r->ws->cells[insn->out], 1);
      return NVM_OK;
    }
  }
}

static nvm_status run_row(run *r, const nvm_ir_row_loop *row) {
  const int64_t n = cell_int(r, row->extent), chunk = r->ir->chunk;
  const nvm_ir_insn *insns = r->ir->insns;
  if (n <= 0) return NVM_OK;
  NVM_TRY(prepare_row(r, row, n));
  const uint64_t cost = row->end - row->body;
  for (int64_t turn = 0; turn < n; turn += chunk) {
    const int64_t count = n - turn < chunk ? n - turn : chunk;
    for (uint32_t pc = row->body; pc < row->end; ++pc)
      NVM_TRY(row_insn(r, &insns[pc], turn, count));
    NVM_TRY(charge(r, cost * (uint64_t)count));
  }
  return charge(r, 16);
}

/* --- the loop --------------------------------------------------------------------------------- */

static nvm_status run_code(run *r) {
  const nvm_kernel_ir *ir = r->ir;
  const nvm_ir_insn *insns = ir->insns;
  cell *cells = r->ws->cells;
  for (uint32_t pc = 0; pc < ir->n_insns;) {
    const nvm_ir_insn *insn = &insns[pc];
    switch (insn->code) {
      case NVM_IR_FOR:
        r->limits[insn->in[2]] = cell_int(r, insn->in[0]);
        cells[insn->out] = 0;
        pc = r->limits[insn->in[2]] > 0 ? pc + 1 : insn->in[1];
        break;
      case NVM_IR_NEXT:
        NVM_TRY(charge(r, pc - insn->in[1]));
        pc = (int64_t)++cells[insn->out] < r->limits[insn->in[2]] ? insn->in[1] + 1 : pc + 1;
        break;
      case NVM_IR_IF:
        pc = *(const uint8_t *)&cells[insn->in[0]] ? pc + 1 : insn->in[1];
        break;
      case NVM_IR_JUMP:
        pc = insn->in[1];
        break;
      case NVM_IR_ROW: {
        const nvm_ir_row_loop *row = &ir->rows[insn->in[0]];
        const nvm_status status = run_row(r, row);
        if (NVM_UNLIKELY(status != NVM_OK && status != NOT_THIS_TIME)) return status;
        pc = status == NVM_OK ? row->behind : insn->in[1];
        break;
      }
      default:
        NVM_TRY(one(r, insn));
        ++pc;
    }
  }
  return NVM_OK;
}

/* --- workspaces ------------------------------------------------------------------------------- */

static nvm_ir_workspace *make_workspace(const nvm_kernel_ir *ir) {
  const size_t header = (sizeof(nvm_ir_workspace) + 63) & ~(size_t)63;
  const size_t lanes = (size_t)ir->n_vectors * ir->chunk;
  const size_t size = header + sizeof(cell) * (ir->n_cells + 1 + lanes + ir->chunk) +
                      sizeof(view) * ir->n_vectors + sizeof(linear) * ir->n_affine +
                      sizeof(access) * ir->n_accesses;
  char *memory = nvm_malloc(size);
  if (!memory) return NULL;
  memset(memory, 0, size);
  nvm_ir_workspace *ws = (nvm_ir_workspace *)(void *)memory;
  memory += header;
  ws->lanes = (uint64_t *)(void *)memory;
  ws->offsets = (int64_t *)(ws->lanes + lanes);
  ws->cells = (cell *)(void *)(ws->offsets + ir->chunk);
  ws->views = (view *)(void *)(ws->cells + ir->n_cells + 1);
  ws->linears = (linear *)(void *)(ws->views + ir->n_vectors);
  ws->accesses = (access *)(void *)(ws->linears + ir->n_affine);
  if (ir->n_constants) memcpy(ws->cells, ir->constants, ir->n_constants * sizeof(uint64_t));
  return ws;
}

/* A workspace that no other thread has; out_workspace: owned until put_workspace. */
static nvm_status take_workspace(nvm_kernel_ir *ir, nvm_ir_workspace **out_workspace) {
  for (int k = 0; k < NVM_IR_SPARES; ++k) {
    if (!atomic_load_explicit(&ir->spares[k], memory_order_relaxed)) continue;
    *out_workspace = atomic_exchange_explicit(&ir->spares[k], NULL, memory_order_acquire);
    if (*out_workspace) return NVM_OK;
  }
  *out_workspace = make_workspace(ir);
  if (!*out_workspace) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory to run a kernel");
  return NVM_OK;
}

static void put_workspace(nvm_kernel_ir *ir, nvm_ir_workspace *ws) {
  for (int k = 0; k < NVM_IR_SPARES; ++k) {
    nvm_ir_workspace *none = NULL;
    if (atomic_compare_exchange_strong_explicit(&ir->spares[k], &none, ws, memory_order_release,
                                                memory_order_relaxed)) {
      return;
    }
  }
  nvm_free(ws);
}

nvm_status nvm_kernel_ir_run(const nvm_kernel_ir *ir, const nvm_signature *sig,
                             const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  nvm_kernel_ir *shared = (nvm_kernel_ir *)(uintptr_t)ir; /* only the spares change */
  run r;
  r.ir = ir;
  r.sig = sig;
  r.ctx = ctx;
  r.bufs = bufs;
  r.dims = dims;
  r.work = 0;
  NVM_TRY(find_sizes(&r));
  NVM_TRY(take_workspace(shared, &r.ws));
  cell *cells = r.ws->cells + ir->n_constants;
  if (ir->n_dims) memcpy(cells, dims, ir->n_dims * sizeof *cells);
  cells += ir->n_dims + ir->n_vars;
  if (ir->n_locals) memset(cells, 0, ir->n_locals * sizeof *cells);
  const nvm_status status = run_code(&r);
  put_workspace(shared, r.ws);
  return status;
}
