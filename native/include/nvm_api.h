/* The C API of libnimblevm: load an executable (.nvm), make a VM, run its functions. C11 or C++, no
 * other dependency. Every name starts with nvm_ or NVM_, and nothing else is exported.
 *
 *   nvm_program *program;
 *   nvm_vm *vm;
 *   nvm_result *result;
 *   const int64_t shape[] = {7, 300};
 *   const nvm_arg x = nvm_arg_tensor(NVM_DTYPE_FLOAT32, 2, shape, data);
 *   if (nvm_program_open("lstm.nvm", 0, &program) || nvm_vm_create(program, NULL, &vm) ||
 *       nvm_vm_call(vm, "main", &x, 1, &result)) {
 *     fprintf(stderr, "%s\n", nvm_last_error()->message);
 *     return 1;
 *   }
 *   const nvm_out *y = nvm_result_values(result);   // y->data, y->rank, y->shape
 *   nvm_result_free(result);
 *   nvm_vm_destroy(vm);
 *   nvm_program_release(program);
 *
 * Ownership, in four words.
 *   owned      Objects that an `out_` parameter gives to the caller, who gives them back with the
 *              function named where they are declared (nvm_program_release, nvm_vm_destroy,
 *              nvm_result_free, nvm_handle_release). Those take NULL too.
 *   borrowed   Every other pointer. One that goes in must be good until the function returns; one
 *              that comes out lives as long as the object that it was asked of.
 *   lent       An argument with a `release` callback: its memory is used in place, perhaps beyond
 *              the call, until that callback is called, which happens once, after an error too.
 *   moved      An argument that was in a result and is given away (nvm_move): the VM may build on
 *              its memory instead of copying it. If the run fails it is as it was.
 *
 * Results of functions. What can fail returns nvm_status: NVM_OK (0) or a code of
 * generated/nvm_status.h, and then nvm_last_error() says more and no output is set. Getters without
 * a status give NULL or 0 for an index out of range. Nothing aborts, exits or prints.
 *
 * Threads. A program is immutable: any number of threads and VMs may share one. A VM is one
 * caller's state and cheap: make one a thread. A second call on a VM that is running returns
 * NVM_VM_BUSY. The functions marked "any thread" may be called at any time from any thread, also
 * while the VM runs. The error record is per thread.
 *
 * Public are this header and those it includes, and nvm_kernel.h for those who write runtimes of
 * external code. nvm_device.h and nvm_object.h beside it are contracts between parts of the
 * library: not installed, and free to change. While the
 * version is 0.x, structs may grow from one minor version to the next; the shared library's name
 * (libnimblevm.so.0.2) says which version a program was built for.
 */
#ifndef NVM_API_H
#define NVM_API_H

#include <stddef.h>
#include <stdint.h>

#include "generated/nvm_dtype.h"
#include "generated/nvm_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- cdef begin (read by build_ffi.py; plain declarations only, no directives) --- */

/* --- Objects --- */

typedef struct nvm_program nvm_program; /* what a file holds: functions, types, code, constants */
typedef struct nvm_vm nvm_vm;           /* runs functions of a program */
typedef struct nvm_result nvm_result;   /* what a run returned */
typedef struct nvm_handle nvm_handle;   /* a value that stays in its VM */
struct DLManagedTensor;                 /* dlpack.h */

/* --- Errors and versions --- */

/* What went wrong last on this thread. The strings live until this thread's next call that can
 * fail.
 */
typedef struct nvm_error {
  nvm_status code;
  const char *message;  /* what was expected and what came */
  const char *function; /* Relay function, "" if none */
  uint32_t pc;          /* word offset in the function's code */
  const char *source;   /* source name of the span, "" if none */
  uint32_t line, column;
  const char *trace; /* one line a Relay frame, innermost first, "" if none */
} nvm_error;

/* The record of this thread's last call that can fail; code NVM_OK if it went well. Never NULL. */
const nvm_error *nvm_last_error(void);
/* "INVALID_INPUT" for NVM_INVALID_INPUT; "UNKNOWN" for a number that is no code. */
const char *nvm_status_name(nvm_status status);
/* What a code means, in a few words. */
const char *nvm_status_text(nvm_status status);

/* The library's version, "0.2.0". */
const char *nvm_version(void);
/* The newest version of files that it reads; it reads all before that too. */
uint32_t nvm_format_version(void);
/* How it was built: lines `key=value`: compiler, flags, dispatch, architecture, variant. */
const char *nvm_build_info(void);

/* --- Programs ---
 * What a file holds, checked and verified. Released with nvm_program_release; VMs keep their
 * program alive. */

enum {
  NVM_LOAD_NO_NATIVE = 1,   /* do not map native sections, nor use code for devices and runtimes:
                               kernels run in the IR interpreter. For files of strangers, because
                               such code is trusted */
  NVM_LOAD_VERIFY_FULL = 2, /* check the constants' digest too, of a copy of them */
  NVM_LOAD_COPY = 4,        /* copy everything; the file may change afterwards */
  NVM_LOAD_BORROW = 8,      /* nvm_program_load: use `data` in place; it must outlive the program */
  /* fail with NVM_UNSUPPORTED where kernels would have to run in the IR interpreter because no
   * native section fits this CPU */
  NVM_LOAD_REQUIRE_NATIVE = 16
};

/* Load a file. Its constants are mapped, so it must not be truncated while the program lives
 * (unless NVM_LOAD_COPY). Errors: FILE_ERROR, INVALID_EXECUTABLE, UNSUPPORTED_VERSION,
 * OUT_OF_MEMORY. */
