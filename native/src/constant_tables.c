/* The header's tables of constants and of the weights that are bound late (docs/format.md). */
#include "constant_tables.h"

#include <string.h>

#include "generated/nvm_dtype.h"
#include "table_fields.h"

/* Dims of a tensor. out_elements: their product; it and out_bytes are in checked int64. */
static nvm_status read_dims(nvm_loader *loader, uint32_t dtype, uint32_t rank, int64_t *dims,
                            int64_t *out_elements, int64_t *out_bytes) {
  nvm_mp *mp = &loader->mp;
  int64_t elements = 1;
  int overflow = 0;
  for (uint32_t i = 0; i < rank; i++) {
    NVM_TRY(nvm_mp_int(mp, "dim", 0, INT64_MAX, &dims[i]));
    overflow |= __builtin_mul_overflow(elements, dims[i], &elements);
  }
  overflow |= __builtin_mul_overflow(elements, (int64_t)nvm_dtypes[dtype].itemsize, out_bytes);
  if (overflow) return nvm_mp_fail(mp, "the dims are too large");
  *out_elements = elements;
  return NVM_OK;
}

/* The number of dims that follow. */
static nvm_status read_rank(nvm_mp *mp, uint32_t *out_rank) {
  NVM_TRY(nvm_mp_array(mp, "dims", 1, out_rank));
  if (*out_rank > NVM_MAX_RANK) {
    return nvm_mp_fail(mp, "rank %u, expected <= %d", *out_rank, NVM_MAX_RANK);
  }
  return NVM_OK;
}

/* --- weights that are bound late -------------------------------------------------------------- */

static nvm_status read_weight(nvm_loader *loader, nvm_weight *weight) {
  nvm_mp *mp = &loader->mp;
  int64_t *dims = NULL, bytes = 0;
  size_t digest_size = 0;
  NVM_TRY(nvm_mp_tuple(mp, "weight", 4));
  NVM_TRY(nvm_read_string(loader, "name", &weight->name));
  NVM_TRY(nvm_mp_u32(mp, "dtype", NVM_DTYPE_COUNT - 1, &weight->dtype));
  NVM_TRY(read_rank(mp, &weight->rank));
  NVM_TABLE(loader, weight->rank, dims);
  NVM_TRY(read_dims(loader, weight->dtype, weight->rank, dims, &weight->elements, &bytes));
  NVM_TRY(nvm_mp_bin(mp, "digest", &weight->digest, &digest_size));
  if (digest_size != 0 && digest_size != 32) {
    return nvm_mp_fail(mp, "digest: expected 0 or 32 bytes, got %zu", digest_size);
  }
  if (digest_size == 0) weight->digest = NULL;
  weight->dims = dims;
  weight->size = (size_t)bytes;
  return NVM_OK;
}

nvm_status nvm_read_weights(nvm_loader *loader) {
  uint32_t count = 0;
  nvm_weight *weights = NULL;
  NVM_ROWS(loader, "weights", 5, count, weights);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "weights", i);
    NVM_TRY(read_weight(loader, &weights[i]));
    if (i > 0 && strcmp(weights[i - 1].name, weights[i].name) >= 0) {
      return nvm_mp_fail(&loader->mp, "weights stand in the order of their names, %s behind %s",
                         weights[i].name, weights[i - 1].name);
    }
  }
  loader->program->weights = weights;
  loader->program->n_weights = count;
  return NVM_OK;
}

/* Components that can't lead out of a folder, but by a symbolic link, which opening refuses. */
static int stays_inside(const char *path) {
  for (const char *at = path;; at++) {
    size_t length = strcspn(at, "/");
    if (length == 0 || (at[0] == '.' && (length == 1 || (length == 2 && at[1] == '.')))) return 0;
    at += length;
    if (*at == 0) return 1;
  }
}

nvm_status nvm_read_weights_file(nvm_loader *loader) {
  nvm_program *p = loader->program;
  NVM_TRY(nvm_read_string(loader, "weights_file", &p->weights_file));
  if (p->weights_file[0] != 0 && !stays_inside(p->weights_file)) {
    return nvm_mp_fail(&loader->mp, "weights_file leaves the folder of the model: %.200s",
                       p->weights_file);
  }
  return NVM_OK;
}

/* --- constants -------------------------------------------------------------------------------- */

/* A constant has the dtype of its weight, or 16 bits of float32: float16, or bfloat16 as uint16. */
static int may_become(uint32_t weight, uint32_t constant) {
  if (weight == constant) return 1;
  return weight == NVM_DTYPE_FLOAT32 &&
         (constant == NVM_DTYPE_FLOAT16 || constant == NVM_DTYPE_UINT16);
}

/* The layout of a constant that is bound late: base, limit, sizes, strides and steps of its axes.
 * Every sum that weights/bind.c makes of them fits int64; whether they stay inside of the weight it
 * checks.
 */
