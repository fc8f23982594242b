/* The payload of a section of device code (docs/format.md, "Device code"), read and checked: what
 * the backends of GPUs share. It comes from a file that may be hostile, so everything is bounded
 * here, and what depends on a kernel is held against its signature before the first launch. The
 * code itself is trusted as machine code is: such files are opened with native=False. */
#ifndef NVM_DEVICE_CODE_H
#define NVM_DEVICE_CODE_H

#include "arena.h"
#include "nvm_kernel.h"

enum { NVM_MAX_LAUNCHES = 4096, NVM_MAX_LAUNCH_DIMS = 64, NVM_MAX_GROUP_THREADS = 1024 };

/* One grid of groups of threads. */
typedef struct nvm_device_launch {
  const char *entry; /* of the source */
  struct {
    const int64_t *words; /* postfix program over [in-dims][attributes] */
    uint32_t n_words;
  } grid[3];
  uint32_t block[3]; /* threads of a group, at most NVM_MAX_GROUP_THREADS together */
  uint32_t n_operands, n_dims;
  const uint16_t *operands; /* numbers of the kernel's operands that are arguments, ascending */
  const uint16_t *dims;     /* places among [in-dims][attributes][pitches] that are arguments */
  uint32_t shared_bytes;
  uint8_t can_fail; /* takes the error record */
} nvm_device_launch;

typedef struct nvm_device_kernel {
  uint32_t index; /* in the file's table */
  uint32_t n_launches;
  const nvm_device_launch *launches;
} nvm_device_kernel;

typedef struct nvm_device_code {
  const char *source; /* n bytes, a NUL behind them */
  size_t source_size;
  uint32_t n_kernels;
  const nvm_device_kernel *kernels; /* by ascending index */
} nvm_device_code;

/* What a kernel that can fail writes: the first fault of all threads of all launches. */
typedef struct nvm_device_fault {
  int32_t code; /* 0: none; else a status, set first by compare and exchange */
  int32_t operand;
  int64_t index, bound;
  int32_t kernel; /* its index in the file */
  int32_t unused;
} nvm_device_fault;

/* Reads `size` bytes; everything that out_code points to lies in `arena`. Errors:
 * INVALID_EXECUTABLE, OUT_OF_MEMORY. */
NVM_NODISCARD nvm_status nvm_device_code_read(const void *data, size_t size, nvm_arena *arena,
                                              nvm_device_code *out_code);
/* The launches of a kernel, or NULL. borrowed. */
const nvm_device_kernel *nvm_device_code_find(const nvm_device_code *code, uint32_t index);
/* Whether a kernel's launches name operands and dims that its signature has. Errors:
 * INVALID_EXECUTABLE. */
NVM_NODISCARD nvm_status nvm_device_code_check(const nvm_device_kernel *kernel, const char *name,
                                               const nvm_signature *signature);
/* Groups along each axis, each below 2^31, for the dims of a call; all 0 if there are none along
 * one of them. Errors: DIM_OVERFLOW, DIVISION_BY_ZERO, UNSUPPORTED for larger grids. */
NVM_NODISCARD nvm_status nvm_device_grid(const nvm_device_launch *launch,
                                         const nvm_signature *signature, const int64_t *dims,
                                         uint32_t out_groups[3]);

#endif
