/* stream rnn.nvm decoder.nvm: models that are fed step by step. Nothing is copied in a step but
 * what is new; the VM's counters prove it, and the program fails if they do not.
 *
 *   an RNN       input in place, output into a buffer of ours, its state kept in the VM by a handle
 *   a decoder    the same with a cache of keys and values that grows by a row a token
 *   once more    with the cache as values that are given away (nvm_move) instead of a handle
 *
 *   cc stream.c $(pkg-config --cflags --libs nimblevm) -o stream && ./stream rnn.nvm decoder.nvm
 */
#include <nvm_api.h>
#include <stdio.h>
#include <string.h>

enum {
  INPUTS = 64,
  HIDDEN = 64,
  STEPS = 200,
  WARM = 4, /* steps until all memory is in the VM's pools */
  LAYERS = 2,
  VOCABULARY = 60,
  TOKENS = 100,
  STATE_VALUES = 3 * LAYERS +
      1 /* of (keys, values) a layer: two tensors and a pair each; the tuple */
};

static int failed(nvm_status status) {
  if (status == NVM_OK) return 0;
  fprintf(stderr, "%s: %s\n", nvm_status_name(status), nvm_last_error()->message);
  return 1;
}

static uint64_t copied(nvm_vm *vm) {
  nvm_vm_stats stats;
  return failed(nvm_vm_stats_get(vm, &stats)) ? 0 : stats.copied_bytes;
}

/* --- an RNN: main(x, h) -> (y, h) ------------------------------------------------------------- */

static int run_rnn(nvm_vm *vm) {
  static float x[INPUTS], y[HIDDEN], zero[HIDDEN];
  static const int64_t x_shape[] = {1, INPUTS}, h_shape[] = {1, HIDDEN};
  nvm_handle *state = NULL;
  nvm_vm_stats before, after;
  uint32_t function;
  if (failed(nvm_program_find(nvm_vm_program(vm), "main", &function))) return 1;
  for (int step = 0; step < STEPS; step++) {
    nvm_result *result;
    for (int i = 0; i < INPUTS; i++) x[i] = (float)((step * 7 + i) % 13) * 0.1f - 0.6f;
    const nvm_arg args[] = {
        nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, x_shape, x),
        state ? nvm_arg_handle(state) : nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, h_shape, zero)};
    const nvm_want wants[] = {nvm_want_buffer(NVM_DTYPE_FLOAT32, y, sizeof y), nvm_want_handle()};
    if (failed(nvm_vm_stats_get(vm, &before))) return 1;
    if (failed(nvm_vm_invoke_into(vm, function, args, 2, wants, 2, &result))) return 1;
    if (failed(nvm_vm_stats_get(vm, &after))) return 1;

    nvm_handle *next = nvm_out_field(nvm_result_root(result), 1)->handle;
    nvm_handle_retain(next); /* past the result */
    nvm_handle_release(state);
    state = next;
    nvm_result_free(result);
    if (step < WARM) continue;
    if (after.copied_bytes - before.copied_bytes != sizeof y ||
        after.system_allocations != before.system_allocations) {
      fprintf(stderr, "step %d copied %llu bytes\n", step,
              (unsigned long long)(after.copied_bytes - before.copied_bytes));
      return 1;
    }
  }
  nvm_handle_release(state);
  printf("rnn: %d steps, %zu bytes copied in each, y[0] = %.6f\n", STEPS, sizeof y, (double)y[0]);
  return 0;
}

/* --- a decoder: main(ids, state) -> (next, logits, state) ---------------------------------------
 */

/* The empty cache: a pair of tensors (0, HIDDEN) a layer, in a tuple. */
static size_t empty_state(nvm_arg *args) {
  static const int64_t shape[] = {0, HIDDEN};
  size_t count = 0;
  for (int layer = 0; layer < LAYERS; layer++) {
    args[count++] = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, NULL);
    args[count++] = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, NULL);
    args[count++] = nvm_arg_tuple(2);
  }
  args[count++] = nvm_arg_tuple(LAYERS);
  return count;
}

/* `by_handle`: the state stays in the VM; else it comes out as values and is given away again. */
static int run_decoder(nvm_vm *vm, int by_handle, int32_t *out_tokens) {
  static const int64_t one[] = {1};
  static float logits[VOCABULARY];
  const uint64_t news = sizeof(int32_t) + sizeof logits + 2 * LAYERS * HIDDEN * sizeof(float);
  nvm_result *last = NULL; /* whose state is the current one */
  int32_t token = 1;
  int moved_house = 0; /* steps in which the cache went to a larger block */
  uint32_t function;
  if (failed(nvm_program_find(nvm_vm_program(vm), "main", &function))) return 1;
  const uint64_t start = copied(vm);
  for (int step = 0; step < TOKENS; step++) {
    nvm_arg args[1 + STATE_VALUES] = {nvm_arg_tensor(NVM_DTYPE_INT32, 1, one, &token)};
    nvm_result *result;
    size_t count = 1;
    const nvm_out *state = last ? nvm_out_field(nvm_result_root(last), 2) : NULL;
    if (!state)
      count += empty_state(args + 1);
    else if (by_handle)
      args[count++] = nvm_arg_handle(state->handle);
    else
      count += nvm_move(state, args + 1);
    const nvm_want wants[] = {nvm_want_buffer(NVM_DTYPE_INT32, &token, sizeof token),
                              nvm_want_buffer(NVM_DTYPE_FLOAT32, logits, sizeof logits),
                              by_handle ? nvm_want_handle() : nvm_want_value()};
    const uint64_t before = copied(vm);
    if (failed(nvm_vm_invoke_into(vm, function, args, count, wants, 3, &result))) return 1;
    if (copied(vm) - before > news + sizeof token)
      moved_house++; /* the small input is copied too */
    nvm_result_free(last);
    last = result;
    out_tokens[step] = token;
  }
  nvm_result_free(last);
  const uint64_t all = copied(vm) - start;
  printf(
      "decoder, state %s: %d tokens, %llu bytes new in each, %llu copied in all; the cache moved "
      "%d times\n",
      by_handle ? "by handle" : "given away", TOKENS, (unsigned long long)news,
      (unsigned long long)all, moved_house);
  if (moved_house <= 2 * LAYERS * 12 && all <= 4 * TOKENS * news) return 0;
  fprintf(stderr, "more was copied than what is new\n");
  return 1;
}

static int with_vm(const char *path, int (*run)(nvm_vm *vm)) {
  nvm_program *program;
  nvm_vm *vm;
  if (failed(nvm_program_open(path, 0, &program))) return 1;
  int status = failed(nvm_vm_create(program, NULL, &vm));
  nvm_program_release(program); /* the VM keeps it */
  if (status) return 1;
  status = run(vm);
  nvm_vm_destroy(vm);
  return status;
}

static int run_decoders(nvm_vm *vm) {
  static int32_t kept[TOKENS], moved[TOKENS];
  if (run_decoder(vm, 1, kept) || run_decoder(vm, 0, moved)) return 1;
  printf("tokens:");
  for (int i = 0; i < 10; i++) printf(" %d", kept[i]);
  printf(" ...\n");
  return memcmp(kept, moved, sizeof kept) != 0;
}

int main(int argc, char **argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: stream rnn.nvm decoder.nvm\n");
    return 2;
  }
  return with_vm(argv[1], run_rnn) || with_vm(argv[2], run_decoders);
}
