/* Times of the VM's budgets (docs/performance.md), printed and never asserted. Minimum of many
 * rounds, each shorter than a time slice, so that another process costs rounds and not truth. */
#include "programs.h"

static uint64_t time_run(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args) {
  uint64_t best = UINT64_MAX;
  for (int round = 0; round < 300; round++) {
    nvm_result *result = NULL;
    uint64_t start = nvm_now();
    CHECK_STATUS(nvm_vm_invoke(vm, function, args, n_args, &result), NVM_OK);
    uint64_t took = nvm_now() - start;
    nvm_result_free(result);
    if (took < best) best = took;
  }
  return best;
}

static void report(const char *what, uint64_t ns, double per, double budget) {
  printf("%-44s %8.2f ns   (budget %g)\n", what, (double)ns / per, budget);
}

int main(void) {
  new_program(0);
  uint32_t sum = add_tail_sum(), depth = add_depth(), list = add_list_length();
  uint32_t kernels = add_kernel_loop(), loop = add_loop();
  uint32_t self = program.n_functions;
  /* allocs(n): n times an ADT value of two fields */
  uint32_t allocs = add_function(
      "allocs", (params){2, {PARAM("n", T_I64, 1), PARAM("x", T_VECTOR, 0)}}, T_I64, 1, 4, 2,
      WORDS(NVM_OP_LoadConsti, 1, 1, 0, NVM_OP_IntLt, 3, 2, 0, NVM_OP_If, 3, 24, NVM_OP_AllocADT, 1,
            CTOR_TUPLE, 2, 0, 0, NVM_OP_IntAdd, 2, 2, 1, NVM_DTYPE_INT64, NVM_OP_Goto, 4,
            NVM_OP_Ret, I(2)));
  uint32_t empty = add_function("empty", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 1, 0,
                                WORDS(NVM_OP_Ret, I(0)));
  uint32_t calls = add_function("calls", (params){1, {PARAM("n", T_I64, 1)}}, T_I64, 1, 4, 0,
                                WORDS(NVM_OP_LoadConsti, 1, 1, 0, NVM_OP_IntLt, 3, 2, 0, NVM_OP_If,
                                      3, 23, NVM_OP_Invoke, I(2), empty, 1, I(2), NVM_OP_IntAdd, 2,
                                      2, 1, NVM_DTYPE_INT64, NVM_OP_Goto, 4, NVM_OP_Ret, I(2)));
  /* objs(n, x): tail call with objects, as a decoder's loop */
  uint32_t objs = program.n_functions;
  add_function("objs",
               (params){4,
                        {PARAM("n", T_I64, 1), PARAM("x", T_VECTOR, 0), PARAM("y", T_VECTOR, 0),
                         PARAM("z", T_VECTOR, 0)}},
               T_I64, 1, 2, 8,
               WORDS(NVM_OP_If, 0, 19, NVM_OP_LoadConsti, 1, 1, 0, NVM_OP_IntSub, 0, 0, 1,
                     NVM_DTYPE_INT64, NVM_OP_InvokeTail, objs, 4, I(0), 1, 2, 0, NVM_OP_Ret, I(0)));
  (void)self;
  nvm_vm *vm = new_vm(NULL);
  static float data[64];
  int64_t shape[] = {64};
  enum { N = 20000 };
  uint64_t base = time_run(vm, loop, (nvm_arg[]){int_arg(N)}, 1);
  report("plain instruction (loop of 4)", base, 4.0 * N, 3);
  report("call and return", time_run(vm, calls, (nvm_arg[]){int_arg(N)}, 1) - base, N, 15);
  report("recursive call and return, one turn", time_run(vm, depth, (nvm_arg[]){int_arg(10000)}, 1),
         10000, 15 + 5 * 3);
  report("tail call, one turn of 5 instructions",
         time_run(vm, sum, (nvm_arg[]){int_arg(N), int_arg(0)}, 2), N, 8 + 5 * 3);
  report("tail call with 3 objects, turn of 4",
         time_run(vm, objs,
                  (nvm_arg[]){int_arg(N), vector_arg(data, shape), vector_arg(data, shape),
                              vector_arg(data, shape)},
                  4),
         N, 8 + 3 * 3);
  report("ADT allocation and release",
         time_run(vm, allocs, (nvm_arg[]){int_arg(N), vector_arg(data, shape)}, 2) - base, N, 30);
  report("list of boxed integers, build and walk",
         time_run(vm, list, (nvm_arg[]){int_arg(10000)}, 1), 10000, 30 + 60 + 16 + 8 * 3);
  report("kernel: one of 64 floats with allocation, turn",
         time_run(vm, kernels, (nvm_arg[]){vector_arg(data, shape), int_arg(N)}, 2), N,
         60 + 8 + 4 * 3);
  shape[0] = 1;
  report("kernel: one of 1 float with allocation, turn",
         time_run(vm, kernels, (nvm_arg[]){vector_arg(data, shape), int_arg(N)}, 2), N,
         60 + 8 + 4 * 3);
  report("empty run", time_run(vm, empty, (nvm_arg[]){int_arg(1)}, 1), 1, 1000);
  nvm_vm_destroy(vm);
  return failures != 0;
}
