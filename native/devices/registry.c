/* The backends of this build. A new one is a line here. */
#include <string.h>

#include "nvm_device.h"

extern const nvm_device_vtable *const nvm_device_cpu;
extern const nvm_device_vtable *const nvm_device_null;

size_t nvm_device_count(void) { return 2; }

const nvm_device_vtable *nvm_device_at(size_t index) {
  const nvm_device_vtable *const backends[] = {nvm_device_cpu, nvm_device_null};
  return index < nvm_device_count() ? backends[index] : NULL;
}

const nvm_device_vtable *nvm_device_find(const char *name) {
  for (size_t i = 0; i < nvm_device_count(); i++)
    if (strcmp(nvm_device_at(i)->name, name) == 0) return nvm_device_at(i);
  return NULL;
}
