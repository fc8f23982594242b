/* Random code that the verifier accepts: it must return or fail with a typed error, and everything
 * must be freed. The sanitizers are the judges. SEEDS=n in the environment runs more; a failing
 * seed is printed. */
#include "programs.h"
#include "verify.h"

enum { FUNCTIONS = 4, INTS = 4, OBJS = 8, MAX_WORDS = 600, INSTRUCTIONS = 40 };

static uint64_t state;
static uint32_t roll(uint32_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(state >> 33) % n;
}

typedef struct writer {
  uint32_t words[MAX_WORDS], starts[INSTRUCTIONS + 40], labels[200];
  uint32_t n, n_starts, n_labels;
} writer;

static const params signatures[FUNCTIONS] = {{2, {PARAM("a", T_VAR0, 0), PARAM("b", T_VAR0, 0)}},
                                             {1, {PARAM("a", T_VAR0, 0)}},
                                             {2, {PARAM("n", T_I64, 1), PARAM("a", T_VAR0, 0)}},
                                             {0}};
static const int result_kinds[FUNCTIONS] = {0, 0, 1, 0};

static void put(writer *w, uint32_t word) { w->words[w->n++] = word; }
static uint32_t random_dim(void) { return roll(2) ? I(roll(INTS)) : roll(roll(4) ? 6 : 70000); }

static void put_arguments(writer *w, uint32_t func) {
  put(w, signatures[func].n);
  for (uint32_t i = 0; i < signatures[func].n; i++)
    put(w, signatures[func].items[i].kind ? I(roll(INTS)) : roll(OBJS));
}

static void put_list(writer *w, uint32_t count, uint32_t kind) {
  put(w, count);
  for (uint32_t i = 0; i < count; i++) {
    if (kind == NVM_OPERAND_LABEL_LIST) w->labels[w->n_labels++] = w->n;
    put(w, kind == NVM_OPERAND_DIM_LIST   ? random_dim()
           : kind == NVM_OPERAND_OUT_LIST ? roll(INTS)
                                          : roll(OBJS));
  }
}

static uint32_t random_dtype(uint32_t opcode) {
  if (opcode == NVM_OP_ShapeOf || opcode == NVM_OP_PackShape)
    return roll(2) ? NVM_DTYPE_INT32 : NVM_DTYPE_INT64;
  if (opcode == NVM_OP_AllocTensor) return roll(2) ? NVM_DTYPE_FLOAT32 : roll(NVM_DTYPE_COUNT);
  return roll(2) ? NVM_DTYPE_INT64 : roll(8);
}

/* Mostly a register that holds what the instruction wants, so that programs get far. */
static uint32_t likely(uint32_t opcode, int written) {
  if (roll(8) == 0) return roll(OBJS);
  switch (opcode) {
    case NVM_OP_ReadRef:
    case NVM_OP_WriteRef:
      return written ? roll(4) : 4;
    case NVM_OP_AllocRef:
      return written ? 4 : roll(OBJS);
    case NVM_OP_InvokeClosure:
    case NVM_OP_InvokeClosureTail:
      return written ? roll(OBJS) : 5;
    case NVM_OP_AllocClosure:
      return written ? 5 : roll(OBJS);
    case NVM_OP_GetField:
    case NVM_OP_GetTag:
      return written ? roll(4) : 6;
    case NVM_OP_AllocADT:
      return written ? 6 : roll(OBJS);
    case NVM_OP_AllocStorage:
      return 7;
    default:
      return written ? roll(4) : 2 + roll(2);
  }
}