nvm_status nvm_program_open(const char *path, uint32_t flags, nvm_program **out_program);
/* The same from memory, which is copied unless NVM_LOAD_BORROW is set. */
nvm_status nvm_program_load(const void *data, size_t size, uint32_t flags,
                            nvm_program **out_program);
/* One owner more, one owner less. */
void nvm_program_retain(nvm_program *program);  /* any thread */
void nvm_program_release(nvm_program *program); /* any thread; NULL ok */
/* Why machine code of the file is not used; "" if it is, or if there is none. */
const char *nvm_program_warning(const nvm_program *program);

/* --- Functions, parameters and types of a program --- */

typedef struct nvm_param_info {
  const char *name;
  uint32_t type; /* index for nvm_program_type_info */
} nvm_param_info;

typedef struct nvm_function_info {
  const char *name;
  int32_t is_public; /* may be run from outside */
  uint32_t n_params;
  uint32_t result_type;
  uint32_t n_ints, n_objs; /* registers of a frame */
  uint32_t n_dims;         /* named dims of the signature, see nvm_program_dim */
  uint32_t n_checked;      /* checks at entry, see nvm_program_checked */
  const uint32_t *code;    /* docs/isa.md */
  size_t n_words;
  const uint8_t *kinds; /* of the parameters: 0 object, 1 int register */
  int32_t result_kind;  /* likewise */
} nvm_function_info;

/* All functions, also those that can't be run from outside; by index. Errors: FUNCTION_NOT_FOUND.
 */
uint32_t nvm_program_function_count(const nvm_program *program);
nvm_status nvm_program_function(const nvm_program *program, uint32_t index,
                                nvm_function_info *out_info);
/* The index of a function by name. Errors: FUNCTION_NOT_FOUND. */
nvm_status nvm_program_find(const nvm_program *program, const char *name, uint32_t *out_index);
/* A parameter by index. Errors: INVALID_INPUT. */
nvm_status nvm_program_param(const nvm_program *program, uint32_t function, uint32_t index,
                             nvm_param_info *out_info);
/* A named dim of a signature; *out_param = the parameter that binds it, or -1. */
const char *nvm_program_dim(const nvm_program *program, uint32_t function, uint32_t slot,
                            int32_t *out_param);
/* A check at entry, as text: "%x axis 1 = 4". */
const char *nvm_program_checked(const nvm_program *program, uint32_t function, uint32_t index);

enum {
  NVM_TYPE_TENSOR = 0,
  NVM_TYPE_TUPLE = 1,
  NVM_TYPE_ADT = 2,
  NVM_TYPE_FUNCTION = 3,
  NVM_TYPE_REF = 4,
  NVM_TYPE_VARIABLE = 5 /* a type variable of the enclosing definition */
};

typedef struct nvm_type_info {
  int32_t kind;
  int32_t dtype;       /* tensor */
  uint32_t rank;       /* tensor; 0 is a scalar */
  const int64_t *dims; /* tensor: a size; -1 unknown; -(2 + k) is dim k of the signature */
  int32_t number;      /* ADT: its index; variable: its number; else -1 */
  uint32_t n_parts; /* tuple: fields; ADT: type arguments; function: result, then parameters; ref:
                       its content */
  const int64_t *parts; /* their type indices */
} nvm_type_info;

/* Types by index. Errors: INVALID_INPUT. */
uint32_t nvm_program_type_count(const nvm_program *program);
nvm_status nvm_program_type_info(const nvm_program *program, uint32_t type,
                                 nvm_type_info *out_info);
/* Write a type as Relay text, "Tensor[(?n, 300), float32]", with the names of that function's dims
 * (UINT32_MAX: numbers). At most `size` bytes, the closing NUL included, "..." at the end of what
 * does not fit. Returns the length written. */
size_t nvm_program_type_text(const nvm_program *program, uint32_t function, uint32_t type,
                             char *text, size_t size);
/* The same for a function: "@main(%x: Tensor[(?n, 300), float32]) -> Tensor[(1, 512), float32]". */
size_t nvm_program_signature(const nvm_program *program, uint32_t function, char *text,
                             size_t size);
/* The words of a type as docs/format.md has them. */
const int64_t *nvm_program_type(const nvm_program *program, uint32_t index, size_t *out_words);

/* --- Data types (ADTs) of a program --- */

/* How many data types there are. */
uint32_t nvm_program_adt_count(const nvm_program *program);
/* The name of one; its constructors are out_first .. out_first + out_count - 1. */
const char *nvm_program_adt(const nvm_program *program, uint32_t index, uint32_t *out_n_params,
                            uint32_t *out_first, uint32_t *out_count);
/* Constructors count from 1; number 0 is the tuple. */
uint32_t nvm_program_constructor_count(const nvm_program *program);
const char *nvm_program_constructor(const nvm_program *program, uint32_t index, int32_t *out_adt,
                                    uint32_t *out_tag, uint32_t *out_n_fields,
                                    const uint32_t **out_field_types);
/* The index of a constructor by name: "Node", or "Tree.Node" where several types have a Node.
 * Errors: INVALID_INPUT (none, or more than one; the message says which there are). */
nvm_status nvm_program_find_constructor(const nvm_program *program, const char *name,
                                        uint32_t *out_index);

/* --- Weights that are bound late (docs/format.md) --- */
typedef struct nvm_weights nvm_weights;

