/* Counts, times and events of a VM's runs. See profile.h. */
#include "profile.h"
#include "frame.h"

#include <string.h>

static void *zeroed(size_t count, size_t size) {
  void *memory = nvm_malloc(count * size);
  if (memory) memset(memory, 0, count * size);
  return memory;
}

static nvm_status create_trace(nvm_profile_state *p, uint64_t max_events) {
  if (max_events > SIZE_MAX / sizeof(nvm_profile_event) / 2)
    NVM_FAIL(NVM_INVALID_INPUT, "a profile with room for %llu events was asked for",
             (unsigned long long)max_events);
  p->trace = nvm_malloc(sizeof *p->trace + (size_t)max_events * sizeof *p->trace->events);
  if (!p->trace)
    NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for %llu events of a profile",
             (unsigned long long)max_events);
  p->trace->capacity = max_events;
  atomic_init(&p->trace->count, 0);
  return NVM_OK;
}

static nvm_status create_words(nvm_profile_state *p, const nvm_program *program) {
  const nvm_section *code = &program->sections[0]; /* docs/format.md: the first is the code */
  p->code = (const uint32_t *)(const void *)code->data;
  p->n_words = code->size / sizeof(uint32_t);
  p->words = zeroed(p->n_words + 1, sizeof *p->words);
  if (!p->words) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a profile of instructions");
  p->at = p->n_words;
  return NVM_OK;
}

static nvm_status create_tables(nvm_profile_state *p, const nvm_program *program) {
  p->kernels = zeroed(program->n_kernels, sizeof *p->kernels);
  p->latest = zeroed(program->n_kernels, sizeof *p->latest);
  p->buckets = zeroed(2 * NVM_PROFILE_MOST_SHAPES, sizeof *p->buckets);
  p->shapes = nvm_malloc(NVM_PROFILE_MOST_SHAPES * sizeof *p->shapes);
  p->values = nvm_malloc(NVM_PROFILE_MOST_VALUES * sizeof *p->values);
  if (!p->kernels || !p->latest || !p->buckets || !p->shapes || !p->values)
    NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a profile");
  return NVM_OK;
}

nvm_status nvm_profile_create(const nvm_program *program, int32_t level, uint64_t max_events,
                              nvm_profile_state **out_profile) {
  if (level < NVM_PROFILE_KERNELS || level > NVM_PROFILE_EVENTS)
    NVM_FAIL(NVM_INVALID_INPUT, "the level of a profile is %d, expected 0 to 3", level);
  nvm_profile_state *p = zeroed(1, sizeof *p);
  if (!p) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a profile");
  p->level = level;
  nvm_status status = create_tables(p, program);
  if (status == NVM_OK && level >= NVM_PROFILE_INSTRUCTIONS) status = create_words(p, program);
  if (status == NVM_OK && level >= NVM_PROFILE_EVENTS) status = create_trace(p, max_events);
  if (status != NVM_OK) {
    nvm_profile_free(p);
    return status;
  }
  *out_profile = p;
  return NVM_OK;
}

void nvm_profile_free(nvm_profile_state *p) {
  if (!p) return;
  nvm_free(p->kernels);
  nvm_free(p->latest);
  nvm_free(p->buckets);
  nvm_free(p->shapes);
  nvm_free(p->values);
  nvm_free(p->words);
  nvm_free(p->trace);
  nvm_free(p);
}

void nvm_profile_clear(nvm_profile_state *p, const nvm_program *program) {
  p->runs = p->cycles = p->nanoseconds = p->notes = 0;
  p->n_shapes = p->n_values = 0;
  memset(p->kernels, 0, program->n_kernels * sizeof *p->kernels);
  memset(p->latest, 0, program->n_kernels * sizeof *p->latest);
  memset(p->buckets, 0, 2 * NVM_PROFILE_MOST_SHAPES * sizeof *p->buckets);
  if (p->words) memset(p->words, 0, (p->n_words + 1) * sizeof *p->words);
  if (p->trace) atomic_store(&p->trace->count, 0);
}

/* --- events ----------------------------------------------------------------------------------- */

/* Any thread: workers of a parallel loop note their pieces. */
static void note(nvm_trace *trace, nvm_profile_event event) {
  uint64_t place = atomic_fetch_add_explicit(&trace->count, 1, memory_order_relaxed);
  if (place < trace->capacity) trace->events[place] = event;
}