static void put_operand(writer *w, uint32_t opcode, uint32_t kind, uint32_t func, uint32_t ctor) {
  switch (kind) {
    case NVM_OPERAND_INT_IN:
    case NVM_OPERAND_INT_OUT:
      put(w, roll(INTS));
      break;
    case NVM_OPERAND_OBJ_IN:
    case NVM_OPERAND_OBJ_OUT:
      put(w, likely(opcode, kind == NVM_OPERAND_OBJ_OUT));
      break;
    case NVM_OPERAND_OBJ_OPT:
      put(w, roll(2) ? NVM_NO_REGISTER : 7);
      break;
    case NVM_OPERAND_ANY_OUT:
      put(w, result_kinds[func] ? I(roll(INTS)) : roll(OBJS));
      break;
    case NVM_OPERAND_DIM:
      put(w, random_dim());
      break;
    case NVM_OPERAND_IMM:
      put(w, opcode == NVM_OP_AllocStorage ? 1u << roll(13) : roll(3));
      break;
    case NVM_OPERAND_IMM64:
      put(w, roll(3));
      put(w, roll(10) ? 0 : roll(UINT32_MAX));
      break;
    case NVM_OPERAND_FUNC:
      put(w, func);
      break;
    case NVM_OPERAND_CTOR:
      put(w, ctor);
      break;
    case NVM_OPERAND_NOTE:
      put(w, roll(2));
      break;
    case NVM_OPERAND_DTYPE:
      put(w, random_dtype(opcode));
      break;
    case NVM_OPERAND_LABEL:
      w->labels[w->n_labels++] = w->n;
      put(w, 0);
      break;
    case NVM_OPERAND_ARG_LIST:
      put_arguments(w, func);
      break;
    case NVM_OPERAND_DIM_LIST:
      put_list(w, opcode == NVM_OP_CallKernel ? 1 : roll(4), kind);
      break;
    case NVM_OPERAND_OBJ_LIST:
      put_list(w,
               opcode == NVM_OP_CallKernel         ? 3
               : opcode == NVM_OP_AllocADT && ctor ? (ctor == CTOR_CONS ? 2 : 0)
               : opcode == NVM_OP_AllocClosure     ? roll(signatures[func].n + 1)
                                                   : roll(3),
               kind);
      break;
    case NVM_OPERAND_OUT_LIST:
      put_list(w, 0, kind);
      break;
    case NVM_OPERAND_LABEL_LIST:
      put_list(w, 1 + roll(3), kind);
      break;
    default: /* constant, kernel, device 0 */
      put(w, 0);
      break;
  }
}

static void put_instruction(writer *w, uint32_t self) {
  uint32_t opcode = roll(NVM_OPCODE_COUNT);
  while (!nvm_isa[opcode].mnemonic || opcode == NVM_OP_Ret ||
         (opcode == NVM_OP_InvokeClosureTail && result_kinds[self]) ||
         ((nvm_isa[opcode].flags & NVM_ISA_TERMINATOR) && roll(3)))
    opcode = roll(NVM_OPCODE_COUNT);
  uint32_t func = roll(FUNCTIONS), ctor = roll(3);
  if (opcode == NVM_OP_AllocClosure) func = roll(2);
  if (opcode == NVM_OP_InvokeTail)
    while (result_kinds[func] != result_kinds[self]) func = roll(FUNCTIONS);
  w->starts[w->n_starts++] = w->n;
  put(w, opcode);
  for (uint32_t k = 0; k < nvm_isa[opcode].n_operands; k++)
    put_operand(w, opcode, nvm_isa[opcode].kinds[k], func, ctor);
}

/* Fill the registers above the parameters with one value of each kind. */
static void put_prologue(writer *w) {
  const uint32_t code[] = {NVM_OP_AllocTensor,
                           2,
                           NVM_NO_REGISTER,
                           0,
                           1,
                           4,
                           NVM_DTYPE_FLOAT32,
                           0,
                           NVM_OP_LoadConst,
                           3,
                           0,
                           NVM_OP_AllocRef,
                           4,
                           2,
                           NVM_OP_AllocClosure,
                           5,
                           1,
                           0,
                           NVM_OP_AllocADT,
                           6,
                           CTOR_TUPLE,
                           2,
                           2,
                           4,
                           NVM_OP_AllocStorage,
                           7,
                           64,
                           64,
                           0,
                           NVM_OP_LoadConsti,
                           3,
                           4,
                           0};
  w->starts[w->n_starts++] = 0;
  for (size_t i = 0; i < COUNT(code); i++) put(w, code[i]);
}

