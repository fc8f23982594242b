/* Values in. Three passes over the flat postorder array, none recursive: forwards for the shape of
 * the trees, backwards (which is top-down) for the type that each value must have, forwards again
 * to check leaves and build values.
 *
 * Zero-copy: compact memory is used in place (as read-only storage) until its `release` is called;
 * memory without a `release` is good for the call only, and is copied at the end of the run if a
 * handle still uses it (args_keep.c). */
#include <math.h>

#include "handle_type.h"
#include "results.h"
#include "vm.h"
#include "args.h"
#include "args_converter.h"
#include "copy.h"
#include "dim_program.h"
#include "frame.h"
#include "object.h"

/* Smaller tensors are copied: cheaper than a block's header, and the owner is free at once. */
#define COPY_BYTES 128

enum { SCRATCH_EXPECT, SCRATCH_PENDING, SCRATCH_VALUES, SCRATCH_ENVS, SCRATCH_SLOTS };

static nvm_status reserve(nvm_vm *vm, int which, size_t count, size_t size, void *out_memory) {
  nvm_scratch *scratch = &vm->args[which];
  size_t bytes = (count ? count : 1) * size; /* never NULL, so that offsets may be taken */
  if (bytes > scratch->capacity) {
    if (bytes < 2 * scratch->capacity) bytes = 2 * scratch->capacity;
    void *grown = nvm_realloc(scratch->memory, bytes);
    if (!grown) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory to check %zu argument values", count);
    atomic_fetch_add_explicit(&vm->heap->system_allocations, 1, memory_order_relaxed);
    scratch->memory = grown;
    scratch->capacity = bytes;
  }
  memcpy(out_memory, &scratch->memory, sizeof scratch->memory);
  return NVM_OK;
}

NVM_COLD void nvm_scratch_free(nvm_vm *vm) {
  for (size_t i = 0; i < sizeof vm->args / sizeof *vm->args; i++) {
    nvm_free(vm->args[i].memory);
    vm->args[i] = (nvm_scratch){0};
  }
}

/* --- types: top-down -------------------------------------------------------------------------- */

/* entries[env - 1] counts the type arguments, which follow. */
static nvm_typed resolve(const nvm_converter *c, uint32_t type, uint32_t env) {
  nvm_typed result = {type, env};
  if (type == NVM_ANY_TYPE || c->program->types[type].words[0] != 5) return result;
  const nvm_typed *entries = c->vm->args[SCRATCH_ENVS].memory;
  int64_t k = c->program->types[type].words[1];
  if (env == 0 || k < 0 || k >= (int64_t)entries[env - 1].type) return (nvm_typed){NVM_ANY_TYPE, 0};
  return entries[env + (uint32_t)k];
}

/* The environment of a type application: its resolved arguments, 0 if it has none. Recursive types
 * mostly get the same one again. */
static nvm_status enter_application(nvm_converter *c, nvm_typed application, uint32_t *out_env) {
  const nvm_type *type = &c->program->types[application.type];
  uint32_t n = type->n_words - 2;
  nvm_typed *entries;
  *out_env = 0;
  if (n == 0) return NVM_OK;
  NVM_TRY(reserve(c->vm, SCRATCH_ENVS, c->n_envs + n + 1, sizeof *entries, &entries));
  nvm_typed *made = entries + c->n_envs;
  made[0] = (nvm_typed){n, 0};
  for (uint32_t k = 0; k < n; k++)
    made[1 + k] = resolve(c, (uint32_t)type->words[2 + k], application.env);
  uint32_t env = application.env;
  if (env && memcmp(entries + env - 1, made, (n + 1) * sizeof *made) == 0) {
    *out_env = env;
    return NVM_OK;
  }
  *out_env = (uint32_t)c->n_envs + 1;
  c->n_envs += n + 1;
  return NVM_OK;
}

