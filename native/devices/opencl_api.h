/* The few facts of OpenCL that opencl.c needs, declared here so that no header or library of it is
 * needed to build: libOpenCL.so.1, the loader of drivers, is opened when first asked for. Names and
 * numbers are those of the OpenCL 1.2 specification. */
#ifndef NVM_OPENCL_API_H
#define NVM_OPENCL_API_H

#include <stddef.h>
#include <stdint.h>

#include "status.h"

typedef struct cl_platform *cl_platform_id;
typedef struct cl_device *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_queue *cl_command_queue;
typedef struct cl_memory *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef struct cl_event_object *cl_event;

enum {
  CL_INVALID_VALUE = -30,
  CL_DEVICE_NOT_FOUND = -1,
  CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
  CL_OUT_OF_RESOURCES = -5,
  CL_OUT_OF_HOST_MEMORY = -6,
  CL_INVALID_KERNEL_NAME = -46,
  CL_INVALID_BUFFER_SIZE = -61,
  CL_DEVICE_TYPE_CPU = 1 << 1,
  CL_DEVICE_TYPE_GPU = 1 << 2,
  CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,
  CL_DEVICE_TYPE = 0x1000,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_ENDIAN_LITTLE = 0x1026,
  CL_DEVICE_AVAILABLE = 0x1027,
  CL_DEVICE_COMPILER_AVAILABLE = 0x1028,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_PROFILE = 0x102E,
  CL_DEVICE_VERSION = 0x102F,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 1 << 7,
  CL_MEM_READ_WRITE = 1,
  CL_PROGRAM_BINARY_SIZES = 0x1165,
  CL_PROGRAM_BINARIES = 0x1166,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_KERNEL_WORK_GROUP_SIZE = 0x11B0
};
#define CL_DEVICE_TYPE_ALL 0xFFFFFFFFull

/* X(result, name, arguments) */
#define NVM_OPENCL_FUNCTIONS(X)                                                                    \
  X(int32_t, GetPlatformIDs, (uint32_t, cl_platform_id *, uint32_t *))                             \
  X(int32_t, GetDeviceIDs, (cl_platform_id, uint64_t, uint32_t, cl_device_id *, uint32_t *))       \
  X(int32_t, GetDeviceInfo, (cl_device_id, uint32_t, size_t, void *, size_t *))                    \
  X(cl_context, CreateContext,                                                                     \
    (const intptr_t *, uint32_t, const cl_device_id *, void *, void *, int32_t *))                 \
  X(int32_t, ReleaseContext, (cl_context))                                                         \
  X(cl_command_queue, CreateCommandQueue, (cl_context, cl_device_id, uint64_t, int32_t *))         \
  X(int32_t, ReleaseCommandQueue, (cl_command_queue))                                              \
  X(int32_t, Flush, (cl_command_queue))                                                            \
  X(int32_t, Finish, (cl_command_queue))                                                           \
  X(cl_mem, CreateBuffer, (cl_context, uint64_t, size_t, void *, int32_t *))                       \
  X(int32_t, ReleaseMemObject, (cl_mem))                                                           \
  X(int32_t, EnqueueReadBuffer,                                                                    \
    (cl_command_queue, cl_mem, uint32_t, size_t, size_t, void *, uint32_t, const cl_event *,       \
     cl_event *))                                                                                  \
  X(int32_t, EnqueueWriteBuffer,                                                                   \
    (cl_command_queue, cl_mem, uint32_t, size_t, size_t, const void *, uint32_t, const cl_event *, \
     cl_event *))                                                                                  \
  X(int32_t, EnqueueCopyBuffer,                                                                    \
    (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, uint32_t, const cl_event *,         \
     cl_event *))                                                                                  \
  X(cl_program, CreateProgramWithSource,                                                           \
    (cl_context, uint32_t, const char **, const size_t *, int32_t *))                              \
  X(cl_program, CreateProgramWithBinary,                                                           \
    (cl_context, uint32_t, const cl_device_id *, const size_t *, const uint8_t **, int32_t *,      \
     int32_t *))                                                                                   \
  X(int32_t, BuildProgram,                                                                         \
    (cl_program, uint32_t, const cl_device_id *, const char *, void *, void *))                    \
  X(int32_t, GetProgramBuildInfo, (cl_program, cl_device_id, uint32_t, size_t, void *, size_t *))  \
  X(int32_t, GetProgramInfo, (cl_program, uint32_t, size_t, void *, size_t *))                     \
  X(int32_t, ReleaseProgram, (cl_program))                                                         \
  X(cl_kernel, CreateKernel, (cl_program, const char *, int32_t *))                                \
  X(int32_t, ReleaseKernel, (cl_kernel))                                                           \
  X(int32_t, SetKernelArg, (cl_kernel, uint32_t, size_t, const void *))                            \
  X(int32_t, GetKernelWorkGroupInfo,                                                               \
    (cl_kernel, cl_device_id, uint32_t, size_t, void *, size_t *))                                 \
  X(int32_t, EnqueueNDRangeKernel,                                                                 \
    (cl_command_queue, cl_kernel, uint32_t, const size_t *, const size_t *, const size_t *,        \
     uint32_t, const cl_event *, cl_event *))

typedef struct nvm_opencl {
#define X(result, name, arguments) result(*name) arguments;
  NVM_OPENCL_FUNCTIONS(X)
#undef X
} nvm_opencl;

/* Whether this process is a child, by fork(), of the one that loaded the drivers: their threads are
 * not here, so a call may wait for ever, and none is made. */
int nvm_opencl_forked(void);
/* DEVICE_ERROR in such a child. */
NVM_NODISCARD nvm_status nvm_opencl_check_process(void);
/* out_cl: the driver's functions, for ever. Errors: DEVICE_ERROR that says what is missing, or that
 * the process is such a child. */
NVM_NODISCARD nvm_status nvm_opencl_get(const nvm_opencl **out_cl);
/* The device `ordinal` among those of all platforms that are usable, GPUs first, then accelerators,
 * then CPUs. Errors: DEVICE_ERROR that names those there are. */
NVM_NODISCARD nvm_status nvm_opencl_device(const nvm_opencl *cl, int32_t ordinal,
                                           cl_device_id *out_device);
/* A text or number that a device says of itself; "" or 0 if it does not. */
void nvm_opencl_text(const nvm_opencl *cl, cl_device_id device, uint32_t what, char *out_text,
                     size_t size);
uint64_t nvm_opencl_number(const nvm_opencl *cl, cl_device_id device, uint32_t what, size_t size);
/* Record an error of the driver: OUT_OF_MEMORY where it lacked memory, else DEVICE_ERROR. Returns
 * it. */
nvm_status nvm_opencl_fail(int32_t error, const char *what);

/* opencl_cache.c: a program of `source` built for a device, from the cache of built programs if it
 * is there. `version` tells programs of different runtimes apart. out_program: owned. Errors:
 * DEVICE_ERROR with the compiler's words. */
NVM_NODISCARD nvm_status nvm_opencl_build(const nvm_opencl *cl, cl_context context,
                                          cl_device_id device, const char *source, size_t size,
                                          cl_program *out_program);

#endif
