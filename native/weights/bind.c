/* Binds weights to a program whose constants are not all in its file: a second program that shares
 * everything with the first but these constants. A weight that lies as the kernels read it stays
 * where it is; others are laid out once.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "kernel_ir_ops.h"
#include "program.h"
#include "sha256.h"
#include "weights.h"

enum { TEXT = 900 };

/* --- do the weights fit ----------------------------------------------------------------------- */

typedef struct report {
  char text[TEXT];
  size_t length;
  uint32_t faults;
} report;

__attribute__((format(printf, 2, 3))) static void add(report *r, const char *format, ...) {
  va_list list;
  va_start(list, format);
  int written = vsnprintf(r->text + r->length, TEXT - r->length, format, list);
  va_end(list);
  if (written > 0) r->length += (size_t)written;
  if (r->length > TEXT - 1) r->length = TEXT - 1;
}

static void add_type(report *r, const char *dtype, uint32_t rank, const int64_t *dims) {
  add(r, "%s (", dtype);
  for (uint32_t i = 0; i < rank; i++) add(r, "%s%lld", i > 0 ? ", " : "", (long long)dims[i]);
  add(r, "%s)", rank == 1 ? "," : "");
}

static int fits(const nvm_weight *wanted, const nvm_weight_entry *got) {
  if ((int32_t)wanted->dtype != got->dtype || wanted->rank != got->rank) return 0;
  for (uint32_t i = 0; i < wanted->rank; i++) {
    if (wanted->dims[i] != got->dims[i]) return 0;
  }
  return 1;
}

static int wants(const nvm_program *program, const char *name) {
  uint32_t low = 0, high = program->n_weights;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(program->weights[middle].name, name);
    if (order == 0) return 1;
    if (order < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return 0;
}

/* Everything that does not fit, in one error. */
static nvm_status check_all(const nvm_program *program, nvm_weights *weights, uint32_t flags) {
  report r = {.length = 0};
  for (uint32_t i = 0; i < program->n_weights; i++) {
    const nvm_weight *wanted = &program->weights[i];
    const nvm_weight_entry *got = nvm_weights_find(weights, wanted->name);
    if (got != NULL && fits(wanted, got)) continue;
    r.faults++;
    if (got == NULL) {
      add(&r, "\n  missing: %s, ", wanted->name);
      add_type(&r, nvm_dtypes[wanted->dtype].name, wanted->rank, wanted->dims);
      continue;
    }
    add(&r, "\n  different: %s is ", wanted->name);
    add_type(&r, got->dtype_name, got->rank, got->dims);
    add(&r, ", expected ");
    add_type(&r, nvm_dtypes[wanted->dtype].name, wanted->rank, wanted->dims);
  }
  for (uint32_t i = 0; i < weights->count && (flags & NVM_BIND_ALLOW_EXTRA) == 0; i++) {
    if (wants(program, weights->entries[i].name)) continue;
    r.faults++;
    add(&r, "\n  extra: %s", weights->entries[i].name);
  }
  if (r.faults == 0) return NVM_OK;
  return nvm_fail(NVM_WEIGHTS_MISMATCH, "%u of the weights are not what the program wants:%s",
                  r.faults, r.text);
}

/* --- one constant ----------------------------------------------------------------------------- */

/* Where the elements of a constant come from. */
typedef struct source {
  const uint8_t *data;
  int64_t elements;
  uint32_t dtype, to_dtype;
  size_t size, to_size; /* of an element */
} source;

/* `count` elements, `stride` apart, from source element `from` on. Returns whether all are finite
 * in the new dtype that were so before. */
static int copy_row(const source *s, int64_t from, int64_t stride, int64_t count, uint8_t *to) {
  const uint8_t *at = s->data + (size_t)from * s->size;
  size_t step = (size_t)stride * s->size;
  int fine = 1;
  if (s->dtype != s->to_dtype) {
    for (int64_t i = 0; i < count; i++, at += step, to += 2) {
      float number;
      uint32_t bits;
      memcpy(&number, at, 4);
      memcpy(&bits, at, 4);
      uint16_t half;
      if (s->to_dtype == NVM_DTYPE_FLOAT16) {
        half = nvm_half_from_float(number);
        fine &= (half & 0x7fff) != 0x7c00 || (bits & 0x7fffffff) == 0x7f800000;
      } else if ((bits & 0x7fffffff) > 0x7f800000) {
        half = (uint16_t)((bits | 1u << 22) >> 16); /* rounding a NaN's bits could give infinity */
      } else {
        half = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      }
      memcpy(to, &half, 2);
    }
    return fine;
  }
  if (stride == 1) {
    memcpy(to, at, (size_t)count * s->size);
  } else if (s->size == 4) {
    for (int64_t i = 0; i < count; i++, at += step, to += 4) memcpy(to, at, 4);
  } else {
    for (int64_t i = 0; i < count; i++, at += step, to += s->size) memcpy(to, at, s->size);
  }
  return 1;
}

/* How many of `count` elements at step, 2 step, ... from `at` on stay below `limit`. */
static int64_t below(int64_t at, int64_t step, int64_t limit, int64_t count) {
  if (at >= limit) return 0;
  if (step == 0) return count;
  int64_t room = (limit - 1 - at) / step + 1;
  return room < count ? room : count;
}

/* Lay a weight out as `tensor`, whose memory at `to` is zeroed. Sums were checked not to overflow
 * (constant_tables.c); that they stay inside of the weight is checked here, a row at a time. */
static nvm_status lay_out(const source *s, const nvm_late *late, const nvm_tensor *tensor,
                          const char *name, uint8_t *to) {
  uint32_t rank = late->n_axes, outer = rank > 0 ? rank - 1 : 0;
  const int64_t *layout = late->layout, *sizes = layout + NVM_LAYOUT_HEAD, *strides = sizes + rank,
                *steps = strides + rank;
  int64_t index[NVM_MAX_RANK] = {0}, count = rank > 0 ? sizes[outer] : 1;
  int64_t stride = rank > 0 ? strides[outer] : 0, step = rank > 0 ? steps[outer] : 0;
  int64_t from = layout[0], at = 0;
  int fine = 1;
  if (tensor->bytes == 0) return NVM_OK;
  for (;;) {
    int64_t valid = below(at, step, layout[1], count);
    if (valid > 0) {
      if (from + (valid - 1) * stride >= s->elements) {
        return nvm_fail(NVM_INVALID_EXECUTABLE, "the layout of %s leads out of it", name);
      }
      fine &= copy_row(s, from, stride, valid, to);
    }
    to += (size_t)count * s->to_size;
    uint32_t axis = outer;
    while (axis > 0) {
      axis--;
      from += strides[axis];
      at += steps[axis];
      if (++index[axis] < sizes[axis]) break;
      from -= index[axis] * strides[axis];
      at -= index[axis] * steps[axis];
      index[axis] = 0;
      if (axis == 0) goto done;
    }
    if (outer == 0) break;
  }
done:
  if (!fine) {
    return nvm_fail(
        NVM_WEIGHTS_MISMATCH,
        "weight %s has numbers that do not fit in float16 (at most 65504); compile with "
        "weights in bfloat16 or float32",
        name);
  }
  return NVM_OK;
}

/* Do the elements, of which there are some, lie side by side in the weight, in their order? */
static int is_plain(const source *s, const nvm_late *late) {
  const int64_t *layout = late->layout, *sizes = layout + NVM_LAYOUT_HEAD,
                *strides = sizes + late->n_axes, *steps = strides + late->n_axes;
  int64_t compact = 1, last = 0;
  if (s->dtype != s->to_dtype) return 0;
  for (uint32_t i = late->n_axes; i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != compact) return 0;
    last += (sizes[i] - 1) * steps[i];
    compact *= sizes[i];
  }
  return last < layout[1] && layout[0] <= s->elements && compact <= s->elements - layout[0];
}