/* Push what the fields of a composite must be. */
static nvm_status expect_fields(nvm_converter *c, size_t i, nvm_expected **top) {
  const nvm_arg *arg = &c->args[i];
  nvm_typed want = c->expect[i].type;
  uint32_t env = 0;
  const nvm_ctor *ctor = arg->ctor < c->program->n_ctors ? &c->program->ctors[arg->ctor] : NULL;
  const nvm_type *type = want.type == NVM_ANY_TYPE ? NULL : &c->program->types[want.type];
  int fits;
  if (!type)
    fits = ctor && (arg->ctor == 0 || ctor->n_fields == arg->n_fields);
  else if (type->words[0] == 1)
    fits = arg->ctor == 0 && arg->n_fields == type->n_words - 1;
  else
    fits = type->words[0] == 2 && ctor && arg->ctor != 0 && ctor->adt == type->words[1] &&
           ctor->n_fields == arg->n_fields;
  if (!fits) return nvm_arg_wrong(c, i);
  if (type && type->words[0] == 1)
    env = want.env;
  else if (type)
    NVM_TRY(enter_application(c, want, &env));
  for (uint32_t k = 0; k < arg->n_fields; k++) {
    uint32_t field = !type                 ? NVM_ANY_TYPE
                     : type->words[0] == 1 ? (uint32_t)type->words[1 + k]
                                           : ctor->field_types[k];
    *(*top)++ = (nvm_expected){resolve(c, field, env), c->expect[i].param};
  }
  return NVM_OK;
}

static nvm_status count_trees(const nvm_converter *c) {
  size_t depth = 0;
  for (size_t i = 0; i < c->n_args; i++) {
    const nvm_arg *arg = &c->args[i];
    if (arg->kind < NVM_ARG_TENSOR || arg->kind > NVM_ARG_HANDLE)
      NVM_FAIL(NVM_INVALID_INPUT, "argument value %zu is of unknown kind %d", i, arg->kind);
    if (arg->kind == NVM_ARG_ADT) {
      if (arg->n_fields > depth)
        NVM_FAIL(NVM_INVALID_INPUT,
                 "argument value %zu takes %u fields, only %zu values precede it", i, arg->n_fields,
                 depth);
      depth -= arg->n_fields;
    }
    depth++;
  }
  if (depth != c->function->n_params)
    NVM_FAIL(NVM_INVALID_INPUT, "@%s takes %u arguments, got %zu", c->function->name,
             c->function->n_params, depth);
  return NVM_OK;
}

static nvm_status assign_types(nvm_converter *c) {
  nvm_expected *top = c->pending;
  for (uint32_t p = 0; p < c->function->n_params; p++)
    *top++ = (nvm_expected){resolve(c, c->function->params[p].type, 0), p};
  for (size_t i = c->n_args; i-- > 0;) {
    c->expect[i] = *--top;
    if (c->args[i].kind == NVM_ARG_ADT) NVM_TRY(expect_fields(c, i, &top));
  }
  return NVM_OK;
}

/* --- dims ------------------------------------------------------------------------------------- */

/* Value of a computed slot, if the slots that it needs are bound; -1 else. */
NVM_COLD static int64_t computed_slot(const nvm_converter *c, const nvm_dim_slot *slot) {
  for (uint32_t w = 0; w < slot->n_words && slot->program[w] != NVM_DIM_END; w++) {
    if (slot->program[w] == NVM_DIM_CONST)
      w++;
    else if (slot->program[w] == NVM_DIM_REF) {
      w++;
      int64_t k = w < slot->n_words ? slot->program[w] : -1;
      if (k < 0 || k >= (int64_t)c->function->n_dims || c->slots[k] < 0) return -1;
    }
  }
  int64_t size;
  if (nvm_dim_program(slot->program, slot->n_words, c->slots, c->function->n_dims, &size) != NVM_OK)
    return -1; /* the function's own checks say what is wrong */
  return size;
}

static nvm_status check_slot(nvm_converter *c, size_t i, uint32_t axis, uint32_t k, int64_t got) {
  if (k >= c->function->n_dims) return NVM_OK;
  const nvm_dim_slot *slot = &c->function->dims[k];
  int64_t want = c->slots[k];
  if (slot->program) want = computed_slot(c, slot);
  if (want < 0) {
    if (!slot->program && slot->param >= 0) {
      c->slots[k] = got;
      c->binder[k] = c->expect[i].param;
      c->placed = NULL; /* computed slots that were not known for it may be known now */
    }
    return NVM_OK;
  }
  if (want == got) return NVM_OK;
  if (!slot->program)
    return nvm_arg_fail(
        c, i, NVM_INVALID_INPUT, "axis %u: expected %lld (?%s, from parameter %%%s), got %lld",
        axis, (long long)want, slot->name, c->function->params[c->binder[k]].name, (long long)got);
  return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "axis %u: expected %lld (?%s), got %lld", axis,
                      (long long)want, slot->name, (long long)got);
}

