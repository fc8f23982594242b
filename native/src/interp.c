/* The interpreter: one body for computed goto and switch (NVM_DISPATCH_SWITCH). Bodies are short,
 * longer work is in the static functions above the loop. Code is verified: operands are in range
 * and registers of the right kind; what an object register holds is checked here.
 *
 * Fuel: `block` is where the words not yet charged start. Words executed are charged at calls,
 * returns, backward jumps and kernel calls; a forward jump moves `block` on by what it skips. */
#include "decode.h"
#include "vm.h"

/* --- faults ----------------------------------------------------------------------------------- */

__attribute__((cold)) static nvm_status null_register(uint32_t index) {
  NVM_FAIL(NVM_NULL_VALUE, "register r%u holds nothing", index);
}

__attribute__((cold)) static nvm_status wrong_kind(uint32_t index, const nvm_object *got,
                                                   const char *expected) {
  if (!got) return null_register(index);
  NVM_FAIL(NVM_VALUE_KIND, "register r%u: expected %s, got %s", index, expected,
           nvm_kind_name(got));
}

__attribute__((cold)) static nvm_status dim_mismatch(const nvm_vm *vm, uint32_t note,
                                                     int64_t expected, int64_t got,
                                                     const char *what) {
  const char *text = vm->program->notes[note].text;
  NVM_FAIL(NVM_SHAPE_MISMATCH, "%s%s%s: expected %lld, got %lld", what, *text ? ": " : "", text,
           (long long)expected, (long long)got);
}

/* --- operands --------------------------------------------------------------------------------- */

static inline void set_object(nvm_heap *heap, nvm_object **slot, nvm_object *value) {
  nvm_object *old = *slot;
  *slot = value;
  nvm_release(heap, old);
}

static inline nvm_status need(nvm_object *const *objs, uint32_t index, uint8_t kind,
                              const char *expected) {
  const nvm_object *object = objs[index];
  return NVM_LIKELY(object && object->kind == kind) ? NVM_OK : wrong_kind(index, object, expected);
}

static inline nvm_status need_tensor(nvm_object *const *objs, uint32_t index,
                                     nvm_tensor **out_tensor) {
  NVM_TRY(need(objs, index, NVM_KIND_TENSOR, "a tensor"));
  *out_tensor = (nvm_tensor *)objs[index];
  return NVM_OK;
}

/* A tensor whose elements the host can read. */
static inline nvm_status need_host(const nvm_vm *vm, nvm_object *const *objs, uint32_t index,
                                   nvm_tensor **out_tensor) {
  NVM_TRY(need_tensor(objs, index, out_tensor));
  uint32_t device = (*out_tensor)->device;
  if (NVM_UNLIKELY(device != 0 && !vm->heap->pools[device].device->vtable->host_accessible))
    NVM_FAIL(NVM_VALUE_KIND, "register r%u: expected a host tensor, got one on device %u", index,
             device);
  return NVM_OK;
}

