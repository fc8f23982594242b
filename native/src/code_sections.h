/* Sections of kinds 4 and 5: code for devices and for host runtimes. Each names its target; bytes
 * of external code are a map from kernels to blobs (docs/format.md). */
#ifndef NVM_CODE_SECTIONS_H
#define NVM_CODE_SECTIONS_H

#include "loader.h"

/* Once sections are read: targets, the entries of external code, that no kernel lacks it, and what
 * backends of this build say of code for them. Errors: INVALID_EXECUTABLE, OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_check_code_sections(nvm_loader *loader);
/* The entries of a section of external code, one by one. blob: borrowed. */
NVM_NODISCARD nvm_status nvm_external_begin(nvm_mp *mp, const nvm_section *section,
                                            uint32_t *out_count);
NVM_NODISCARD nvm_status nvm_external_next(nvm_mp *mp, const nvm_program *program,
                                           uint32_t *out_kernel, const uint8_t **out_blob,
                                           size_t *out_size);

#endif