/* shape: as many sizes as the type has. */
static nvm_status check_dims(nvm_converter *c, size_t i, const nvm_type *type,
                             const int64_t *shape) {
  for (uint32_t a = 0; a + 2 < type->n_words; a++) {
    int64_t want = type->words[2 + a], got = shape[a];
    if (want <= -2) {
      NVM_TRY(check_slot(c, i, a, (uint32_t)(-2 - want), got));
    } else if (want >= 0 && want != got) {
      return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "axis %u: expected %lld, got %lld", a,
                          (long long)want, (long long)got);
    }
  }
  return NVM_OK;
}

static nvm_status check_tensor(nvm_converter *c, size_t i, const nvm_type *type) {
  const nvm_arg *arg = &c->args[i];
  if (arg->dtype < 0 || arg->dtype >= (int32_t)NVM_DTYPE_COUNT || arg->rank > NVM_MAX_RANK)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT,
                        "dtype number %d, rank %u are not supported (rank <= %d)", arg->dtype,
                        arg->rank, NVM_MAX_RANK);
  if (arg->dl_device_type != 1)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "expected host memory, got DLPack device type %d",
                        arg->dl_device_type);
  for (uint32_t a = 0; a < arg->rank; a++)
    if (arg->shape[a] < 0)
      return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "axis %u has negative size %lld", a,
                          (long long)arg->shape[a]);
  if (!type) return NVM_OK;
  if (arg->dtype != type->words[1])
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT_TYPE, "expected dtype %s, got %s; convert it first",
                        nvm_dtypes[type->words[1]].name, nvm_dtypes[arg->dtype].name);
  if (arg->rank != type->n_words - 2)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "expected rank %u, got rank %u", type->n_words - 2,
                        arg->rank);
  return check_dims(c, i, type, arg->shape);
}

/* --- leaves ----------------------------------------------------------------------------------- */

static int is_compact(const nvm_arg *arg) {
  int64_t stride = 1;
  if (!arg->strides) return 1;
  for (uint32_t a = arg->rank; a-- > 0;) {
    if (arg->shape[a] == 0) return 1;
    if (arg->shape[a] != 1 && arg->strides[a] != stride) return 0;
    if (__builtin_mul_overflow(stride, arg->shape[a], &stride)) return 0;
  }
  return 1;
}

static void let_owner_go(const nvm_arg *arg) {
  if (arg->release) arg->release(arg->owner);
}

/* A tensor that the caller gave away: on its own block instead of on borrowed memory. */
NVM_COLD static nvm_status take_moved(nvm_converter *c, size_t i, nvm_storage *storage,
                                      nvm_tensor **out_tensor) {
  const nvm_arg *arg = &c->args[i];
  if (storage->header.flags & NVM_FLAG_MOVED)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "the tensor is given away twice");
  NVM_TRY(nvm_tensor_on(c->vm->heap, storage, (const char *)arg->data - (char *)storage->memory,
                        (uint32_t)arg->dtype, arg->rank, arg->shape, out_tensor));
  storage->header.flags |= NVM_FLAG_MOVED;
  c->vm->borrowed = c->vm->moved = 1;
  return NVM_OK;
}

/* Use the caller's memory where it lies. *out_taken: the value now holds it and will call release.
 */
static nvm_status place_tensor(nvm_converter *c, const nvm_arg *arg, size_t bytes, int *out_taken,
                               nvm_tensor **out_tensor) {
  nvm_heap *heap = c->vm->heap;
  nvm_storage *storage;
  NVM_TRY(nvm_storage_borrow(heap, arg->data, bytes, arg->release, arg->owner, &storage));
  *out_taken = 1;
  if (!arg->release) c->vm->borrowed = 1;
  c->placed = arg;
  c->bytes = bytes;
  return nvm_tensor_whole(heap, storage, (uint32_t)arg->dtype, arg->rank, arg->shape, out_tensor);
}

static int is_aligned(const nvm_arg *arg) {
  return ((uintptr_t)arg->data & (nvm_dtypes[arg->dtype].itemsize - 1)) == 0;
}

/* Whether a value is a tensor like the last one that was placed, so that there is no more to check:
 * of the same type and the very same sizes, as the leaves of a tree are. */
