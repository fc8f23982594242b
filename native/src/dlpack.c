/* Tensors in DLPack's form, in and out. The structs are those of dlpack.h (v0.2 to v1.1, the form
 * without version), whose layout is fixed. */
#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "status.h"

typedef struct dl_tensor {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* strides: in elements, NULL = compact */
  uint64_t byte_offset;
} dl_tensor;

typedef struct DLManagedTensor {
  dl_tensor tensor;
  void *context;
  void (*deleter)(struct DLManagedTensor *self);
} managed;

_Static_assert(sizeof(dl_tensor) == 48 && sizeof(managed) == 64, "the layout of dlpack.h");

static void release_managed(void *owner) {
  managed *tensor = owner;
  if (tensor->deleter) tensor->deleter(tensor);
}

NVM_EXPORT nvm_status nvm_arg_dlpack(struct DLManagedTensor *tensor, nvm_arg *out_arg) {
  const dl_tensor *t = &tensor->tensor;
  uint32_t dtype = 0;
  nvm_error_clear();
  while (dtype < NVM_DTYPE_COUNT &&
         (nvm_dtypes[dtype].code != t->code || nvm_dtypes[dtype].bits != t->bits))
    dtype++;
  if (dtype == NVM_DTYPE_COUNT || t->lanes != 1)
    NVM_FAIL(NVM_INVALID_INPUT_TYPE, "a DLPack tensor of type code %u, %u bits, %u lanes", t->code,
             t->bits, t->lanes);
  if (t->ndim < 0 || t->ndim > NVM_MAX_RANK || (t->ndim > 0 && !t->shape))
    NVM_FAIL(NVM_INVALID_INPUT, "a DLPack tensor of %d axes, at most %d are supported", t->ndim,
             NVM_MAX_RANK);
  if (t->device_type != 1)
    NVM_FAIL(NVM_INVALID_INPUT, "a DLPack tensor on device type %d, expected host memory",
             t->device_type);
  *out_arg = (nvm_arg){.kind = NVM_ARG_TENSOR,
                       .dtype = (int32_t)dtype,
                       .rank = (uint32_t)t->ndim,
                       .dl_device_type = 1,
                       .data = t->data ? (const char *)t->data + t->byte_offset : NULL,
                       .shape = t->shape,
                       .strides = t->strides,
                       .release = release_managed,
                       .owner = tensor};
  return NVM_OK;
}

/* One allocation: the tensor, then its shape and its strides. */
static void delete_exported(managed *self) {
  nvm_storage_release_handle(self->context);
  nvm_free(self);
}

NVM_EXPORT nvm_status nvm_out_dlpack(const nvm_out *value, struct DLManagedTensor **out_tensor) {
  nvm_error_clear();
  if (value->kind != NVM_OUT_TENSOR || !value->storage)
    NVM_FAIL(NVM_INVALID_INPUT, "only a tensor that the result owns can be passed on as DLPack");
  managed *made = nvm_malloc(sizeof *made + 2 * value->rank * sizeof(int64_t));
  if (!made) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a DLPack tensor");
  int64_t *shape = (int64_t *)(void *)(made + 1), *strides = shape + value->rank, stride = 1;
  for (uint32_t a = value->rank; a-- > 0;) {
    shape[a] = value->shape[a];
    strides[a] = stride;
    stride *= shape[a] ? shape[a] : 1;
  }
  const nvm_dtype_row *dtype = &nvm_dtypes[value->dtype];
  *made = (managed){.tensor = {.data = value->data,
                               .device_type = value->dl_device_type,
                               .ndim = (int32_t)value->rank,
                               .code = dtype->code,
                               .bits = dtype->bits,
                               .lanes = 1,
                               .shape = shape,
                               .strides = strides},
                    .context = value->storage,
                    .deleter = delete_exported};
  nvm_storage_retain_handle(value->storage);
  *out_tensor = made;
  return NVM_OK;
}
