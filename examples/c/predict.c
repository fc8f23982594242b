/* predict tree.nvm: a TreeLSTM over a small tree. Shows how a program is loaded and asked what it
 * takes, how a tree is built from leaves up, and how a tuple is read.
 *
 *   cc predict.c $(pkg-config --cflags --libs nimblevm) -o predict && ./predict tree.nvm
 */
#include <nvm_api.h>
#include <stdio.h>

enum { INPUTS = 8 };

/* Every call that can fail goes through here. */
static int failed(nvm_status status) {
  const nvm_error *error = nvm_last_error();
  if (status == NVM_OK) return 0;
  fprintf(stderr, "%s: %s", nvm_status_name(status), error->message);
  if (*error->source) fprintf(stderr, " (%s:%u:%u)", error->source, error->line, error->column);
  fprintf(stderr, "\n");
  return 1;
}

static void print_functions(const nvm_program *program) {
  char text[1000];
  for (uint32_t i = 0; i < nvm_program_function_count(program); i++) {
    nvm_function_info info;
    if (failed(nvm_program_function(program, i, &info)) || !info.is_public) continue;
    nvm_program_signature(program, i, text, sizeof text);
    printf("%s\n", text);
  }
}

/* Node(Node(Leaf(a), Leaf(b)), Leaf(c)), and the result (h, c) of main. */
static int run(nvm_program *program, nvm_vm *vm) {
  static const float words[3][INPUTS] = {{0.5f, -1.0f}, {0.0f, 2.0f, 1.0f}, {0.25f}};
  static const int64_t shape[] = {1, INPUTS};
  uint32_t leaf, node;
  if (failed(nvm_program_find_constructor(program, "Leaf", &leaf))) return 1;
  if (failed(nvm_program_find_constructor(program, "Node", &node))) return 1;

  /* A composite stands behind its fields. */
  const nvm_arg tree[] = {nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, words[0]),
                          nvm_arg_adt(leaf, 1),
                          nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, words[1]),
                          nvm_arg_adt(leaf, 1),
                          nvm_arg_adt(node, 2),
                          nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, words[2]),
                          nvm_arg_adt(leaf, 1),
                          nvm_arg_adt(node, 2)};
  const nvm_named_arg named = {"t", tree, sizeof tree / sizeof *tree};
  nvm_result *result;
  if (failed(nvm_vm_run(vm, "main", &named, 1, NULL, 0, &result))) return 1;

  const nvm_out *pair = nvm_result_root(result);
  for (uint32_t k = 0; k < pair->n_fields; k++) {
    const nvm_out *field = nvm_out_field(pair, k);
    const float *numbers = field->data;
    printf("%s:", k ? "c" : "h");
    for (int64_t i = 0; i < field->shape[1]; i++) printf(" %.6f", (double)numbers[i]);
    printf("\n");
  }
  nvm_result_free(result);
  return 0;
}

int main(int argc, char **argv) {
  nvm_program *program;
  nvm_vm *vm;
  if (argc != 2) {
    fprintf(stderr, "usage: predict tree.nvm\n");
    return 2;
  }
  if (failed(nvm_program_open(argv[1], 0, &program))) return 1;
  print_functions(program);
  int status = failed(nvm_vm_create(program, NULL, &vm));
  if (!status) {
    status = run(program, vm);
    nvm_vm_destroy(vm);
  }
  nvm_program_release(program);
  return status;
}
