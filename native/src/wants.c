/* What becomes of a result besides values: buffers of the caller, handles (results.c makes those).
 */
#include "generated/nvm_dtype.h"
#include "program.h"
#include "results.h"
#include "tensor.h"

/* Before a run: can a result of that type be in the buffer? */
static nvm_status check_buffer(const nvm_program *program, const char *function, uint32_t field,
                               const nvm_want *want, uint32_t index) {
  const nvm_type *type = &program->types[index];
  size_t bytes;
  if (want->dtype < 0 || want->dtype >= (int32_t)NVM_DTYPE_COUNT || want->rank > NVM_MAX_RANK)
    NVM_FAIL(NVM_INVALID_INPUT, "buffer for result %u of @%s: dtype number %d, rank %u", field,
             function, want->dtype, want->rank);
  if (want->bytes && !want->data)
    NVM_FAIL(NVM_INVALID_INPUT, "buffer for result %u of @%s: %zu bytes at address NULL", field,
             function, want->bytes);
  if (type->words[0] != NVM_TYPE_TENSOR)
    NVM_FAIL(NVM_INVALID_INPUT, "result %u of @%s is no tensor, so it can't go into a buffer",
             field, function);
  if (type->words[1] != want->dtype)
    NVM_FAIL(NVM_INVALID_INPUT, "result %u of @%s is of dtype %s, the buffer for it of %s", field,
             function, nvm_dtypes[type->words[1]].name, nvm_dtypes[want->dtype].name);
  if (!want->shape) return NVM_OK;
  NVM_TRY(nvm_shape_bytes((uint32_t)want->dtype, want->rank, want->shape, &bytes));
  if (bytes > want->bytes)
    NVM_FAIL(NVM_INVALID_INPUT,
             "buffer for result %u of @%s: its shape needs %zu bytes, there is room for %zu", field,
             function, bytes, want->bytes);
  int fits = want->rank == type->n_words - 2;
  for (uint32_t a = 0; fits && a < want->rank; a++)
    fits = type->words[2 + a] < 0 || type->words[2 + a] == want->shape[a];
  if (fits) return NVM_OK;
  char got[NVM_SHAPE_TEXT];
  NVM_FAIL(NVM_SHAPE_MISMATCH, "result %u of @%s can't have the shape of the buffer for it, %s",
           field, function, nvm_shape_text(got, (uint32_t)want->dtype, want->rank, want->shape));
}

nvm_status nvm_wants_check(const nvm_program *program, uint32_t function, const nvm_want *items,
                           uint32_t count, nvm_wants *out_wants) {
  const nvm_function *f = &program->functions[function];
  const nvm_type *type = &program->types[f->result_type];
  int is_tuple = type->words[0] == NVM_TYPE_TUPLE;
  uint32_t n = is_tuple ? type->n_words - 1 : 1;
  if (count != n)
    NVM_FAIL(NVM_INVALID_INPUT, "@%s returns %u value%s, got wants for %u", f->name, n,
             n == 1 ? "" : "s", count);
  for (uint32_t k = 0; k < count; k++) {
    if (items[k].kind < NVM_WANT_VALUE || items[k].kind > NVM_WANT_BUFFER)
      NVM_FAIL(NVM_INVALID_INPUT, "want %u of @%s is of unknown kind %d", k, f->name,
               items[k].kind);
    if (items[k].kind == NVM_WANT_BUFFER)
      NVM_TRY(check_buffer(program, f->name, k, &items[k],
                           is_tuple ? (uint32_t)type->words[1 + k] : f->result_type));
  }
  *out_wants = (nvm_wants){items, count, (uint32_t)is_tuple};
  return NVM_OK;
}

static nvm_status check_fit(const nvm_want *want, uint32_t field, const nvm_out *out,
                            size_t *out_bytes) {
  char got[NVM_SHAPE_TEXT], room[NVM_SHAPE_TEXT];
  if (out->kind != NVM_OUT_TENSOR || out->dtype != want->dtype)
    NVM_FAIL(NVM_SHAPE_MISMATCH, "result %u is no tensor of the dtype of the buffer for it", field);
  const uint32_t dtype = (uint32_t)out->dtype;
  NVM_TRY(nvm_shape_bytes(dtype, out->rank, out->shape, out_bytes));
  nvm_shape_text(got, dtype, out->rank, out->shape);
  if (want->shape) {
    int same = want->rank == out->rank;
    for (uint32_t a = 0; same && a < out->rank; a++) same = want->shape[a] == out->shape[a];
    if (!same)
      NVM_FAIL(NVM_SHAPE_MISMATCH, "result %u is %s, the buffer for it %s", field, got,
               nvm_shape_text(room, dtype, want->rank, want->shape));
  }
  if (*out_bytes > want->bytes)
    NVM_FAIL(NVM_SHAPE_MISMATCH, "result %u is %s, %zu bytes; the buffer for it has room for %zu",
             field, got, *out_bytes, want->bytes);
  return NVM_OK;
}

/* Of two results in the same memory one would be lost. out[at]: result k, of that many bytes. */
static nvm_status check_apart(const nvm_out *out, size_t at, const nvm_want *items, uint32_t k,
                              size_t bytes) {
  const uintptr_t start = (uintptr_t)items[k].data;
  for (uint32_t j = k; bytes && j-- > 0;) {
    const uintptr_t other = (uintptr_t)items[j].data;
    size_t size;
    at -= out[at].n_values;
    if (items[j].kind != NVM_WANT_BUFFER || out[at].kind != NVM_OUT_TENSOR) continue;
    NVM_TRY(nvm_shape_bytes((uint32_t)out[at].dtype, out[at].rank, out[at].shape, &size));
    if (other < start ? start - other < size : size && other - start < bytes)
      NVM_FAIL(NVM_INVALID_INPUT,
               "the buffers for results %u and %u share memory; give each one of its own", j, k);
  }
  return NVM_OK;
}

nvm_status nvm_wants_fill(nvm_heap *heap, nvm_result *result, const nvm_wants *wants) {
  for (int write = 0; write < 2; write++) {
    size_t at = result->count - 1 - wants->depth; /* of the last field */
    for (uint32_t k = wants->count; k-- > 0; at -= result->values[at].n_values) {
      nvm_out *out = &result->values[at];
      const nvm_want *want = &wants->items[k];
      size_t bytes = 0;
      if (want->kind != NVM_WANT_BUFFER) continue;
      NVM_TRY(check_fit(want, k, out, &bytes));
      if (!write) {
        NVM_TRY(check_apart(result->values, at, wants->items, k, bytes));
        continue;
      }
      if (bytes) memcpy(want->data, out->data, bytes);
      heap->copied_bytes += bytes;
      if (out->storage) nvm_storage_release(heap, out->storage);
      out->storage = NULL;
      out->data = want->data;
    }
  }
  return NVM_OK;
}