static void random_function(uint32_t self) {
  static const char *const names[] = {"f0", "f1", "f2", "f3"};
  writer w = {.n = 0};
  put_prologue(&w);
  uint32_t length = 1 + roll(INSTRUCTIONS);
  for (int i = 0; i < (int)length && w.n < MAX_WORDS - 40; i++) put_instruction(&w, self);
  w.starts[w.n_starts++] = w.n;
  put(&w, NVM_OP_Ret);
  put(&w, result_kinds[self] ? I(roll(INTS)) : roll(OBJS));
  for (uint32_t i = 0; i < w.n_labels; i++) w.words[w.labels[i]] = w.starts[roll(w.n_starts)];
  add_function(names[self], signatures[self], result_kinds[self] ? T_I64 : T_VAR0,
               result_kinds[self], INTS, OBJS, w.words, w.n);
}

static nvm_handle *kept; /* a handle of an earlier run, passed to later ones */

static nvm_status run_function(nvm_vm *vm, uint32_t f) {
  static float data[64];
  int64_t shape[] = {64};
  nvm_arg args[2] = {vector_arg(data, shape), vector_arg(data, shape)};
  if (signatures[f].items[0].kind) args[0] = int_arg(3);
  if (kept) args[1] = (nvm_arg){.kind = NVM_ARG_HANDLE, .handle = kept};
  nvm_result *result = NULL;
  nvm_status status = nvm_vm_invoke(vm, f, args, signatures[f].n, &result);
  CHECK(status >= NVM_OK && status <= NVM_INTERRUPTED && status != NVM_INTERNAL);
  for (size_t i = 0; result && !kept && i < nvm_result_count(result); i++) {
    kept = nvm_result_values(result)[i].handle;
    if (kept) nvm_handle_retain(kept);
  }
  nvm_result_free(result);
  return status;
}

/* Returns how many of the runs succeeded. */
static int run_seed(uint64_t seed) {
  state = seed * 0x9E3779B97F4A7C15u + 1;
  new_program(seed % 2 ? NVM_LOAD_NO_NATIVE : 0);
  add_vector_kernel();
  for (uint32_t f = 0; f < FUNCTIONS; f++) random_function(f);
  if (nvm_verify_program(&program) != NVM_OK) return -1;
  nvm_limits limits = {.instructions = 20000, .bytes = 1 << 20, .objects = 2000, .frames = 200};
  nvm_vm *vm = new_vm(&limits);
  int good = 0;
  for (int run = 0; run < 8; run++) good += run_function(vm, (uint32_t)run % FUNCTIONS) == NVM_OK;
  if (kept) nvm_handle_release(kept);
  kept = NULL;
  CHECK_STATUS(nvm_vm_trim(vm), NVM_OK); /* collects the cycles that the handle held */
  nvm_vm_stats stats;
  CHECK_STATUS(nvm_vm_stats_get(vm, &stats), NVM_OK);
  CHECK(stats.live_objects == 0 && stats.live_bytes == 0);
  nvm_vm_destroy(vm);
  return good;
}

int main(void) {
  const char *asked = getenv("SEEDS");
  long seeds = asked ? atol(asked) : 1500, refused = 0, good = 0;
  for (long seed = 0; seed < seeds; seed++) {
    int before = failures, result = run_seed((uint64_t)seed);
    if (failures > before) fprintf(stderr, "seed %ld\n", seed);
    if (failures > 20) break;
    refused += result < 0;
    good += result > 0 ? result : 0;
  }
  CHECK(refused * 4 < seeds);
  printf("%ld programs, %ld refused by the verifier, %ld of %ld runs returned\n", seeds, refused,
         good, 8 * (seeds - refused));
  return failures != 0;
}