static int is_alike(const nvm_converter *c, const nvm_arg *arg) {
  const nvm_arg *as = c->placed;
  return as && arg->kind == as->kind && arg->shape == as->shape && arg->strides == as->strides &&
         arg->dtype == as->dtype && arg->rank == as->rank && !arg->storage && arg->data &&
         arg->dl_device_type == as->dl_device_type && is_aligned(arg) &&
         c->expect[arg - c->args].type.type == c->expect[as - c->args].type.type;
}

static nvm_status make_tensor(nvm_converter *c, size_t i, int *out_taken, nvm_tensor **out_tensor) {
  const nvm_arg *arg = &c->args[i];
  nvm_heap *heap = c->vm->heap;
  uint32_t dtype = (uint32_t)arg->dtype;
  size_t bytes;
  NVM_TRY(nvm_shape_bytes(dtype, arg->rank, arg->shape, &bytes));
  if (bytes && !arg->data) {
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "%zu bytes at address NULL", bytes);
  }
  int compact = is_compact(arg);
  nvm_storage *given = arg->storage;
  if (given && compact && bytes && given->pool && given->pool->heap == heap)
    return take_moved(c, i, given, out_tensor);
  if (compact && bytes > COPY_BYTES && is_aligned(arg))
    return place_tensor(c, arg, bytes, out_taken, out_tensor);
  NVM_TRY(nvm_tensor_create(heap, 0, dtype, arg->rank, arg->shape, out_tensor));
  if (bytes == 0) return NVM_OK;
  heap->copied_bytes += bytes;
  const nvm_status status =
      compact ? nvm_copy(heap, (*out_tensor)->data, arg->data, bytes)
              : nvm_copy_strided(heap, (*out_tensor)->data, arg->data, nvm_dtypes[dtype].itemsize,
                                 arg->rank, arg->shape, arg->strides);
  if (NVM_UNLIKELY(status != NVM_OK)) nvm_release(heap, &(*out_tensor)->header);
  return status;
}

/* Nearest float16, ties to even; overflow gives infinity. */
NVM_COLD static uint16_t half_bits(double number) {
  uint16_t sign = signbit(number) ? 0x8000 : 0;
  double size = fabs(number);
  if (isnan(number)) return sign | 0x7e00;
  if (size >= 65520.0) return sign | 0x7c00;
  if (size < 0x1p-14) return (uint16_t)(sign | (uint16_t)rint(size * 0x1p24));
  int exponent;
  (void)frexp(size, &exponent); /* size = f * 2^exponent, 0.5 <= f < 1 */
  exponent--;
  uint32_t mantissa = (uint32_t)rint(ldexp(size, 10 - exponent)); /* 1024 .. 2048 */
  return (uint16_t)(sign | (uint16_t)(((uint32_t)(exponent + 15) << 10) + mantissa - 1024));
}

/* Write a float of that dtype; 0 if a finite number became infinite. */
NVM_COLD static int write_float(uint32_t dtype, double number, void *to) {
  float single = (float)number;
  uint16_t half = half_bits(number);
  if (dtype == NVM_DTYPE_FLOAT64)
    memcpy(to, &number, sizeof number);
  else if (dtype == NVM_DTYPE_FLOAT32)
    memcpy(to, &single, sizeof single);
  else
    memcpy(to, &half, sizeof half);
  int finite = dtype == NVM_DTYPE_FLOAT64   ? isfinite(number)
               : dtype == NVM_DTYPE_FLOAT32 ? isfinite(single)
                                            : (half & 0x7c00) != 0x7c00;
  return finite || !isfinite(number);
}

/* An integer or bool of a dtype from an INT argument. */
static nvm_status check_int(const nvm_converter *c, size_t i, uint32_t dtype) {
  const nvm_arg *arg = &c->args[i];
  int wants_bool = dtype == NVM_DTYPE_BOOL, plain = arg->dtype == -1;
  if (plain ? wants_bool
            : arg->dtype != (int32_t)dtype) { /* a bool is no integer, nor the reverse */
    char got[160];
    return nvm_arg_fail(
        c, i, NVM_INVALID_INPUT_TYPE, "expected a scalar of %s, got %s", nvm_dtypes[dtype].name,
        plain ? nvm_arg_describe(c, arg, got, sizeof got) : nvm_arg_dtype_name(arg->dtype));
  }
  int64_t number = arg->int_value;
  int fits = dtype == NVM_DTYPE_BOOL     ? number == 0 || number == 1
             : dtype == NVM_DTYPE_UINT64 ? number >= 0
                                         : nvm_int_extend(dtype, number) == number;
  if (!fits)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "%lld is out of range for %s", (long long)number,
                        nvm_dtypes[dtype].name);
  return NVM_OK;
}

