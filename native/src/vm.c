/* VMs: creation, runs, limits, memory policy. */
#include "vm.h"

#include "log.h"
#include "profile.h"
#include "results.h"
#include "args.h"
#include "frame.h"
#include "interp.h"
#include "limits.h"
#include "vm_devices.h"

/* What the pools may keep beyond twice what recent runs needed at once. */
#define POOL_SLACK     ((size_t)64 << 20)
#define RESULT_VALUES  ((uint64_t)1 << 28)
#define DEFAULT_EVENTS ((uint64_t)1 << 20)
#ifdef NVM_TEST
enum { FIRST_TRANSFER = 1 };
#else
enum { FIRST_TRANSFER = 64 };
#endif

/* --- limits of memory ------------------------------------------------------------------------- */

NVM_COLD static void mark_roots(nvm_heap *heap, void *context) {
  const nvm_vm *vm = context;
  for (size_t slot = vm->frame; slot != NVM_NO_FRAME;) {
    nvm_frame *frame = nvm_frame_at(vm, slot);
    nvm_object **objs = nvm_frame_objs(frame);
    for (uint32_t i = 0; i < frame->function->n_objs; i++) nvm_mark(heap, objs[i]);
    slot = frame->caller;
  }
  for (nvm_handle *handle = heap->handles; handle; handle = handle->live)
    nvm_mark(heap, handle->object);
}

NVM_COLD static int within(const nvm_heap *heap, nvm_status code, int64_t bytes) {
  return code == NVM_OBJECT_LIMIT ? heap->live_objects < heap->object_cap
                                  : heap->live_bytes + bytes <= heap->byte_cap;
}

/* A cap was hit (or, with NVM_OK, many refs exist): collect cycles and look again. */
NVM_COLD static nvm_status pressure(void *context, nvm_status code, int64_t bytes) {
  nvm_vm *vm = context;
  nvm_heap *heap = vm->heap;
  if (vm->collectable && heap->refs && (code == NVM_OK || !vm->tight)) {
    nvm_collect(heap, mark_roots, vm);
    if (code == NVM_OK) return NVM_OK;
    int64_t slack = code == NVM_OBJECT_LIMIT ? heap->object_cap - heap->live_objects
                                             : heap->byte_cap - heap->live_bytes;
    uint64_t limit = code == NVM_OBJECT_LIMIT ? vm->limits.objects : vm->limits.bytes;
    vm->tight = slack < (int64_t)(limit / 8);
    if (within(heap, code, bytes)) return NVM_OK;
  }
  if (code == NVM_OK) return NVM_OK;
  if (code == NVM_OBJECT_LIMIT)
    NVM_FAIL(code, "the run has %llu objects alive, its limit",
             (unsigned long long)vm->limits.objects);
  NVM_FAIL(code, "the run asked for %lld bytes more than its limit of %llu bytes allows",
           (long long)(heap->live_bytes + bytes - heap->byte_cap),
           (unsigned long long)vm->limits.bytes);
}

static int64_t cap(int64_t base, uint64_t limit) {
  return limit == 0 || limit > (uint64_t)(INT64_MAX - base) ? INT64_MAX : base + (int64_t)limit;
}

static nvm_status poll_copy(void *vm) { return nvm_vm_poll(vm); }

/* --- creation --------------------------------------------------------------------------------- */

/* Replace the profile; NVM_PROFILE_OFF: none. */
NVM_COLD static nvm_status set_profile(nvm_vm *vm, int32_t level, uint64_t max_events) {
  nvm_profile_state *made = NULL;
  if (level != NVM_PROFILE_OFF) NVM_TRY(nvm_profile_create(vm->program, level, max_events, &made));
  nvm_profile_free(vm->profile);
  vm->profile = made;
  vm->call.profiled = made != NULL;
  return NVM_OK;
}

static nvm_status poll_kernel(nvm_vm *vm, uint64_t turns) {
  return turns ? nvm_vm_charge(vm, turns) : nvm_vm_poll(vm);
}

