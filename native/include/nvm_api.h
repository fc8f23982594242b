/* The public C API of libnimblevm. C11, no other dependency. Everything exported starts with nvm_.
 *
 * Threads: a program is immutable and may be shared; a VM is one caller's state, a second
 * concurrent call on it returns NVM_VM_BUSY (nvm_vm_cancel excepted). The error record is per
 * thread and valid until the next call on that thread.
 */
#ifndef NVM_API_H
#define NVM_API_H

#include <stddef.h>
#include <stdint.h>

#include "generated/nvm_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- cdef begin (read by build_ffi.py; plain declarations only, no directives) --- */
typedef struct nvm_program nvm_program;
typedef struct nvm_vm nvm_vm;
typedef struct nvm_result nvm_result;
typedef struct nvm_handle nvm_handle;

/* What went wrong last on this thread. Strings live until the next nvm_ call of this thread. */
typedef struct nvm_error {
  nvm_status code;
  const char *message;  /* what was expected and what came */
  const char *function; /* Relay function, "" if none */
  uint32_t pc;          /* word offset in the function's code */
  const char *source;   /* source name of the span, "" if none */
  uint32_t line, column;
  const char *trace; /* one line a Relay frame, innermost first, "" if none */
} nvm_error;

const nvm_error *nvm_last_error(void);
const char *nvm_version(void);
uint32_t nvm_format_version(void);

/* --- programs --- */
enum {
  NVM_LOAD_NO_NATIVE = 1,   /* do not map native sections: kernels run in the IR interpreter */
  NVM_LOAD_VERIFY_FULL = 2, /* check the constants' digest too */
  NVM_LOAD_COPY = 4,        /* copy everything; the file may change afterwards */
  /* fail with NVM_UNSUPPORTED where kernels would have to run in the IR interpreter because no
   * native section fits this CPU */
  NVM_LOAD_REQUIRE_NATIVE = 16
};

/* Load from a path (mapped) or from memory (`data` is copied unless NVM_LOAD_BORROW; then it must
 * outlive the program). */
enum { NVM_LOAD_BORROW = 8 };
nvm_status nvm_program_open(const char *path, uint32_t flags, nvm_program **out_program);
nvm_status nvm_program_load(const void *data, size_t size, uint32_t flags,
                            nvm_program **out_program);
void nvm_program_retain(nvm_program *program);  /* atomic */
void nvm_program_release(nvm_program *program); /* NULL ok */
/* Which checks a refused load got past: 0 none, 1 structure, 2 code. For the mutation test. */
int32_t nvm_load_stage(void);

typedef struct nvm_param_info {
  const char *name;
  uint32_t type; /* index for nvm_program_type */
} nvm_param_info;

typedef struct nvm_function_info {
  const char *name;
  int32_t is_public;
  uint32_t n_params, result_type, n_ints, n_objs, n_dims, n_checked;
  const uint32_t *code;
  size_t n_words;
  const uint8_t *kinds;
  int32_t result_kind;
} nvm_function_info;

uint32_t nvm_program_function_count(const nvm_program *program);
nvm_status nvm_program_function(const nvm_program *program, uint32_t index,
                                nvm_function_info *out_info);
nvm_status nvm_program_find(const nvm_program *program, const char *name, uint32_t *out_index);
nvm_status nvm_program_param(const nvm_program *program, uint32_t function, uint32_t index,
                             nvm_param_info *out_info);
/* Dim slot: name; *out_param = binding parameter or -1. */
const char *nvm_program_dim(const nvm_program *program, uint32_t function, uint32_t slot,
                            int32_t *out_param);
const char *nvm_program_checked(const nvm_program *program, uint32_t function, uint32_t index);
/* Place of an instruction; returns 0 if unknown. */
int32_t nvm_program_span(const nvm_program *program, uint32_t function, uint32_t pc,
                         const char **out_source, uint32_t *out_line, uint32_t *out_column);
/* A type as words of docs/format.md ("Types"); refers to other type indices. */
uint32_t nvm_program_type_count(const nvm_program *program);
const int64_t *nvm_program_type(const nvm_program *program, uint32_t index, size_t *out_words);
uint32_t nvm_program_adt_count(const nvm_program *program);
const char *nvm_program_adt(const nvm_program *program, uint32_t index, uint32_t *out_n_params,
                            uint32_t *out_first, uint32_t *out_count);