/* A rank-0 tensor from a Python number. */
static nvm_status make_scalar(nvm_converter *c, size_t i, const nvm_type *type,
                              nvm_tensor **out_tensor) {
  const nvm_arg *arg = &c->args[i];
  int is_int = arg->kind == NVM_ARG_INT;
  uint32_t dtype = type              ? (uint32_t)type->words[1]
                   : arg->dtype >= 0 ? (uint32_t)arg->dtype
                   : is_int          ? (uint32_t)NVM_DTYPE_INT64
                                     : (uint32_t)NVM_DTYPE_FLOAT32;
  if (type && type->n_words != 2)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "expected rank %u, got a number",
                        type->n_words - 2);
  if (dtype >= NVM_DTYPE_COUNT) return nvm_arg_wrong(c, i);
  int to_float = nvm_dtypes[dtype].is_float;
  if (!to_float) {
    if (!is_int) return nvm_arg_wrong(c, i);
    NVM_TRY(check_int(c, i, dtype));
    return nvm_tensor_scalar(c->vm->heap, dtype, arg->int_value, out_tensor);
  }
  if (arg->dtype != -1 && arg->dtype != (int32_t)dtype) return nvm_arg_wrong(c, i);
  double number = is_int ? (double)arg->int_value : arg->float_value;
  NVM_TRY(nvm_tensor_create(c->vm->heap, 0, dtype, 0, NULL, out_tensor));
  if (write_float(dtype, number, (*out_tensor)->data)) return NVM_OK;
  nvm_release(c->vm->heap, &(*out_tensor)->header);
  return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "%.9g is out of range for %s", number,
                      nvm_dtypes[dtype].name);
}

/* The value of a handle, borrowed. */
static nvm_status handle_value(nvm_converter *c, size_t i, nvm_object **out_object) {
  const nvm_arg *arg = &c->args[i];
  uint32_t type = c->expect[i].type.type;
  int64_t want = type == NVM_ANY_TYPE ? -1 : c->program->types[type].words[0];
  if (!arg->handle || arg->handle->heap != c->vm->heap)
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT, "the handle belongs to another VM");
  nvm_object *object = arg->handle->object;
  if (!object) return nvm_arg_fail(c, i, NVM_CLOSED, "the handle is no longer valid");
  if (want != -1 && !nvm_handle_fits(c->program, object, type)) {
    char text[160];
    int same_kind = (want == 3 && object->kind == NVM_KIND_CLOSURE) ||
                    (want == 4 && object->kind == NVM_KIND_REF);
    return nvm_arg_fail(c, i, NVM_INVALID_INPUT_TYPE, "expected %s, got a handle of %s%s",
                        nvm_arg_describe_type(c, type, text, sizeof text), nvm_kind_name(object),
                        same_kind ? " of another type" : "");
  }
  if (want == 0)
    NVM_TRY(check_dims(c, i, &c->program->types[type], ((const nvm_tensor *)object)->dims));
  *out_object = object;
  return NVM_OK;
}

static void take_fields(nvm_converter *c, const nvm_arg *arg, nvm_adt *adt) {
  c->n_values -= arg->n_fields;
  for (uint32_t k = 0; k < arg->n_fields; k++) adt->fields[k] = c->values[c->n_values + k];
}

/* An unboxed integer parameter: a number, a rank-0 tensor, or a handle of one. */
static nvm_status make_int(nvm_converter *c, size_t i, const nvm_type *type, int64_t *out_number) {
  const nvm_arg *arg = &c->args[i];
  if (arg->kind == NVM_ARG_TENSOR) {
    NVM_TRY(check_tensor(c, i, type));
    if (!arg->data || arg->rank) return nvm_arg_wrong(c, i);
    *out_number = nvm_int_read((uint32_t)arg->dtype, arg->data);
    return NVM_OK;
  }
  if (arg->kind == NVM_ARG_HANDLE) {
    nvm_object *object;
    NVM_TRY(handle_value(c, i, &object));
    const nvm_tensor *tensor = (const nvm_tensor *)object;
    if (object->kind != NVM_KIND_TENSOR || tensor->device != 0) return nvm_arg_wrong(c, i);
    *out_number = nvm_int_read(object->extra, tensor->data);
    return NVM_OK;
  }
  if (arg->kind != NVM_ARG_INT) return nvm_arg_wrong(c, i);
  NVM_TRY(check_int(c, i, (uint32_t)type->words[1]));
  *out_number = arg->int_value;
  return NVM_OK;
}