/* --- binding ---------------------------------------------------------------------------------- */

typedef struct binder {
  nvm_program *program; /* under construction */
  nvm_weights *weights;
  nvm_tensor **constants;
  uint8_t **copies;     /* by weight: private copies that digests were checked of, or NULL */
  int verify, points;   /* points: a constant points into the weights or the copies */
  uint64_t limit, used; /* bytes that may be allocated and that were */
} binder;

enum { GROWTH = 16 };
#define SLACK ((uint64_t)16 << 20)

/* What binding may allocate: linear in the weights, whatever the program asks for. */
static uint64_t limit_of(const nvm_weights *weights) {
  uint64_t bytes = 0;
  if (weights->max_bytes != 0) return weights->max_bytes;
  for (uint32_t i = 0; i < weights->count; i++) {
    if (weights->entries[i].size > NVM_MAX_BLOCK - bytes) return UINT64_MAX; /* no such memory */
    bytes += weights->entries[i].size;
  }
  return GROWTH * bytes + SLACK;
}

/* Memory for a constant or a copy of a weight. */
static nvm_status take(binder *b, nvm_arena *arena, size_t size, void **out_memory) {
  if (size > b->limit - b->used) {
    return nvm_fail(
        NVM_MEMORY_LIMIT,
        "the program's layouts of its weights take more than %llu bytes, which is %s",
        (unsigned long long)b->limit,
        b->weights->max_bytes != 0 ? "the limit" : "16 times what the weights themselves do");
  }
  b->used += size;
  return nvm_arena_alloc(arena, size, 64, out_memory);
}

/* The bytes of a weight: private and checked if that is asked for. */
static nvm_status weight_bytes(binder *b, uint32_t index, const nvm_weight_entry *entry,
                               const uint8_t **out_data) {
  const nvm_weight *wanted = &b->program->weights[index];
  *out_data = entry->data;
  if (!b->verify) return NVM_OK;
  if (b->copies[index] == NULL) {
    void *copy = NULL;
    if (entry->is_private) {
      copy = (uint8_t *)(uintptr_t)entry->data;
    } else {
      NVM_TRY(take(b, b->program->copies, wanted->size, &copy));
      if (wanted->size > 0) memcpy(copy, entry->data, wanted->size);
    }
    uint8_t digest[32];
    if (wanted->digest != NULL) nvm_sha256(copy, wanted->size, digest);
    if (wanted->digest != NULL && memcmp(digest, wanted->digest, sizeof digest) != 0) {
      return nvm_fail(NVM_WEIGHTS_MISMATCH,
                      "weight %s: SHA-256 is %02x%02x%02x%02x..., the program wants "
                      "%02x%02x%02x%02x...",
                      wanted->name, digest[0], digest[1], digest[2], digest[3], wanted->digest[0],
                      wanted->digest[1], wanted->digest[2], wanted->digest[3]);
    }
    b->copies[index] = copy;
  }
  *out_data = b->copies[index];
  return NVM_OK;
}

