/* The kernel table of the header: names, signatures, where the bodies are. */
#include "kernel_tables.h"

#include "generated/nvm_dtype.h"
#include "table_fields.h"

static nvm_status read_axis(nvm_loader *loader, nvm_axis *axis) {
  nvm_mp *mp = &loader->mp;
  uint32_t kind = 0, broadcast = 0;
  NVM_TRY(nvm_mp_tuple(mp, "axis", 3));
  NVM_TRY(nvm_mp_u32(mp, "axis kind", NVM_AXIS_EXPR, &kind));
  NVM_TRY(nvm_mp_u32(mp, "broadcast", 1, &broadcast));
  NVM_TRY(nvm_mp_int(mp, "axis value", 0, INT64_MAX, &axis->value));
  axis->kind = (uint8_t)kind;
  axis->broadcast = (uint8_t)broadcast;
  return NVM_OK;
}

static nvm_status read_operand(nvm_loader *loader, nvm_operand *operand) {
  nvm_mp *mp = &loader->mp;
  uint32_t role = 0, dtype = 0, alias = 0, rank = 0;
  NVM_TRY(nvm_mp_tuple(mp, "operand", 4));
  NVM_TRY(nvm_mp_u32(mp, "role", NVM_ROLE_SCRATCH, &role));
  NVM_TRY(nvm_mp_u32(mp, "dtype", NVM_DTYPE_COUNT - 1, &dtype));
  NVM_TRY(nvm_mp_u32(mp, "alias", NVM_MAX_OPERANDS, &alias));
  NVM_TRY(nvm_mp_array(mp, "axes", 4, &rank));
  if (rank > NVM_MAX_RANK) return nvm_mp_fail(mp, "rank %u, expected <= %d", rank, NVM_MAX_RANK);
  operand->role = (uint8_t)role;
  operand->dtype = (uint8_t)dtype;
  operand->alias = (uint8_t)alias;
  operand->rank = (uint8_t)rank;
  for (uint32_t i = 0; i < rank; i++) NVM_TRY(read_axis(loader, &operand->axes[i]));
  return NVM_OK;
}

static nvm_status read_operands(nvm_loader *loader, nvm_signature *sig) {
  nvm_mp *mp = &loader->mp;
  uint32_t count = 0, last_role = 0, n_pitches = 0;
  nvm_operand *operands = NULL;
  NVM_ROWS(loader, "operands", 5, count, operands);
  if (count > NVM_MAX_OPERANDS) {
    return nvm_mp_fail(mp, "%u operands, expected <= %d", count, NVM_MAX_OPERANDS);
  }
  uint16_t by_role[3] = {0, 0, 0};
  for (uint32_t i = 0; i < count; i++) {
    NVM_TRY(read_operand(loader, &operands[i]));
    if (operands[i].role < last_role) {
      return nvm_mp_fail(mp, "operand %u: inputs, outputs, scratch come in this order", i);
    }
    last_role = operands[i].role;
    by_role[last_role]++;
    if (operands[i].alias > (last_role == NVM_ROLE_OUT ? by_role[NVM_ROLE_IN] : 0)) {
      return nvm_mp_fail(mp, "operand %u: alias %u is no input of an output", i, operands[i].alias);
    }
    for (uint32_t k = 0; k < operands[i].rank; k++) {
      if (operands[i].axes[k].broadcast && last_role != NVM_ROLE_IN) {
        return nvm_mp_fail(mp, "operand %u: only inputs broadcast", i);
      }
      n_pitches += operands[i].axes[k].broadcast;
    }
  }
  sig->operands = operands;
  sig->n_operands = (uint16_t)count;
  sig->n_in = by_role[NVM_ROLE_IN];
  sig->n_out = by_role[NVM_ROLE_OUT];
  sig->n_scratch = by_role[NVM_ROLE_SCRATCH];
  sig->n_pitches = (uint16_t)n_pitches;
  return NVM_OK;
}

/* Check the size programs and every axis' reference to dims or programs. One pass over each. */
static nvm_status check_sizes(nvm_loader *loader, const nvm_signature *sig) {
  const nvm_mp *mp = &loader->mp;
  uint32_t n_refs = (uint32_t)sig->n_dims + sig->n_attrs;
  void *memory = NULL;
  NVM_TRY(nvm_arena_alloc(loader->arena, sig->n_expr_words, 1, &memory));
  uint8_t *is_start = memory;
  for (uint32_t at = 0; at < sig->n_expr_words;) {
    uint32_t used = 0;
    NVM_TRY(nvm_check_dim_program(mp, sig->exprs + at, sig->n_expr_words - at, n_refs, &used));
    is_start[at] = 1;
    at += used;
  }
  for (uint32_t i = 0; i < sig->n_operands; i++) {
    for (uint32_t k = 0; k < sig->operands[i].rank; k++) {
      const nvm_axis *axis = &sig->operands[i].axes[k];
      if (axis->kind == NVM_AXIS_DIM && axis->value >= n_refs) {
        return nvm_mp_fail(mp, "operand %u, axis %u: dim %lld of %u", i, k, (long long)axis->value,
                           n_refs);
      }
      if (axis->kind == NVM_AXIS_EXPR &&
          (axis->value >= sig->n_expr_words || !is_start[axis->value])) {
        return nvm_mp_fail(mp, "operand %u, axis %u: no size program starts at word %lld", i, k,
                           (long long)axis->value);
      }
    }
  }
  return NVM_OK;
}