/* A list of sizes into dims[NVM_MAX_RANK]. */
static inline nvm_status read_dims(const uint32_t *list, const int64_t *ints, int64_t *dims,
                                   uint32_t *out_rank) {
  uint32_t rank = NVM_LIST_COUNT(list);
  if (NVM_UNLIKELY(rank > NVM_MAX_RANK))
    NVM_FAIL(NVM_OPERAND_MISMATCH, "a tensor of rank %u (the most is %d)", rank, NVM_MAX_RANK);
  for (uint32_t i = 0; i < rank; i++) dims[i] = NVM_DIM_VALUE(list[1 + i], ints);
  *out_rank = rank;
  return NVM_OK;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The optimizer would make a call of memset of this, which costs more than short frames. */
static inline void zero_slots(uint64_t *from, uint64_t *to) {
  for (; from < to; from++) {
    *from = 0;
    __asm__("" : "+r"(from));
  }
}

/* Registers above the parameters start as 0 and NULL. */
static inline void zero_locals(nvm_frame *frame, const nvm_function *function) {
  uint64_t *ints = (uint64_t *)(void *)(frame + 1), *objs = ints + function->n_ints;
  zero_slots(ints + function->n_int_params, objs);
  zero_slots(objs + function->n_obj_params, objs + function->n_objs);
}

/* Release the object registers of a frame that is not looked at again. */
static inline void drop_registers(nvm_heap *heap, nvm_frame *frame) {
  nvm_object **objs = nvm_frame_objs(frame);
  for (uint32_t i = 0, n = frame->function->n_objs; i < n; i++) nvm_release(heap, objs[i]);
}

__attribute__((cold)) static nvm_status null_argument(nvm_heap *heap, nvm_object *const *taken,
                                                      size_t n_taken, uint32_t index) {
  while (n_taken > 0) nvm_release(heap, taken[--n_taken]);
  return null_register(index);
}

static inline nvm_object **take_captures(const nvm_closure *closure, nvm_object **to) {
  for (uint32_t i = 0; closure && i < closure->n_captures; i++) {
    nvm_retain(closure->captures[i]);
    *to++ = closure->captures[i];
  }
  return to;
}

/* Push a frame of `callee` with captures, then the registers of an argument list, as its
 * parameters. */
static inline nvm_status enter(nvm_vm *vm, const nvm_function *callee, const nvm_closure *closure,
                               const uint32_t *args) {
  size_t size = nvm_frame_size(callee);
  if (NVM_UNLIKELY(vm->depth >= vm->depth_limit)) return nvm_depth_exceeded(vm);
  if (NVM_UNLIKELY(vm->stack_slots - vm->top < size)) NVM_TRY(nvm_stack_grow(vm, size));
  nvm_frame *caller = nvm_frame_at(vm, vm->frame);
  const int64_t *ints = nvm_frame_ints(caller);
  nvm_object **objs = nvm_frame_objs(caller);
  nvm_frame *frame = nvm_frame_at(vm, vm->top);
  frame->function = callee;
  frame->pc = callee->code;
  frame->caller = vm->frame;
  int64_t *to_int = nvm_frame_ints(frame);
  nvm_object **first = nvm_frame_objs(frame), **to_obj = take_captures(closure, first);
  for (const uint32_t *word = NVM_LIST_ITEMS(args), *end = NVM_LIST_END(args); word < end; word++) {
    if (NVM_IS_INT_REGISTER(*word)) {
      *to_int++ = ints[NVM_REGISTER_INDEX(*word)];
      continue;
    }
    nvm_object *object = objs[*word];
    if (NVM_UNLIKELY(!object))
      return null_argument(vm->heap, first, (size_t)(to_obj - first), *word);
    nvm_retain(object);
    *to_obj++ = object;
  }
  zero_locals(frame, callee);
  vm->frame = vm->top;
  vm->top += size;
  vm->depth++;
  return NVM_OK;
}

__attribute__((cold)) static nvm_status grow_transfer(nvm_vm *vm, size_t n) {
  uint64_t *grown = nvm_realloc(vm->transfer, n * sizeof *grown);
  if (!grown) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for %zu arguments", n);
  atomic_fetch_add_explicit(&vm->heap->system_allocations, 1, memory_order_relaxed);
  vm->transfer = grown;
  vm->transfer_slots = n;
  return NVM_OK;
}

/* Take the arguments out of the registers, because these are overwritten next: objects (retained)
 * from the start of vm->transfer, integers from its end downwards. */
static inline nvm_status gather(nvm_vm *vm, nvm_frame *frame, const nvm_closure *closure,
                                const uint32_t *args) {
  const int64_t *ints = nvm_frame_ints(frame);
  nvm_object **objs = nvm_frame_objs(frame);
  size_t total = (size_t)NVM_LIST_COUNT(args) + (closure ? closure->n_captures : 0);
  if (NVM_UNLIKELY(total > vm->transfer_slots)) NVM_TRY(grow_transfer(vm, total * 2));
  int64_t *to_int = (int64_t *)vm->transfer + vm->transfer_slots;
  nvm_object **first = (nvm_object **)(void *)vm->transfer, **to = take_captures(closure, first);
  for (const uint32_t *word = NVM_LIST_ITEMS(args), *end = NVM_LIST_END(args); word < end; word++) {
    if (NVM_IS_INT_REGISTER(*word)) {
      *--to_int = ints[NVM_REGISTER_INDEX(*word)];
      continue;
    }
    nvm_object *object = objs[*word];
    if (NVM_UNLIKELY(!object)) return null_argument(vm->heap, first, (size_t)(to - first), *word);
    nvm_retain(object);
    *to++ = object;
  }
  return NVM_OK;
}

/* Make the running frame one of `callee`, in constant memory. */
static inline nvm_status enter_tail(nvm_vm *vm, const nvm_function *callee,
                                    const nvm_closure *closure, const uint32_t *args) {
  size_t size = nvm_frame_size(callee);
  if (NVM_UNLIKELY(vm->stack_slots - vm->frame < size))
    NVM_TRY(nvm_stack_grow(vm, size - (vm->top - vm->frame)));
  nvm_frame *frame = nvm_frame_at(vm, vm->frame);
  NVM_TRY(gather(vm, frame, closure, args));
  drop_registers(vm->heap, frame);
  frame->function = callee;
  vm->top = vm->frame + size;
  const int64_t *from_int = (const int64_t *)vm->transfer + vm->transfer_slots;
  int64_t *to_int = nvm_frame_ints(frame);
  for (uint32_t i = 0; i < callee->n_int_params; i++) *to_int++ = *--from_int;
  nvm_object **to = nvm_frame_objs(frame), **from = (nvm_object **)(void *)vm->transfer;
  for (uint32_t i = 0; i < callee->n_obj_params; i++) to[i] = from[i];
  zero_locals(frame, callee);
  return NVM_OK;
}

/* The function of a closure, if it takes that many values. */
static nvm_status need_closure(const nvm_vm *vm, nvm_object *const *objs, uint32_t index,
                               uint32_t n_args, nvm_closure **out_closure,
                               const nvm_function **out_callee) {
  NVM_TRY(need(objs, index, NVM_KIND_CLOSURE, "a closure"));
  nvm_closure *closure = (nvm_closure *)objs[index];
  const nvm_function *callee = &vm->program->functions[closure->func];
  if (NVM_UNLIKELY(callee->n_int_params != 0 || callee->result_kind != 0 ||
                   (uint64_t)closure->n_captures + n_args != callee->n_obj_params))
    NVM_FAIL(
        NVM_VALUE_KIND,
        "a closure of @%s with %u captures was called with %u arguments; the function takes %u "
        "objects and %u integers",
        callee->name, closure->n_captures, n_args, callee->n_obj_params, callee->n_int_params);
  *out_closure = closure;
  *out_callee = callee;
  return NVM_OK;
}

/* --- tensors ---------------------------------------------------------------------------------- */

static nvm_status unbox(const nvm_vm *vm, nvm_object *const *objs, uint32_t index, uint32_t dtype,
                        int64_t *out_value) {
  nvm_tensor *tensor;
  NVM_TRY(need_host(vm, objs, index, &tensor));
  if (NVM_UNLIKELY(tensor->rank != 0 || tensor->header.extra != dtype)) {
    char text[NVM_SHAPE_TEXT];
    NVM_FAIL(NVM_VALUE_KIND, "register r%u: expected a scalar %s, got a tensor %s", index,
             nvm_dtypes[dtype].name,
             nvm_shape_text(text, tensor->header.extra, tensor->rank, tensor->dims));
  }
  *out_value = nvm_int_read(dtype, tensor->data);
  return NVM_OK;
}

static nvm_status dim_of(nvm_object *const *objs, uint32_t index, uint32_t axis,
                         int64_t *out_value) {
  nvm_tensor *tensor;
  NVM_TRY(need_tensor(objs, index, &tensor));
  if (NVM_UNLIKELY(axis >= tensor->rank))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "axis %u of a tensor of rank %u", axis, tensor->rank);
  *out_value = tensor->dims[axis];
  return NVM_OK;
}

