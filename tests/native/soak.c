/* soak SECONDS FILE...: eight threads run saved models of many sizes, on machine code and in the IR
 * interpreter, while faults are injected: wrong arguments, limits, cancels from another thread,
 * allocations that fail (builds with NVM_TEST), programs loaded and dropped. Every good run's
 * result is compared with what one thread got before; whatever a fault did to a VM, its next good
 * run is right. Memory must be flat: resident set, the VMs' counters, and the C library's at the
 * end. Prints the figures; exits 1 if anything was wrong.
 */
#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include "../fuzz/arguments.h"
#include "alloc.h"
#include "harness.h"
#include "outputs.h"

enum { THREADS = 8, SALTS = 12, MAX_MODELS = 12, SCRIPT = 48 };
enum fault { NONE, BAD_INPUT, LIMITS, CANCEL, NO_MEMORY, RELOAD, FAULTS };
static const char *const fault_names[] = {"none",   "wrong arguments", "limits",
                                          "cancel", "no memory",       "reload"};

typedef struct model {
  const char *path;
  uint32_t flags, function, n_params;
  nvm_program *program;
  outputs expected[SALTS];
  int usable[SALTS];
} model;

static model models[MAX_MODELS];
static size_t n_models;
static atomic_int stop;
static atomic_ulong runs[FAULTS], errors[64], compared, wrong;
static float numbers[4096];

typedef struct worker {
  pthread_t thread;
  uint64_t state;
  _Atomic(nvm_vm *) cancelled; /* the VM that the canceller may stop now */
  atomic_int canceling;
  arguments *arguments;
} worker;

static worker workers[THREADS];

static uint32_t below(worker *w, uint32_t bound) {
  w->state ^= w->state << 13;
  w->state ^= w->state >> 7;
  w->state ^= w->state << 17;
  return (uint32_t)((w->state >> 20) % bound);
}

static void complain(const char *what) {
  atomic_fetch_add(&wrong, 1);
  fprintf(stderr, "%s (%d: %s)\n", what, nvm_last_error()->code, nvm_last_error()->message);
}

/* --- runs ------------------------------------------------------------------------------------- */

static int make_arguments(arguments *a, const model *m, nvm_program *p, uint32_t salt, script *s) {
  static const int32_t ints[] = {3, 1, 2, 5, 0, 4, 1, 1};
  a->program = p;
  a->script = s;
  a->n = 0;
  a->salt = salt;
  for (uint32_t i = 0; i < m->n_params; i++) {
    nvm_param_info param;
    if (nvm_program_param(p, m->function, i, &param) || !arguments_add(a, param.type)) return 0;
  }
  for (size_t i = 0; i < a->n; i++) { /* wrong ones point into arguments_add's own memory */
    if (a->args[i].kind == NVM_ARG_TENSOR && s->at == s->end && a->args[i].data != NULL)
      a->args[i].data = a->args[i].dtype == NVM_DTYPE_INT32 ? (const void *)ints : numbers;
  }
  return 1;
}

static nvm_status invoke(worker *w, const model *m, nvm_vm *vm, outputs *out) {
  nvm_result *result = NULL;
  const nvm_status status =
      nvm_vm_invoke(vm, m->function, w->arguments->args, w->arguments->n, &result);
  if ((status == NVM_OK) != (result != NULL)) complain("a result and an error");
  if (status == NVM_OK && out != NULL) read_outputs(result, out);
  nvm_result_free(result);
  atomic_fetch_add(&errors[status & 63], 1);
  return status;
}

/* A run that nothing but other threads' faults can disturb. */
static void good_run(worker *w, const model *m, nvm_program *p, nvm_vm *vm) {
  script nothing = {0};
  const uint32_t salt = below(w, SALTS);
  outputs got;
  if (!m->usable[salt] || !make_arguments(w->arguments, m, p, salt, &nothing)) return;
  for (int tries = 0; tries < 1000; tries++) {
    const nvm_status status = invoke(w, m, vm, &got);
    if (status == NVM_OUT_OF_MEMORY) continue;
    if (status != NVM_OK) complain("a good run failed");
    if (status == NVM_OK && !same_outputs(&got, &m->expected[salt])) complain("a result differs");
    atomic_fetch_add(&compared, 1);
    return;
  }
  complain("no memory a thousand times");
}

/* --- faults ----------------------------------------------------------------------------------- */

