/* Which devices a VM has: chosen, opened and given their code when it is created. */
#ifndef NVM_VM_DEVICES_H
#define NVM_VM_DEVICES_H

#include "vm.h"

/* Open a device for each device index of the program, load code for them and copy constants there.
 * vm->heap: just created. On an error what was made stays for nvm_vm_close_devices. Errors:
 * DEVICE_ERROR (none of those that the file names; says why each), INVALID_EXECUTABLE (malformed
 * device code), OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_vm_open_devices(nvm_vm *vm, const nvm_vm_options *options);
/* Before the heap is closed: frees code and constants; devices are closed with the heap. */
void nvm_vm_close_devices(nvm_vm *vm);
/* The devices have finished what runs queued; the first fault that kernels there reported. */
NVM_NODISCARD nvm_status nvm_vm_sync(nvm_vm *vm);

#endif
