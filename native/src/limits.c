#include "limits.h"

#define POLL_INTERVAL 4000000u /* ns */

NVM_COLD nvm_status nvm_vm_stopped(const nvm_vm *vm, nvm_status code, const char *kernel) {
  const char *inside = kernel ? ", inside kernel " : "";
  if (!kernel) kernel = "";
  if (code == NVM_TIME_LIMIT && vm)
    return nvm_fail(code, "the run took longer than its limit of %.6g ms%s%s",
                    (double)vm->limits.nanoseconds / 1e6, inside, kernel);
  return nvm_fail(code, "the run was %s%s%s",
                  code == NVM_CANCELLED     ? "cancelled"
                  : code == NVM_INTERRUPTED ? "interrupted"
                                            : "stopped",
                  inside, kernel);
}

/* Kernels ask hundreds of times a millisecond: the exact clock only where time is limited. */
nvm_status nvm_vm_poll(nvm_vm *vm) {
  if (atomic_load_explicit(&vm->cancel, memory_order_relaxed))
    return nvm_vm_stopped(vm, NVM_CANCELLED, NULL);
  if (vm->deadline != UINT64_MAX && nvm_now() >= vm->deadline)
    return nvm_vm_stopped(vm, NVM_TIME_LIMIT, NULL);
  if (!vm->poll || !pthread_equal(pthread_self(), vm->thread)) return NVM_OK;
  const uint64_t now = nvm_now_coarse();
  if (now < vm->next_poll) return NVM_OK;
  vm->next_poll = now + POLL_INTERVAL;
  if (vm->poll(vm->poll_context)) return nvm_vm_stopped(vm, NVM_INTERRUPTED, NULL);
  return NVM_OK;
}

static void start_slice(nvm_vm *vm) {
  vm->slice_start = vm->fuel_left < NVM_SLICE ? (int64_t)vm->fuel_left : NVM_SLICE;
  vm->slice = vm->slice_start;
  vm->slice_kernels = 0;
}

/* Account for the words of this slice; returns how many. */
static uint64_t settle(nvm_vm *vm) {
  uint64_t used = (uint64_t)(vm->slice_start - vm->slice - vm->slice_kernels);
  vm->fuel_used += used;
  return used;
}

static nvm_status burn(nvm_vm *vm, uint64_t words) {
  int over = words > vm->fuel_left;
  if (vm->limits.instructions) vm->fuel_left = over ? 0 : vm->fuel_left - words;
  if (over)
    NVM_FAIL(NVM_INSTRUCTION_LIMIT, "the run used up its %llu instructions",
             (unsigned long long)vm->limits.instructions);
  return NVM_OK;
}

nvm_status nvm_vm_checkpoint(nvm_vm *vm) {
  nvm_status status = burn(vm, settle(vm));
  start_slice(vm);
  return status == NVM_OK ? nvm_vm_poll(vm) : status;
}

nvm_status nvm_vm_charge(nvm_vm *vm, uint64_t turns) {
  if (pthread_equal(pthread_self(), vm->thread)) { /* workers leave the counters alone */
    vm->fuel_used += turns * 4;
    NVM_TRY(burn(vm, turns * 4));
  }
  return nvm_vm_poll(vm);
}

void nvm_limits_begin(nvm_vm *vm) {
  const nvm_limits *limits = &vm->limits;
  atomic_store_explicit(&vm->cancel, 0, memory_order_relaxed);
  vm->thread = pthread_self();
  vm->fuel_left = UINT64_MAX;
  if (limits->instructions && limits->instructions < UINT64_MAX / 4)
    vm->fuel_left = limits->instructions * 4;
  vm->deadline = UINT64_MAX;
  if (limits->nanoseconds) {
    const uint64_t now = nvm_now();
    if (limits->nanoseconds < UINT64_MAX - now) vm->deadline = now + limits->nanoseconds;
  }
  if (vm->poll) vm->next_poll = nvm_now_coarse() + POLL_INTERVAL;
  start_slice(vm);
}

void nvm_limits_end(nvm_vm *vm) {
  settle(vm);
  vm->slice_start = vm->slice = vm->slice_kernels = 0;
}
