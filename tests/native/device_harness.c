/* One backend and one section of device code for it, without a file or VM: what Python tests of
 * devices drive through ctypes (tests/devices/backend.py). */
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "nvm_api.h"
#include "nvm_device.h"

enum { BEFORE = 64 }; /* operands begin inside of their memory */

typedef struct session {
  nvm_device *device;
  void *module;
  nvm_signature signature;
} session;

int32_t device_open(const char *backend, int32_t ordinal, const char *target, const void *code,
                    size_t size, session **out_session);
int32_t device_run(session *s, uint32_t kernel, uint32_t n_operands, uint32_t n_dims,
                   uint32_t n_pitches, void *const *data, const size_t *sizes, int64_t *dims);
void device_close(session *s);
const char *device_message(void);

const char *device_message(void) { return nvm_last_error()->message; }

void device_close(session *s) {
  if (s->module) s->device->vtable->unload_module(s->device, s->module);
  if (s->device) s->device->vtable->close(s->device);
  free(s);
}

int32_t device_open(const char *backend, int32_t ordinal, const char *target, const void *code,
                    size_t size, session **out_session) {
  session *s = calloc(1, sizeof *s);
  const nvm_device_vtable *vtable = nvm_device_find(backend);
  if (!s || !vtable) return NVM_INTERNAL;
  nvm_status status = vtable->open(ordinal, &s->device);
  const nvm_device_section section = {4, target, code, size};
  if (status == NVM_OK && size) status = vtable->load_module(s->device, &section, &s->module);
  if (status != NVM_OK) {
    device_close(s);
    return status;
  }
  *out_session = s;
  return NVM_OK;
}

int32_t device_run(session *s, uint32_t kernel, uint32_t n_operands, uint32_t n_dims,
                   uint32_t n_pitches, void *const *data, const size_t *sizes, int64_t *dims) {
  const nvm_device_vtable *v = s->device->vtable;
  void *memory[NVM_MAX_OPERANDS] = {NULL}, *bufs[NVM_MAX_OPERANDS] = {NULL};
  const void *code = NULL;
  s->signature = (nvm_signature){.n_operands = (uint16_t)n_operands,
                                 .n_dims = (uint16_t)n_dims,
                                 .n_pitches = (uint16_t)n_pitches};
  nvm_status status = v->find_kernel(s->device, s->module, kernel, "tested", &s->signature, &code);
  for (uint32_t i = 0; i < n_operands && status == NVM_OK; i++) {
    status = v->alloc(s->device, BEFORE + sizes[i], 64, &memory[i]);
    bufs[i] = (char *)memory[i] + BEFORE;
    if (status == NVM_OK && sizes[i])
      status = v->copy_from_host(s->device, memory[i], BEFORE, data[i], sizes[i]);
  }
  nvm_call call;
  nvm_call_init(&call, NULL, NULL, 1);
  if (status == NVM_OK) status = v->launch(s->device, &call.ctx, NULL, code, bufs, dims);
  if (status == NVM_OK) status = v->sync(s->device);
  for (uint32_t i = 0; i < n_operands && status == NVM_OK; i++)
    if (sizes[i]) status = v->copy_to_host(s->device, data[i], memory[i], BEFORE, sizes[i]);
  for (uint32_t i = 0; i < n_operands; i++)
    if (memory[i]) v->free(s->device, memory[i], BEFORE + sizes[i]);
  return status;
}
