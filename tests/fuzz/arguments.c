#include "arguments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "generated/nvm_dtype.h"

enum { MAX_NESTING = 8, ODD = 208 };

static const int64_t odd_sizes[] = {
    -1,        0,        1, 2, 3, 7, 9, 255, (int64_t)1 << 31, (int64_t)1 << 40, (int64_t)1 << 62,
    INT64_MAX, INT64_MIN};
static const int64_t odd_ints[] = {0,   1,     -1,        2,          127,       128,      -129,
                                   255, 65536, INT32_MAX, UINT32_MAX, INT64_MAX, INT64_MIN};
static const double odd_floats[] = {0, 1, -0.5, 65504, 65520, 1e39, -1e300, 1e-320};

static int64_t odd_size(script *s) {
  return odd_sizes[script_next(s) % (sizeof odd_sizes / sizeof *odd_sizes)];
}

static void count_release(void *owner) { ++*(uint32_t *)owner; }

/* Only memory that exists may be described: what sizes and strides reach must lie in `data`, from
 * its middle. Else all strides are 0. */
static void place(arguments *a, nvm_arg *arg) {
  const size_t i = a->n;
  const int64_t item = arg->dtype >= 0 && arg->dtype < (int32_t)NVM_DTYPE_COUNT
                           ? nvm_dtypes[arg->dtype].itemsize
                           : 8;
  int64_t reach = 0, step = 1;
  int empty = 0, over = 0;
  for (uint32_t k = arg->rank < MAX_SHAPE ? arg->rank : MAX_SHAPE; k-- > 0;) {
    const int64_t size = a->shapes[i][k], stride = arg->strides ? a->strides[i][k] : step;
    int64_t last = 0;
    empty |= size <= 0;
    if (size <= 0) continue;
    over |= __builtin_mul_overflow(size - 1, stride < 0 ? -stride : stride, &last);
    over |= __builtin_add_overflow(reach, last, &reach);
    over |= !arg->strides && __builtin_mul_overflow(step, size, &step);
  }
  if (arg->data != NULL || !empty) arg->data = a->data + MAX_BYTES;
  if (!empty && (over || reach >= MAX_BYTES / item)) {
    memset(a->strides[i], 0, sizeof a->strides[i]);
    arg->strides = a->strides[i];
  }
}

static void bend_strides(arguments *a, nvm_arg *arg) {
  int64_t *strides = a->strides[a->n];
  for (uint32_t k = 0; k < MAX_SHAPE; k++) strides[k] = (int64_t)(script_next(a->script) % 7) - 2;
  arg->strides = strides;
}

/* Give away the block of an earlier result, as what it is. */
static void give_away(arguments *a, nvm_arg *arg) {
  if (!a->storage) return;
  *arg = (nvm_arg){.kind = NVM_ARG_TENSOR,
                   .dtype = a->moved_dtype,
                   .rank = a->moved_rank,
                   .dl_device_type = 1,
                   .data = a->moved,
                   .shape = a->moved_shape,
                   .storage = a->storage};
}

static void bend(arguments *a, nvm_arg *arg, uint32_t how) {
  script *s = a->script;
  int64_t *shape = a->shapes[a->n];
  switch (how % 16) {
    case 0:
      arg->dtype = (int32_t)(script_next(s) % 16) - 2;
      break;
    case 1:
      arg->rank = script_next(s) % (MAX_SHAPE - 1);
      break;
    case 2:
      shape[script_next(s) % MAX_SHAPE] = odd_size(s);
      break;
    case 3:
      bend_strides(a, arg);
      break;
    case 4:
      arg->dl_device_type = (int32_t)(script_next(s) % 4);
      break;
    case 5:
      *arg = (nvm_arg){.kind = NVM_ARG_INT, .dtype = (int32_t)(script_next(s) % 14) - 1};
      arg->int_value = odd_ints[script_next(s) % (sizeof odd_ints / sizeof *odd_ints)];
      break;
    case 6:
      *arg = (nvm_arg){.kind = NVM_ARG_FLOAT, .dtype = (int32_t)(script_next(s) % 14) - 1};
      arg->float_value = odd_floats[script_next(s) % (sizeof odd_floats / sizeof *odd_floats)];
      break;
    case 7:
      *arg = (nvm_arg){.kind = NVM_ARG_FLOAT, .dtype = -1};
      arg->float_value = script_next(s) % 2 ? (double)NAN : (double)INFINITY;
      break;
    case 8:
      if (a->handle) *arg = (nvm_arg){.kind = NVM_ARG_HANDLE, .handle = a->handle};
      break;
    case 9:
      arg->kind = (int32_t)(script_next(s) % 8);
      if (arg->kind == NVM_ARG_HANDLE && !a->handle) arg->kind = -1;
      if (arg->kind == NVM_ARG_HANDLE) arg->handle = a->handle;
      break;
    case 10:
      arg->kind = NVM_ARG_ADT;
      arg->ctor = script_next(s);
      arg->n_fields = script_next(s) % 5;
      break;
    case 11:
      shape[0] = 0;
      arg->data = NULL;
      break;
    case 12:
      shape[script_next(s) % MAX_SHAPE] = (int64_t)(script_next(s) % 9);
      break;
    case 13:
      arg->rank = UINT32_MAX - script_next(s) % 2;
      break;
    case 14:
      give_away(a, arg);
      break;
    default:
      arg->release = count_release;
      arg->owner = &a->released[a->n];
  }
}

