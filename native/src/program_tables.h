/* From the msgpack header to a program's tables: everything that docs/format.md says about the
 * header's values is checked here, and nothing about what lies in the sections.
 */
#ifndef NVM_PROGRAM_TABLES_H
#define NVM_PROGRAM_TABLES_H

#include "loader.h"

/* Read the header into program and loader. Errors: NVM_INVALID_EXECUTABLE, NVM_OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_read_tables(nvm_loader *loader, const uint8_t *header, size_t size);

#endif