uint32_t nvm_program_constructor_count(const nvm_program *program);
const char *nvm_program_constructor(const nvm_program *program, uint32_t index, int32_t *out_adt,
                                    uint32_t *out_tag, uint32_t *out_n_fields,
                                    const uint32_t **out_field_types);
uint32_t nvm_program_constant_count(const nvm_program *program);
const void *nvm_program_constant(const nvm_program *program, uint32_t index, int32_t *out_dtype,
                                 uint32_t *out_rank, const int64_t **out_dims);
uint32_t nvm_program_kernel_count(const nvm_program *program);
/* Kernel: name; kind 0 IR, 1 C, 2 external; *out_native 1 if machine code of this CPU was mapped.
 */
const char *nvm_program_kernel(const nvm_program *program, uint32_t index, int32_t *out_kind,
                               int32_t *out_native);
const char *nvm_program_note(const nvm_program *program, uint32_t index);
uint32_t nvm_program_section_count(const nvm_program *program);
const void *nvm_program_section(const nvm_program *program, uint32_t index, int32_t *out_kind,
                                const char **out_target, size_t *out_size);
/* Is machine code of this section in use? If not, *out_why says why; "" for other sections.
 * *out_level: its target, by the name of a level ("x86-64-v3") if it asks for exactly that. */
int32_t nvm_program_section_used(const nvm_program *program, uint32_t index, const char **out_level,
                                 const char **out_why);
/* This CPU as a target: the best of "x86-64", "x86-64-v2", ..., "aarch64" that it has all of,
 * within what the environment variable NVM_CPU allows. */
const char *nvm_cpu_target(void);
/* The msgpack header (docs/format.md) as it was checked: for tools that show or rewrite a file. */
const void *nvm_program_header(const nvm_program *program, size_t *out_size);
/* Value of a producer key, NULL if absent. */
const char *nvm_program_producer(const nvm_program *program, const char *key);
/* Why machine code is not used ("" if it is, or none is in the file). */
const char *nvm_program_warning(const nvm_program *program);

/* --- devices --- */
typedef struct nvm_backend_info {
  const char *name;        /* what nvm_vm_options.device takes; lives for ever */
  int32_t host_accessible; /* the host reads and writes its memory directly */
  int32_t dl_device_type;  /* DLPack's number */
} nvm_backend_info;

/* The backends built in, "cpu" first. */
uint32_t nvm_backend_count(void);
nvm_status nvm_backend_info_get(uint32_t index, nvm_backend_info *out_info);
/* CPUs that this process may use (affinity mask and cgroup quota), at least 1. */
int32_t nvm_cpu_count(void);

typedef struct nvm_null_record {
  uint64_t allocs, frees, copies, syncs, launches;
} nvm_null_record;

/* What all null devices recorded since the process started. */
void nvm_null_record_get(nvm_null_record *out_record);

/* --- VMs --- */
typedef struct nvm_limits { /* 0 = none */
  uint64_t instructions, bytes, objects, frames;
  uint64_t nanoseconds;
} nvm_limits;

typedef struct nvm_vm_options {
  uint32_t size;      /* sizeof(nvm_vm_options) */
  int32_t threads;    /* the most threads a kernel may use, >= 1 */
  int32_t ordinal;    /* device ordinal */
  const char *device; /* NULL: as the file says */
  nvm_limits limits;
  int32_t (*poll)(
      void *context); /* called every few ms during a run; non-zero stops it with NVM_INTERRUPTED */
  void *poll_context;
  int32_t profile; /* NVM_PROFILE_OFF to _INSTRUCTIONS: what to time; some 30 ns a kernel, 10 an
                      instruction */
} nvm_vm_options;

nvm_status nvm_vm_create(nvm_program *program, const nvm_vm_options *options, nvm_vm **out_vm);
void nvm_vm_destroy(nvm_vm *vm); /* NULL ok. Results may outlive it. */
nvm_status nvm_vm_set_limits(nvm_vm *vm, const nvm_limits *limits);
/* Ask a running VM to stop (any thread, async-signal-safe). Cleared when the next run starts. */
void nvm_vm_cancel(nvm_vm *vm);
/* Give pooled memory back to the system. */
nvm_status nvm_vm_trim(nvm_vm *vm);