/* Check a value that is no composite. */
static nvm_status make_leaf(nvm_converter *c, size_t i, int *out_taken, nvm_object **out_object) {
  const nvm_arg *arg = &c->args[i];
  uint32_t index = c->expect[i].type.type;
  const nvm_type *type = index == NVM_ANY_TYPE ? NULL : &c->program->types[index];
  int wants_tensor = !type || type->words[0] == 0;
  nvm_tensor *tensor = NULL;
  if (c->function->params[c->expect[i].param].kind == 1) /* then it is of a rank-0 integer */
    return make_int(c, i, type, c->ints++);
  if (arg->kind == NVM_ARG_HANDLE) {
    NVM_TRY(handle_value(c, i, out_object));
    nvm_retain(*out_object);
    return NVM_OK;
  }
  if (!wants_tensor) return nvm_arg_wrong(c, i);
  if (arg->kind == NVM_ARG_TENSOR) {
    NVM_TRY(check_tensor(c, i, type));
    NVM_TRY(make_tensor(c, i, out_taken, &tensor));
  } else {
    NVM_TRY(make_scalar(c, i, type, &tensor));
  }
  *out_object = &tensor->header;
  return NVM_OK;
}

/* Check one value and push it. */
static nvm_status build(nvm_converter *c, size_t i, int *out_taken) {
  const nvm_arg *arg = &c->args[i];
  nvm_object *made = NULL;
  if (arg->kind == NVM_ARG_ADT) {
    nvm_adt *adt;
    NVM_TRY(nvm_adt_create(c->vm->heap, arg->ctor, arg->n_fields, &adt));
    take_fields(c, arg, adt);
    made = &adt->header;
  } else if (is_alike(c, arg)) {
    nvm_tensor *tensor;
    NVM_TRY(place_tensor(c, arg, c->bytes, out_taken, &tensor));
    made = &tensor->header;
  } else {
    NVM_TRY(make_leaf(c, i, out_taken, &made));
  }
  c->values[c->n_values++] = made;
  return NVM_OK;
}

static void fill_registers(nvm_converter *c) {
  nvm_object **objs = nvm_frame_objs(nvm_frame_at(c->vm, c->vm->frame));
  for (uint32_t p = 0; p < c->function->n_params; p++)
    if (c->function->params[p].kind == 0) *objs++ = c->values[p];
}

static nvm_status prepare(nvm_converter *c) {
  NVM_TRY(count_trees(c));
  size_t n = c->n_args;
  NVM_TRY(reserve(c->vm, SCRATCH_EXPECT, n, sizeof *c->expect, &c->expect));
  NVM_TRY(reserve(c->vm, SCRATCH_PENDING, n, sizeof *c->pending, &c->pending));
  NVM_TRY(reserve(c->vm, SCRATCH_VALUES, n, sizeof *c->values, &c->values));
  NVM_TRY(
      reserve(c->vm, SCRATCH_SLOTS, 2 * (size_t)c->function->n_dims, sizeof *c->slots, &c->slots));
  c->binder = c->slots + c->function->n_dims;
  c->ints = nvm_frame_ints(nvm_frame_at(c->vm, c->vm->frame));
  for (uint32_t k = 0; k < c->function->n_dims; k++) c->slots[k] = -1;
  return assign_types(c);
}

nvm_status nvm_args_convert(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args) {
  nvm_converter c = {.vm = vm,
                     .program = vm->program,
                     .function = &vm->program->functions[function],
                     .args = args,
                     .n_args = n_args};
  size_t done = 0;
  vm->borrowed = vm->moved = 0;
  nvm_status status = prepare(&c);
  while (status == NVM_OK && done < n_args) {
    int taken = 0;
    status = build(&c, done, &taken);
    if (!taken) let_owner_go(&args[done]);
    done++;
  }
  for (size_t i = done; i < n_args; i++) let_owner_go(&args[i]);
  if (status == NVM_OK) {
    fill_registers(&c);
    return NVM_OK;
  }
  for (size_t i = 0; i < c.n_values; i++) nvm_release(vm->heap, c.values[i]);
  return status;
}