static void bad_input(worker *w, const model *m, nvm_vm *vm) {
  uint8_t bytes[SCRIPT];
  for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)below(w, 256);
  script s = {bytes, bytes + sizeof bytes};
  const nvm_limits limits = {.bytes = 1 << 20, .nanoseconds = 100000000}, none = {0};
  (void)nvm_vm_set_limits(vm, &limits); /* shapes may be huge: strides of 0 make them real */
  if (make_arguments(w->arguments, m, m->program, below(w, SALTS), &s))
    (void)invoke(w, m, vm, NULL);
  (void)nvm_vm_set_limits(vm, &none);
}

static void under_limits(worker *w, const model *m, nvm_vm *vm) {
  script nothing = {0};
  const uint32_t salt = below(w, SALTS);
  nvm_limits limits = {0}, none = {0};
  switch (below(w, 5)) {
    case 0:
      limits.instructions = 1 + below(w, 200);
      break;
    case 1:
      limits.bytes = 1 + below(w, 4000);
      break;
    case 2:
      limits.objects = 1 + below(w, 40);
      break;
    case 3:
      limits.frames = 1 + below(w, 4);
      break;
    default:
      limits.nanoseconds = 1 + below(w, 100000);
  }
  (void)nvm_vm_set_limits(vm, &limits);
  if (m->usable[salt] && make_arguments(w->arguments, m, m->program, salt, &nothing)) {
    const nvm_status status = invoke(w, m, vm, NULL);
    if (status != NVM_OK && status != NVM_OUT_OF_MEMORY && status != NVM_INSTRUCTION_LIMIT &&
        status != NVM_MEMORY_LIMIT && status != NVM_OBJECT_LIMIT && status != NVM_FRAME_LIMIT &&
        status != NVM_TIME_LIMIT)
      complain("not a limit's error");
  }
  (void)nvm_vm_set_limits(vm, &none);
}

static void cancelled(worker *w, const model *m, nvm_vm *vm) {
  script nothing = {0};
  if (!make_arguments(w->arguments, m, m->program, below(w, SALTS), &nothing)) return;
  atomic_store(&w->cancelled, vm);
  for (int i = 0; i < 8; i++) (void)invoke(w, m, vm, NULL);
  atomic_store(&w->cancelled, NULL);
  while (atomic_load(&w->canceling)) usleep(10); /* the VM may die next */
}

static void *cancel_them(void *context) {
  (void)context;
  while (!atomic_load(&stop)) {
    for (int i = 0; i < THREADS; i++) {
      atomic_store(&workers[i].canceling, 1);
      nvm_vm *vm = atomic_load(&workers[i].cancelled);
      if (vm != NULL) nvm_vm_cancel(vm);
      atomic_store(&workers[i].canceling, 0);
    }
    usleep(50);
  }
  return NULL;
}

static void no_memory(worker *w) {
#ifdef NVM_TEST
  (void)nvm_test_fail_allocation(1 + below(w, 300));
#else
  (void)w;
#endif
}

static void reload(worker *w, const model *m) {
  nvm_program *p = NULL;
  nvm_vm *vm = NULL;
  const nvm_vm_options options = {.size = sizeof options, .threads = 1 + (int)below(w, 2)};
  if (nvm_program_open(m->path, m->flags, &p) == NVM_OK &&
      nvm_vm_create(p, &options, &vm) == NVM_OK)
    good_run(w, m, p, vm);
  nvm_vm_destroy(vm);
  nvm_program_release(p);
}

/* --- threads ---------------------------------------------------------------------------------- */

static nvm_vm *make_vm(const model *m) {
  const nvm_vm_options options = {.size = sizeof options, .threads = 2};
  nvm_vm *vm = NULL;
  while (nvm_vm_create(m->program, &options, &vm) == NVM_OUT_OF_MEMORY) {
  }
  return vm;
}

static void one_turn(worker *w, const model *m, nvm_vm *vm) {
  const uint32_t fault = below(w, 4) ? below(w, FAULTS) : NONE;
  atomic_fetch_add(&runs[fault], 1);
  switch (fault) {
    case BAD_INPUT:
      bad_input(w, m, vm);
      break;
    case LIMITS:
      under_limits(w, m, vm);
      break;
    case CANCEL:
      cancelled(w, m, vm);
      break;
    case NO_MEMORY:
      no_memory(w);
      break;
    case RELOAD:
      if (below(w, 8) == 0) reload(w, m);
      break;
    default:
      break;
  }
  good_run(w, m, m->program, vm);
}

