/* The backends of this build. A new one is a line here. */
#include <string.h>

#include "nvm_api.h"
#include "nvm_device.h"
#include "status.h"
#include "threads.h"

/* In the order in which they are listed. */
#define BACKENDS(X) \
  X(cpu)            \
  X(null)           \
  X(simulated)      \
  X(cuda)           \
  X(opencl)         \
  X(vta)

#define X(name) extern const nvm_device_vtable *const nvm_device_##name;
BACKENDS(X)
#undef X

#define X(name) +1
size_t nvm_device_count(void) { return 0 BACKENDS(X); }
#undef X

#define X(name) nvm_device_##name,
const nvm_device_vtable *nvm_device_at(size_t index) {
  const nvm_device_vtable *const backends[] = {BACKENDS(X)};
  return index < nvm_device_count() ? backends[index] : NULL;
}
#undef X

const nvm_device_vtable *nvm_device_find(const char *name) {
  for (size_t i = 0; i < nvm_device_count(); i++)
    if (strcmp(nvm_device_at(i)->name, name) == 0) return nvm_device_at(i);
  return NULL;
}

int nvm_device_is_target(const nvm_device_vtable *vtable, const char *target) {
  const size_t length = strlen(vtable->name);
  return strncmp(target, vtable->name, length) == 0 &&
         (target[length] == 0 || target[length] == ':');
}

nvm_status nvm_device_check_code(const nvm_device_section *section,
                                 const nvm_device_kernels *kernels) {
  for (size_t i = 0; i < nvm_device_count(); i++) {
    const nvm_device_vtable *vtable = nvm_device_at(i);
    if (vtable->check_code && nvm_device_is_target(vtable, section->target))
      return vtable->check_code(section, kernels);
  }
  return NVM_OK;
}

NVM_EXPORT uint32_t nvm_backend_count(void) { return (uint32_t)nvm_device_count(); }

NVM_EXPORT nvm_status nvm_backend_info_get(uint32_t index, nvm_backend_info *out_info) {
  const nvm_device_vtable *vtable = nvm_device_at(index);
  if (!vtable)
    NVM_FAIL(NVM_DEVICE_ERROR, "backend %u: this build has %u", index, nvm_backend_count());
  *out_info = (nvm_backend_info){.name = vtable->name,
                                 .host_accessible = vtable->host_accessible,
                                 .host_code = vtable->host_code,
                                 .dl_device_type = (int32_t)vtable->dl_device_type};
  return nvm_ok();
}

NVM_EXPORT int32_t nvm_cpu_count(void) { return nvm_threads_available(); }