static nvm_status broadcast(const nvm_vm *vm, int64_t a, int64_t b, uint32_t note,
                            int64_t *out_value) {
  if (NVM_UNLIKELY(a != b && a != 1 && b != 1))
    return dim_mismatch(vm, note, a, b, "dims can't be broadcast");
  *out_value = a == 1 ? b : a;
  return NVM_OK;
}

/* Rank-1 host tensor of `count` integers. */
static nvm_status new_vector(nvm_vm *vm, uint32_t dtype, uint32_t count, nvm_tensor **out_tensor) {
  if (NVM_UNLIKELY(!nvm_dtypes[dtype].is_integer))
    NVM_FAIL(NVM_VALUE_KIND, "a shape can't be of dtype %s", nvm_dtypes[dtype].name);
  int64_t dims[1] = {count};
  return nvm_tensor_create(vm->heap, 0, dtype, 1, dims, out_tensor);
}

static nvm_status put_dim(nvm_tensor *tensor, uint32_t i, int64_t value) {
  uint32_t dtype = tensor->header.extra;
  if (NVM_UNLIKELY(nvm_int_extend(dtype, value) != value))
    NVM_FAIL(NVM_DIM_OVERFLOW, "dim %lld does not fit %s", (long long)value,
             nvm_dtypes[dtype].name);
  nvm_int_write(dtype, value, tensor->data + (size_t)i * nvm_dtypes[dtype].itemsize);
  return NVM_OK;
}

static nvm_status shape_of(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_ShapeOf_src(pc), &source));
  NVM_TRY(new_vector(vm, NVM_ShapeOf_dtype(pc), source->rank, &tensor));
  nvm_status status = NVM_OK;
  for (uint32_t i = 0; i < source->rank && status == NVM_OK; i++)
    status = put_dim(tensor, i, source->dims[i]);
  if (status == NVM_OK) nvm_retain(&tensor->header);
  if (status == NVM_OK) set_object(vm->heap, &objs[NVM_ShapeOf_dst(pc)], &tensor->header);
  nvm_release(vm->heap, &tensor->header);
  return status;
}

static nvm_status pack_shape(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                             const uint32_t *pc) {
  const uint32_t *list = NVM_PackShape_dims(pc);
  nvm_tensor *tensor;
  NVM_TRY(new_vector(vm, NVM_PackShape_dtype(pc), NVM_LIST_COUNT(list), &tensor));
  nvm_status status = NVM_OK;
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list) && status == NVM_OK; i++)
    status = put_dim(tensor, i, NVM_DIM_VALUE(list[1 + i], ints));
  if (status == NVM_OK) nvm_retain(&tensor->header);
  if (status == NVM_OK) set_object(vm->heap, &objs[NVM_PackShape_dst(pc)], &tensor->header);
  nvm_release(vm->heap, &tensor->header);
  return status;
}