/* What a program wants, or what a set of weights has. */
typedef struct nvm_weight_info {
  const char *name;
  int32_t dtype; /* number of a dtype; -1: one that no program has, `dtype_name` tells */
  const char *dtype_name;
  uint32_t rank;
  const int64_t *dims;
  const void *data;      /* of a set of weights */
  size_t size;           /* bytes */
  const uint8_t *digest; /* of a program: SHA-256 of the bytes, or NULL if it takes any */
} nvm_weight_info;

/* A set of weights: read from a safetensors file (mapped; the file must not change or become
 * shorter while it is in use, or NVM_LOAD_COPY), or put together. Not thread-safe while it is put
 * together; then any number of threads may bind it. Errors: NVM_INVALID_WEIGHTS, NVM_FILE_ERROR. */
nvm_status nvm_weights_open(const char *path, uint32_t flags, nvm_weights **out_weights);
/* Of an open descriptor, which stays the caller's; `name` is for messages. */
nvm_status nvm_weights_read(int32_t fd, const char *name, uint32_t flags,
                            nvm_weights **out_weights);
/* Open `file` below a folder for reading. Refused: absolute paths, "..", symbolic links. out_fd:
 * for the caller to close. */
nvm_status nvm_open_below(const char *folder, const char *file, int32_t *out_fd);
/* An empty set, to be put together. */
nvm_status nvm_weights_create(nvm_weights **out_weights);
/* Row-major elements. Borrowed until the last nvm_program_bind with these weights has returned;
 * with NVM_LOAD_BORROW until the last program that they are bound to is gone (saves a copy). */
nvm_status nvm_weights_add(nvm_weights *weights, const char *name, int32_t dtype, uint32_t rank,
                           const int64_t *dims, const void *data, uint32_t flags);
/* The most bytes that binding this set to one program may allocate; 0: 16 times the set's own bytes
 * and 16 MiB. (A file may ask for a weight in several layouts, each up to 16 times as large.) */
void nvm_weights_set_limit(nvm_weights *weights, uint64_t max_bytes);
/* What is in the set, by index. Errors: INVALID_INPUT. */
uint32_t nvm_weights_count(const nvm_weights *weights);
nvm_status nvm_weights_get(const nvm_weights *weights, uint32_t index, nvm_weight_info *out_info);

/* One owner more, one owner less. */
void nvm_weights_retain(nvm_weights *weights);  /* any thread */
void nvm_weights_release(nvm_weights *weights); /* any thread; NULL ok */

/* What the program wants, by index. Errors: INVALID_INPUT. */
uint32_t nvm_program_weight_count(const nvm_program *program);
nvm_status nvm_program_weight(const nvm_program *program, uint32_t index,
                              nvm_weight_info *out_info);
/* Where the weights lie, seen from the program's folder; "" if the file does not say. */
const char *nvm_program_weights_file(const nvm_program *program);
/* 1 if nvm_vm_create takes the program: it wants no weights, or they are bound. */
int32_t nvm_program_is_bound(const nvm_program *program);

enum { NVM_BIND_ALLOW_EXTRA = 256 /* weights that the program does not want are left aside */ };
/* A program with its weights: shares all but these with `program`, which it keeps alive and which
 * stays as it was. Weights are laid out for the kernels here, once; what needs no other layout
 * stays where it is. flags: NVM_BIND_ALLOW_EXTRA; NVM_LOAD_VERIFY_FULL checks digests, as for every
 * program that was loaded with it or with a signature, and nothing stays mapped then. Errors:
 * NVM_WEIGHTS_MISMATCH lists what is missing, extra, different; NVM_MEMORY_LIMIT
 * (nvm_weights_set_limit). */
nvm_status nvm_program_bind(nvm_program *program, nvm_weights *weights, uint32_t flags,
                            nvm_program **out_bound);

/* --- Signatures (docs/format.md) --- */
/* Is `signature` (64 bytes, ed25519) the message's? 1 yes, 0 no. key_id: SHA-256 of the public key
 * that the file names (32 bytes). Called before anything of the file but its fixed header is read.
 */
typedef struct nvm_signature_check {
  int32_t (*verify)(void *context, const uint8_t *key_id, const uint8_t *message,
                    size_t message_size, const uint8_t *signature, size_t signature_size);
  void *context;
} nvm_signature_check;

/* As nvm_program_open and nvm_program_load with NVM_LOAD_VERIFY_FULL, of a signed file alone.
 * Errors: NVM_SIGNATURE_MISSING, NVM_SIGNATURE_MALFORMED, NVM_SIGNATURE_MISMATCH. */
nvm_status nvm_program_open_signed(const char *path, uint32_t flags,
                                   const nvm_signature_check *check, nvm_program **out_program);
nvm_status nvm_program_load_signed(const void *data, size_t size, uint32_t flags,
                                   const nvm_signature_check *check, nvm_program **out_program);
/* The signature block as it stands in the file; NULL if it has none. */
const void *nvm_program_signature_block(const nvm_program *program, size_t *out_size);

/* --- Devices --- */

typedef struct nvm_backend_info {
  const char *name;        /* what nvm_vm_options.device takes; lives for ever */
  int32_t host_accessible; /* the host reads and writes its memory directly */
  int32_t host_code;       /* kernels run as functions of the host; else it needs code of its own */
  int32_t dl_device_type;  /* DLPack's number */
} nvm_backend_info;

/* The backends built in, "cpu" first. */
uint32_t nvm_backend_count(void);
nvm_status nvm_backend_info_get(uint32_t index, nvm_backend_info *out_info);
/* CPUs that this process may use (affinity mask and cgroup quota), at least 1. */
int32_t nvm_cpu_count(void);
/* Whether machine code that needs an LLVM feature, such as "avx2", would be used here. */
int32_t nvm_cpu_has(const char *feature);
/* This CPU as a target: the best of "x86-64", "x86-64-v2", ..., "aarch64" that it has all of,
 * within what the environment variable NVM_CPU allows. */
