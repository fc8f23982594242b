/* Runtimes of external code on the host. */
#ifndef NVM_EXTERNAL_H
#define NVM_EXTERNAL_H

#include "nvm_device.h"

/* Register a runtime, in place of an earlier one of its name; VMs that exist keep that one.
 * runtime: lives for ever. Any thread. */
nvm_status nvm_external_add(const nvm_external_runtime *runtime);

#endif
