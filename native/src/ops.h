/* What instructions do that takes more than a few lines. Each gets the instruction's first word and
 * the frame's registers, checks what its object registers hold, and writes its results.
 */
#ifndef NVM_OPS_H
#define NVM_OPS_H

#include "decode.h"
#include "vm.h"
#include "frame.h"
#include "object.h"

/* Faults; each returns the status that it recorded. */
NVM_NODISCARD nvm_status nvm_op_null_register(uint32_t index) __attribute__((cold));
NVM_NODISCARD nvm_status nvm_op_wrong_kind(uint32_t index, const nvm_object *got,
                                           const char *expected) __attribute__((cold));
NVM_NODISCARD nvm_status nvm_op_dim_mismatch(const nvm_vm *vm, uint32_t note, int64_t expected,
                                             int64_t got, const char *what) __attribute__((cold));

/* --- operands --------------------------------------------------------------------------------- */

static inline void set_object(nvm_heap *heap, nvm_object **slot, nvm_object *value) {
  nvm_object *old = *slot;
  *slot = value;
  nvm_release(heap, old);
}

static inline nvm_status need(nvm_object *const *objs, uint32_t index, uint8_t kind,
                              const char *expected) {
  const nvm_object *object = objs[index];
  return NVM_LIKELY(object && object->kind == kind) ? NVM_OK
                                                    : nvm_op_wrong_kind(index, object, expected);
}

static inline nvm_status need_tensor(nvm_object *const *objs, uint32_t index,
                                     nvm_tensor **out_tensor) {
  NVM_TRY(need(objs, index, NVM_KIND_TENSOR, "a tensor"));
  *out_tensor = (nvm_tensor *)objs[index];
  return NVM_OK;
}

/* --- instructions --- */
NVM_NODISCARD nvm_status nvm_op_unbox(const nvm_vm *vm, nvm_object *const *objs, uint32_t index,
                                      uint32_t dtype, int64_t *out_value);
NVM_NODISCARD nvm_status nvm_op_dim_of(nvm_object *const *objs, uint32_t index, uint32_t axis,
                                       int64_t *out_value);
NVM_NODISCARD nvm_status nvm_op_broadcast(const nvm_vm *vm, int64_t a, int64_t b, uint32_t note,
                                          int64_t *out_value);
NVM_NODISCARD nvm_status nvm_op_shape_of(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_pack_shape(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                           const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_read_int(const nvm_vm *vm, nvm_object *const *objs, uint32_t source,
                                         int64_t index, int64_t *out_value);
NVM_NODISCARD nvm_status nvm_op_alloc_storage(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                              const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_alloc_tensor(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                             const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_view(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                     const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_reshape(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                        const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_shrink(nvm_vm *vm, const int64_t *ints, nvm_object **objs,
                                       const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_append(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_device_copy(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_call_kernel(nvm_vm *vm, int64_t *ints, nvm_object *const *objs,
                                            const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_alloc_adt(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_alloc_closure(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_alloc_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_read_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
/* linearize.c */
NVM_NODISCARD nvm_status nvm_op_linearize(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);
NVM_NODISCARD nvm_status nvm_op_write_ref(nvm_vm *vm, nvm_object **objs, const uint32_t *pc);

#endif