static void check_empty(nvm_vm *vm) {
  nvm_vm_stats stats;
  if (nvm_vm_trim(vm) || nvm_vm_stats_get(vm, &stats) || stats.live_objects || stats.live_bytes ||
      stats.pool_bytes)
    complain("a VM keeps memory");
}

static void *work(void *context) {
  worker *w = context;
  nvm_vm *vms[MAX_MODELS] = {0};
  while (!atomic_load(&stop)) {
    const uint32_t i = below(w, (uint32_t)n_models);
    if (vms[i] == NULL) vms[i] = make_vm(&models[i]);
    one_turn(w, &models[i], vms[i]);
    if (below(w, 200) == 0) {
      check_empty(vms[i]);
      nvm_vm_destroy(vms[i]);
      vms[i] = NULL;
    }
  }
  for (size_t i = 0; i < n_models; i++) {
    if (vms[i] != NULL) check_empty(vms[i]);
    nvm_vm_destroy(vms[i]);
  }
  return NULL;
}

/* --- the whole -------------------------------------------------------------------------------- */

static long resident(void) { /* KiB */
  long pages = 0, total = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file == NULL || fscanf(file, "%ld %ld", &total, &pages) != 2) pages = 0;
  if (file != NULL) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void load_models(char **paths, int n) {
  script nothing = {0};
  worker *w = &workers[0];
  for (int i = 0; i < 2 * n && n_models < MAX_MODELS; i++) {
    model *m = &models[n_models++];
    nvm_function_info info;
    m->path = paths[i / 2];
    m->flags = i % 2 ? NVM_LOAD_NO_NATIVE : 0;
    CHECK_STATUS(nvm_program_open(m->path, m->flags, &m->program), NVM_OK);
    CHECK_STATUS(nvm_program_find(m->program, "main", &m->function), NVM_OK);
    CHECK_STATUS(nvm_program_function(m->program, m->function, &info), NVM_OK);
    m->n_params = info.n_params;
    nvm_vm *vm = make_vm(m);
    for (uint32_t salt = 0; salt < SALTS; salt++)
      m->usable[salt] = make_arguments(w->arguments, m, m->program, salt, &nothing) &&
                        invoke(w, m, vm, &m->expected[salt]) == NVM_OK;
    nvm_vm_destroy(vm);
  }
}

static void report(long warm, long most, long last, size_t used, size_t left) {
  for (int i = 0; i < FAULTS; i++) printf("%s %lu, ", fault_names[i], atomic_load(&runs[i]));
  printf("compared %lu, wrong %lu\nresults:", atomic_load(&compared), atomic_load(&wrong));
  for (int i = 0; i < 64; i++)
    if (atomic_load(&errors[i])) printf(" %s %lu", nvm_status_name(i), atomic_load(&errors[i]));
  printf(
      "\nresident KiB: %ld when warm, %ld at most after, %ld at the end; malloc: %zu bytes before, "
      "%zu after\n",
      warm, most, last, used, left);
}

int main(int argc, char **argv) {
  const int seconds = argc > 2 ? atoi(argv[1]) : 0;
  if (seconds < 2) return 2;
  for (size_t i = 0; i < COUNT(numbers); i++) numbers[i] = (float)(int)(i % 17) / 16.0f - 0.5f;
  for (int i = 0; i < THREADS; i++) {
    workers[i].state = 0x9E3779B97F4A7C15u * (uint64_t)(i + 1);
    workers[i].arguments = calloc(1, sizeof *workers[i].arguments);
  }
  const size_t used = mallinfo2().uordblks;
  load_models(argv + 2, argc - 2);
  pthread_t canceller;
  pthread_create(&canceller, NULL, cancel_them, NULL);
  for (int i = 0; i < THREADS; i++) pthread_create(&workers[i].thread, NULL, work, &workers[i]);
  long warm = 0, most = 0;
  for (int s = 0; s < seconds; s++) {
    sleep(1);
    const long now = resident();
    if (s < seconds / 4) warm = now > warm ? now : warm;
    most = now > most ? now : most;
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(workers[i].thread, NULL);
  pthread_join(canceller, NULL);
  const long last = resident();
  for (size_t i = 0; i < n_models; i++) nvm_program_release(models[i].program);
  const size_t left = mallinfo2().uordblks;
  report(warm, most, last, used, left);
  CHECK(atomic_load(&wrong) == 0 && atomic_load(&compared) > 0);
  CHECK(most <= warm + warm / 10 + 8192);
  CHECK(left <= used + (256u << 10));
  return failures != 0;
}