static const nvm_call_host call_host = {.poll = poll_kernel,
                                        .stopped = nvm_vm_stopped,
                                        .kernel_ended = nvm_profile_kernel,
                                        .piece_ended = nvm_profile_piece};

NVM_COLD NVM_EXPORT nvm_status nvm_vm_create(nvm_program *program, const nvm_vm_options *options,
                                             nvm_vm **out_vm) {
  nvm_error_clear();
  nvm_log_init();
  if (options && options->size != sizeof *options)
    NVM_FAIL(NVM_INVALID_INPUT, "nvm_vm_options.size is %u, expected %zu", options->size,
             sizeof *options);
  if (options && options->threads < 1)
    NVM_FAIL(NVM_INVALID_INPUT, "threads must be at least 1, got %d", options->threads);
  if (!nvm_program_is_bound(program))
    NVM_FAIL(
        NVM_WEIGHTS_NOT_BOUND,
        "the program wants %u weights that are not in its file (%s, ...) and are not bound%s%s",
        program->n_weights, program->weights[0].name,
        program->weights_file[0] ? "; they should lie in " : "", program->weights_file);
  nvm_vm *vm = nvm_malloc(sizeof *vm);
  if (!vm) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a VM");
  memset(vm, 0, sizeof *vm);
  nvm_program_retain(program);
  vm->program = program;
  vm->frame = NVM_NO_FRAME;
  vm->transfer = nvm_malloc(FIRST_TRANSFER * sizeof *vm->transfer);
  vm->transfer_slots = FIRST_TRANSFER;
  nvm_status status = NVM_OK;
  if (!vm->transfer)
    status = nvm_fail(NVM_OUT_OF_MEMORY, "no memory for a VM");
  else
    status = nvm_heap_create(program->n_devices, &vm->heap);
  if (status == NVM_OK) status = nvm_vm_open_devices(vm, options);
  if (status != NVM_OK) {
    nvm_vm_destroy(vm);
    return status;
  }
  nvm_results_attach(vm->heap);
  vm->heap->zero = (program->flags & NVM_LOAD_NO_NATIVE) != 0;
  vm->heap->pressure = pressure;
  vm->heap->poll = poll_copy;
  vm->heap->vm = vm;
  if (options) {
    vm->limits = options->limits;
    vm->poll = options->poll;
    vm->poll_context = options->poll_context;
  }
  nvm_call_init(&vm->call, &call_host, vm, options ? options->threads : 1);
  status = set_profile(vm, options ? options->profile : NVM_PROFILE_OFF, DEFAULT_EVENTS);
  if (status != NVM_OK) {
    nvm_vm_destroy(vm);
    return status;
  }
  *out_vm = vm;
  return NVM_OK;
}

NVM_EXPORT nvm_program *nvm_vm_program(const nvm_vm *vm) { return vm->program; }

NVM_COLD NVM_EXPORT void nvm_vm_destroy(nvm_vm *vm) {
  if (!vm) return;
  if (vm->heap) {
    nvm_heap_drain(vm->heap);
    nvm_handles_clear(vm->heap);
    nvm_collect(vm->heap, mark_roots, vm);
    vm->heap->pressure = NULL;
    nvm_vm_close_devices(vm);
    nvm_heap_close(vm->heap);
  }
  nvm_scratch_free(vm);
  nvm_profile_free(vm->profile);
  nvm_free(vm->stack);
  nvm_free(vm->transfer);
  nvm_program_release(vm->program);
  nvm_free(vm);
}

/* --- use by one caller at a time -------------------------------------------------------------- */

static nvm_status acquire(nvm_vm *vm) {
  int idle = 0;
  if (!atomic_compare_exchange_strong_explicit(&vm->busy, &idle, 1, memory_order_acquire,
                                               memory_order_relaxed))
    NVM_FAIL(NVM_VM_BUSY, "this VM is running in another thread; make one VM a thread");
  return NVM_OK;
}

static void let_go(nvm_vm *vm) { atomic_store_explicit(&vm->busy, 0, memory_order_release); }

