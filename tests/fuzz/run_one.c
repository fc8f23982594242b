#include "run_one.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "generated/nvm_dtype.h"
#include "nvm_api.h"

enum { MAX_ARGS = 256, MAX_NESTING = 8, MAX_BYTES = 4096, MAX_FUNCTIONS = 16, MAX_RANK = 8 };

/* The arguments of one call under construction. */
typedef struct builder {
  const nvm_program *program;
  nvm_arg args[MAX_ARGS];
  int64_t shapes[MAX_ARGS][MAX_RANK];
  size_t n;
  uint32_t salt;
  char data[MAX_BYTES];
} builder;

static int add_value(builder *b, uint32_t type, int nesting);

static int add_tensor(builder *b, const int64_t *words, size_t n_words) {
  nvm_arg *arg = &b->args[b->n];
  int64_t bytes = nvm_dtypes[words[1]].itemsize;
  arg->kind = NVM_ARG_TENSOR;
  arg->dtype = (int32_t)words[1];
  arg->rank = (uint32_t)n_words - 2;
  arg->dl_device_type = 1;
  for (size_t i = 2; i < n_words; i++) {
    int64_t dim = words[i];
    if (dim == -1) dim = (b->salt + (int64_t)i) % 4;      /* unknown */
    if (dim < -1) dim = ((int64_t)b->salt - dim * 7) % 4; /* a slot: the same size everywhere */
    if (dim > MAX_BYTES || (bytes *= dim) > MAX_BYTES) return 0;
    b->shapes[b->n][i - 2] = dim;
  }
  arg->shape = b->shapes[b->n];
  arg->data = b->data;
  b->n++;
  return 1;
}

static int add_adt(builder *b, const int64_t *words, int nesting) {
  uint32_t n_params, first, count, tag, n_fields = 0, chosen = 0;
  int32_t adt;
  const uint32_t *fields = NULL;
  if (nvm_program_adt(b->program, (uint32_t)words[1], &n_params, &first, &count) == NULL) return 0;
  if (count == 0) return 0;
  /* Deep inside take the constructor with the fewest fields, so that lists end. */
  chosen = first + b->salt % count;
  if (nesting > 2) {
    uint32_t least = UINT32_MAX;
    for (uint32_t i = first; i < first + count && i < first + 64; i++) {
      nvm_program_constructor(b->program, i, &adt, &tag, &n_fields, &fields);
      if (n_fields < least) least = n_fields, chosen = i;
    }
  }
  nvm_program_constructor(b->program, chosen, &adt, &tag, &n_fields, &fields);
  for (uint32_t i = 0; i < n_fields; i++) {
    if (!add_value(b, fields[i], nesting + 1)) return 0;
  }
  if (b->n == MAX_ARGS) return 0;
  b->args[b->n++] = (nvm_arg){.kind = NVM_ARG_ADT, .ctor = chosen, .n_fields = n_fields};
  return 1;
}

/* Append a value of a type in postorder; 0 if none can be made (functions, refs, too large). */
static int add_value(builder *b, uint32_t type, int nesting) {
  size_t n_words = 0;
  const int64_t *words = nvm_program_type(b->program, type, &n_words);
  static const int64_t scalar[] = {0, NVM_DTYPE_FLOAT32};
  if (nesting > MAX_NESTING || b->n >= MAX_ARGS) return 0;
  b->salt = b->salt * 1664525u + 1013904223u;
  switch (words[0]) {
    case 0:
      return add_tensor(b, words, n_words);
    case 1:
      for (size_t i = 1; i < n_words; i++) {
        if (!add_value(b, (uint32_t)words[i], nesting + 1)) return 0;
      }
      if (b->n == MAX_ARGS) return 0;
      b->args[b->n++] = (nvm_arg){.kind = NVM_ARG_ADT, .n_fields = (uint32_t)n_words - 1};
      return 1;
    case 2:
      return add_adt(b, words, nesting);
    case 5:
      return add_tensor(b, scalar, 2);
    default:
      return 0;
  }
}

static void call(nvm_vm *vm, const nvm_program *program, uint32_t function,
                 const nvm_function_info *info, uint32_t salt, run_one_counts *counts) {
  builder *b = calloc(1, sizeof *b);
  b->program = program;
  b->salt = salt;
  for (size_t i = 0; i < sizeof b->data; i++) b->data[i] = (char)(i % 3 == 0);
  int made = 1;
  for (uint32_t i = 0; made && i < info->n_params; i++) {
    nvm_param_info param;
    made = nvm_program_param(program, function, i, &param) == NVM_OK && add_value(b, param.type, 0);
    b->salt = salt;
  }
  nvm_result *result = NULL;
  if (made) {
    counts->calls++;
    if (nvm_vm_invoke(vm, function, b->args, b->n, &result) == NVM_OK) {
      counts->returned++;
      for (size_t i = 0; i < nvm_result_count(result); i++) {
        const nvm_out *out = &nvm_result_values(result)[i];
        if (out->kind == NVM_OUT_TENSOR && out->data != NULL && out->rank == 0) {
          volatile char first = *(const char *)out->data; /* must be readable */
          (void)first;
        }
      }
    }
    nvm_result_free(result);
  }
  free(b);
}

void run_one(const uint8_t *data, size_t size, run_one_counts *counts) {
  nvm_program *program = NULL;
  nvm_vm *vm = NULL;
  counts->files++;
  nvm_status status = nvm_program_load(data, size, NVM_LOAD_NO_NATIVE, &program);
  counts->past_structure += nvm_load_stage() >= 1;
  counts->past_code += nvm_load_stage() >= 2;
  if (status != NVM_OK) {
    if (status != NVM_INVALID_EXECUTABLE && status != NVM_UNSUPPORTED_VERSION &&
        status != NVM_OUT_OF_MEMORY) {
      fprintf(stderr, "load returned %d: %s\n", status, nvm_last_error()->message);
      abort();
    }
    return;
  }
  nvm_vm_options options = {.size = sizeof options, .threads = 1};
  options.limits = (nvm_limits){.instructions = 20000,
                                .bytes = 1 << 22,
                                .objects = 2000,
                                .frames = 200,
                                .nanoseconds = 50000000};
  if (nvm_vm_create(program, &options, &vm) == NVM_OK) {
    uint32_t n = nvm_program_function_count(program);
    for (uint32_t i = 0; i < n && i < MAX_FUNCTIONS; i++) {
      nvm_function_info info;
      if (nvm_program_function(program, i, &info) != NVM_OK || !info.is_public) continue;
      for (uint32_t turn = 0; turn < 2; turn++) call(vm, program, i, &info, turn * 77, counts);
    }
  }
  nvm_vm_destroy(vm);
  nvm_program_release(program);
}
