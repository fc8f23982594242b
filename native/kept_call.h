/* C of the Python module alone (build_ffi.py): what a call from Python costs most is going from one
 * language to the other and back, so that a call which is like the one before goes there once. */
#ifndef NVM_KEPT_CALL_H
#define NVM_KEPT_CALL_H

#include <string.h>

#include "nvm_api.h"

/* --- cdef begin (read by native/build_ffi.py) --- */
/* A tensor that a call is expected to return, because the calls before did, and where it goes. */
typedef struct nvm_kept_out {
  int32_t dtype;
  uint32_t rank;
  int64_t shape[8];
  void *data; /* `bytes` bytes, those of the shape */
  size_t bytes;
} nvm_kept_out;

/* A call of one function, used again and again; by one thread at a time. */
typedef struct nvm_kept_call {
  uint32_t function;
  uint32_t n_args;
  nvm_arg *args;
  uint32_t is_tuple; /* what is expected: a tuple of `outs`, else one tensor */
  uint32_t n_outs;   /* 0: nothing is */
  nvm_kept_out *outs;
  nvm_result *result;
} nvm_kept_call;

/* Run it. NVM_OK: the values expected have been copied to where they go, the result is freed. Less
 * than 0: it returned something else; `result` is owned. Else an error (nvm_vm_invoke). */
static nvm_status nvm_kept_invoke(nvm_vm *vm, nvm_kept_call *call);
/* --- cdef end --- */

static int nvm_kept_is_expected(const nvm_kept_call *call, const nvm_out *values, size_t count) {
  if (call->n_outs == 0 || count != (size_t)call->n_outs + call->is_tuple) return 0;
  const nvm_out *root = &values[count - 1];
  if (call->is_tuple && (root->kind != NVM_OUT_ADT || root->ctor != 0)) return 0;
  for (uint32_t i = 0; i < call->n_outs; i++) {
    const nvm_kept_out *want = &call->outs[i];
    const nvm_out *got = &values[i];
    if (got->kind != NVM_OUT_TENSOR || got->dtype != want->dtype || got->rank != want->rank)
      return 0;
    for (uint32_t a = 0; a < want->rank; a++)
      if (got->shape[a] != want->shape[a]) return 0;
  }
  return 1;
}

static nvm_status nvm_kept_invoke(nvm_vm *vm, nvm_kept_call *call) {
  const nvm_status status =
      nvm_vm_invoke(vm, call->function, call->args, call->n_args, &call->result);
  if (status != NVM_OK) return status;
  const nvm_out *values = nvm_result_values(call->result);
  if (!nvm_kept_is_expected(call, values, nvm_result_count(call->result))) return -1;
  for (uint32_t i = 0; i < call->n_outs; i++)
    memcpy(call->outs[i].data, values[i].data, call->outs[i].bytes);
  nvm_result_free(call->result);
  return NVM_OK;
}

#endif
