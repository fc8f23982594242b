/* Which devices a VM has: chosen, opened and given their code when it is created. */
#ifndef NVM_VM_DEVICES_H
#define NVM_VM_DEVICES_H

#include "program_tables.h"
#include "vm.h"

/* Of a section of kind 4 or 5, when a program is loaded: what the backend that it names, if this
 * build has it, says of its bytes. Errors: INVALID_EXECUTABLE, OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_check_device_code(const nvm_program *program,
                                               const nvm_section *section);
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