static nvm_status bind_constant(binder *b, uint32_t index) {
  const nvm_program *p = b->program;
  const nvm_late *late = &p->late[index];
  const nvm_tensor *old = p->constants[index];
  if (late->weight < 0) {
    b->constants[index] = p->constants[index];
    return NVM_OK;
  }
  const nvm_weight *wanted = &p->weights[late->weight];
  const nvm_weight_entry *entry = nvm_weights_find(b->weights, wanted->name);
  size_t header = sizeof(nvm_tensor) + old->rank * sizeof(int64_t);
  void *memory = NULL;
  const uint8_t *data = NULL;
  NVM_TRY(nvm_arena_alloc(p->arena, header, 16, &memory));
  nvm_tensor *tensor = memory;
  memcpy(tensor, old, header);
  NVM_TRY(weight_bytes(b, (uint32_t)late->weight, entry, &data));
  source s = {.data = data,
              .elements = wanted->elements,
              .dtype = wanted->dtype,
              .to_dtype = old->header.extra,
              .size = nvm_dtypes[wanted->dtype].itemsize,
              .to_size = nvm_dtypes[old->header.extra].itemsize};
  const uintptr_t place = (uintptr_t)data + (size_t)late->layout[0] * s.size;
  int stays = b->verify || entry->stays;
  if (old->bytes > 0 && is_plain(&s, late) && stays && place % s.size == 0) {
    tensor->data = (char *)place; /* NVM_FLAG_READONLY guards it */
    b->points = 1;
  } else {
    NVM_TRY(take(b, p->arena, old->bytes, &memory));
    NVM_TRY(lay_out(&s, late, old, wanted->name, memory));
    tensor->data = memory;
  }
  b->constants[index] = tensor;
  return NVM_OK;
}

static nvm_status bind_all(binder *b) {
  nvm_program *p = b->program;
  void *memory = NULL;
  NVM_TRY(nvm_arena_array(p->arena, p->n_constants, sizeof *b->constants, &memory));
  b->constants = memory;
  NVM_TRY(nvm_arena_array(p->arena, p->n_weights, sizeof *b->copies, &memory));
  b->copies = memory;
  for (uint32_t i = 0; i < p->n_constants; i++) NVM_TRY(bind_constant(b, i));
  for (uint32_t i = 0; i < p->n_weights && b->verify; i++) { /* no constant may use it */
    const uint8_t *data = NULL;
    NVM_TRY(weight_bytes(b, i, nvm_weights_find(b->weights, p->weights[i].name), &data));
  }
  p->constants = b->constants;
  if (!b->points) { /* all is laid out anew */
    nvm_weights_release(p->bound);
    nvm_arena_destroy(p->copies);
    p->bound = NULL;
    p->copies = NULL;
  } else if (b->weights->mapping != NULL) { /* most of what was read is not needed again */
    madvise(b->weights->mapping, b->weights->mapping_size, MADV_DONTNEED);
  }
  return NVM_OK;
}

static void release_weights(void *weights) { nvm_weights_release(weights); }

NVM_EXPORT nvm_status nvm_program_bind(nvm_program *program, nvm_weights *weights, uint32_t flags,
                                       nvm_program **out_bound) {
  *out_bound = NULL;
  if (program->parent != NULL) program = program->parent;
  NVM_TRY(check_all(program, weights, flags));
  nvm_program *bound = nvm_calloc(sizeof *bound);
  if (bound == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for a program");
  const size_t count = offsetof(nvm_program, flags); /* which other threads may change meanwhile */
  memcpy((char *)bound + count, (const char *)program + count, sizeof *bound - count);
  atomic_init(&bound->refcount, 1);
  bound->parent = program;
  bound->bound = weights;
  bound->release_bound = release_weights;
  bound->arena = bound->copies = NULL;
  bound->flags |= flags & NVM_LOAD_VERIFY_FULL;
  nvm_program_retain(program);
  nvm_weights_retain(weights);
  binder b = {.program = bound, .weights = weights, .limit = limit_of(weights)};
  b.verify = (bound->flags & NVM_LOAD_VERIFY_FULL) != 0;
  nvm_status status = nvm_arena_create(&bound->arena);
  if (status == NVM_OK) status = nvm_arena_create(&bound->copies);
  if (status == NVM_OK) status = bind_all(&b);
  if (status != NVM_OK) {
    nvm_program_release(bound);
    return status;
  }
  *out_bound = bound;
  return nvm_ok();
}