static void note_memory(nvm_vm *vm, uint64_t now, uint64_t word) {
  nvm_trace *trace = vm->profile->trace;
  trace->live_bytes = vm->heap->live_bytes;
  note(trace, (nvm_profile_event){.at = now,
                                  .kind = NVM_EVENT_MEMORY,
                                  .index = (uint32_t)word,
                                  .a = (uint64_t)trace->live_bytes,
                                  .b = nvm_heap_cached(vm->heap)});
}

static uint32_t running_function(const nvm_vm *vm) {
  return (uint32_t)(nvm_frame_at(vm, vm->frame)->function - vm->program->functions);
}

static void note_call(nvm_vm *vm, uint64_t now, uint32_t kind, size_t at) {
  note(vm->profile->trace,
       (nvm_profile_event){
           .at = now, .kind = kind, .index = running_function(vm), .a = vm->depth, .b = at});
}

/* What the instruction at word `at` did to the stack and the heap. */
static void trace_step(nvm_vm *vm, uint64_t now, size_t at) {
  const nvm_profile_state *p = vm->profile;
  nvm_trace *trace = p->trace;
  if (at < p->n_words) {
    const uint32_t opcode = p->code[at];
    if (vm->depth > trace->depth) {
      note_call(vm, now, NVM_EVENT_ENTER, at);
    } else if (vm->depth < trace->depth) {
      note(trace, (nvm_profile_event){.at = now, .kind = NVM_EVENT_LEAVE, .a = trace->depth});
    } else if (opcode == NVM_OP_InvokeTail || opcode == NVM_OP_InvokeClosureTail) {
      note_call(vm, now, NVM_EVENT_TAIL, at);
    }
    trace->depth = vm->depth;
  }
  if (vm->heap->live_bytes != trace->live_bytes) note_memory(vm, now, at);
}

/* --- runs ------------------------------------------------------------------------------------- */

void nvm_profile_begin(nvm_vm *vm, uint32_t function) {
  nvm_trace *trace = vm->profile->trace;
  if (!trace) return;
  const uint64_t now = nvm_cycles();
  note(trace,
       (nvm_profile_event){
           .at = now, .kind = NVM_EVENT_RUN, .index = function, .b = (uint64_t)pthread_self()});
  note_memory(vm, now, vm->profile->n_words);
}

void nvm_profile_end(nvm_vm *vm, uint32_t function, nvm_status status, uint64_t began_cycles,
                     uint64_t began_ns) {
  nvm_profile_state *p = vm->profile;
  const uint64_t now = nvm_cycles();
  if (p->trace) {
    note_memory(vm, now, p->n_words);
    note(p->trace, (nvm_profile_event){
                       .at = now, .kind = NVM_EVENT_END, .index = function, .a = (uint64_t)status});
  }
  p->runs++;
  p->cycles += now - began_cycles;
  p->nanoseconds += nvm_now() - began_ns;
}

void nvm_profile_step(nvm_vm *vm, const uint32_t *pc) {
  nvm_profile_state *p = vm->profile;
  uint64_t now = nvm_cycles();
  nvm_profile_row *row = &p->words[p->at];
  row->calls++;
  row->cycles += now - p->since;
  if (p->trace) {
    trace_step(vm, now, p->at);
    now = nvm_cycles();
  }
  p->at = (size_t)(pc - p->code);
  p->since = now;
}

void nvm_profile_enter(nvm_vm *vm) {
  nvm_profile_state *p = vm->profile;
  vm->step_instructions = 1;
  p->at = p->n_words; /* none yet */
  p->since = nvm_cycles();
  if (p->trace) {
    note_call(vm, p->since, NVM_EVENT_ENTER, p->n_words);
    p->trace->depth = vm->depth;
  }
}

void nvm_profile_leave(nvm_vm *vm) {
  nvm_profile_step(vm, vm->profile->code + vm->profile->n_words);
  vm->step_instructions = 0;
}

/* --- kernels ---------------------------------------------------------------------------------- */

/* What tells calls of a kernel apart: its in-dims, then the pitches, which lie behind the
 * attributes. Attributes are the same for all. */
static int same_values(const int64_t *row, const nvm_signature *sig, const int64_t *dims) {
  const int64_t *pitches = dims + sig->n_dims + sig->n_attrs;
  for (uint32_t i = 0; i < sig->n_dims; i++)
    if (row[i] != dims[i]) return 0;
  for (uint32_t i = 0; i < sig->n_pitches; i++)
    if (row[sig->n_dims + i] != pitches[i]) return 0;
  return 1;
}

static uint64_t mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 29;
}

