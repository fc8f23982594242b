/* Operand checks and kernel calls. This is the only place where operands are checked, so a hostile
 * or miscompiled file is an error here and never a wild access in a kernel. */
#include "call.h"

#include <pthread.h>
#include <stdio.h>

#include "kernel_ir.h"
#include "clock.h"
#include "dim_program.h"
#include "tensor.h"
#include "threads.h"

/* --- what kernels call ------------------------------------------------------------------------ */

/* What a kernel calls its fault, made one of ours. */
static nvm_status known(nvm_status code) {
  return code <= NVM_OK || code > NVM_INTERRUPTED ? (nvm_status)NVM_KERNEL_ERROR : code;
}

NVM_COLD static nvm_status ctx_fail(const nvm_kernel_ctx *ctx, nvm_status code, int32_t operand,
                                    int64_t index, int64_t bound) {
  nvm_call *call = (nvm_call *)(uintptr_t)ctx; /* ours, made mutable again */
  code = known(code);
  if (call->code == NVM_OK) {
    call->code = code;
    call->operand = operand;
    call->index = index;
    call->bound = bound;
  }
  return code;
}

static nvm_status ctx_poll(const nvm_kernel_ctx *ctx) {
  const nvm_call *call = (const nvm_call *)ctx;
  if (!call->host) return NVM_OK;
  /* The IR interpreter asks after a fixed amount of work, so that its loops use up fuel like
   * instructions do. */
  return call->host->poll(call->vm, call->interpreted ? NVM_IR_POLL_WORK : 0);
}

enum {
  TURNED_PIECES = 16,
  LONG_REGION = 1000000, /* ns */
};

/* Loops that run in pieces: faults of the piece that failed first in order are the caller's. */
typedef struct region {
  nvm_range_fn fn;
  void *closure;
  pthread_mutex_t lock;
  int polls;      /* before each piece: those of a long loop may be too short to poll themselves */
  int64_t failed; /* where that piece begins, under lock */
  nvm_call fault; /* its call */
} region;

static nvm_status run_piece(const nvm_kernel_ctx *ctx, void *closure, int64_t begin, int64_t end) {
  region *r = closure;
  nvm_call mine = *(const nvm_call *)ctx;
  const uint64_t since = NVM_UNLIKELY(mine.profiled) ? nvm_cycles() : 0;
  nvm_status status = r->polls && mine.host ? mine.host->poll(mine.vm, 0) : NVM_OK;
  if (NVM_LIKELY(status == NVM_OK)) status = r->fn(&mine.ctx, r->closure, begin, end);
  if (NVM_UNLIKELY(mine.profiled)) mine.host->piece_ended(mine.vm, mine.kernel, since);
  if (NVM_LIKELY(status == NVM_OK)) return NVM_OK;
  pthread_mutex_lock(&r->lock);
  if (begin < r->failed) {
    r->failed = begin;
    r->fault = mine;
  }
  pthread_mutex_unlock(&r->lock);
  return status;
}

/* On this thread, the last piece first. Those before a piece that failed are run, as in order. */
static nvm_status run_turned(const nvm_kernel_ctx *ctx, int64_t count, region *r) {
  const int64_t pieces = count < TURNED_PIECES ? count : TURNED_PIECES;
  nvm_status found = NVM_OK;
  for (int64_t k = pieces, end = count; k-- > 0;) {
    const int64_t begin = count / pieces * k + (k < count % pieces ? k : count % pieces);
    const nvm_status status = run_piece(ctx, r, begin, end);
    if (NVM_UNLIKELY(status != NVM_OK)) found = status;
    end = begin;
  }
  return found;
}

/* A kernel that calls this again and again takes the steps of a loop, which read the same weights:
 * every other time from the last piece on, so that those of the last megabyte come from the cache.
 */
