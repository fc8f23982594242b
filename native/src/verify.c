#include "verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "decode.h"
#include "generated/nvm_dtype.h"

/* The function under the verifier's eyes. */
typedef struct verifier {
  const nvm_program *program;
  const nvm_function *function;
  const uint32_t *code;
  uint32_t n_words, pc;
  const char *mnemonic;
  uint8_t *marks; /* a bit a word: START, TARGET */
} verifier;

enum { START = 1, TARGET = 2 };

static nvm_status fault(const verifier *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static nvm_status fault(const verifier *v, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  return nvm_fail(NVM_INVALID_EXECUTABLE, "function %s, word %u (%s): %s", v->function->name, v->pc,
                  v->mnemonic, text);
}

/* --- operands --------------------------------------------------------------------------------- */

static nvm_status below(const verifier *v, const char *what, uint32_t index, uint32_t count) {
  if (index < count) return NVM_OK;
  return fault(v, "%s %u, expected < %u", what, index, count);
}

static nvm_status check_word(const verifier *v, uint8_t kind, uint32_t word) {
  const nvm_program *p = v->program;
  const nvm_function *f = v->function;
  switch (kind) {
    case NVM_OPERAND_INT_IN:
    case NVM_OPERAND_INT_OUT:
      return below(v, "int register", word, f->n_ints);
    case NVM_OPERAND_OBJ_OPT:
      if (word == NVM_NO_REGISTER) return NVM_OK;
      return below(v, "object register", word, f->n_objs);
    case NVM_OPERAND_OBJ_IN:
    case NVM_OPERAND_OBJ_OUT:
      return below(v, "object register", word, f->n_objs);
    case NVM_OPERAND_ANY_IN:
    case NVM_OPERAND_ANY_OUT:
      if (NVM_IS_INT_REGISTER(word)) {
        return below(v, "int register", NVM_REGISTER_INDEX(word), f->n_ints);
      }
      return below(v, "object register", word, f->n_objs);
    case NVM_OPERAND_DIM:
      if (!NVM_IS_INT_REGISTER(word)) return NVM_OK;
      return below(v, "int register", NVM_REGISTER_INDEX(word), f->n_ints);
    case NVM_OPERAND_IMM:
      return NVM_OK;
    case NVM_OPERAND_CONST:
      return below(v, "constant", word, p->n_constants);
    case NVM_OPERAND_FUNC:
      return below(v, "function", word, p->n_functions);
    case NVM_OPERAND_KERNEL:
      return below(v, "kernel", word, p->n_kernels);
    case NVM_OPERAND_DEVICE:
      return below(v, "device", word, p->n_devices);
    case NVM_OPERAND_CTOR:
      return below(v, "constructor", word, p->n_ctors);
    case NVM_OPERAND_NOTE:
      return below(v, "note", word, p->n_notes);
    case NVM_OPERAND_DTYPE:
      return below(v, "dtype", word, NVM_DTYPE_COUNT);
    case NVM_OPERAND_LABEL:
      NVM_TRY(below(v, "label", word, v->n_words));
      v->marks[word] |= TARGET; /* whether an instruction starts there is known at the end */
      return NVM_OK;
    default:
      return fault(v, "operand of unknown kind %u", kind);
  }
}

static nvm_status check_operand(const verifier *v, uint8_t kind, const uint32_t *words) {
  static const uint8_t element[] = {
      [NVM_OPERAND_LABEL_LIST] = NVM_OPERAND_LABEL, [NVM_OPERAND_DIM_LIST] = NVM_OPERAND_DIM,
      [NVM_OPERAND_ARG_LIST] = NVM_OPERAND_ANY_IN,  [NVM_OPERAND_OBJ_LIST] = NVM_OPERAND_OBJ_IN,
      [NVM_OPERAND_OUT_LIST] = NVM_OPERAND_INT_OUT,
  };
  if (kind == NVM_OPERAND_IMM64) return NVM_OK;
  if (!nvm_operand_is_list(kind)) return check_word(v, kind, words[0]);
  for (uint32_t i = 0; i < NVM_LIST_COUNT(words); i++) {
    NVM_TRY(check_word(v, element[kind], NVM_LIST_ITEMS(words)[i]));
  }
  return NVM_OK;
}

/* --- what rows ask for beyond their operands' kinds ------------------------------------------- */

static nvm_status check_register_kind(const verifier *v, const char *what, uint32_t word,
                                      uint8_t kind) {
  if (NVM_IS_INT_REGISTER(word) == (kind == 1)) return NVM_OK;
  return fault(v, "%s: expected an %s register", what, kind == 1 ? "int" : "object");
}

static nvm_status check_arguments(const verifier *v, const nvm_function *callee,
                                  const uint32_t *list) {
  uint32_t count = NVM_LIST_COUNT(list);
  if (count != callee->n_params) {
    return fault(v, "%s takes %u arguments, got %u", callee->name, callee->n_params, count);
  }
  for (uint32_t i = 0; i < count; i++) {
    NVM_TRY(check_register_kind(v, "argument", NVM_LIST_ITEMS(list)[i], callee->params[i].kind));
  }
  return NVM_OK;
}

static nvm_status check_call_kernel(const verifier *v, const uint32_t *pc) {
  const nvm_kernel *kernel = &v->program->kernels[NVM_CallKernel_kernel(pc)];
  const nvm_signature *sig = &kernel->signature;
  uint32_t operands = NVM_LIST_COUNT(NVM_CallKernel_operands(pc));
  uint32_t dims = NVM_LIST_COUNT(NVM_CallKernel_dims(pc));
  uint32_t out_dims = NVM_LIST_COUNT(NVM_CallKernel_out_dims(pc));
  if (operands != sig->n_operands || dims != sig->n_dims || out_dims != sig->n_out_dims) {
    return fault(v, "kernel %s takes %u operands, %u dims, %u out-dims; got %u, %u, %u",
                 kernel->name, sig->n_operands, sig->n_dims, sig->n_out_dims, operands, dims,
                 out_dims);
  }
  return NVM_OK;
}

static nvm_status check_closure(const verifier *v, const uint32_t *pc) {
  const nvm_function *target = &v->program->functions[NVM_AllocClosure_func(pc)];
  uint32_t captures = NVM_LIST_COUNT(NVM_AllocClosure_captures(pc));
  if (target->n_int_params > 0 || target->result_kind != 0) {
    return fault(v, "%s has int registers in its signature, closures take and give objects",
                 target->name);
  }
  if (captures > target->n_params) {
    return fault(v, "%u captures, %s has %u parameters", captures, target->name, target->n_params);
  }
  return NVM_OK;
}

static nvm_status check_unboxable(const verifier *v, uint32_t dtype) {
  if (nvm_dtypes[dtype].unboxable) return NVM_OK;
  return fault(v, "dtype %s does not fit an int register", nvm_dtypes[dtype].name);
}

static nvm_status check_shape_dtype(const verifier *v, uint32_t dtype) {
  if (dtype == NVM_DTYPE_INT32 || dtype == NVM_DTYPE_INT64) return NVM_OK;
  return fault(v, "dtype %s, expected int32 or int64", nvm_dtypes[dtype].name);
}

static nvm_status check_rank(const verifier *v, const uint32_t *list) {
  if (NVM_LIST_COUNT(list) <= NVM_MAX_RANK) return NVM_OK;
  return fault(v, "rank %u, expected <= %d", NVM_LIST_COUNT(list), NVM_MAX_RANK);
}

static nvm_status check_axis(const verifier *v, uint32_t axis) {
  if (axis < NVM_MAX_RANK) return NVM_OK;
  return fault(v, "axis %u, expected < %d", axis, NVM_MAX_RANK);
}

static nvm_status check_alignment(const verifier *v, uint32_t alignment) {
  if (alignment > 0 && alignment <= 4096 && (alignment & (alignment - 1)) == 0) return NVM_OK;
  return fault(v, "alignment %u, expected a power of two <= 4096", alignment);
}

static nvm_status check_invoke(const verifier *v, const uint32_t *pc) {
  const nvm_function *callee = &v->program->functions[NVM_Invoke_func(pc)];
  NVM_TRY(check_arguments(v, callee, NVM_Invoke_args(pc)));
  return check_register_kind(v, "result", NVM_Invoke_dst(pc), callee->result_kind);
}

static nvm_status check_invoke_tail(const verifier *v, const uint32_t *pc) {
  const nvm_function *callee = &v->program->functions[NVM_InvokeTail_func(pc)];
  NVM_TRY(check_arguments(v, callee, NVM_InvokeTail_args(pc)));
  if (callee->result_kind == v->function->result_kind) return NVM_OK;
  return fault(v, "%s returns an %s, this function an %s", callee->name,
               callee->result_kind == 1 ? "int" : "object",
               v->function->result_kind == 1 ? "int" : "object");
}

static nvm_status check_adt(const verifier *v, const uint32_t *pc) {
  const nvm_ctor *ctor = &v->program->ctors[NVM_AllocADT_ctor(pc)];
  uint32_t fields = NVM_LIST_COUNT(NVM_AllocADT_fields(pc));
  if (NVM_AllocADT_ctor(pc) == 0 || fields == ctor->n_fields) return NVM_OK;
  return fault(v, "constructor %s has %u fields, got %u", ctor->name, ctor->n_fields, fields);
}

static nvm_status check_row(const verifier *v, const uint32_t *pc) {
  switch (pc[0]) {
    case NVM_OP_Ret:
      return check_register_kind(v, "result", NVM_Ret_src(pc), v->function->result_kind);
    case NVM_OP_Invoke:
      return check_invoke(v, pc);
    case NVM_OP_InvokeTail:
      return check_invoke_tail(v, pc);
    case NVM_OP_InvokeClosureTail:
      if (v->function->result_kind == 0) return NVM_OK;
      return fault(v, "a closure returns an object, this function an int");
    case NVM_OP_AllocClosure:
      return check_closure(v, pc);
    case NVM_OP_CallKernel:
      return check_call_kernel(v, pc);
    case NVM_OP_AllocADT:
      return check_adt(v, pc);
    case NVM_OP_Box:
      return check_unboxable(v, NVM_Box_dtype(pc));
    case NVM_OP_Unbox:
      return check_unboxable(v, NVM_Unbox_dtype(pc));
    case NVM_OP_IntAdd:
    case NVM_OP_IntSub:
    case NVM_OP_IntMul:
    case NVM_OP_IntDiv:
    case NVM_OP_IntMod:
    case NVM_OP_IntFloorDiv:
    case NVM_OP_IntFloorMod:
    case NVM_OP_IntMin:
    case NVM_OP_IntMax:
    case NVM_OP_IntAnd:
    case NVM_OP_IntOr:
    case NVM_OP_IntXor:
      return check_unboxable(v, NVM_IntAdd_dtype(pc)); /* one layout for all */
    case NVM_OP_IntCast:
      return check_unboxable(v, NVM_IntCast_dtype(pc));
    case NVM_OP_ShapeOf:
      return check_shape_dtype(v, NVM_ShapeOf_dtype(pc));
    case NVM_OP_PackShape:
      return check_shape_dtype(v, NVM_PackShape_dtype(pc));
    case NVM_OP_AllocTensor:
      return check_rank(v, NVM_AllocTensor_dims(pc));
    case NVM_OP_View:
      return check_rank(v, NVM_View_dims(pc));
    case NVM_OP_ReshapeTensor:
      return check_rank(v, NVM_ReshapeTensor_dims(pc));
    case NVM_OP_AllocStorage:
      return check_alignment(v, NVM_AllocStorage_alignment(pc));
    case NVM_OP_DimOf:
      return check_axis(v, NVM_DimOf_axis(pc));
    case NVM_OP_Append:
      return check_axis(v, NVM_Append_axis(pc));
    default:
      return NVM_OK;
  }
}

/* --- functions -------------------------------------------------------------------------------- */

static nvm_status verify_function(verifier *v) {
  uint8_t flags = 0;
  memset(v->marks, 0, v->n_words);
  for (v->pc = 0; v->pc < v->n_words;) {
    nvm_decoded decoded;
    v->mnemonic = "?";
    enum nvm_decode_result result = nvm_decode(v->code, v->n_words, v->pc, &decoded);
    if (result == NVM_DECODE_UNKNOWN) return fault(v, "unknown opcode %u", v->code[v->pc]);
    v->mnemonic = nvm_isa[v->code[v->pc]].mnemonic;
    if (result == NVM_DECODE_TRUNCATED) return fault(v, "the code ends inside this instruction");
    v->marks[v->pc] |= START;
    const uint32_t *pc = v->code + v->pc;
    for (uint32_t k = 0; k < decoded.row->n_operands; k++) {
      NVM_TRY(check_operand(v, decoded.row->kinds[k], pc + decoded.at[k]));
    }
    NVM_TRY(check_row(v, pc));
    flags = decoded.row->flags;
    if (v->pc + decoded.size < v->n_words || (flags & NVM_ISA_TERMINATOR) != 0) {
      v->pc += decoded.size;
      continue;
    }
    return fault(v, "control runs past the end of the code");
  }
  v->mnemonic = "label";
  for (v->pc = 0; v->pc < v->n_words; v->pc++) {
    if (v->marks[v->pc] == TARGET) return fault(v, "a jump goes into an instruction");
  }
  return NVM_OK;
}

nvm_status nvm_verify_program(const nvm_program *program) {
  uint32_t longest = 1;
  for (uint32_t i = 0; i < program->n_functions; i++) {
    if (program->functions[i].n_words > longest) longest = program->functions[i].n_words;
  }
  uint8_t *marks = nvm_malloc(longest);
  if (marks == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory to verify the code");
  nvm_status status = NVM_OK;
  for (uint32_t i = 0; i < program->n_functions && status == NVM_OK; i++) {
    const nvm_function *f = &program->functions[i];
    verifier v = {
        .program = program, .function = f, .code = f->code, .n_words = f->n_words, .marks = marks};
    status = verify_function(&v);
  }
  nvm_free(marks);
  return status;
}

/* --- C kernels -------------------------------------------------------------------------------- */

static int same_operand(const nvm_operand *a, const nvm_operand *b) {
  if (a->dtype != b->dtype || a->role != b->role || a->rank != b->rank || a->alias != b->alias) {
    return 0;
  }
  for (uint32_t k = 0; k < a->rank; k++) {
    if (a->axes[k].kind != b->axes[k].kind || a->axes[k].broadcast != b->axes[k].broadcast ||
        a->axes[k].value != b->axes[k].value) {
      return 0;
    }
  }
  return 1;
}

nvm_status nvm_verify_c_kernel(const nvm_kernel *kernel, nvm_kernel_fn *out_fn) {
  const nvm_c_kernel *found = nvm_c_kernel_find(kernel->name, strlen(kernel->name));
  if (found == NULL) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "kernel %s: this runtime has no C kernel of that name",
                    kernel->name);
  }
  const nvm_signature *a = &kernel->signature, *b = found->signature;
  if (a->n_operands != b->n_operands || a->n_in != b->n_in || a->n_out != b->n_out ||
      a->n_scratch != b->n_scratch || a->n_dims != b->n_dims || a->n_attrs != b->n_attrs ||
      a->n_pitches != b->n_pitches || a->n_out_dims != b->n_out_dims ||
      a->may_fail != b->may_fail || a->n_expr_words != b->n_expr_words ||
      (a->n_expr_words > 0 &&
       memcmp(a->exprs, b->exprs, a->n_expr_words * sizeof a->exprs[0]) != 0)) {
    return nvm_fail(NVM_INVALID_EXECUTABLE,
                    "kernel %s: the file's signature differs from the runtime's (%u operands, %u "
                    "dims, %u attributes; expected %u, %u, %u)",
                    kernel->name, a->n_operands, a->n_dims, a->n_attrs, b->n_operands, b->n_dims,
                    b->n_attrs);
  }
  for (uint32_t i = 0; i < a->n_operands; i++) {
    if (!same_operand(&a->operands[i], &b->operands[i])) {
      return nvm_fail(NVM_INVALID_EXECUTABLE,
                      "kernel %s: operand %u of the file's signature differs from the runtime's",
                      kernel->name, i);
    }
  }
  *out_fn = found->fn;
  return NVM_OK;
}