const char *nvm_cpu_best_level(void);

/* --- VMs ---
 * Destroyed with nvm_vm_destroy, which results outlive; handles then are no longer valid. */

/* What one run may use; 0 = no limit. Each has an error of its own (INSTRUCTION_LIMIT,
 * MEMORY_LIMIT, OBJECT_LIMIT, FRAME_LIMIT, TIME_LIMIT), after which the VM works on. */
typedef struct nvm_limits {
  uint64_t instructions; /* kernels charge their loop turns where the IR interpreter runs them */
  uint64_t bytes;        /* memory of values alive at once */
  uint64_t objects;      /* values alive at once */
  uint64_t frames;       /* depth of calls */
  uint64_t nanoseconds;  /* wall time */
} nvm_limits;

/* Start from {.size = sizeof(nvm_vm_options), .threads = 1}, or pass NULL for just that. */
typedef struct nvm_vm_options {
  uint32_t size;      /* sizeof(nvm_vm_options) */
  int32_t threads;    /* the most threads a kernel may use, >= 1 */
  int32_t ordinal;    /* device ordinal, of devices but the host */
  const char *device; /* name of a backend that the file is for; "cpu": the host alone; NULL: the
                         first of those the file names that can be used here */
  nvm_limits limits;
  int32_t (*poll)(void *context); /* called every few ms during a run, by the thread that runs;
                                     non-zero stops it with NVM_INTERRUPTED */
  void *poll_context;
  int32_t profile;  /* NVM_PROFILE_OFF to _INSTRUCTIONS: what to time; some 20 ns a kernel, 10 an
                       instruction */
  int32_t fallback; /* the host serves devices of the file that can't be used here */
} nvm_vm_options;

/* Errors: INVALID_INPUT, DEVICE_ERROR, OUT_OF_MEMORY. */
nvm_status nvm_vm_create(nvm_program *program, const nvm_vm_options *options, nvm_vm **out_vm);
void nvm_vm_destroy(nvm_vm *vm); /* NULL ok; not while it runs */
/* The program that the VM was made for, borrowed. */
nvm_program *nvm_vm_program(const nvm_vm *vm);
/* The backend that serves a device index of the program; NULL behind the last. */
const char *nvm_vm_device(const nvm_vm *vm, uint32_t index);
/* Replace the limits of later runs. */
nvm_status nvm_vm_set_limits(nvm_vm *vm, const nvm_limits *limits);
/* Ask the run or nvm_vm_read under way to stop with NVM_CANCELLED. Any thread, and signal handlers.
 * Forgotten when the next one starts. */
void nvm_vm_cancel(nvm_vm *vm);
/* Give pooled memory back to the system. */
nvm_status nvm_vm_trim(nvm_vm *vm);

/* --- Arguments: values in ---
 * The arguments of a call are one flat array in postorder: a composite value (tuple, ADT) stands
 * behind its fields and says how many of the values before it they are. So f(x, Node(l, r)) is
 * x, l, r, Node. The nvm_arg_ functions at the end of this header fill one record each. */

enum {
  NVM_ARG_TENSOR = 0,
  NVM_ARG_INT = 1,   /* an integer or bool of rank 0 */
  NVM_ARG_FLOAT = 2, /* a float of rank 0 */
  NVM_ARG_ADT = 3,   /* a tuple or an ADT value */
  NVM_ARG_HANDLE = 4 /* a value that the VM keeps */
};

typedef struct nvm_arg {
  int32_t kind;
  int32_t dtype;     /* tensor: enum nvm_dtype. int, float: -1 = take the parameter's (checked for
                        range); NVM_DTYPE_BOOL: int_value is a bool */
  uint32_t rank;     /* tensor */
  uint32_t ctor;     /* adt: constructor index, 0 = tuple */
  uint32_t n_fields; /* adt: takes that many values off the stack */
  int32_t dl_device_type; /* tensor: DLPack's, 1 = host */
  const void *data;       /* tensor: first element (offset applied) */
  const int64_t *shape;   /* tensor: `rank` sizes; good until the call returns */
  const int64_t *strides; /* in elements; NULL = compact, row-major */
  int64_t int_value;
  double float_value;
  nvm_handle *handle; /* of the same VM; borrowed */
  /* tensor: called once, by the VM's thread, when the memory is no longer used; also if the call
   * fails. NULL: the memory is good for this call only (it is copied if a handle could keep it). */
  void (*release)(void *owner);
  void *owner;
  /* tensor: nvm_out.storage of a result that `data` is of, and the caller gives the value away:
   * after a successful run its memory may be part of results, so the caller reads it no more and
   * releases its reference; after a failed run it is as it was. NULL: not given away. */
  void *storage;
} nvm_arg;

/* Fill args[0 .. n) from values breadth first, for bindings that make many: those of the `roots`
 * parameters, then the fields of these, then the fields of those, each value's in order. codes[i]:
 *   0                      a compact host tensor: takes the next of `tensors` (dtype | rank << 8;
 *                          with bit 16 all that follow are like it) and of `data` (NULL: right
 *                          behind the tensor before it) and `rank` of `shapes`, which args then
 *                          points to
 *   -1 - (ctor | fields << 32)   an ADT value or tuple (ctor 0)
 *   1                      left as it is, for the caller to fill in
 * places: 2 n numbers; the first n say where in `args` each value went. Errors: INVALID_INPUT
 * (codes that do not name n values, a dtype that there isn't), DIM_OVERFLOW. */