static nvm_status ctx_parallel_for(const nvm_kernel_ctx *ctx, int64_t count, int64_t work,
                                   nvm_range_fn fn, void *closure) {
  nvm_call *call = (nvm_call *)(uintptr_t)ctx;
  if (count <= 0) return NVM_OK;
  const int turned = call->regions++ & 1, alone = call->threads <= 1;
  if (count == 1 || (alone && !turned)) return fn(ctx, closure, 0, count);
  region r = {.fn = fn, .closure = closure, .polls = work >= LONG_REGION, .failed = INT64_MAX};
  r.lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  const nvm_status status =
      alone ? run_turned(ctx, count, &r)
            : nvm_threads_run(call->threads, ctx, count, work, run_piece, &r, turned);
  if (NVM_UNLIKELY(status != NVM_OK)) {
    call->code = r.fault.code;
    call->operand = r.fault.operand;
    call->index = r.fault.index;
    call->bound = r.fault.bound;
  }
  return status;
}

/* A kernel without machine code, in the shape of one. */
static nvm_status run_ir(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  const nvm_kernel *kernel = ((const nvm_call *)ctx)->kernel;
  return nvm_kernel_ir_run(kernel->ir, &kernel->signature, ctx, bufs, dims);
}

static nvm_status run_external(const nvm_kernel_ctx *ctx, void *const *bufs, int64_t *dims) {
  const nvm_external *external = ((const nvm_call *)ctx)->external;
  return external->runtime->run(external->instance, ctx, bufs, dims);
}

/* Where code beside the host function may stand for a kernel. */
NVM_COLD static nvm_status choose_code(nvm_call *call, const nvm_pool *pool,
                                       const nvm_kernel *kernel, nvm_kernel_fn *fn,
                                       const void **out_code) {
  const nvm_device_vtable *vtable = pool->device->vtable;
  const void *code = pool->code ? pool->code[kernel->number] : NULL;
  if (!vtable->host_code)
    *fn = code ? run_ir : NULL; /* not called */
  else if (code)
    *fn = run_external;
  if (!*fn)
    NVM_FAIL(NVM_UNSUPPORTED, "kernel %s has no code that %s can run", kernel->name, vtable->name);
  call->external = vtable->host_code ? code : NULL;
  *out_code = code;
  return NVM_OK;
}

NVM_COLD void nvm_call_init(nvm_call *call, const nvm_call_host *host, struct nvm_vm *vm,
                            int32_t threads) {
  memset(call, 0, sizeof *call);
  call->ctx = (nvm_kernel_ctx){.abi = NVM_KERNEL_ABI,
                               .size = sizeof(nvm_kernel_ctx),
                               .fail = ctx_fail,
                               .poll = ctx_poll,
                               .parallel_for = ctx_parallel_for};
  call->host = host;
  call->vm = vm;
  call->threads = threads;
}

/* --- checks ----------------------------------------------------------------------------------- */

static const char *const role_names[] = {"input", "output", "scratch"};

NVM_COLD static nvm_status mismatch_type(const nvm_kernel *kernel, const nvm_operand *want,
                                         const nvm_tensor *got, uint32_t device) {
  const unsigned i = (unsigned)(want - kernel->signature.operands);
  char text[NVM_SHAPE_TEXT];
  if (got->device != device)
    NVM_FAIL(NVM_OPERAND_MISMATCH, "kernel %s: operand %u is on device %u, operand 0 on device %u",
             kernel->name, i, got->device, device);
  NVM_FAIL(NVM_OPERAND_MISMATCH,
           "kernel %s: operand %u (%s): expected %s of rank %u, got a tensor %s", kernel->name, i,
           role_names[want->role], nvm_dtypes[want->dtype].name, want->rank,
           nvm_shape_text(text, got->header.extra, got->rank, got->dims));
}

