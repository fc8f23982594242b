/* The part of the CUDA driver API that nimblevm uses, declared here and found at run time: no
 * toolkit is needed to build, and none to run. Names, numbers and types are those of the driver's
 * public ABI (libcuda.so.1), which keeps them for ever; `_v2` is part of an exported name.
 */
#ifndef NVM_CUDA_DRIVER_H
#define NVM_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef int32_t cu_result;   /* CUresult, 0 is success */
typedef int32_t cu_device;   /* CUdevice */
typedef uint64_t cu_address; /* CUdeviceptr */
typedef struct cu_context_ *cu_context;
typedef struct cu_stream_ *cu_stream;
typedef struct cu_module_ *cu_module;
typedef struct cu_function_ *cu_function;

enum {
  CU_SUCCESS = 0,
  CU_ERROR_OUT_OF_MEMORY = 2,
};
/* CUjit_option. Values of options are passed in the pointers themselves. */
enum { CU_JIT_ERROR_LOG_BUFFER = 5, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6 };
/* CUdevice_attribute */
enum {
  CU_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
  CU_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
};
/* CUstream_flags */
enum { CU_STREAM_NON_BLOCKING = 1 };

/* X(symbol of the library, member, whether an older driver may lack it, parameters) */
#define NVM_CUDA_FUNCTIONS(X)                                                                      \
  X(cuInit, init, 0, (unsigned flags))                                                             \
  X(cuDriverGetVersion, driver_version, 0, (int *out_version))                                     \
  X(cuGetErrorName, error_name, 0, (cu_result result, const char **out_text))                      \
  X(cuGetErrorString, error_text, 0, (cu_result result, const char **out_text))                    \
  X(cuDeviceGetCount, device_count, 0, (int *out_count))                                           \
  X(cuDeviceGet, device_get, 0, (cu_device * out_device, int ordinal))                             \
  X(cuDeviceGetName, device_name, 0, (char *out_name, int size, cu_device device))                 \
  X(cuDeviceGetAttribute, device_attribute, 0, (int *out_value, int attribute, cu_device device))  \
  X(cuDevicePrimaryCtxRetain, context_retain, 0, (cu_context * out_context, cu_device device))     \
  X(cuDevicePrimaryCtxRelease_v2, context_release, 0, (cu_device device))                          \
  X(cuCtxPushCurrent_v2, context_push, 0, (cu_context context))                                    \
  X(cuCtxPopCurrent_v2, context_pop, 0, (cu_context * out_context))                                \
  X(cuStreamCreate, stream_create, 0, (cu_stream * out_stream, unsigned flags))                    \
  X(cuStreamDestroy_v2, stream_destroy, 0, (cu_stream stream))                                     \
  X(cuStreamSynchronize, stream_sync, 0, (cu_stream stream))                                       \
  X(cuMemAlloc_v2, alloc, 0, (cu_address * out_address, size_t size))                              \
  X(cuMemFree_v2, free, 0, (cu_address address))                                                   \
  X(cuMemAllocAsync, alloc_async, 1, (cu_address * out_address, size_t size, cu_stream stream))    \
  X(cuMemFreeAsync, free_async, 1, (cu_address address, cu_stream stream))                         \
  X(cuMemHostAlloc, host_alloc, 0, (void **out_memory, size_t size, unsigned flags))               \
  X(cuMemFreeHost, host_free, 0, (void *memory))                                                   \
  X(cuMemcpyHtoDAsync_v2, copy_in, 0,                                                              \
    (cu_address dst, const void *src, size_t size, cu_stream stream))                              \
  X(cuMemcpyDtoHAsync_v2, copy_out, 0, (void *dst, cu_address src, size_t size, cu_stream stream)) \
  X(cuMemcpyDtoDAsync_v2, copy_within, 0,                                                          \
    (cu_address dst, cu_address src, size_t size, cu_stream stream))                               \
  X(cuMemsetD32Async, set32, 0, (cu_address dst, unsigned value, size_t count, cu_stream stream))  \
  X(cuModuleLoadDataEx, module_load, 0,                                                            \
    (cu_module * out_module, const void *image, unsigned count, int *options, void **values))      \
  X(cuModuleUnload, module_unload, 0, (cu_module module))                                          \
  X(cuModuleGetFunction, module_function, 0,                                                       \
    (cu_function * out_function, cu_module module, const char *name))                              \
  X(cuLaunchKernel, launch, 0,                                                                     \
    (cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,    \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, cu_stream stream,                  \
     void **parameters, void **extra))

typedef struct nvm_cuda_driver {
#define X(symbol, member, optional, parameters) cu_result(*member) parameters;
  NVM_CUDA_FUNCTIONS(X)
#undef X
} nvm_cuda_driver;

/* The driver, loaded and initialised by the first call. Errors: NVM_DEVICE_ERROR, without a driver
 * or a GPU, and in a child of a process that used CUDA before fork(): the driver works in no such
 * process. A failure is no state: the next call tries again. out_driver: borrowed, for ever. */
NVM_NODISCARD nvm_status nvm_cuda_driver_get(const nvm_cuda_driver **out_driver);

/* Whether this process is a child of the one that loaded the driver: nothing of it may be called.
 */
int nvm_cuda_forked(void);

/* NVM_DEVICE_ERROR (NVM_OUT_OF_MEMORY where the driver says so) with the driver's name and text of
 * `result`; `what` begins the message. */
NVM_NODISCARD nvm_status nvm_cuda_failed(const nvm_cuda_driver *driver, cu_result result,
                                         const char *what);

#endif