typedef struct nvm_vm_stats {
  uint64_t runs, instructions, kernel_calls, allocations; /* of all runs */
  uint64_t live_objects, live_bytes, peak_bytes, pool_bytes;
  uint64_t system_allocations; /* calls to the system's allocator since the VM was made */
  /* Bytes of all runs: copied outside of kernels (appends, DeviceCopy, arguments and results that
   * could not be handed over), and of the outputs of kernels. */
  uint64_t copied_bytes, written_bytes;
  uint64_t allocated_bytes; /* of all blocks that `allocations` counts */
} nvm_vm_stats;
nvm_status nvm_vm_stats_get(nvm_vm *vm, nvm_vm_stats *out_stats);

/* Where time goes. Cycles are of a counter of one speed; all runs of the VM together took `cycles`
 * and `nanoseconds`. */
enum { NVM_PROFILE_OFF = 0, NVM_PROFILE_KERNELS = 1, NVM_PROFILE_INSTRUCTIONS = 2 };

typedef struct nvm_profile_row {
  uint64_t calls, cycles;
} nvm_profile_row;

typedef struct nvm_profile {
  uint64_t runs, cycles, nanoseconds;
  uint32_t n_kernels, n_opcodes;
  const nvm_profile_row *kernels; /* by number in the program; live as long as the VM */
  const nvm_profile_row *opcodes; /* by number in the instruction set; a kernel's time is
                                     CallKernel's too */
} nvm_profile;

/* Error: NVM_INVALID_INPUT for a VM made without `profile`. */
nvm_status nvm_vm_profile_get(nvm_vm *vm, nvm_profile *out_profile);
nvm_status nvm_vm_profile_reset(nvm_vm *vm);

/* --- profiles in detail, logging, build information --- */
enum { NVM_PROFILE_EVENTS = 3 }; /* a level: instructions, and events in their order */

/* Start profiling anew at a level, or stop (NVM_PROFILE_OFF). max_events: room for events, 40 bytes
 * each; later ones are counted as dropped, while all other figures stay exact. */
nvm_status nvm_vm_profile_start(nvm_vm *vm, int32_t level, uint64_t max_events);

/* Calls of one kernel with the same sizes: `count` numbers from values[first] on are its in-dims,
 * then the actual sizes of its broadcast axes. */
typedef struct nvm_profile_shape {
  uint32_t kernel, first, count;
  uint64_t calls, cycles;
} nvm_profile_shape;

enum {
  NVM_EVENT_RUN = 0,    /* a run of function `index` begins; b: its thread */
  NVM_EVENT_END = 1,    /* it ended; a: status */
  NVM_EVENT_ENTER = 2,  /* function `index` was called; a: depth, b: word of the call */
  NVM_EVENT_TAIL = 3,   /* the same in place of its caller */
  NVM_EVENT_LEAVE = 4,  /* a function returned; a: its depth */
  NVM_EVENT_KERNEL = 5, /* kernel `index` took `a` cycles from `at` on; b: word of the call */
  NVM_EVENT_PIECE = 6,  /* of a parallel loop in kernel `index`; a: cycles, b: thread */
  NVM_EVENT_MEMORY = 7  /* from here on: a: bytes alive, b: bytes in pools; index: word of code */
};

typedef struct nvm_profile_event {
  uint64_t at, a, b; /* at: cycles */
  uint32_t kind, index;
  int32_t shape;    /* of a kernel's call, -1 if there were too many different ones */
  uint32_t padding; /* 0 */
} nvm_profile_event;

/* Valid until the VM's next run, start or reset. Words count from the start of the program's code;
 * a word equal to n_words is none. */
typedef struct nvm_profile_details {
  uint64_t n_events, dropped_events;
  const nvm_profile_event *events; /* in the order in which they ended */
  uint64_t n_shapes;
  const nvm_profile_shape *shapes;
  const int64_t *values;
  uint64_t n_words;
  const nvm_profile_row *words; /* by the first word of an instruction; NULL: not wanted */
} nvm_profile_details;

nvm_status nvm_vm_profile_details(nvm_vm *vm, nvm_profile_details *out_details);
enum {
  NVM_LOG_OFF = 0,
  NVM_LOG_ERROR = 1,   /* runs and loads that failed */
  NVM_LOG_WARNING = 2, /* what works, but slower than meant: machine code that is not used */
  NVM_LOG_INFO = 3,    /* loads, chosen machine code, threads */
  NVM_LOG_DEBUG = 4    /* runs, trims, refused sections */
};

/* Gets one line at a time, without a newline, from any thread. Nothing of the API
 * but nvm_log_level may be called from it. */