NVM_COLD static nvm_status mismatch_dim(const nvm_kernel *kernel, const nvm_operand *want,
                                        const nvm_axis *axis, int64_t expected, int64_t got) {
  NVM_FAIL(NVM_OPERAND_MISMATCH,
           "kernel %s: operand %u (%s), axis %u: expected size %lld%s, got %lld", kernel->name,
           (unsigned)(want - kernel->signature.operands), role_names[want->role],
           (unsigned)(axis - want->axes), (long long)expected, axis->broadcast ? " or 1" : "",
           (long long)got);
}

static nvm_status axis_size(const nvm_signature *sig, const nvm_axis *axis, const int64_t *dims,
                            int64_t *out_size) {
  size_t start = (size_t)axis->value;
  if (start >= sig->n_expr_words) NVM_FAIL(NVM_OPERAND_MISMATCH, "a dim expression is malformed");
  return nvm_dim_program(sig->exprs + start, sig->n_expr_words - start, dims,
                         (size_t)sig->n_dims + sig->n_attrs, out_size);
}

/* dtype, rank, device and every dim of an operand; pitches of broadcast axes are appended at
 * *pitch. */
static inline nvm_status check_operand(const nvm_kernel *kernel, const nvm_operand *want,
                                       const nvm_tensor *got, uint32_t device, const int64_t *dims,
                                       int64_t **pitch) {
  if (NVM_UNLIKELY(got->header.extra != want->dtype || got->rank != want->rank ||
                   got->device != device))
    return mismatch_type(kernel, want, got, device);
  const int64_t *size = got->dims;
  for (const nvm_axis *axis = want->axes, *end = axis + want->rank; axis != end; axis++, size++) {
    int64_t expected = axis->value;
    if (axis->kind == NVM_AXIS_DIM) {
      expected = dims[expected];
    } else if (NVM_UNLIKELY(axis->kind == NVM_AXIS_EXPR)) {
      int64_t value; /* of its own, so that `expected` stays in a register */
      NVM_TRY(axis_size(&kernel->signature, axis, dims, &value));
      expected = value;
    }
    if (NVM_UNLIKELY(axis->broadcast)) {
      *(*pitch)++ = *size;
      if (*size == 1) continue;
    }
    if (NVM_UNLIKELY(*size != expected)) return mismatch_dim(kernel, want, axis, expected, *size);
  }
  return NVM_OK;
}

static inline int overlap(const nvm_tensor *a, const nvm_tensor *b) {
  return a->data < b->data + b->bytes && b->data < a->data + a->bytes && a->bytes && b->bytes;
}

/* Operand i is written: it must be ours to write, and nothing else may lie there. */
static inline nvm_status check_written(const nvm_kernel *kernel, uint32_t i,
                                       nvm_tensor *const *operands) {
  const nvm_tensor *out = operands[i];
  if (NVM_UNLIKELY(!out->storage ||
                   (out->storage->header.flags & (NVM_FLAG_READONLY | NVM_FLAG_MOVED))))
    NVM_FAIL(NVM_OPERAND_MISMATCH,
             "kernel %s: operand %u (%s) is a constant or an input, which can't be written",
             kernel->name, i, role_names[kernel->signature.operands[i].role]);
  for (uint32_t k = 0; k < i; k++) {
    const nvm_tensor *other = operands[k];
    if (NVM_LIKELY(!overlap(out, other))) continue;
    if (kernel->signature.operands[i].alias == k + 1 && out->data == other->data &&
        out->bytes == other->bytes)
      continue;
    NVM_FAIL(NVM_OPERAND_MISMATCH, "kernel %s: operand %u (%s) shares memory with operand %u",
             kernel->name, i, role_names[kernel->signature.operands[i].role], k);
  }
  return NVM_OK;
}

/* --- the call --------------------------------------------------------------------------------- */

