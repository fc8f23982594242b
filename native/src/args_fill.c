/* Argument arrays from values that are listed breadth first, the order in which a binding reads a
 * tree with the least work: one list that grows while it is read, no stack. */
#include "args.h"
#include "tensor.h"

#define ALIKE (1 << 16)

static size_t fields_of(int64_t code) { return code < 0 ? (uint64_t)(-1 - code) >> 32 : 0; }

/* Whether the codes name n values of which each but the first `roots` is a field of an earlier one.
 */
static int is_forest(size_t n, size_t roots, const int64_t *codes) {
  size_t listed = roots;
  if (roots > n) return 0;
  for (size_t i = 0; i < n; i++) {
    size_t fields = fields_of(codes[i]);
    if (codes[i] > 1 || i >= listed || fields > n - listed) return 0;
    listed += fields;
  }
  return listed == n;
}

/* places[i]: of value i in postorder. Fields of later values stand further back, so their sizes are
 * known when a value's is counted, backwards; their places follow from its own, forwards. */
static void find_places(size_t n, size_t roots, const int64_t *codes, int64_t *places) {
  int64_t *sizes = places + n, before = 0;
  size_t first = n;
  for (size_t i = n; i-- > 0;) {
    size_t end = first;
    first -= fields_of(codes[i]);
    sizes[i] = 1;
    for (size_t k = first; k < end; k++) sizes[i] += sizes[k];
  }
  for (size_t i = 0; i < roots; i++) places[i] = (before += sizes[i]) - 1;
  size_t next = roots;
  for (size_t i = 0; i < n; i++) {
    before = places[i] - sizes[i] + 1;
    for (size_t end = next + fields_of(codes[i]); next < end; next++)
      places[next] = (before += sizes[next]) - 1;
  }
}

static void fill_tensor(nvm_arg *arg, int64_t tensor, const void *data, const int64_t *shape) {
  arg->kind = NVM_ARG_TENSOR;
  arg->dtype = (int32_t)(tensor & 255);
  arg->rank = (uint32_t)(tensor >> 8) & 255;
  arg->dl_device_type = 1;
  arg->data = data;
  arg->shape = shape;
}

NVM_EXPORT nvm_status nvm_args_fill(nvm_arg *args, size_t n, size_t roots, const int64_t *codes,
                                    const int64_t *tensors, void *const *data,
                                    const int64_t *shapes, int64_t *places) {
  const char *behind = NULL; /* the last tensor's end */
  if (!is_forest(n, roots, codes))
    NVM_FAIL(NVM_INVALID_INPUT, "the codes of %zu values with %zu roots do not fit together", n,
             roots);
  find_places(n, roots, codes, places);
  for (size_t i = 0; i < n; i++) {
    nvm_arg *arg = &args[places[i]];
    if (codes[i] < 0) {
      arg->kind = NVM_ARG_ADT;
      arg->ctor = (uint32_t)(uint64_t)(-1 - codes[i]);
      arg->n_fields = (uint32_t)fields_of(codes[i]);
    } else if (codes[i] == 0) {
      size_t bytes;
      fill_tensor(arg, *tensors, *data ? *data : behind, shapes);
      data++;
      if (arg->dtype >= (int32_t)NVM_DTYPE_COUNT)
        NVM_FAIL(NVM_INVALID_INPUT, "dtype number %d is not supported", arg->dtype);
      NVM_TRY(nvm_shape_bytes((uint32_t)arg->dtype, arg->rank, shapes, &bytes));
      behind = arg->data ? (const char *)arg->data + bytes : NULL;
      if (*tensors & ALIKE) continue;
      tensors++;
      shapes += arg->rank;
    }
  }
  return NVM_OK;
}