static nvm_status read_int(const nvm_vm *vm, nvm_object *const *objs, uint32_t source,
                           int64_t index, int64_t *out_value) {
  nvm_tensor *tensor;
  NVM_TRY(need_host(vm, objs, source, &tensor));
  const nvm_dtype_row *dtype = &nvm_dtypes[tensor->header.extra];
  if (NVM_UNLIKELY(dtype->is_float))
    NVM_FAIL(NVM_VALUE_KIND, "register r%u: expected an integer or bool tensor, got %s", source,
             dtype->name);
  size_t count = tensor->bytes / dtype->itemsize;
  if (NVM_UNLIKELY(index < 0 || (uint64_t)index >= count))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "index %lld is outside of a tensor of %zu elements",
             (long long)index, count);
  *out_value = nvm_int_read(tensor->header.extra, tensor->data + (size_t)index * dtype->itemsize);
  return NVM_OK;
}

static nvm_status alloc_storage(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                const uint32_t *pc) {
  int64_t size = NVM_DIM_VALUE(NVM_AllocStorage_size(pc), ints);
  uint32_t alignment = NVM_AllocStorage_alignment(pc);
  if (NVM_UNLIKELY(size < 0))
    NVM_FAIL(NVM_DIM_OVERFLOW, "a storage block would have %lld bytes", (long long)size);
  if (NVM_UNLIKELY(alignment == 0 || alignment > 4096 || (alignment & (alignment - 1))))
    NVM_FAIL(NVM_OPERAND_MISMATCH, "alignment %u is no power of two up to 4096", alignment);
  nvm_storage *storage;
  NVM_TRY(
      nvm_storage_create(vm->heap, NVM_AllocStorage_device(pc), (size_t)size, alignment, &storage));
  set_object(vm->heap, &objs[NVM_AllocStorage_dst(pc)], &storage->header);
  return NVM_OK;
}

static nvm_status alloc_tensor(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                               const uint32_t *pc) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t rank = 0, from = NVM_AllocTensor_storage(pc), dtype = NVM_AllocTensor_dtype(pc);
  NVM_TRY(read_dims(NVM_AllocTensor_dims(pc), ints, dims, &rank));
  nvm_tensor *tensor;
  if (from == NVM_NO_REGISTER) {
    NVM_TRY(nvm_tensor_create(vm->heap, NVM_AllocTensor_device(pc), dtype, rank, dims, &tensor));
  } else {
    NVM_TRY(need(objs, from, NVM_KIND_STORAGE, "a storage block"));
    int64_t offset = NVM_DIM_VALUE(NVM_AllocTensor_offset(pc), ints);
    NVM_TRY(nvm_tensor_on(vm->heap, (nvm_storage *)objs[from], offset, dtype, rank, dims, &tensor));
  }
  set_object(vm->heap, &objs[NVM_AllocTensor_dst(pc)], &tensor->header);
  return NVM_OK;
}

static nvm_status view(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t rank = 0;
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_View_src(pc), &source));
  NVM_TRY(read_dims(NVM_View_dims(pc), ints, dims, &rank));
  NVM_TRY(nvm_tensor_view(vm->heap, source, NVM_DIM_VALUE(NVM_View_offset(pc), ints), rank, dims,
                          &tensor));
  set_object(vm->heap, &objs[NVM_View_dst(pc)], &tensor->header);
  return NVM_OK;
}

static nvm_status reshape(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t rank = 0;
  size_t bytes;
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_ReshapeTensor_src(pc), &source));
  NVM_TRY(read_dims(NVM_ReshapeTensor_dims(pc), ints, dims, &rank));
  NVM_TRY(nvm_shape_bytes(source->header.extra, rank, dims, &bytes));
  if (NVM_UNLIKELY(bytes != source->bytes)) {
    size_t item = nvm_dtypes[source->header.extra].itemsize;
    return dim_mismatch(vm, NVM_ReshapeTensor_note(pc), (int64_t)(source->bytes / item),
                        (int64_t)(bytes / item), "reshape to another number of elements");
  }
  NVM_TRY(nvm_tensor_view(vm->heap, source, 0, rank, dims, &tensor));
  set_object(vm->heap, &objs[NVM_ReshapeTensor_dst(pc)], &tensor->header);
  return NVM_OK;
}

static nvm_status shrink(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_Shrink_src(pc), &source));
  int64_t size = NVM_DIM_VALUE(NVM_Shrink_size(pc), ints);
  if (NVM_UNLIKELY(source->rank == 0 || size < 0 || size > source->dims[0]))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "a first axis of size %lld can't shrink to %lld",
             source->rank ? (long long)source->dims[0] : 0LL, (long long)size);
  int64_t dims[NVM_MAX_RANK];
  memcpy(dims, source->dims, source->rank * sizeof *dims);
  dims[0] = size;
  NVM_TRY(nvm_tensor_view(vm->heap, source, 0, source->rank, dims, &tensor));
  set_object(vm->heap, &objs[NVM_Shrink_dst(pc)], &tensor->header);
  return NVM_OK;
}

static nvm_status device_copy(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_DeviceCopy_src(pc), &source));
  NVM_TRY(nvm_tensor_copy(vm->heap, source, NVM_DeviceCopy_device(pc), &tensor));
  set_object(vm->heap, &objs[NVM_DeviceCopy_dst(pc)], &tensor->header);
  return NVM_OK;
}