NVM_COLD nvm_status nvm_kernel_fault(const char *kernel, nvm_status code, int32_t operand,
                                     int64_t index, int64_t bound) {
  char where[32] = "";
  if (operand >= 0) snprintf(where, sizeof where, ", operand %d", operand);
  const long long i = index, size = bound;
  code = known(code);
  switch (code) {
    case NVM_INDEX_OUT_OF_RANGE:
      return nvm_fail(code, "kernel %s%s: index %lld is outside of an axis of size %lld", kernel,
                      where, i, size);
    case NVM_DIVISION_BY_ZERO:
      return nvm_fail(code, "kernel %s%s: integer division by zero", kernel, where);
    case NVM_SHAPE_MISMATCH:
      return nvm_fail(code, "kernel %s%s: expected %lld, got %lld", kernel, where, size, i);
    default:
      return nvm_fail(code, "kernel %s%s reported a fault (%lld, %lld)", kernel, where, i, size);
  }
}

NVM_COLD static nvm_status report(nvm_call *call, nvm_status status) {
  const char *name = call->kernel->name;
  status = known(status);
  if (call->code != NVM_OK)
    return nvm_kernel_fault(name, call->code, call->operand, call->index, call->bound);
  if (call->host &&
      (status == NVM_CANCELLED || status == NVM_TIME_LIMIT || status == NVM_INTERRUPTED))
    return call->host->stopped(call->vm, status, name);
  if (nvm_last_error()->code == status) return status; /* poll, or the IR interpreter, said why */
  return nvm_fail(status, "kernel %s failed", name);
}

nvm_status nvm_call_kernel(nvm_call *call, const nvm_pool *pools, const nvm_kernel *kernel,
                           nvm_tensor *const *operands, int64_t *dims, int64_t **out_dims,
                           size_t *out_bytes) {
  const nvm_signature *sig = &kernel->signature;
  void *bufs[NVM_MAX_OPERANDS];
  size_t bytes = 0;
  uint32_t empty = 0;
  int64_t *pitch = dims + sig->n_dims;
  for (uint32_t i = 0; i < sig->n_attrs; i++) *pitch++ = sig->attrs[i];
  uint32_t device = sig->n_operands ? operands[0]->device : 0;
  const nvm_operand *want = sig->operands;
  for (uint32_t i = 0; i < sig->n_operands; i++, want++) {
    const nvm_tensor *got = operands[i];
    NVM_TRY(check_operand(kernel, want, got, device, dims, &pitch));
    if (want->role != NVM_ROLE_IN) {
      NVM_TRY(check_written(kernel, i, operands));
      if (want->role == NVM_ROLE_OUT && got->bytes == 0) empty++;
    }
    bufs[i] = got->data;
    bytes += got->bytes;
  }
  for (uint32_t i = 0; i < sig->n_out_dims; i++) pitch[i] = 0;
  *out_dims = pitch;
  *out_bytes = bytes;
  nvm_kernel_fn fn = kernel->fn ? kernel->fn : kernel->ir ? run_ir : NULL;
  const nvm_pool *pool = &pools[device];
  const void *code = NULL;
  if (NVM_UNLIKELY(pool->code || !fn)) NVM_TRY(choose_code(call, pool, kernel, &fn, &code));
  /* Nothing to write and to refuse: loops around an empty axis would turn to no end. */
  if (NVM_UNLIKELY(empty) && empty == sig->n_out && !sig->may_fail && sig->n_out_dims == 0)
    return NVM_OK;
  call->kernel = kernel;
  call->code = NVM_OK;
  call->regions = 0;
  call->interpreted = fn == run_ir && !code;
  nvm_device *target = pool->device;
  const uint64_t since = NVM_UNLIKELY(call->profiled) ? nvm_cycles() : 0;
  nvm_status status = target->vtable->launch(target, &call->ctx, fn, code, bufs, dims);
  if (NVM_UNLIKELY(call->profiled)) {
    /* What a queue takes to run is timed, not the queueing. */
    if (status == NVM_OK && !target->vtable->host_code) status = target->vtable->sync(target);
    call->host->kernel_ended(call->vm, kernel, dims, since);
  }
  return NVM_LIKELY(status == NVM_OK) ? NVM_OK : report(call, status);
}