/* operands, exprs, dims, attrs, out_dims, may_fail */
static nvm_status read_signature(nvm_loader *loader, nvm_signature *sig) {
  nvm_mp *mp = &loader->mp;
  uint32_t n_dims = 0, n_attrs = 0, n_out_dims = 0;
  NVM_TRY(nvm_mp_key(mp, "operands"));
  NVM_TRY(read_operands(loader, sig));
  NVM_TRY(nvm_mp_key(mp, "exprs"));
  NVM_TRY(nvm_read_ints(loader, "exprs", INT64_MIN, INT64_MAX, &sig->exprs, &sig->n_expr_words));
  NVM_TRY(nvm_mp_key(mp, "dims"));
  NVM_TRY(nvm_mp_array(mp, "dims", 1, &n_dims));
  for (uint32_t i = 0; i < n_dims; i++) {
    const char *name = NULL;
    size_t length = 0;
    NVM_TRY(nvm_mp_str(mp, "dim name", &name, &length));
  }
  NVM_TRY(nvm_mp_key(mp, "attrs"));
  NVM_TRY(nvm_read_ints(loader, "attrs", INT64_MIN, INT64_MAX, &sig->attrs, &n_attrs));
  NVM_TRY(nvm_mp_key(mp, "out_dims"));
  NVM_TRY(nvm_mp_u32(mp, "out_dims", NVM_MAX_DIMS, &n_out_dims));
  NVM_TRY(nvm_mp_key(mp, "may_fail"));
  NVM_TRY(nvm_mp_bool(mp, "may_fail", &sig->may_fail));
  uint64_t total = (uint64_t)n_dims + n_attrs + sig->n_pitches + n_out_dims;
  if (total > NVM_MAX_DIMS) {
    return nvm_mp_fail(mp, "%llu dims, attributes, pitches and out-dims, expected <= %d",
                       (unsigned long long)total, NVM_MAX_DIMS);
  }
  sig->n_dims = (uint16_t)n_dims;
  sig->n_attrs = (uint16_t)n_attrs;
  sig->n_out_dims = (uint16_t)n_out_dims;
  return check_sizes(loader, sig);
}

static nvm_status read_body(nvm_loader *loader, const nvm_kernel *kernel, nvm_kernel_row *row,
                            uint64_t *ir_end) {
  nvm_mp *mp = &loader->mp;
  int64_t offset = 0, size = 0;
  NVM_TRY(nvm_mp_key(mp, "ir"));
  NVM_TRY(nvm_mp_tuple(mp, "ir", 2));
  NVM_TRY(nvm_mp_int(mp, "ir offset", 0, INT64_MAX, &offset));
  NVM_TRY(nvm_mp_int(mp, "ir size", 0, INT64_MAX, &size));
  NVM_TRY(nvm_mp_key(mp, "native"));
  NVM_TRY(nvm_mp_int(mp, "native", -1, INT32_MAX - 1, &row->native));
  row->ir_offset = (uint64_t)offset;
  row->ir_size = (uint64_t)size;
  if (kernel->kind != 0) {
    if (offset != 0 || size != 0 || row->native != -1) {
      return nvm_mp_fail(mp, "a kernel of kind %u has no body in the file", kernel->kind);
    }
    return NVM_OK;
  }
  uint64_t in_section = loader->section_rows[NVM_SECTION_KERNEL_IR].size;
  uint64_t expected = (*ir_end + 7) & ~(uint64_t)7;
  if (row->ir_offset != expected || expected > in_section || row->ir_size > in_section - expected) {
    return nvm_mp_fail(mp, "ir: bytes %lld + %lld, expected them at %llu and within %llu",
                       (long long)offset, (long long)size, (unsigned long long)expected,
                       (unsigned long long)in_section);
  }
  *ir_end = expected + row->ir_size;
  return NVM_OK;
}

nvm_status nvm_read_kernels(nvm_loader *loader) {
  nvm_mp *mp = &loader->mp;
  uint32_t count = 0;
  uint64_t ir_end = 0;
  NVM_ROWS(loader, "kernels", 70, count, loader->kernels);
  NVM_TABLE(loader, count, loader->kernel_rows);
  for (uint32_t i = 0; i < count; i++) {
    nvm_kernel *kernel = &loader->kernels[i];
    uint32_t kind = 0;
    nvm_at_row(loader, "kernels", i);
    NVM_TRY(nvm_mp_record(mp, "kernel", 10));
    NVM_TRY(nvm_mp_key(mp, "name"));
    NVM_TRY(nvm_read_string(loader, "name", &kernel->name));
    NVM_TRY(nvm_mp_key(mp, "kind"));
    NVM_TRY(nvm_mp_u32(mp, "kind", 2, &kind));
    kernel->kind = (uint8_t)kind;
    kernel->number = i;
    NVM_TRY(read_signature(loader, &kernel->signature));
    NVM_TRY(read_body(loader, kernel, &loader->kernel_rows[i], &ir_end));
  }
  if (ir_end != loader->section_rows[NVM_SECTION_KERNEL_IR].size) {
    return nvm_mp_fail(mp, "kernel IR ends at byte %llu, its section at %llu",
                       (unsigned long long)ir_end,
                       (unsigned long long)loader->section_rows[NVM_SECTION_KERNEL_IR].size);
  }
  loader->program->kernels = loader->kernels;
  loader->program->n_kernels = count;
  return NVM_OK;
}
