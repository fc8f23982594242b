/* The header's tables of constants and of the weights that are bound late. */
#ifndef NVM_CONSTANT_TABLES_H
#define NVM_CONSTANT_TABLES_H

#include "loader.h"

NVM_NODISCARD nvm_status nvm_read_weights(nvm_loader *loader);
NVM_NODISCARD nvm_status nvm_read_weights_file(nvm_loader *loader);
/* After the weights: constants refer to them. */
NVM_NODISCARD nvm_status nvm_read_constants(nvm_loader *loader);

#endif