nvm_status nvm_args_fill(nvm_arg *args, size_t n, size_t roots, const int64_t *codes,
                         const int64_t *tensors, void *const *data, const int64_t *shapes,
                         int64_t *places);
/* A tensor in DLPack's form, lent: `tensor` is consumed, its deleter is called when the memory is
 * no longer used. On an error it stays the caller's. Errors: INVALID_INPUT_TYPE (a dtype that Relay
 * lacks, or vectors), INVALID_INPUT (no host memory). */
nvm_status nvm_arg_dlpack(struct DLManagedTensor *tensor, nvm_arg *out_arg);

/* --- Results: values out ---
 * A flat array in postorder, like the arguments; the last value is the function's result. A result
 * is freed with nvm_result_free. */

enum {
  NVM_OUT_TENSOR = 0, /* on the host; a scalar has rank 0 */
  NVM_OUT_ADT = 1,    /* a tuple or an ADT value */
  NVM_OUT_HANDLE = 2  /* a function or reference, or what was wanted as a handle */
};

typedef struct nvm_out {
  int32_t kind;
  int32_t dtype;          /* tensor: enum nvm_dtype */
  uint32_t rank;          /* tensor */
  uint32_t ctor;          /* adt: constructor index, 0 = tuple */
  uint32_t n_fields;      /* adt */
  uint32_t n_values;      /* records of this value, its fields included: they end with this one */
  int32_t dl_device_type; /* tensor: DLPack's */
  void *data;             /* tensor: compact, row-major; the caller may write it */
  const int64_t *shape;   /* lives as long as the result */
  void *storage;      /* tensor: retain it to keep `data` alive past the result. NULL: `data` is the
                         caller's buffer */
  nvm_handle *handle; /* retain it to keep it past the result */
} nvm_out;

/* All records of a result, in postorder. */
size_t nvm_result_count(const nvm_result *result);
const nvm_out *nvm_result_values(const nvm_result *result);
/* The function's result as a whole: the last value. */
const nvm_out *nvm_result_root(const nvm_result *result);
/* Field `index` of a composite value of a result; NULL if there is none. */
const nvm_out *nvm_out_field(const nvm_out *value, uint32_t index);
void nvm_result_free(nvm_result *result); /* any thread; NULL ok */

/* Keep a tensor's memory (nvm_out.storage) alive after its result is freed. Any thread. */
void nvm_storage_retain_handle(void *storage);
void nvm_storage_release_handle(void *storage);
/* A tensor of a result in DLPack's form: owned, freed by its deleter (any thread); shares the
 * memory. Errors: INVALID_INPUT (no tensor, or in the caller's own buffer), OUT_OF_MEMORY. */
nvm_status nvm_out_dlpack(const nvm_out *value, struct DLManagedTensor **out_tensor);

/* A value that stays in its VM: any value that a run returned and that was wanted as a handle, and
 * functions and references always. Passing it back costs nothing, whatever it holds. */
void nvm_handle_retain(nvm_handle *handle);  /* any thread */
void nvm_handle_release(nvm_handle *handle); /* any thread; NULL ok */
/* What a handle of this VM holds, as values. out_result: owned. Copies of large tensors end early
 * as runs do: cancel, poll, and the time limit, which counts from here. */
nvm_status nvm_vm_read(nvm_vm *vm, nvm_handle *handle, nvm_result **out_result);

/* --- Runs --- */

enum {
  NVM_WANT_VALUE = 0,  /* as values of the result */
  NVM_WANT_HANDLE = 1, /* keep it in the VM and give a handle: for state */
  NVM_WANT_BUFFER = 2  /* a tensor, into memory of the caller */
};

/* How a function's result is wanted; of a function that returns a tuple, how each field is. */
typedef struct nvm_want {
  int32_t kind;
  int32_t dtype;        /* buffer: of its elements */
  void *data;           /* buffer: written when the run has succeeded, compact and row-major */
  size_t bytes;         /* buffer: room */
  uint32_t rank;        /* buffer: number of sizes in `shape` */
  const int64_t *shape; /* buffer: the shape that the result must have; NULL: any that there is room
                           for (the result says which) */
} nvm_want;

/* An argument by the name of its parameter. */
typedef struct nvm_named_arg {
  const char *name;      /* "x" */
  const nvm_arg *values; /* one value in postorder */
  size_t n_values;
} nvm_named_arg;

/* Run a function of that index on positional arguments. out_result: owned. Every `release` of the
 * arguments is called once, also after an error.
 * Errors: INVALID_INPUT and INVALID_INPUT_TYPE name the parameter, what was expected and what came;
 * SHAPE_MISMATCH, the limits, CANCELLED, INTERRUPTED, VM_BUSY, and whatever the program raises. */
nvm_status nvm_vm_invoke(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args,
                         nvm_result **out_result);
/* The same with a choice of what becomes of the result: `wants` has one entry, or one for each
 * field if the function's result is a tuple; n_wants 0 wants values. Errors also: INVALID_INPUT (a
 * number of wants or a buffer that can't fit, buffers that share memory), SHAPE_MISMATCH (a buffer
 * that the result does not fit); buffers are then as they were. */
nvm_status nvm_vm_invoke_into(nvm_vm *vm, uint32_t function, const nvm_arg *args, size_t n_args,
                              const nvm_want *wants, uint32_t n_wants, nvm_result **out_result);
/* nvm_vm_invoke of a function by name. */
nvm_status nvm_vm_call(nvm_vm *vm, const char *function, const nvm_arg *args, size_t n_args,
                       nvm_result **out_result);