static nvm_status call_kernel(nvm_vm *vm, int64_t *ints, nvm_object *const *objs,
                              const uint32_t *pc) {
  const uint32_t *list = NVM_CallKernel_operands(pc);
  const nvm_kernel *kernel = &vm->program->kernels[NVM_CallKernel_kernel(pc)];
  nvm_tensor *operands[NVM_MAX_OPERANDS];
  int64_t dims[NVM_MAX_DIMS], *out_dims;
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++)
    NVM_TRY(need_tensor(objs, list[1 + i], &operands[i]));
  list = NVM_CallKernel_dims(pc);
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++) dims[i] = NVM_DIM_VALUE(list[1 + i], ints);
  size_t bytes;
  NVM_TRY(nvm_call_kernel(&vm->call, vm->heap->pools, kernel, operands, dims, &out_dims, &bytes));
  list = NVM_CallKernel_out_dims(pc);
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++) ints[list[1 + i]] = out_dims[i];
  /* Time passes in kernels: bring the next checkpoint nearer. A guess from bytes is cheaper than a
   * clock. */
  int64_t cost = 256 + (int64_t)(bytes >> 6);
  vm->slice -= cost;
  if (kernel->fn)
    vm->slice_kernels += cost; /* interpreted kernels use fuel, machine code only time */
  vm->kernel_calls++;
  return NVM_OK;
}

/* --- data ------------------------------------------------------------------------------------- */

static inline nvm_status take_fields(nvm_object *const *objs, const uint32_t *list) {
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++)
    if (NVM_UNLIKELY(!objs[list[1 + i]])) return null_register(list[1 + i]);
  return NVM_OK;
}

static inline void fill_fields(nvm_object **to, nvm_object *const *objs, const uint32_t *list) {
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++) {
    to[i] = objs[list[1 + i]];
    nvm_retain(to[i]);
  }
}

static nvm_status alloc_adt(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  const uint32_t *list = NVM_AllocADT_fields(pc);
  nvm_adt *adt;
  NVM_TRY(take_fields(objs, list));
  NVM_TRY(nvm_adt_create(vm->heap, NVM_AllocADT_ctor(pc), NVM_LIST_COUNT(list), &adt));
  fill_fields(adt->fields, objs, list);
  set_object(vm->heap, &objs[NVM_AllocADT_dst(pc)], &adt->header);
  return NVM_OK;
}

static nvm_status alloc_closure(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  const uint32_t *list = NVM_AllocClosure_captures(pc);
  nvm_closure *closure;
  NVM_TRY(take_fields(objs, list));
  NVM_TRY(nvm_closure_create(vm->heap, NVM_AllocClosure_func(pc), NVM_LIST_COUNT(list), &closure));
  fill_fields(closure->captures, objs, list);
  set_object(vm->heap, &objs[NVM_AllocClosure_dst(pc)], &closure->header);
  return NVM_OK;
}

static nvm_status alloc_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_ref *ref;
  nvm_object *value = objs[NVM_AllocRef_value(pc)];
  if (NVM_UNLIKELY(!value)) return null_register(NVM_AllocRef_value(pc));
  NVM_TRY(nvm_ref_create(vm->heap, value, &ref));
  set_object(vm->heap, &objs[NVM_AllocRef_dst(pc)], &ref->header);
  return NVM_OK;
}

static nvm_status read_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_ReadRef_ref(pc), NVM_KIND_REF, "a ref"));
  nvm_object *value = ((nvm_ref *)objs[NVM_ReadRef_ref(pc)])->value;
  if (NVM_UNLIKELY(!value)) NVM_FAIL(NVM_NULL_VALUE, "a ref holds nothing");
  nvm_retain(value);
  set_object(vm->heap, &objs[NVM_ReadRef_dst(pc)], value);
  return NVM_OK;
}

static nvm_status write_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_WriteRef_ref(pc), NVM_KIND_REF, "a ref"));
  nvm_object *value = objs[NVM_WriteRef_value(pc)];
  if (NVM_UNLIKELY(!value)) return null_register(NVM_WriteRef_value(pc));
  nvm_retain(value);
  set_object(vm->heap, &((nvm_ref *)objs[NVM_WriteRef_ref(pc)])->value, value);
  return NVM_OK;
}

static inline nvm_status get_field(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_GetField_src(pc), NVM_KIND_ADT, "an ADT value or a tuple"));
  nvm_adt *adt = (nvm_adt *)objs[NVM_GetField_src(pc)];
  if (NVM_UNLIKELY(NVM_GetField_index(pc) >= adt->n_fields))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "field %u of a value with %u fields", NVM_GetField_index(pc),
             adt->n_fields);
  nvm_object *field = adt->fields[NVM_GetField_index(pc)];
  nvm_retain(field);
  set_object(vm->heap, &objs[NVM_GetField_dst(pc)], field);
  return NVM_OK;
}

/* --- integers --------------------------------------------------------------------------------- */

/* Wrapping int64 arithmetic. */
static inline int64_t wrap_add(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a + (uint64_t)b);
}
static inline int64_t wrap_sub(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a - (uint64_t)b);
}
static inline int64_t wrap_mul(int64_t a, int64_t b) {
  return (int64_t)((uint64_t)a * (uint64_t)b);
}