static int append(arguments *a, nvm_arg arg) {
  if (a->n == MAX_ARGS) return 0;
  int64_t *shape = a->shapes[a->n];
  const int64_t *given = arg.shape;
  for (uint32_t bends = 0; bends < 3; bends++) {
    const uint32_t how = script_next(a->script);
    if (how < ODD) break;
    if (how == 255) return 1; /* left out */
    bend(a, &arg, how);
  }
  if (arg.kind == NVM_ARG_TENSOR && arg.storage == NULL && arg.shape == given) {
    arg.shape = shape;
    place(a, &arg);
  }
  a->args[a->n++] = arg;
  return 1;
}

static int add_tensor(arguments *a, const int64_t *words, size_t n_words) {
  if (a->n == MAX_ARGS) return 0;
  int64_t *shape = a->shapes[a->n], bytes = nvm_dtypes[words[1]].itemsize;
  for (uint32_t k = 0; k < MAX_SHAPE; k++) shape[k] = 1;
  for (size_t i = 2; i < n_words; i++) {
    int64_t dim = words[i];
    if (dim == -1) dim = (a->salt + (int64_t)i) % 4;       /* unknown */
    if (dim < -1) dim = ((int64_t)a->sizes - dim * 7) % 4; /* a slot: the same size everywhere */
    if (dim > MAX_BYTES || (bytes *= dim) > MAX_BYTES) return 0;
    shape[i - 2] = dim;
  }
  return append(a, (nvm_arg){.kind = NVM_ARG_TENSOR,
                             .dtype = (int32_t)words[1],
                             .rank = (uint32_t)n_words - 2,
                             .dl_device_type = 1,
                             .data = a->data + MAX_BYTES,
                             .shape = shape});
}

static int add_value(arguments *a, uint32_t type, int nesting);

static int add_adt(arguments *a, const int64_t *words, int nesting) {
  uint32_t n_params, first, count, tag, n_fields = 0, chosen = 0;
  int32_t adt;
  const uint32_t *fields = NULL;
  if (nvm_program_adt(a->program, (uint32_t)words[1], &n_params, &first, &count) == NULL) return 0;
  if (count == 0) return 0;
  chosen = first + (a->salt + script_next(a->script)) % count;
  if (nesting > 2) { /* deep inside take the one with the fewest fields, so that lists end */
    uint32_t least = UINT32_MAX;
    for (uint32_t i = first; i < first + count && i < first + 64; i++) {
      nvm_program_constructor(a->program, i, &adt, &tag, &n_fields, &fields);
      if (n_fields < least) least = n_fields, chosen = i;
    }
  }
  nvm_program_constructor(a->program, chosen, &adt, &tag, &n_fields, &fields);
  for (uint32_t i = 0; i < n_fields; i++)
    if (!add_value(a, fields[i], nesting + 1)) return 0;
  return append(a, (nvm_arg){.kind = NVM_ARG_ADT, .ctor = chosen, .n_fields = n_fields});
}

static int add_value(arguments *a, uint32_t type, int nesting) {
  size_t n_words = 0;
  const int64_t *words = nvm_program_type(a->program, type, &n_words);
  static const int64_t scalar[] = {0, NVM_DTYPE_FLOAT32};
  if (nesting > MAX_NESTING || a->n >= MAX_ARGS) return 0;
  a->salt = a->salt * 1664525u + 1013904223u;
  switch (words[0]) {
    case 0:
      return add_tensor(a, words, n_words);
    case 1:
      for (size_t i = 1; i < n_words; i++)
        if (!add_value(a, (uint32_t)words[i], nesting + 1)) return 0;
      return append(a, (nvm_arg){.kind = NVM_ARG_ADT, .n_fields = (uint32_t)n_words - 1});
    case 2:
      return add_adt(a, words, nesting);
    case 5:
      return add_tensor(a, scalar, 2);
    default:
      return a->handle && append(a, (nvm_arg){.kind = NVM_ARG_HANDLE, .handle = a->handle});
  }
}

int arguments_add(arguments *a, uint32_t type) {
  const uint32_t salt = a->sizes = a->salt;
  const int made = add_value(a, type, 0);
  a->salt = salt;
  return made;
}

int arguments_released(const arguments *a) {
  for (size_t i = 0; i < a->n; i++) {
    const uint32_t expected = a->args[i].release ? 1 : 0;
    const size_t owner = expected ? (size_t)((const uint32_t *)a->args[i].owner - a->released) : i;
    if (expected && a->released[owner] != 1) return 0;
  }
  return 1;
}