/* nvm_vm_invoke_into of a function by name, with arguments by name in any order. */
nvm_status nvm_vm_run(nvm_vm *vm, const char *function, const nvm_named_arg *args, size_t n_args,
                      const nvm_want *wants, uint32_t n_wants, nvm_result **out_result);

/* A value of a result as an argument of another run (of the same VM, else its tensors are read as
 * any memory): copies its records to `args`, which has room for value->n_values, and returns how
 * many. The result must live until that run is over. */
size_t nvm_lend(const nvm_out *value, nvm_arg *args);
/* The same, and the value is given away: the run may build on its memory, as a cache that grows
 * does. After a successful run the caller reads the value no more and frees its result; memory that
 * somebody else retained keeps its elements. */
size_t nvm_move(const nvm_out *value, nvm_arg *args);

/* --- Counters --- */

typedef struct nvm_vm_stats {
  uint64_t runs, instructions, kernel_calls, allocations; /* of all runs */
  uint64_t live_objects, live_bytes, peak_bytes, pool_bytes;
  uint64_t system_allocations; /* calls to the system's allocator since the VM was made */
  /* Bytes of all runs: copied outside of kernels (appends, DeviceCopy, arguments and results that
   * could not be handed over), and of the outputs of kernels. */
  uint64_t copied_bytes, written_bytes;
  uint64_t allocated_bytes; /* of all blocks that `allocations` counts */
  uint64_t copies_to_device,
      copies_to_host; /* of tensors; not those of constants when the VM is made */
} nvm_vm_stats;

/* The counters as they are now. Errors: VM_BUSY. */
nvm_status nvm_vm_stats_get(nvm_vm *vm, nvm_vm_stats *out_stats);

/* Where time goes. Cycles are of a counter of one speed; all runs of the VM together took `cycles`
 * and `nanoseconds`. */
enum { NVM_PROFILE_OFF = 0, NVM_PROFILE_KERNELS = 1, NVM_PROFILE_INSTRUCTIONS = 2 };

typedef struct nvm_profile_row {
  uint64_t calls, cycles;
} nvm_profile_row;

typedef struct nvm_profile {
  uint64_t runs, cycles, nanoseconds;
  uint64_t notes; /* of these cycles: what the profile itself took to note kernels */
  uint32_t n_kernels, n_opcodes;
  const nvm_profile_row *kernels; /* by number in the program; both live until
                                     nvm_vm_profile_start, or as long as the VM */
  const nvm_profile_row *opcodes; /* by number in the instruction set; a kernel's time is
                                     CallKernel's too */
} nvm_profile;

/* Errors: INVALID_INPUT for a VM made without `profile`. */
nvm_status nvm_vm_profile_get(nvm_vm *vm, nvm_profile *out_profile);
/* Start counting anew. */
nvm_status nvm_vm_profile_reset(nvm_vm *vm);

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

/* Errors: INVALID_INPUT for a VM that is not profiling. */
nvm_status nvm_vm_profile_details(nvm_vm *vm, nvm_profile_details *out_details);

/* --- Logging --- */

enum {
  NVM_LOG_OFF = 0,
  NVM_LOG_ERROR = 1,   /* runs and loads that failed */
  NVM_LOG_WARNING = 2, /* what works, but slower than meant: machine code that is not used */
  NVM_LOG_INFO = 3,    /* loads, chosen machine code, threads */
  NVM_LOG_DEBUG = 4    /* runs, trims, refused sections */
};

/* Gets one line at a time, without a newline and other control characters, from any thread. Nothing
 * of the API but nvm_log_level may be called from it. */
typedef void (*nvm_log_fn)(void *context, int32_t level, const char *message);

/* Tell what is at most of `level` (negative: as it is) to `write` (NULL: stderr). Without a call
 * the environment variable NVM_LOG says the level: off, error, warning, info or debug. Of the
 * process; any thread. When it returns, no earlier `write` is running on another thread. */
void nvm_log_set(int32_t level, nvm_log_fn write, void *context);
int32_t nvm_log_level(void);

/* --- External code on the host (docs/external-codegen.md) ---
 * A kernel may be code that a backend outside of the compiler made, in a section of the file that
 * names a runtime. A VM asks the runtime of that name for an instance of each such kernel. */

typedef struct nvm_kernel_ctx nvm_kernel_ctx; /* see nvm_kernel.h: fail, poll, parallel_for */
typedef struct nvm_signature nvm_signature;

typedef struct nvm_external_runtime {
  uint32_t size;    /* sizeof(nvm_external_runtime) */
  const char *name; /* letters, digits, '_' and '.' */
  void *context;    /* handed to create */
  /* Called when a VM is made, for each of its kernels. blob: what the backend's codegen gave,
   * `size` bytes, as trusted as machine code; a malformed one is to be refused with
   * NVM_INVALID_EXECUTABLE. blob, kernel and signature are good until the instance is destroyed.
   * out_instance: owned. An error keeps the VM from being made, with the text of
   * nvm_external_fail. */
  nvm_status (*create)(void *context, const void *blob, size_t size, const char *kernel,
                       const nvm_signature *signature, void **out_instance);
  /* Run it, as nvm_kernel.h says of kernels: bufs and dims are in the signature's order, and have
   * been checked against it. One call of an instance at a time; those of other VMs run beside it.
   */
  nvm_status (*run)(void *instance, const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims);
  void (*destroy)(void *instance);
} nvm_external_runtime;

/* Make a runtime known, in the place of one of its name (VMs that exist keep that one). The struct
 * and the name are copied. Any thread. Errors: INVALID_INPUT, OUT_OF_MEMORY. */