static nvm_status read_layout(nvm_loader *loader, const nvm_tensor *tensor, int64_t elements,
                              int64_t weight, nvm_late *late) {
  nvm_mp *mp = &loader->mp;
  uint32_t count = 0;
  NVM_TRY(nvm_read_ints(loader, "layout", 0, INT64_MAX, &late->layout, &count));
  late->weight = (int32_t)weight;
  if (weight < 0) return count == 0 ? NVM_OK : nvm_mp_fail(mp, "a layout without a weight");
  late->n_axes = (count - NVM_LAYOUT_HEAD) / 3;
  if (count < NVM_LAYOUT_HEAD || (count - NVM_LAYOUT_HEAD) % 3 != 0 ||
      late->n_axes > NVM_MAX_RANK) {
    return nvm_mp_fail(mp, "a layout of %u words", count);
  }
  if (!may_become(loader->program->weights[weight].dtype, tensor->header.extra)) {
    return nvm_mp_fail(mp, "dtype %s of a weight of %s", nvm_dtypes[tensor->header.extra].name,
                       nvm_dtypes[loader->program->weights[weight].dtype].name);
  }
  const int64_t *sizes = late->layout + NVM_LAYOUT_HEAD, *strides = sizes + late->n_axes,
                *steps = strides + late->n_axes;
  int64_t last = late->layout[0], most = 0, product = 1;
  int overflow = 0;
  for (uint32_t i = 0; i < late->n_axes; i++) {
    overflow |= __builtin_mul_overflow(product, sizes[i], &product);
  }
  if (overflow || product != elements) {
    return nvm_mp_fail(mp, "the layout's sizes do not give %lld elements", (long long)elements);
  }
  for (uint32_t i = 0; i < late->n_axes && elements > 0; i++) {
    overflow |= __builtin_mul_overflow(sizes[i] - 1, strides[i], &product);
    overflow |= __builtin_add_overflow(last, product, &last);
    overflow |= __builtin_mul_overflow(sizes[i] - 1, steps[i], &product);
    overflow |= __builtin_add_overflow(most, product, &most);
  }
  if (overflow) return nvm_mp_fail(mp, "the layout's words are too large");
  if (elements / NVM_LAYOUT_GROWTH > loader->program->weights[weight].elements) {
    return nvm_mp_fail(mp, "%lld elements of a weight of %lld", (long long)elements,
                       (long long)loader->program->weights[weight].elements);
  }
  return NVM_OK;
}

static nvm_status check_place(nvm_loader *loader, int64_t offset, int64_t size, uint64_t *used) {
  uint64_t in_section = loader->section_rows[NVM_SECTION_CONSTANTS].size;
  if (offset % 64 != 0 || (uint64_t)offset > in_section ||
      (uint64_t)size > in_section - (uint64_t)offset) {
    return nvm_mp_fail(&loader->mp,
                       "bytes %lld + %lld are not 64-aligned inside the section of %llu",
                       (long long)offset, (long long)size, (unsigned long long)in_section);
  }
  if ((uint64_t)(offset + size) > *used) *used = (uint64_t)(offset + size);
  return NVM_OK;
}

static nvm_status read_constant(nvm_loader *loader, uint32_t index, nvm_late *late,
                                uint64_t *used) {
  nvm_mp *mp = &loader->mp;
  uint32_t dtype = 0, device = 0, rank = 0;
  int64_t offset = 0, size = 0, elements = 0, bytes = 0, weight = 0;
  void *memory = NULL;
  NVM_TRY(nvm_mp_tuple(mp, "constant", 7));
  NVM_TRY(nvm_mp_u32(mp, "dtype", NVM_DTYPE_COUNT - 1, &dtype));
  NVM_TRY(nvm_mp_u32(mp, "device", loader->program->n_devices - 1, &device));
  NVM_TRY(nvm_mp_int(mp, "offset", 0, INT64_MAX, &offset));
  NVM_TRY(nvm_mp_int(mp, "size", 0, INT64_MAX, &size));
  NVM_TRY(read_rank(mp, &rank));
  NVM_TRY(nvm_arena_alloc(loader->arena, sizeof(nvm_tensor) + rank * sizeof(int64_t), 16, &memory));
  nvm_tensor *tensor = memory;
  NVM_TRY(read_dims(loader, dtype, rank, tensor->dims, &elements, &bytes));
  if (bytes != size) return nvm_mp_fail(mp, "size does not fit the dims and dtype");
  tensor->header = (nvm_object){.refcount = 1,
                                .kind = NVM_KIND_TENSOR,
                                .flags = NVM_FLAG_IMMORTAL | NVM_FLAG_READONLY,
                                .extra = (uint16_t)dtype};
  tensor->rank = (uint8_t)rank;
  tensor->device = (uint16_t)device;
  tensor->bytes = (size_t)size;
  NVM_TRY(nvm_mp_int(mp, "weight", -1, (int64_t)loader->program->n_weights - 1, &weight));
  NVM_TRY(read_layout(loader, tensor, elements, weight, late));
  if (weight < 0) {
    NVM_TRY(check_place(loader, offset, size, used));
  } else if (offset != 0) {
    return nvm_mp_fail(mp, "offset %lld of a constant that is bound late", (long long)offset);
  }
  loader->constants[index] = tensor;
  loader->constant_offsets[index] = (uint64_t)offset;
  return NVM_OK;
}

nvm_status nvm_read_constants(nvm_loader *loader) {
  uint32_t count = 0;
  uint64_t used = 0;
  nvm_late *late = NULL;
  NVM_ROWS(loader, "constants", 8, count, loader->constants);
  NVM_TABLE(loader, count, loader->constant_offsets);
  NVM_TABLE(loader, count, late);
  for (uint32_t i = 0; i < count; i++) {
    nvm_at_row(loader, "constants", i);
    NVM_TRY(read_constant(loader, i, &late[i], &used));
  }
  if (used != loader->section_rows[NVM_SECTION_CONSTANTS].size) {
    return nvm_mp_fail(&loader->mp, "constants end at byte %llu, their section at %llu",
                       (unsigned long long)used,
                       (unsigned long long)loader->section_rows[NVM_SECTION_CONSTANTS].size);
  }
  loader->program->constants = loader->constants;
  loader->program->late = late;
  loader->program->n_constants = count;
  return NVM_OK;
}
