/* The interpreter: one body for computed goto and switch (NVM_DISPATCH_SWITCH). Bodies are short,
 * longer work is in ops.c. Code is verified: operands are in range
 * and registers of the right kind; what an object register holds is checked here.
 *
 * Fuel: `block` is where the words not yet charged start. Words executed are charged at calls,
 * returns, backward jumps and kernel calls; a forward jump moves `block` on by what it skips. */
#include "interp.h"

#include "dim_program.h"
#include "limits.h"
#include "ops.h"
#include "profile.h"

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

NVM_COLD static nvm_status null_argument(nvm_heap *heap, nvm_object *const *taken, size_t n_taken,
                                         uint32_t index) {
  while (n_taken > 0) nvm_release(heap, taken[--n_taken]);
  return nvm_op_null_register(index);
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

NVM_COLD static nvm_status grow_transfer(nvm_vm *vm, size_t n) {
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

/* --- fields --- */

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

NVM_COLD static nvm_status divided_by_zero(void) {
  NVM_FAIL(NVM_DIVISION_BY_ZERO, "integer division by zero");
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

/* A profiled run goes by a table of its own, all of whose entries lead to `op_step`: so the other
 * runs pay nothing for it. */
#ifdef NVM_DISPATCH_SWITCH
#define OP(name)   case NVM_OP_##name:
#define DISPATCH() goto dispatch
#define LOOP                                                         \
  dispatch:                                                          \
  if (NVM_UNLIKELY(vm->step_instructions)) nvm_profile_step(vm, pc); \
  switch (*pc)
#else
#define OP(name)    op_##name:
#define DISPATCH()  goto *dispatch[*pc]
#define LOOP        DISPATCH();
#define LABEL(name) &&op_##name
#define NO_LABEL    &&op_none
#define STEP(name)  &&op_step
#define NO_STEP     &&op_step
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
    if (NVM_UNLIKELY(b == 0)) DO(divided_by_zero());                                 \
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
  static const void *const steps[] = {NVM_ISA_LABELS(STEP, NO_STEP)};
  const void *const *const dispatch = vm->step_instructions ? steps : labels;
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
      if (NVM_UNLIKELY(!value)) DO(nvm_op_null_register(NVM_Move_src(pc)));
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
        if (NVM_UNLIKELY(!value)) DO(nvm_op_null_register(source));
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
                 &vm->constants[NVM_LoadConst_const(pc)]->header);
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
    TENSOR_OP(Unbox, nvm_op_unbox(vm, objs, NVM_Unbox_src(pc), NVM_Unbox_dtype(pc),
                                  &ints[NVM_Unbox_dst(pc)]))
    TENSOR_OP(DimOf,
              nvm_op_dim_of(objs, NVM_DimOf_src(pc), NVM_DimOf_axis(pc), &ints[NVM_DimOf_dst(pc)]))
    OP(CheckDim) {
      int64_t actual = NVM_DIM_VALUE(NVM_CheckDim_actual(pc), ints);
      int64_t expected = NVM_DIM_VALUE(NVM_CheckDim_expected(pc), ints);
      if (NVM_UNLIKELY(actual != expected))
        DO(nvm_op_dim_mismatch(vm, NVM_CheckDim_note(pc), expected, actual, "dim mismatch"));
      NEXT(CheckDim);
    }
    TENSOR_OP(Broadcast, nvm_op_broadcast(vm, NVM_DIM_VALUE(NVM_Broadcast_a(pc), ints),
                                          NVM_DIM_VALUE(NVM_Broadcast_b(pc), ints),
                                          NVM_Broadcast_note(pc), &ints[NVM_Broadcast_dst(pc)]))
    TENSOR_OP(ShapeOf, nvm_op_shape_of(vm, objs, pc))
    TENSOR_OP(PackShape, nvm_op_pack_shape(vm, ints, objs, pc))
    TENSOR_OP(ReadInt, nvm_op_read_int(vm, objs, NVM_ReadInt_src(pc),
                                       NVM_DIM_VALUE(NVM_ReadInt_index(pc), ints),
                                       &ints[NVM_ReadInt_dst(pc)]))
    TENSOR_OP(AllocStorage, nvm_op_alloc_storage(vm, ints, objs, pc))
    TENSOR_OP(AllocTensor, nvm_op_alloc_tensor(vm, ints, objs, pc))
    TENSOR_OP(View, nvm_op_view(vm, ints, objs, pc))
    TENSOR_OP(ReshapeTensor, nvm_op_reshape(vm, ints, objs, pc))
    TENSOR_OP(Shrink, nvm_op_shrink(vm, ints, objs, pc))
    OP(CallKernel) {
      frame->pc = pc;
      DO(nvm_op_call_kernel(vm, ints, objs, pc));
      const uint32_t *next = NVM_NEXT_CallKernel(pc);
      CHARGE(next, next);
      pc = next;
      DISPATCH();
    }
    TENSOR_OP(Append, nvm_op_append(vm, objs, pc))
    TENSOR_OP(Linearize, nvm_op_linearize(vm, objs, pc))
    TENSOR_OP(DeviceCopy, nvm_op_device_copy(vm, objs, pc))
    OP(KillRegister) {
      set_object(heap, &objs[NVM_KillRegister_reg(pc)], NULL);
      NEXT(KillRegister);
    }
    TENSOR_OP(AllocADT, nvm_op_alloc_adt(vm, objs, pc))
    TENSOR_OP(AllocClosure, nvm_op_alloc_closure(vm, objs, pc))
    TENSOR_OP(AllocRef, nvm_op_alloc_ref(vm, objs, pc))
    TENSOR_OP(ReadRef, nvm_op_read_ref(vm, objs, pc))
    TENSOR_OP(WriteRef, nvm_op_write_ref(vm, objs, pc))
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
  op_step:
    nvm_profile_step(vm, pc);
    goto *labels[*pc];
  op_none:
#endif
      status = nvm_fail(NVM_INTERNAL, "unknown instruction %u in verified code", *pc);
  }

fault:
  nvm_frame_at(vm, vm->frame)->pc = pc;
  return status;
}