__attribute__((cold)) static nvm_status divided_by_zero(int64_t a) {
  NVM_FAIL(NVM_DIVISION_BY_ZERO, "integer division of %lld by 0", (long long)a);
}

/* b is not 0; b = -1 is apart because INT64_MIN / -1 traps. */
static inline int64_t trunc_div(int64_t a, int64_t b) { return b == -1 ? wrap_sub(0, a) : a / b; }
static inline int64_t trunc_mod(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
static inline int64_t floored_div(int64_t a, int64_t b) {
  return b == -1 ? wrap_sub(0, a) : a / b - (a % b != 0 && (a ^ b) < 0);
}
static inline int64_t floored_mod(int64_t a, int64_t b) {
  int64_t rest = trunc_mod(a, b);
  return rest != 0 && (rest ^ b) < 0 ? rest + b : rest;
}
static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* --- the loop --------------------------------------------------------------------------------- */

#ifdef NVM_DISPATCH_SWITCH
#define OP(name)   case NVM_OP_##name:
#define DISPATCH() goto dispatch
#define LOOP \
  dispatch:  \
  switch (*pc)
#else
#define OP(name)    op_##name:
#define DISPATCH()  goto *labels[*pc]
#define LOOP        DISPATCH();
#define LABEL(name) &&op_##name
#define NO_LABEL    &&op_none
#endif

#define NEXT(name)            \
  do {                        \
    pc = NVM_NEXT_##name(pc); \
    DISPATCH();               \
  } while (0)

#define DO(expression)                                               \
  do {                                                               \
    if (NVM_UNLIKELY((status = (expression)) != NVM_OK)) goto fault; \
  } while (0)

#define LOAD_FRAME()                     \
  do {                                   \
    frame = nvm_frame_at(vm, vm->frame); \
    ints = nvm_frame_ints(frame);        \
    objs = nvm_frame_objs(frame);        \
  } while (0)

/* Charge the words up to `next`; what follows starts at `start`. */
#define CHARGE(next, start)                                     \
  do {                                                          \
    vm->slice -= (next) - block;                                \
    block = (start);                                            \
    if (NVM_UNLIKELY(vm->slice < 0)) DO(nvm_vm_checkpoint(vm)); \
  } while (0)

#define JUMP(label, next)                                      \
  do {                                                         \
    const uint32_t *target_ = frame->function->code + (label); \
    if (target_ > pc)                                          \
      block += target_ - (next);                               \
    else                                                       \
      CHARGE(next, target_);                                   \
    pc = target_;                                              \
    DISPATCH();                                                \
  } while (0)

#define TENSOR_OP(name, call) \
  OP(name) {                  \
    DO(call);                 \
    NEXT(name);               \
  }

#define BINARY(name, expression)                                                     \
  OP(name) {                                                                         \
    int64_t a = ints[NVM_##name##_a(pc)], b = ints[NVM_##name##_b(pc)];              \
    ints[NVM_##name##_dst(pc)] = nvm_int_extend(NVM_##name##_dtype(pc), expression); \
    NEXT(name);                                                                      \
  }

#define DIVISION(name, expression)                                                   \
  OP(name) {                                                                         \
    int64_t a = ints[NVM_##name##_a(pc)], b = ints[NVM_##name##_b(pc)];              \
    if (NVM_UNLIKELY(b == 0)) DO(divided_by_zero(a));                                \
    ints[NVM_##name##_dst(pc)] = nvm_int_extend(NVM_##name##_dtype(pc), expression); \
    NEXT(name);                                                                      \
  }

#define COMPARE(name, op)                                                              \
  OP(name) {                                                                           \
    ints[NVM_##name##_dst(pc)] = ints[NVM_##name##_a(pc)] op ints[NVM_##name##_b(pc)]; \
    NEXT(name);                                                                        \
  }

#define DIM(name, op)                                                                        \
  OP(name) {                                                                                 \
    DO(nvm_dim_apply(op, NVM_DIM_VALUE(NVM_##name##_a(pc), ints),                            \
                     NVM_DIM_VALUE(NVM_##name##_b(pc), ints), &ints[NVM_##name##_dst(pc)])); \
    NEXT(name);                                                                              \
  }

nvm_status nvm_interpret(nvm_vm *vm) {
#ifndef NVM_DISPATCH_SWITCH
  static const void *const labels[] = {NVM_ISA_LABELS(LABEL, NO_LABEL)};
#endif
  nvm_heap *const heap = vm->heap;
  const nvm_function *const functions = vm->program->functions;
  nvm_frame *frame;
  int64_t *ints;
  nvm_object **objs;
  nvm_status status;
  LOAD_FRAME();
  const uint32_t *pc = frame->function->code, *block = pc;

  LOOP {
    OP(Move) {
      nvm_object *value = objs[NVM_Move_src(pc)];
      if (NVM_UNLIKELY(!value)) DO(null_register(NVM_Move_src(pc)));
      nvm_retain(value);
      set_object(heap, &objs[NVM_Move_dst(pc)], value);
      NEXT(Move);
    }
    OP(MoveInt) {
      ints[NVM_MoveInt_dst(pc)] = ints[NVM_MoveInt_src(pc)];
      NEXT(MoveInt);
    }
    OP(Ret) {
      uint32_t source = NVM_Ret_src(pc);
      int is_int = NVM_IS_INT_REGISTER(source);
      int64_t number = is_int ? ints[NVM_REGISTER_INDEX(source)] : 0;
      nvm_object *value = is_int ? NULL : objs[source];
      if (!is_int) {
        if (NVM_UNLIKELY(!value)) DO(null_register(source));
        objs[source] = NULL;
      }
      drop_registers(heap, frame);
      vm->slice -= NVM_NEXT_Ret(pc) - block;
      vm->top = vm->frame;
      vm->frame = frame->caller;
      vm->depth--;
      if (NVM_UNLIKELY(frame->caller == NVM_NO_FRAME)) {
        vm->result = value;
        vm->result_int = number;
        return NVM_OK;
      }
      LOAD_FRAME();
      pc = frame->pc; /* Invoke and InvokeClosure have dst and list at the same words */
      uint32_t target = NVM_Invoke_dst(pc);
      if (NVM_IS_INT_REGISTER(target))
        ints[NVM_REGISTER_INDEX(target)] = number;
      else
        set_object(heap, &objs[target], value);
      block = pc = NVM_NEXT_Invoke(pc);
      DISPATCH();
    }
    OP(Invoke) {
      const nvm_function *callee = &functions[NVM_Invoke_func(pc)];
      frame->pc = pc;
      CHARGE(NVM_NEXT_Invoke(pc), callee->code);
      DO(enter(vm, callee, NULL, NVM_Invoke_args(pc)));
      LOAD_FRAME();
      pc = callee->code;
      DISPATCH();
    }
    OP(InvokeTail) {
      const nvm_function *callee = &functions[NVM_InvokeTail_func(pc)];
      CHARGE(NVM_NEXT_InvokeTail(pc), callee->code);
      DO(enter_tail(vm, callee, NULL, NVM_InvokeTail_args(pc)));
      LOAD_FRAME();
      pc = callee->code;
      DISPATCH();
    }
    OP(InvokeClosure) {
      const uint32_t *args = NVM_InvokeClosure_args(pc);
      const nvm_function *callee;
      nvm_closure *closure;
      frame->pc = pc;
      DO(need_closure(vm, objs, NVM_InvokeClosure_closure(pc), NVM_LIST_COUNT(args), &closure,
                      &callee));
      CHARGE(NVM_NEXT_InvokeClosure(pc), callee->code);
      DO(enter(vm, callee, closure, args));
      LOAD_FRAME();
      pc = callee->code;
      DISPATCH();
    }
    OP(InvokeClosureTail) {
      const uint32_t *args = NVM_InvokeClosureTail_args(pc);
      const nvm_function *callee;
      nvm_closure *closure;
      DO(need_closure(vm, objs, NVM_InvokeClosureTail_closure(pc), NVM_LIST_COUNT(args), &closure,
                      &callee));
      CHARGE(NVM_NEXT_InvokeClosureTail(pc), callee->code);
      DO(enter_tail(vm, callee, closure, args));
      LOAD_FRAME();
      pc = callee->code;
      DISPATCH();
    }
    OP(If) {
      if (ints[NVM_If_cond(pc)]) NEXT(If);
      JUMP(NVM_If_otherwise(pc), NVM_NEXT_If(pc));
    }
    OP(Goto) { JUMP(NVM_Goto_target(pc), NVM_NEXT_Goto(pc)); }
    OP(Switch) {
      const uint32_t *targets = NVM_Switch_targets(pc);
      int64_t tag = ints[NVM_Switch_tag(pc)];
      if (NVM_UNLIKELY(tag < 0 || tag >= NVM_LIST_COUNT(targets)))
        DO(nvm_fail(NVM_MATCH_FAILURE, "no case for tag %lld", (long long)tag));
      JUMP(targets[1 + tag], NVM_NEXT_Switch(pc));
    }
    OP(Fatal) {
      const char *text = vm->program->notes[NVM_Fatal_note(pc)].text;
      status = nvm_fail(NVM_MATCH_FAILURE, "%s", *text ? text : "no clause of a match applies");
      goto fault;
    }
    OP(LoadConst) {
      set_object(heap, &objs[NVM_LoadConst_dst(pc)],
                 &vm->program->constants[NVM_LoadConst_const(pc)]->header);
      NEXT(LoadConst);
    }
    OP(LoadConsti) {
      ints[NVM_LoadConsti_dst(pc)] = NVM_LoadConsti_value(pc);
      NEXT(LoadConsti);
    }
    OP(Box) {
      nvm_tensor *tensor;
      DO(nvm_tensor_scalar(heap, NVM_Box_dtype(pc), ints[NVM_Box_src(pc)], &tensor));
      set_object(heap, &objs[NVM_Box_dst(pc)], &tensor->header);
      NEXT(Box);
    }
    TENSOR_OP(Unbox,
              unbox(vm, objs, NVM_Unbox_src(pc), NVM_Unbox_dtype(pc), &ints[NVM_Unbox_dst(pc)]))
    TENSOR_OP(DimOf, dim_of(objs, NVM_DimOf_src(pc), NVM_DimOf_axis(pc), &ints[NVM_DimOf_dst(pc)]))
    OP(CheckDim) {
      int64_t actual = NVM_DIM_VALUE(NVM_CheckDim_actual(pc), ints);
      int64_t expected = NVM_DIM_VALUE(NVM_CheckDim_expected(pc), ints);
      if (NVM_UNLIKELY(actual != expected))
        DO(dim_mismatch(vm, NVM_CheckDim_note(pc), expected, actual, "dim mismatch"));
      NEXT(CheckDim);
    }
    TENSOR_OP(Broadcast, broadcast(vm, NVM_DIM_VALUE(NVM_Broadcast_a(pc), ints),
                                   NVM_DIM_VALUE(NVM_Broadcast_b(pc), ints), NVM_Broadcast_note(pc),
                                   &ints[NVM_Broadcast_dst(pc)]))
    TENSOR_OP(ShapeOf, shape_of(vm, objs, pc))
    TENSOR_OP(PackShape, pack_shape(vm, ints, objs, pc))
    TENSOR_OP(ReadInt,
              read_int(vm, objs, NVM_ReadInt_src(pc), NVM_DIM_VALUE(NVM_ReadInt_index(pc), ints),
                       &ints[NVM_ReadInt_dst(pc)]))
    TENSOR_OP(AllocStorage, alloc_storage(vm, ints, objs, pc))
    TENSOR_OP(AllocTensor, alloc_tensor(vm, ints, objs, pc))
    TENSOR_OP(View, view(vm, ints, objs, pc))
    TENSOR_OP(ReshapeTensor, reshape(vm, ints, objs, pc))
    TENSOR_OP(Shrink, shrink(vm, ints, objs, pc))
    OP(CallKernel) {
      frame->pc = pc;
      DO(call_kernel(vm, ints, objs, pc));
      const uint32_t *next = NVM_NEXT_CallKernel(pc);
      CHARGE(next, next);
      pc = next;
      DISPATCH();
    }
    TENSOR_OP(DeviceCopy, device_copy(vm, objs, pc))
    OP(KillRegister) {
      set_object(heap, &objs[NVM_KillRegister_reg(pc)], NULL);
      NEXT(KillRegister);
    }
    TENSOR_OP(AllocADT, alloc_adt(vm, objs, pc))
    TENSOR_OP(AllocClosure, alloc_closure(vm, objs, pc))
    TENSOR_OP(AllocRef, alloc_ref(vm, objs, pc))
    TENSOR_OP(ReadRef, read_ref(vm, objs, pc))
    TENSOR_OP(WriteRef, write_ref(vm, objs, pc))
    TENSOR_OP(GetField, get_field(vm, objs, pc))
    OP(GetTag) {
      DO(need(objs, NVM_GetTag_src(pc), NVM_KIND_ADT, "an ADT value"));
      uint32_t ctor = ((nvm_adt *)objs[NVM_GetTag_src(pc)])->ctor;
      ints[NVM_GetTag_dst(pc)] = vm->program->ctors[ctor].tag;
      NEXT(GetTag);
    }
    BINARY(IntAdd, wrap_add(a, b))
    BINARY(IntSub, wrap_sub(a, b))
    BINARY(IntMul, wrap_mul(a, b))
    DIVISION(IntDiv, trunc_div(a, b))
    DIVISION(IntMod, trunc_mod(a, b))
    DIVISION(IntFloorDiv, floored_div(a, b))
    DIVISION(IntFloorMod, floored_mod(a, b))
    BINARY(IntMin, smaller(a, b))
    BINARY(IntMax, larger(a, b))
    BINARY(IntAnd, a & b)
    BINARY(IntOr, a | b)
    BINARY(IntXor, a ^ b)
    OP(IntCast) {
      ints[NVM_IntCast_dst(pc)] = nvm_int_extend(NVM_IntCast_dtype(pc), ints[NVM_IntCast_src(pc)]);
      NEXT(IntCast);
    }
    COMPARE(IntEq, ==)
    COMPARE(IntNe, !=)
    COMPARE(IntLt, <)
    COMPARE(IntLe, <=)
    DIM(DimAdd, NVM_DIM_ADD)
    DIM(DimSub, NVM_DIM_SUB)
    DIM(DimMul, NVM_DIM_MUL)
    DIM(DimFloorDiv, NVM_DIM_FLOORDIV)
    DIM(DimFloorMod, NVM_DIM_FLOORMOD)
    DIM(DimMin, NVM_DIM_MIN)
    DIM(DimMax, NVM_DIM_MAX)
#ifdef NVM_DISPATCH_SWITCH
    default:
#else
  op_none:
#endif
      status = nvm_fail(NVM_INTERNAL, "unknown instruction %u in verified code", *pc);
  }

fault:
  nvm_frame_at(vm, vm->frame)->pc = pc;
  return status;
}