typedef void (*nvm_log_fn)(void *context, int32_t level, const char *message);

/* Tell what is at most of `level` (negative: as it is) to `write` (NULL: stderr). Without a call
 * the environment variable NVM_LOG says the level: off, error, warning, info or debug. Of the
 * process; any thread. When it returns, no earlier `write` is running on another thread. */
void nvm_log_set(int32_t level, nvm_log_fn write, void *context);
int32_t nvm_log_level(void);

/* Lines `key=value`: compiler, flags, dispatch, architecture, variant. */
const char *nvm_build_info(void);
/* Whether machine code that needs an LLVM feature, such as "avx2", would be used here. */
int32_t nvm_cpu_has(const char *feature);
/* --- end of profiles in detail, logging, build information --- */

/* --- values in: a flat array in postorder; each parameter's value is one subtree --- */
enum {
  NVM_ARG_TENSOR = 0,
  NVM_ARG_INT = 1,
  NVM_ARG_FLOAT = 2,
  NVM_ARG_ADT = 3,
  NVM_ARG_HANDLE = 4
};

typedef struct nvm_arg {
  int32_t kind;
  int32_t dtype; /* tensor: number of a dtype. int, float: -1 = take the parameter's (checked for
                    range) */
  uint32_t rank; /* tensor */
  uint32_t ctor; /* adt: constructor index, 0 = tuple */
  uint32_t n_fields;      /* adt: takes that many values off the stack */
  int32_t dl_device_type; /* tensor: DLPack's, 1 = host */
  const void *data; /* tensor: first element (offset applied). Borrowed until `release` is called or
                       the call returns */
  const int64_t *shape;
  const int64_t *strides; /* in elements; NULL = compact */
  int64_t int_value;
  double float_value;
  nvm_handle *handle;
  /* Called once, by the VM's thread, when the memory is no longer used; also if the call fails.
   * NULL: the memory is good for this call only (it is copied if a handle could keep it). */
  void (*release)(void *owner);
  void *owner;
  /* tensor: nvm_out.storage of a result that `data` is of, and the caller gives the value away:
   * after a successful run its memory may be part of results, so the caller reads it no more and
   * releases its reference; after a failed run it is as it was. NULL: not given away. */
  void *storage;
} nvm_arg;

/* Fill args[0 .. n) from parallel arrays, for bindings that make many values. codes[i]:
 *   dtype | rank << 8      a compact host tensor: takes the next of `data` and `rank` of `shapes`,
 *                          which args then points to
 *   -1 - (ctor | fields << 32)   an ADT value or tuple (ctor 0)
 *   INT64_MAX              left as it is */
void nvm_args_fill(nvm_arg *args, size_t n, const int64_t *codes, void *const *data,
                   const int64_t *shapes);

/* Run a function. *out_result: owned, freed with nvm_result_free. Errors name the parameter,
 * expected and got. */
nvm_status nvm_vm_invoke(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args,
                         nvm_result **out_result);

/* --- values out: a flat array in postorder, like nvm_arg --- */
enum { NVM_OUT_TENSOR = 0, NVM_OUT_ADT = 1, NVM_OUT_HANDLE = 2 };

typedef struct nvm_out {
  int32_t kind;
  int32_t dtype;
  uint32_t rank;
  uint32_t ctor, n_fields;
  int32_t dl_device_type;
  void *data;
  const int64_t *shape; /* lives as long as the result */
  void *storage;        /* tensor: retain it to keep `data` alive past the result */
  nvm_handle *handle;   /* opaque value (closure, ref): retained by the result */
} nvm_out;

size_t nvm_result_count(const nvm_result *result);
const nvm_out *nvm_result_values(const nvm_result *result);
void nvm_result_free(nvm_result *result); /* any thread; NULL ok */
void nvm_storage_retain_handle(void *storage);
void nvm_storage_release_handle(void *storage); /* any thread */
void nvm_handle_retain(nvm_handle *handle);
void nvm_handle_release(nvm_handle *handle); /* any thread */

/* --- one kernel, through the same door as CallKernel (folding, tuning, tests). operands: tensors
 * in the order of the signature; outputs are written in place; dims: in-dims then room for
 * out-dims. --- */
nvm_status nvm_kernel_call(nvm_program *program, uint32_t kernel, const nvm_arg *operands,
                           size_t n_operands, int64_t *dims, size_t n_dims);
/* --- cdef end --- */

#ifdef __cplusplus
}
#endif
#endif
