/* Machine code of a file: one freestanding ELF shared object, mapped by the dynamic loader. Such
 * code is trusted (docs/ format.md, "Native sections"); what is checked here keeps honest files
 * from failing in obscure ways.
 */
#ifndef NVM_NATIVE_CODE_H
#define NVM_NATIVE_CODE_H

#include <stddef.h>
#include <stdint.h>

#include "nvm_kernel.h"
#include "status.h"

typedef struct nvm_native_code nvm_native_code;

/* Does this CPU have what `target` ("x86_64:+avx2,+fma") asks for? If not, `why` gets the first
 * thing that is missing. */
int nvm_native_target_fits(const char *target, char *why, size_t why_size);

/* Map `size` bytes at `elf` (copied). The object must export an nvm_kernel_table of our ABI with at
 * least n_functions_needed functions. out_code: owned, freed with nvm_native_code_free; out_table:
 * lives as long. Errors: NVM_UNSUPPORTED (says why), NVM_FILE_ERROR. */
NVM_NODISCARD nvm_status nvm_native_code_load(const uint8_t *elf, size_t size,
                                              uint32_t n_functions_needed,
                                              nvm_native_code **out_code,
                                              const nvm_kernel_table **out_table);
void nvm_native_code_free(nvm_native_code *code); /* NULL ok */

#endif