nvm_status nvm_external_register(const nvm_external_runtime *runtime);
/* VMs made from now on do not find it; 0 if there is none. What it points to stays in use by VMs
 * that exist. */
int32_t nvm_external_unregister(const char *name);
/* The names of all runtimes, with commas between; returns the length that it would have. */
size_t nvm_external_names(char *text, size_t size);

/* One operand of a call. */
typedef struct nvm_external_operand {
  int32_t dtype;
  int32_t role; /* 0 input, 1 output, 2 scratch */
  int32_t rank;
  int64_t shape[8];
  size_t bytes;
} nvm_external_operand;

/* For create and run: how many operands there are, and what they are in a call with these dims. */
uint32_t nvm_external_operand_count(const nvm_signature *signature);
uint32_t nvm_external_dim_count(const nvm_signature *signature); /* in-dims, the first of `dims` */
nvm_status nvm_external_operands(const nvm_signature *signature, const int64_t *dims,
                                 nvm_external_operand *out_operands);
/* Record what is wrong; returns `code`, so that an entry can return it. */
nvm_status nvm_external_fail(nvm_status code, const char *text);

/* Load a shared library that has a runtime:
 *   const nvm_external_runtime *nvm_external_entry(const nvm_external_api *api);
 * It stays loaded. out_name: borrowed. Errors: FILE_ERROR, INVALID_INPUT. */
nvm_status nvm_external_load(const char *path, const char **out_name);
/* Where the BLAS library lies that the runtime "blas" uses, before the first VM that needs it. */
void nvm_blas_library(const char *path);

/* --- For tools: what else a file holds --- */

/* Place of an instruction; returns 0 if unknown. */
int32_t nvm_program_span(const nvm_program *program, uint32_t function, uint32_t pc,
                         const char **out_source, uint32_t *out_line, uint32_t *out_column);
uint32_t nvm_program_constant_count(const nvm_program *program);
/* The elements of a constant. */
const void *nvm_program_constant(const nvm_program *program, uint32_t index, int32_t *out_dtype,
                                 uint32_t *out_rank, const int64_t **out_dims);
uint32_t nvm_program_kernel_count(const nvm_program *program);
/* Kernel: name; kind 0 IR, 1 C, 2 external; *out_native 1 if machine code of this CPU was mapped.
 */
const char *nvm_program_kernel(const nvm_program *program, uint32_t index, int32_t *out_kind,
                               int32_t *out_native);
/* A text that instructions refer to, as Fatal does. */
const char *nvm_program_note(const nvm_program *program, uint32_t index);
uint32_t nvm_program_section_count(const nvm_program *program);
/* The bytes of a section; kinds as in docs/format.md. */
const void *nvm_program_section(const nvm_program *program, uint32_t index, int32_t *out_kind,
                                const char **out_target, size_t *out_size);
/* Is machine code of this section in use? If not, *out_why says why; "" for other sections.
 * *out_level: its target, by the name of a level ("x86-64-v3") if it asks for exactly that. */
int32_t nvm_program_section_used(const nvm_program *program, uint32_t index, const char **out_level,
                                 const char **out_why);
/* The msgpack header (docs/format.md) as it was checked: for tools that show or rewrite a file. */
const void *nvm_program_header(const nvm_program *program, size_t *out_size);
/* The version of the file's format. */
uint32_t nvm_program_format_version(const nvm_program *program);
/* The backends of a device index in order of preference, "opencl,cuda"; index 0 is "cpu". NULL
 * behind the last. */
const char *nvm_program_device(const nvm_program *program, uint32_t index);
/* Value of a producer key, NULL if absent. */
const char *nvm_program_producer(const nvm_program *program, const char *key);

/* One kernel, through the same door as CallKernel (folding, tuning, tests). operands: compact host
 * tensors in the order of the signature; outputs are written in place; dims: in-dims then room for
 * out-dims. */
nvm_status nvm_kernel_call(nvm_program *program, uint32_t kernel, const nvm_arg *operands,
                           size_t n_operands, int64_t *dims, size_t n_dims);

/* Which checks this thread's last refused load got past: 0 none, 1 structure, 2 code. For tests. */
int32_t nvm_load_stage(void);

typedef struct nvm_null_record {
  uint64_t allocs, frees, copies, syncs, launches;
} nvm_null_record;

/* What all devices of the backend "null" recorded since the process started. */
void nvm_null_record_get(nvm_null_record *out_record);

/* Where the backend "cuda" finds the driver: a path or name for dlopen, by default "libcuda.so.1".
 * For installations that the loader does not know, and tests; an environment variable would let
 * others choose what a process loads. Errors: INVALID_INPUT, also once another one is in use. */
nvm_status nvm_cuda_driver_set(const char *path);

/* --- VTA, simulated (docs/vta.md) --- */

/* The hardware: blocks of batch x block_in inputs and block_out x block_in weights, the bytes of
 * each scratchpad (all as log2), bytes that each module moves between it and DRAM a cycle, and
 * cycles before the first of them. */
typedef struct nvm_vta_config {
  uint32_t log_batch, log_block_in, log_block_out;
  uint32_t log_uop_bytes, log_inp_bytes, log_wgt_bytes, log_acc_bytes;
  uint32_t bytes_a_cycle, dram_latency;
} nvm_vta_config;

/* Work of runs. The cycles of instructions overlap: their sum may be more than `cycles`.
 * layout_cycles: rearranging tensors between runs, part of `cycles`. bytes_loaded holds uop_bytes
 * and wgt_bytes. uop_loads, uop_reuses: micro-kernels that a call had to load, or found loaded. */
