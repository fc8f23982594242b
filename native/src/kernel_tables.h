/* The header's table of kernels. */
#ifndef NVM_KERNEL_TABLES_H
#define NVM_KERNEL_TABLES_H

#include "loader.h"

NVM_NODISCARD nvm_status nvm_read_kernels(nvm_loader *loader);

#endif
