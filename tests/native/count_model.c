/* count_model FILE: runs main of a saved LSTM or TreeLSTM a thousand times with repeated sizes; the
 * system's allocator must not be called between run 10 and run 1,000. Exits 1 and says what was. */
#include <stdio.h>
#include <string.h>

#include "counting.h"
#include "generated/nvm_dtype.h"
#include "nvm_api.h"

enum { MAX_STEPS = 8, MAX_INPUTS = 300 };

static float data[MAX_STEPS * MAX_INPUTS];
static const int sizes[] = {1, 3, 8, 5, 2};

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nvm_last_error()->message);
  return 1;
}

static uint32_t constructor(const nvm_program *program, const char *wanted) {
  for (uint32_t i = 0; i < nvm_program_constructor_count(program); i++) {
    int32_t adt;
    uint32_t tag, n_fields;
    const uint32_t *fields;
    const char *name = nvm_program_constructor(program, i, &adt, &tag, &n_fields, &fields);
    if (strcmp(name, wanted) == 0) return i;
  }
  return 0;
}

/* x (n, inputs) */
static size_t sequence(nvm_arg *args, int64_t *shape, int n, int inputs) {
  shape[0] = n;
  shape[1] = inputs;
  args[0] = (nvm_arg){.kind = NVM_ARG_TENSOR,
                      .dtype = NVM_DTYPE_FLOAT32,
                      .rank = 2,
                      .dl_device_type = 1,
                      .data = data,
                      .shape = shape};
  return 1;
}

/* Node(Node(Leaf, Leaf), Leaf)... over n leaves (1, inputs), in postorder */
static size_t tree(nvm_arg *args, int64_t *shape, int n, int inputs, uint32_t leaf, uint32_t node) {
  size_t count = 0;
  for (int i = 0; i < n; i++) {
    sequence(&args[count++], shape, 1, inputs);
    args[count++] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = leaf, .n_fields = 1};
    if (i > 0) args[count++] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = node, .n_fields = 2};
  }
  return count;
}

int main(int argc, char **argv) {
  nvm_program *program;
  nvm_vm *vm;
  uint32_t function;
  if (argc != 3) return fail("usage: count_model FILE INPUTS");
  int inputs = atoi(argv[2]);
  if (inputs < 1 || inputs > MAX_INPUTS) return fail("INPUTS is out of range");
  if (nvm_program_open(argv[1], 0, &program)) return fail(argv[1]);
  if (nvm_program_find(program, "main", &function)) return fail("main");
  if (nvm_vm_create(program, NULL, &vm)) return fail("nvm_vm_create");
  uint32_t leaf = constructor(program, "Leaf"), node = constructor(program, "Node");
  void *brk_before = NULL;
  for (int run = 0; run < 1000; run++) {
    if (run == 10) {
      counting = 1;
      brk_before = sbrk(0);
    }
    nvm_arg args[3 * MAX_STEPS];
    int64_t shape[2];
    int n = sizes[run % 5];
    size_t count =
        leaf ? tree(args, shape, n, inputs, leaf, node) : sequence(args, shape, n, inputs);
    nvm_result *result;
    if (nvm_vm_invoke(vm, function, args, count, &result)) return fail("nvm_vm_invoke");
    nvm_result_free(result);
  }
  counting = 0;
  int moved = brk_before != sbrk(0);
  printf("%lu allocations, brk %s\n", calls, moved ? "moved" : "unmoved");
  nvm_vm_destroy(vm);
  nvm_program_release(program);
  return calls != 0 || moved || !COUNTED;
}