typedef struct nvm_vta_stats {
  uint64_t runs, instructions, cycles;
  uint64_t load_cycles, gemm_cycles, alu_cycles, store_cycles, layout_cycles;
  uint64_t block_products, bytes_loaded, bytes_stored, uop_bytes, wgt_bytes;
  uint64_t uop_loads, uop_reuses;
} nvm_vta_stats;

/* What all devices of the backend "vta" did since the process started. */
void nvm_vta_stats_get(nvm_vta_stats *out_stats);

typedef struct nvm_vta_simulator nvm_vta_simulator;

/* A simulator without a VM, for instruction streams made by hand; owned. dram: at least 1 byte,
 * borrowed until it is destroyed. NVM_INVALID_EXECUTABLE: a number of `config` is out of range. */
nvm_status nvm_vta_simulator_create(const nvm_vta_config *config, void *dram, uint64_t dram_bytes,
                                    nvm_vta_simulator **out_simulator);
void nvm_vta_simulator_destroy(nvm_vta_simulator *simulator);
/* Run `count` instructions of 16 bytes. cycle_limit: 0 for none. Scratchpads begin empty, but
 * micro-ops stay from run to run. NVM_DEVICE_ERROR names the instruction at fault. */
nvm_status nvm_vta_simulator_run(nvm_vta_simulator *simulator, const void *instructions,
                                 size_t count, uint64_t cycle_limit, nvm_vta_stats *out_stats);
/* The fields of an instruction in the order of docs/vta.md: out_fields holds 26 numbers, those that
 * its opcode lacks 0. For tests of encoders. */
nvm_status nvm_vta_fields(const void *instruction, int64_t *out_fields);
/* --- cdef end --- */

/* What a library's nvm_external_entry is given, so that it need not be linked with this one. */
typedef struct nvm_external_api {
  uint32_t size; /* sizeof(nvm_external_api) */
  nvm_status (*fail)(nvm_status code, const char *text);
  uint32_t (*operand_count)(const nvm_signature *signature);
  uint32_t (*dim_count)(const nvm_signature *signature);
  nvm_status (*operands)(const nvm_signature *signature, const int64_t *dims,
                         nvm_external_operand *out_operands);
} nvm_external_api;

/* --- One argument each ---
 * `shape` and `data` are borrowed until the call returns. */

/* A record of that kind with nothing in it. */
static inline nvm_arg nvm_arg_of_kind(int32_t kind, int32_t dtype) {
  nvm_arg arg;
  arg.kind = kind;
  arg.dtype = dtype;
  arg.rank = arg.ctor = arg.n_fields = 0;
  arg.dl_device_type = 1;
  arg.data = NULL;
  arg.shape = arg.strides = NULL;
  arg.int_value = 0;
  arg.float_value = 0;
  arg.handle = NULL;
  arg.release = NULL;
  arg.owner = arg.storage = NULL;
  return arg;
}

/* A compact tensor on the host, good for the call. Set `strides` for another layout, `release` and
 * `owner` to lend it for longer. */
static inline nvm_arg nvm_arg_tensor(int32_t dtype, uint32_t rank, const int64_t *shape,
                                     const void *data) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_TENSOR, dtype);
  arg.rank = rank;
  arg.shape = shape;
  arg.data = data;
  return arg;
}

/* An integer of the parameter's dtype. */
static inline nvm_arg nvm_arg_int(int64_t value) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_INT, -1);
  arg.int_value = value;
  return arg;
}

/* A bool. */
static inline nvm_arg nvm_arg_bool(int value) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_INT, NVM_DTYPE_BOOL);
  arg.int_value = value != 0;
  return arg;
}

/* A float of the parameter's dtype. */
static inline nvm_arg nvm_arg_float(double value) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_FLOAT, -1);
  arg.float_value = value;
  return arg;
}

/* A constructor (nvm_program_find_constructor) applied to the n_fields values before it. */
static inline nvm_arg nvm_arg_adt(uint32_t constructor, uint32_t n_fields) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_ADT, -1);
  arg.ctor = constructor;
  arg.n_fields = n_fields;
  return arg;
}

/* A tuple of the n_fields values before it. */
static inline nvm_arg nvm_arg_tuple(uint32_t n_fields) { return nvm_arg_adt(0, n_fields); }

/* What the VM keeps behind a handle, borrowed. */
static inline nvm_arg nvm_arg_handle(nvm_handle *handle) {
  nvm_arg arg = nvm_arg_of_kind(NVM_ARG_HANDLE, -1);
  arg.handle = handle;
  return arg;
}

/* --- One want each --- */

/* The value itself, in the result. */
static inline nvm_want nvm_want_value(void) {
  nvm_want want;
  want.kind = NVM_WANT_VALUE;
  want.dtype = 0;
  want.data = NULL;
  want.bytes = 0;
  want.rank = 0;
  want.shape = NULL;
  return want;
}

/* A handle: the value stays in the VM. */
static inline nvm_want nvm_want_handle(void) {
  nvm_want want = nvm_want_value();
  want.kind = NVM_WANT_HANDLE;
  return want;
}

/* A buffer with room for `bytes`, for a result of any shape. */
static inline nvm_want nvm_want_buffer(int32_t dtype, void *data, size_t bytes) {
  nvm_want want = nvm_want_value();
  want.kind = NVM_WANT_BUFFER;
  want.dtype = dtype;
  want.data = data;
  want.bytes = bytes;
  return want;
}

#ifdef __cplusplus
}
#endif
#endif