static uint32_t hash_values(uint32_t kernel, const nvm_signature *sig, const int64_t *dims) {
  const int64_t *pitches = dims + sig->n_dims + sig->n_attrs;
  uint64_t hash = mix(0, kernel);
  for (uint32_t i = 0; i < sig->n_dims; i++) hash = mix(hash, (uint64_t)dims[i]);
  for (uint32_t i = 0; i < sig->n_pitches; i++) hash = mix(hash, (uint64_t)pitches[i]);
  return (uint32_t)(hash >> 32);
}

static int32_t add_shape(nvm_profile_state *p, uint32_t kernel, const nvm_signature *sig,
                         const int64_t *dims) {
  const uint32_t n = (uint32_t)sig->n_dims + sig->n_pitches;
  if (p->n_shapes == NVM_PROFILE_MOST_SHAPES || n > NVM_PROFILE_MOST_VALUES - p->n_values)
    return NVM_PROFILE_NO_SHAPE;
  int64_t *values = p->values + p->n_values;
  if (sig->n_dims) memcpy(values, dims, sig->n_dims * sizeof *values);
  if (sig->n_pitches)
    memcpy(values + sig->n_dims, dims + sig->n_dims + sig->n_attrs,
           sig->n_pitches * sizeof *values);
  p->shapes[p->n_shapes] = (nvm_profile_shape){.kernel = kernel, .first = p->n_values, .count = n};
  p->n_values += n;
  return (int32_t)p->n_shapes++;
}

/* The row of a call's sizes; NVM_PROFILE_NO_SHAPE if there are too many different ones. */
static int32_t find_shape(nvm_profile_state *p, uint32_t kernel, const nvm_signature *sig,
                          const int64_t *dims) {
  const uint32_t latest = p->latest[kernel];
  if (latest && same_values(p->values + p->shapes[latest - 1].first, sig, dims))
    return (int32_t)latest - 1;
  const uint32_t mask = 2 * NVM_PROFILE_MOST_SHAPES - 1;
  uint32_t bucket = hash_values(kernel, sig, dims) & mask;
  for (; p->buckets[bucket]; bucket = (bucket + 1) & mask) {
    const nvm_profile_shape *shape = &p->shapes[p->buckets[bucket] - 1];
    if (shape->kernel == kernel && same_values(p->values + shape->first, sig, dims)) break;
  }
  if (!p->buckets[bucket]) {
    const int32_t added = add_shape(p, kernel, sig, dims);
    if (added < 0) return added;
    p->buckets[bucket] = (uint32_t)added + 1;
  }
  p->latest[kernel] = p->buckets[bucket];
  return (int32_t)p->buckets[bucket] - 1;
}

static void note_kernel(nvm_vm *vm, const nvm_kernel *kernel, const int64_t *dims, uint64_t since,
                        uint64_t took) {
  nvm_profile_state *p = vm->profile;
  const uint32_t number = (uint32_t)(kernel - vm->program->kernels);
  p->kernels[number].calls++;
  p->kernels[number].cycles += took;
  const int32_t shape = find_shape(p, number, &kernel->signature, dims);
  if (shape >= 0) {
    p->shapes[shape].calls++;
    p->shapes[shape].cycles += took;
  }
  if (!p->trace) return;
  const uint32_t *pc = nvm_frame_at(vm, vm->frame)->pc; /* of the CallKernel */
  note(p->trace, (nvm_profile_event){.at = since,
                                     .kind = NVM_EVENT_KERNEL,
                                     .index = number,
                                     .shape = shape,
                                     .a = took,
                                     .b = (uint64_t)(pc - p->code)});
}

/* The tables are in no cache after a kernel that read megabytes: 80 ns a call, a third of what the
 * VM takes between two such kernels. */
void nvm_profile_kernel(nvm_vm *vm, const nvm_kernel *kernel, const int64_t *dims, uint64_t since) {
  nvm_profile_state *p = vm->profile;
  const uint64_t ended = nvm_cycles();
  note_kernel(vm, kernel, dims, since, ended - since);
  const uint64_t notes = nvm_cycles() - ended;
  p->notes += notes;
  p->since += notes; /* nor are they a part of the instruction */
}

void nvm_profile_piece(nvm_vm *vm, const nvm_kernel *kernel, uint64_t since) {
  nvm_trace *trace = vm->profile->trace;
  if (!trace) return;
  note(trace, (nvm_profile_event){.at = since,
                                  .kind = NVM_EVENT_PIECE,
                                  .index = (uint32_t)(kernel - vm->program->kernels),
                                  .a = nvm_cycles() - since,
                                  .b = (uint64_t)pthread_self()});
}
