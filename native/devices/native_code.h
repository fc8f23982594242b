/* Machine code of a file: one freestanding ELF shared object, mapped by the dynamic loader. Such
 * code is trusted (docs/ format.md, "Native sections"); what is checked here keeps honest files
 * from failing in obscure ways.
 */
#ifndef NVM_NATIVE_CODE_H
#define NVM_NATIVE_CODE_H

#include <stdint.h>

#include "loader.h"
#include "status.h"

typedef struct nvm_native_code nvm_native_code;

/* Use the first native section that fits this CPU; the reasons against the others become their
 * `why`. That none fits is the program's warning, since the IR runs everywhere; with
 * NVM_LOAD_REQUIRE_NATIVE it is an error. Errors: NVM_UNSUPPORTED, NVM_OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_native_bind(nvm_loader *loader, uint32_t flags);
void nvm_native_code_free(nvm_native_code *code); /* NULL ok */

#endif
