/* The longer work of instructions. See ops.h. */
#include "ops.h"

#include "append.h"
#include "copy.h"

/* --- faults ----------------------------------------------------------------------------------- */

nvm_status nvm_op_null_register(uint32_t index) {
  NVM_FAIL(NVM_NULL_VALUE, "register r%u holds nothing", index);
}

nvm_status nvm_op_wrong_kind(uint32_t index, const nvm_object *got, const char *expected) {
  if (!got) return nvm_op_null_register(index);
  NVM_FAIL(NVM_VALUE_KIND, "register r%u: expected %s, got %s", index, expected,
           nvm_kind_name(got));
}

nvm_status nvm_op_dim_mismatch(const nvm_vm *vm, uint32_t note, int64_t expected, int64_t got,
                               const char *what) {
  const char *text = vm->program->notes[note].text;
  NVM_FAIL(NVM_SHAPE_MISMATCH, "%s%s%s: expected %lld, got %lld", what, *text ? ": " : "", text,
           (long long)expected, (long long)got);
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

/* --- tensors ---------------------------------------------------------------------------------- */

nvm_status nvm_op_unbox(const nvm_vm *vm, nvm_object *const *objs, uint32_t index, uint32_t dtype,
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

nvm_status nvm_op_dim_of(nvm_object *const *objs, uint32_t index, uint32_t axis,
                         int64_t *out_value) {
  nvm_tensor *tensor;
  NVM_TRY(need_tensor(objs, index, &tensor));
  if (NVM_UNLIKELY(axis >= tensor->rank))
    NVM_FAIL(NVM_INDEX_OUT_OF_RANGE, "axis %u of a tensor of rank %u", axis, tensor->rank);
  *out_value = tensor->dims[axis];
  return NVM_OK;
}

nvm_status nvm_op_broadcast(const nvm_vm *vm, int64_t a, int64_t b, uint32_t note,
                            int64_t *out_value) {
  if (NVM_UNLIKELY(a != b && a != 1 && b != 1))
    return nvm_op_dim_mismatch(vm, note, a, b, "dims can't be broadcast");
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

/* dims: sizes, or words of an instruction if there are `ints` to look registers up in. */
static nvm_status make_shape(nvm_vm *vm, uint32_t dtype, uint32_t count, const int64_t *dims,
                             const uint32_t *words, const int64_t *ints, nvm_object **out) {
  nvm_tensor *tensor;
  NVM_TRY(new_vector(vm, dtype, count, &tensor));
  for (uint32_t i = 0; i < count; i++) {
    nvm_status status = put_dim(tensor, i, dims ? dims[i] : NVM_DIM_VALUE(words[i], ints));
    if (NVM_UNLIKELY(status != NVM_OK)) {
      nvm_release(vm->heap, &tensor->header);
      return status;
    }
  }
  set_object(vm->heap, out, &tensor->header);
  return NVM_OK;
}

nvm_status nvm_op_shape_of(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source;
  NVM_TRY(need_tensor(objs, NVM_ShapeOf_src(pc), &source));
  return make_shape(vm, NVM_ShapeOf_dtype(pc), source->rank, source->dims, NULL, NULL,
                    &objs[NVM_ShapeOf_dst(pc)]);
}

nvm_status nvm_op_pack_shape(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                             const uint32_t *pc) {
  const uint32_t *list = NVM_PackShape_dims(pc);
  return make_shape(vm, NVM_PackShape_dtype(pc), NVM_LIST_COUNT(list), NULL, list + 1, ints,
                    &objs[NVM_PackShape_dst(pc)]);
}

nvm_status nvm_op_read_int(const nvm_vm *vm, nvm_object *const *objs, uint32_t source,
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

nvm_status nvm_op_alloc_storage(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
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

nvm_status nvm_op_alloc_tensor(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
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

nvm_status nvm_op_view(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
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

nvm_status nvm_op_reshape(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
  int64_t dims[NVM_MAX_RANK];
  uint32_t rank = 0;
  size_t bytes;
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_ReshapeTensor_src(pc), &source));
  NVM_TRY(read_dims(NVM_ReshapeTensor_dims(pc), ints, dims, &rank));
  NVM_TRY(nvm_shape_bytes(source->header.extra, rank, dims, &bytes));
  if (NVM_UNLIKELY(bytes != source->bytes)) {
    size_t item = nvm_dtypes[source->header.extra].itemsize;
    return nvm_op_dim_mismatch(vm, NVM_ReshapeTensor_note(pc), (int64_t)(source->bytes / item),
                               (int64_t)(bytes / item), "reshape to another number of elements");
  }
  NVM_TRY(nvm_tensor_view(vm->heap, source, 0, rank, dims, &tensor));
  set_object(vm->heap, &objs[NVM_ReshapeTensor_dst(pc)], &tensor->header);
  return NVM_OK;
}

nvm_status nvm_op_shrink(nvm_vm *vm, const int64_t *ints, nvm_object **objs, const uint32_t *pc) {
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

nvm_status nvm_op_append(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source, *tail, *tensor;
  NVM_TRY(need_tensor(objs, NVM_Append_src(pc), &source));
  NVM_TRY(need_tensor(objs, NVM_Append_tail(pc), &tail));
  uint64_t before = vm->heap->copied_bytes;
  NVM_TRY(nvm_tensor_append(vm->heap, source, tail, NVM_Append_axis(pc), &tensor));
  set_object(vm->heap, &objs[NVM_Append_dst(pc)], &tensor->header);
  /* Time passes in copies as it does in kernels. */
  int64_t cost = (int64_t)((vm->heap->copied_bytes - before) >> 6);
  vm->slice -= cost;
  vm->slice_kernels += cost;
  return NVM_OK;
}

nvm_status nvm_op_device_copy(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_tensor *source, *tensor;
  NVM_TRY(need_tensor(objs, NVM_DeviceCopy_src(pc), &source));
  if (source->device == NVM_DeviceCopy_device(pc) && vm->program->version > 1) {
    tensor = source; /* it is there already */
    nvm_retain(&tensor->header);
  } else {
    NVM_TRY(nvm_tensor_copy(vm->heap, source, NVM_DeviceCopy_device(pc), &tensor));
  }
  set_object(vm->heap, &objs[NVM_DeviceCopy_dst(pc)], &tensor->header);
  return NVM_OK;
}

nvm_status nvm_op_call_kernel(nvm_vm *vm, int64_t *ints, nvm_object *const *objs,
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
  if (!vm->call.interpreted)
    vm->slice_kernels += cost; /* interpreted kernels use fuel, other code only time */
  vm->kernel_calls++;
  const nvm_signature *sig = &kernel->signature;
  for (uint32_t i = 0; i < sig->n_out; i++)
    vm->heap->written_bytes += operands[sig->n_in + i]->bytes;
  return NVM_OK;
}

/* --- data ------------------------------------------------------------------------------------- */

static inline nvm_status take_fields(nvm_object *const *objs, const uint32_t *list) {
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++)
    if (NVM_UNLIKELY(!objs[list[1 + i]])) return nvm_op_null_register(list[1 + i]);
  return NVM_OK;
}

static inline void fill_fields(nvm_object **to, nvm_object *const *objs, const uint32_t *list) {
  for (uint32_t i = 0; i < NVM_LIST_COUNT(list); i++) {
    to[i] = objs[list[1 + i]];
    nvm_retain(to[i]);
  }
}

nvm_status nvm_op_alloc_adt(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  const uint32_t *list = NVM_AllocADT_fields(pc);
  nvm_adt *adt;
  NVM_TRY(take_fields(objs, list));
  NVM_TRY(nvm_adt_create(vm->heap, NVM_AllocADT_ctor(pc), NVM_LIST_COUNT(list), &adt));
  fill_fields(adt->fields, objs, list);
  set_object(vm->heap, &objs[NVM_AllocADT_dst(pc)], &adt->header);
  return NVM_OK;
}

nvm_status nvm_op_alloc_closure(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  const uint32_t *list = NVM_AllocClosure_captures(pc);
  nvm_closure *closure;
  NVM_TRY(take_fields(objs, list));
  NVM_TRY(nvm_closure_create(vm->heap, NVM_AllocClosure_func(pc), NVM_LIST_COUNT(list), &closure));
  fill_fields(closure->captures, objs, list);
  set_object(vm->heap, &objs[NVM_AllocClosure_dst(pc)], &closure->header);
  return NVM_OK;
}

nvm_status nvm_op_alloc_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  nvm_ref *ref;
  nvm_object *value = objs[NVM_AllocRef_value(pc)];
  if (NVM_UNLIKELY(!value)) return nvm_op_null_register(NVM_AllocRef_value(pc));
  NVM_TRY(nvm_ref_create(vm->heap, value, &ref));
  set_object(vm->heap, &objs[NVM_AllocRef_dst(pc)], &ref->header);
  return NVM_OK;
}

nvm_status nvm_op_read_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_ReadRef_ref(pc), NVM_KIND_REF, "a ref"));
  nvm_object *value = ((nvm_ref *)objs[NVM_ReadRef_ref(pc)])->value;
  if (NVM_UNLIKELY(!value)) NVM_FAIL(NVM_NULL_VALUE, "a ref holds nothing");
  nvm_retain(value);
  set_object(vm->heap, &objs[NVM_ReadRef_dst(pc)], value);
  return NVM_OK;
}

nvm_status nvm_op_write_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc) {
  NVM_TRY(need(objs, NVM_WriteRef_ref(pc), NVM_KIND_REF, "a ref"));
  nvm_object *value = objs[NVM_WriteRef_value(pc)];
  if (NVM_UNLIKELY(!value)) return nvm_op_null_register(NVM_WriteRef_value(pc));
  nvm_retain(value);
  set_object(vm->heap, &((nvm_ref *)objs[NVM_WriteRef_ref(pc)])->value, value);
  return NVM_OK;
}