NVM_COLD NVM_EXPORT nvm_status nvm_vm_set_limits(nvm_vm *vm, const nvm_limits *limits) {
  nvm_error_clear();
  NVM_TRY(acquire(vm));
  vm->limits = *limits;
  let_go(vm);
  return NVM_OK;
}

NVM_COLD NVM_EXPORT void nvm_vm_cancel(nvm_vm *vm) {
  atomic_store_explicit(&vm->cancel, 1, memory_order_relaxed);
}

NVM_COLD static void trim(nvm_vm *vm, size_t keep) {
  const size_t before = nvm_heap_cached(vm->heap);
  nvm_heap_trim(vm->heap, keep, keep);
  NVM_LOG(DEBUG, "trim: %zu of %zu pooled bytes given back", before - nvm_heap_cached(vm->heap),
          before);
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_trim(nvm_vm *vm) {
  nvm_error_clear();
  NVM_TRY(acquire(vm));
  nvm_heap_drain(vm->heap);
  if (vm->heap->refs)
    nvm_collect(vm->heap, mark_roots, vm); /* a dropped handle may have left cycles */
  trim(vm, 0);
  nvm_stack_trim(vm, 0);
  nvm_scratch_free(vm);
  let_go(vm);
  return NVM_OK;
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_stats_get(nvm_vm *vm, nvm_vm_stats *out_stats) {
  nvm_error_clear();
  NVM_TRY(acquire(vm));
  nvm_heap *heap = vm->heap;
  nvm_heap_drain(heap);
  *out_stats = (nvm_vm_stats){.runs = vm->runs,
                              .instructions = vm->fuel_used >> 2,
                              .kernel_calls = vm->kernel_calls,
                              .allocations = heap->allocations,
                              .live_objects = (uint64_t)heap->live_objects,
                              .live_bytes = (uint64_t)heap->live_bytes,
                              .peak_bytes = (uint64_t)heap->peak_bytes,
                              .pool_bytes = nvm_heap_cached(heap),
                              .system_allocations = atomic_load(&heap->system_allocations),
                              .copied_bytes = heap->copied_bytes,
                              .written_bytes = heap->written_bytes,
                              .allocated_bytes = heap->allocated_bytes,
                              .copies_to_device = heap->copies[0],
                              .copies_to_host = heap->copies[1]};
  let_go(vm);
  return NVM_OK;
}

NVM_COLD static nvm_status need_profile(nvm_vm *vm) {
  NVM_TRY(acquire(vm));
  if (vm->profile) return NVM_OK;
  let_go(vm);
  NVM_FAIL(NVM_INVALID_INPUT, "this VM was made without a profile");
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_profile_get(nvm_vm *vm, nvm_profile *out_profile) {
  nvm_error_clear();
  NVM_TRY(need_profile(vm));
  nvm_profile_state *p = vm->profile;
  memset(p->opcodes, 0, sizeof p->opcodes);
  for (size_t i = 0; p->words && i < p->n_words; i++) {
    if (!p->words[i].calls) continue;
    p->opcodes[p->code[i]].calls += p->words[i].calls;
    p->opcodes[p->code[i]].cycles += p->words[i].cycles;
  }
  *out_profile = (nvm_profile){.runs = p->runs,
                               .cycles = p->cycles,
                               .nanoseconds = p->nanoseconds,
                               .notes = p->notes,
                               .n_kernels = vm->program->n_kernels,
                               .n_opcodes = NVM_OPCODE_COUNT,
                               .kernels = p->kernels,
                               .opcodes = p->opcodes};
  let_go(vm);
  return NVM_OK;
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_profile_details(nvm_vm *vm,
                                                      nvm_profile_details *out_details) {
  nvm_error_clear();
  NVM_TRY(need_profile(vm));
  const nvm_profile_state *p = vm->profile;
  *out_details = (nvm_profile_details){.n_shapes = p->n_shapes,
                                       .shapes = p->shapes,
                                       .values = p->values,
                                       .n_words = p->n_words,
                                       .words = p->words};
  if (p->trace) {
    const uint64_t all = atomic_load(&p->trace->count), room = p->trace->capacity;
    out_details->events = p->trace->events;
    out_details->n_events = all < room ? all : room;
    out_details->dropped_events = all - out_details->n_events;
  }
  let_go(vm);
  return NVM_OK;
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_profile_reset(nvm_vm *vm) {
  nvm_error_clear();
  NVM_TRY(need_profile(vm));
  nvm_profile_clear(vm->profile, vm->program);
  let_go(vm);
  return NVM_OK;
}

NVM_COLD NVM_EXPORT nvm_status nvm_vm_profile_start(nvm_vm *vm, int32_t level,
                                                    uint64_t max_events) {
  nvm_error_clear();
  NVM_TRY(acquire(vm));
  const nvm_status status = set_profile(vm, level, max_events);
  let_go(vm);
  return status;
}

/* --- runs ------------------------------------------------------------------------------------- */

static void begin(nvm_vm *vm) {
  nvm_heap *heap = vm->heap;
  const nvm_limits *limits = &vm->limits;
  nvm_heap_drain(heap);
  heap->object_cap = cap(heap->live_objects, limits->objects);
  heap->byte_cap = cap(heap->live_bytes, limits->bytes);
  heap->run_peak = heap->live_bytes;
  vm->depth_limit = limits->frames ? limits->frames : UINT64_MAX;
  vm->tight = 0;
  vm->runs++;
  nvm_limits_begin(vm);
}

/* After a run: cycles, and memory that recent runs did not need. */
static nvm_status finish(nvm_vm *vm, int64_t base) {
  nvm_heap *heap = vm->heap;
  heap->object_cap = heap->byte_cap = INT64_MAX;
  nvm_status status = nvm_args_privatize(vm);
  nvm_limits_end(vm);
  nvm_frames_unwind(vm);
  if (heap->refs) nvm_collect(heap, mark_roots, vm);
  if (heap->run_peak > heap->peak_bytes) heap->peak_bytes = heap->run_peak;
  int64_t peak = heap->run_peak - base, faded = vm->recent_peak - vm->recent_peak / 16;
  vm->recent_peak = peak > faded ? peak : faded;
  size_t keep = POOL_SLACK + 2 * (size_t)vm->recent_peak;
  if (NVM_UNLIKELY(nvm_heap_cached(heap) > keep)) trim(vm, keep);
  return status;
}

static void release_all(const nvm_arg *args, size_t n_args) {
  for (size_t i = 0; i < n_args; i++)
    if (args[i].release) args[i].release(args[i].owner);
}

static nvm_status interpret(nvm_vm *vm) {
  if (NVM_LIKELY(!vm->profile) || vm->profile->level < NVM_PROFILE_INSTRUCTIONS)
    return nvm_interpret(vm);
  nvm_profile_enter(vm);
  const nvm_status status = nvm_interpret(vm);
  nvm_profile_leave(vm);
  return status;
}

/* The most values that a result may have. */
static uint64_t result_limit(const nvm_vm *vm) {
  uint64_t limit = vm->limits.objects ? vm->limits.objects : RESULT_VALUES;
  return limit < 64 ? 64 : limit;
}

static nvm_status execute(nvm_vm *vm, uint32_t index, const nvm_arg *args, size_t n_args,
                          const nvm_wants *wants, nvm_result **out_result) {
  const nvm_function *function = &vm->program->functions[index];
  nvm_status status = nvm_frame_push(vm, function);
  if (status != NVM_OK) {
    release_all(args, n_args);
    return status;
  }
  NVM_TRY(nvm_args_convert(vm, index, args, n_args));
  vm->collectable = 1;
  status = interpret(vm);
  vm->collectable = 0;
  if (vm->heap->n_pools > 1) { /* what kernels on devices report comes first */
    const nvm_status late = nvm_vm_sync(vm);
    if (late != NVM_OK) status = late;
  }
  nvm_object *value = vm->result;
  vm->result = NULL;
  if (status != NVM_OK) {
    nvm_frames_report(vm);
    nvm_release(vm->heap, value); /* it was there before a device had its say */
    return status;
  }
  if (function->result_kind) {
    const nvm_type *type = &vm->program->types[function->result_type];
    uint32_t dtype = type->words[0] == 0 ? (uint32_t)type->words[1] : (uint32_t)NVM_DTYPE_INT64;
    nvm_tensor *boxed;
    NVM_TRY(nvm_tensor_scalar(vm->heap, dtype, vm->result_int, &boxed));
    value = &boxed->header;
  }
  return nvm_result_create(vm->heap, value, result_limit(vm), wants, out_result);
}

/* began: ns, 0: unknown. */
NVM_COLD static void tell(const nvm_vm *vm, uint32_t function, nvm_status status, uint64_t began) {
  const char *name = vm->program->functions[function].name;
  if (status != NVM_OK)
    NVM_LOG(ERROR, "run of @%s failed: %s", name, nvm_last_error()->message);
  else if (began)
    NVM_LOG(DEBUG, "run of @%s: %.1f us, at most %lld bytes of tensors", name,
            (double)(nvm_now() - began) / 1e3, (long long)vm->heap->run_peak);
}

NVM_EXPORT nvm_status nvm_vm_invoke_into(nvm_vm *vm, uint32_t function, const nvm_arg *args,
                                         size_t n_args, const nvm_want *items, uint32_t n_wants,
                                         nvm_result **out_result) {
  nvm_wants wants = {.count = 0};
  nvm_error_clear();
  nvm_status status = acquire(vm);
  if (status != NVM_OK) {
    release_all(args, n_args);
    return status;
  }
  *out_result = NULL;
  if (function >= vm->program->n_functions || !vm->program->functions[function].is_public)
    status = nvm_fail(NVM_FUNCTION_NOT_FOUND, "the executable has no public function of index %u",
                      function);
  else if (n_wants)
    status = nvm_wants_check(vm->program, function, items, n_wants, &wants);
  if (status != NVM_OK) {
    release_all(args, n_args);
    let_go(vm);
    return status;
  }
  const uint64_t began = vm->profile || nvm_log_wants(NVM_LOG_DEBUG) ? nvm_now() : 0;
  const uint64_t since = vm->profile ? nvm_cycles() : 0;
  begin(vm);
  if (NVM_UNLIKELY(since)) nvm_profile_begin(vm, function);
  int64_t base = vm->heap->live_bytes;
  status = execute(vm, function, args, n_args, &wants, out_result);
  nvm_status kept = finish(vm, base);
  if (NVM_UNLIKELY(since)) nvm_profile_end(vm, function, status, since, began);
  if (status == NVM_OK) {
    status = kept;
    if (status == NVM_OK && wants.count) status = nvm_wants_fill(vm->heap, *out_result, &wants);
    if (status != NVM_OK) {
      nvm_result_free(*out_result);
      *out_result = NULL;
    }
  }
  nvm_args_settle(vm, args, n_args);
  if (NVM_UNLIKELY(status != NVM_OK || began)) tell(vm, function, status, began);
  let_go(vm);
  return status;
}

NVM_EXPORT nvm_status nvm_vm_invoke(nvm_vm *vm, uint32_t function, const nvm_arg *args,
                                    size_t n_args, nvm_result **out_result) {
  return nvm_vm_invoke_into(vm, function, args, n_args, NULL, 0, out_result);
}

NVM_EXPORT nvm_status nvm_vm_read(nvm_vm *vm, nvm_handle *handle, nvm_result **out_result) {
  const nvm_wants values = {.count = 0};
  nvm_error_clear();
  NVM_TRY(acquire(vm));
  nvm_status status = NVM_OK;
  if (!handle || handle->heap != vm->heap) {
    status = nvm_fail(NVM_INVALID_INPUT, "the handle belongs to another VM");
  } else if (!handle->object) {
    status = nvm_fail(NVM_CLOSED, "the handle is no longer valid");
  } else {
    nvm_limits_begin(vm); /* its copies ask as those of a run do: not whether that run may go on */
    nvm_retain(handle->object);
    status = nvm_result_create(vm->heap, handle->object, result_limit(vm), &values, out_result);
    nvm_limits_end(vm);
  }
  let_go(vm);
  return status;
}
