/* The backend "cuda" call by call, without a VM: what test_cuda.py drives over the fake driver. */
#include <pthread.h>
#include <string.h>

#include "call.h"
#include "nvm_api.h"
#include "nvm_device.h"

#define HARNESS __attribute__((visibility("default"))) nvm_status

HARNESS harness_open(int32_t ordinal, nvm_device **out_device) {
  return nvm_device_find("cuda")->open(ordinal, out_device);
}
HARNESS harness_close(nvm_device *device) {
  device->vtable->close(device);
  return NVM_OK;
}
HARNESS harness_alloc(nvm_device *device, size_t size, size_t alignment, void **out_memory) {
  return device->vtable->alloc(device, size, alignment, out_memory);
}
HARNESS harness_free(nvm_device *device, void *memory, size_t size) {
  device->vtable->free(device, memory, size);
  return NVM_OK;
}
HARNESS harness_in(nvm_device *device, void *dst, size_t offset, const void *src, size_t size) {
  return device->vtable->copy_from_host(device, dst, offset, src, size);
}
HARNESS harness_out(nvm_device *device, void *dst, const void *src, size_t offset, size_t size) {
  return device->vtable->copy_to_host(device, dst, src, offset, size);
}
HARNESS harness_within(nvm_device *device, void *dst, size_t dst_offset, const void *src,
                       size_t src_offset, size_t size) {
  return device->vtable->copy_within(device, dst, dst_offset, src, src_offset, size);
}
HARNESS harness_sync(nvm_device *device) { return device->vtable->sync(device); }
HARNESS harness_load(nvm_device *device, uint32_t kind, const char *target, const void *code,
                     size_t size, void **out_module) {
  const nvm_device_section section = {kind, target, code, size};
  return device->vtable->load_module(device, &section, out_module);
}
HARNESS harness_unload(nvm_device *device, void *module) {
  device->vtable->unload_module(device, module);
  return NVM_OK;
}

/* The signature of a kernel over vectors of dims[0] float32 elements: inputs, then one output. */
static nvm_operand vectors[NVM_MAX_OPERANDS];
static nvm_signature signature = {.operands = vectors, .n_dims = 1};

HARNESS harness_find(nvm_device *device, void *module, uint32_t index, uint32_t inputs,
                     const void **out_code) {
  signature.n_in = (uint16_t)inputs;
  signature.n_out = 1;
  signature.n_operands = (uint16_t)(inputs + 1);
  for (uint32_t i = 0; i <= inputs; i++)
    vectors[i] = (nvm_operand){.role = i < inputs ? NVM_ROLE_IN : NVM_ROLE_OUT,
                               .rank = 1,
                               .axes = {{.kind = NVM_AXIS_DIM, .value = 0}}};
  return device->vtable->find_kernel(device, module, index, "the_kernel", &signature, out_code);
}
HARNESS harness_launch(nvm_device *device, const void *code, void *const *bufs, int64_t *dims) {
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, 1);
  return device->vtable->launch(device, &call.ctx, NULL, code, bufs, dims);
}
__attribute__((visibility("default"))) const char *harness_message(void) {
  return nvm_last_error()->message;
}
