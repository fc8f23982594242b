#include "opencl_api.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static nvm_opencl functions;
static char missing[512]; /* why there is none, "" if there is */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_int forked;

static void in_child(void) { atomic_store(&forked, 1); }

int nvm_opencl_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

nvm_status nvm_opencl_check_process(void) {
  if (nvm_opencl_forked())
    NVM_FAIL(NVM_DEVICE_ERROR,
             "opencl: this process was forked from one that uses OpenCL, whose drivers have their "
             "threads there: start workers by \"spawn\", or use OpenCL in the child only");
  return NVM_OK;
}

static void load(void) {
  void *library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(missing, sizeof missing, "%s (the package ocl-icd-libopencl1 has it)",
             why ? why : "libOpenCL.so.1 can't be opened");
    return;
  }
#define X(result, name, arguments)                                         \
  {                                                                        \
    void *found = dlsym(library, "cl" #name);                              \
    memcpy(&functions.name, &found, sizeof found);                         \
    if (!found) snprintf(missing, sizeof missing, "no function cl" #name); \
  }
  NVM_OPENCL_FUNCTIONS(X)
#undef X
  (void)pthread_atfork(NULL, NULL, in_child);
}

nvm_status nvm_opencl_get(const nvm_opencl **out_cl) {
  pthread_once(&once, load);
  if (missing[0]) NVM_FAIL(NVM_DEVICE_ERROR, "opencl: %s", missing);
  NVM_TRY(nvm_opencl_check_process());
  *out_cl = &functions;
  return NVM_OK;
}

/* --- errors ----------------------------------------------------------------------------------- */

static const struct {
  int32_t number;
  const char *name;
} error_names[] = {{-1, "CL_DEVICE_NOT_FOUND"},
                   {-2, "CL_DEVICE_NOT_AVAILABLE"},
                   {-3, "CL_COMPILER_NOT_AVAILABLE"},
                   {-4, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
                   {-5, "CL_OUT_OF_RESOURCES"},
                   {-6, "CL_OUT_OF_HOST_MEMORY"},
                   {-8, "CL_MEM_COPY_OVERLAP"},
                   {-11, "CL_BUILD_PROGRAM_FAILURE"},
                   {-14, "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST"},
                   {-30, "CL_INVALID_VALUE"},
                   {-34, "CL_INVALID_CONTEXT"},
                   {-36, "CL_INVALID_COMMAND_QUEUE"},
                   {-38, "CL_INVALID_MEM_OBJECT"},
                   {-42, "CL_INVALID_BINARY"},
                   {-43, "CL_INVALID_BUILD_OPTIONS"},
                   {-45, "CL_INVALID_PROGRAM_EXECUTABLE"},
                   {-46, "CL_INVALID_KERNEL_NAME"},
                   {-48, "CL_INVALID_KERNEL"},
                   {-49, "CL_INVALID_ARG_INDEX"},
                   {-50, "CL_INVALID_ARG_VALUE"},
                   {-51, "CL_INVALID_ARG_SIZE"},
                   {-52, "CL_INVALID_KERNEL_ARGS"},
                   {-54, "CL_INVALID_WORK_GROUP_SIZE"},
                   {-55, "CL_INVALID_WORK_ITEM_SIZE"},
                   {-61, "CL_INVALID_BUFFER_SIZE"},
                   {-63, "CL_INVALID_GLOBAL_WORK_SIZE"},
                   {-1001, "CL_PLATFORM_NOT_FOUND_KHR"}};

nvm_status nvm_opencl_fail(int32_t error, const char *what) {
  const char *name = "an error";
  for (size_t i = 0; i < sizeof error_names / sizeof *error_names; i++)
    if (error_names[i].number == error) name = error_names[i].name;
  const int memory = error == CL_MEM_OBJECT_ALLOCATION_FAILURE || error == CL_OUT_OF_HOST_MEMORY ||
                     error == CL_INVALID_BUFFER_SIZE;
  NVM_FAIL(memory ? NVM_OUT_OF_MEMORY : NVM_DEVICE_ERROR, "opencl: %s: the driver says %s (%d)",
           what, name, error);
}

/* --- devices ---------------------------------------------------------------------------------- */

enum { MAX_DEVICES = 64 };

void nvm_opencl_text(const nvm_opencl *cl, cl_device_id device, uint32_t what, char *out_text,
                     size_t size) {
  size_t length = 0;
  out_text[0] = 0;
  char text[1024];
  if (cl->GetDeviceInfo(device, what, sizeof text, text, &length) != 0 || length > sizeof text)
    return;
  snprintf(out_text, size, "%.*s", (int)length, text);
}

uint64_t nvm_opencl_number(const nvm_opencl *cl, cl_device_id device, uint32_t what, size_t size) {
  uint64_t number = 0; /* little-endian, so a shorter one fills it from below */
  size_t length = 0;
  if (cl->GetDeviceInfo(device, what, size, &number, &length) != 0 || length != size) return 0;
  return number;
}

/* Why a device can't be used, or NULL. */
static const char *unusable(const nvm_opencl *cl, cl_device_id device) {
  char profile[64];
  nvm_opencl_text(cl, device, CL_DEVICE_PROFILE, profile, sizeof profile);
  if (strcmp(profile, "FULL_PROFILE") != 0) return "it has the embedded profile";
  if (!nvm_opencl_number(cl, device, CL_DEVICE_AVAILABLE, 4)) return "it is not available";
  if (!nvm_opencl_number(cl, device, CL_DEVICE_COMPILER_AVAILABLE, 4)) return "it has no compiler";
  if (!nvm_opencl_number(cl, device, CL_DEVICE_ENDIAN_LITTLE, 4)) return "it is big-endian";
  if (nvm_opencl_number(cl, device, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(size_t)) < 256)
    return "its groups have less than 256 threads";
  return NULL;
}

static size_t all_devices(const nvm_opencl *cl, cl_device_id *devices) {
  cl_platform_id platforms[16];
  uint32_t n_platforms = 0;
  size_t count = 0;
  if (cl->GetPlatformIDs(16, platforms, &n_platforms) != 0) return 0;
  if (n_platforms > 16) n_platforms = 16;
  for (uint32_t p = 0; p < n_platforms; p++) {
    cl_device_id some[MAX_DEVICES];
    uint32_t found = 0;
    if (cl->GetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, some, &found) != 0)
      continue;
    for (uint32_t d = 0; d < found && d < MAX_DEVICES && count < MAX_DEVICES; d++)
      devices[count++] = some[d];
  }
  return count;
}

nvm_status nvm_opencl_device(const nvm_opencl *cl, int32_t ordinal, cl_device_id *out_device) {
  cl_device_id devices[MAX_DEVICES], usable[MAX_DEVICES];
  const size_t count = all_devices(cl, devices);
  size_t n_usable = 0;
  char list[768] = "";
  if (!count)
    NVM_FAIL(NVM_DEVICE_ERROR,
             "opencl: no driver offers a device (pocl-opencl-icd has one for the CPU)");
  const uint64_t order[] = {CL_DEVICE_TYPE_GPU, CL_DEVICE_TYPE_ACCELERATOR, CL_DEVICE_TYPE_CPU, 0};
  for (size_t kind = 0; kind < 4; kind++) {
    for (size_t i = 0; i < count; i++) {
      const uint64_t type = nvm_opencl_number(cl, devices[i], CL_DEVICE_TYPE, 8);
      const uint64_t known =
          type & (CL_DEVICE_TYPE_GPU | CL_DEVICE_TYPE_ACCELERATOR | CL_DEVICE_TYPE_CPU);
      if (order[kind] ? !(type & order[kind]) : known != 0) continue;
      char name[128];
      nvm_opencl_text(cl, devices[i], CL_DEVICE_NAME, name, sizeof name);
      const char *why = unusable(cl, devices[i]);
      const size_t used = strlen(list);
      if (why)
        snprintf(list + used, sizeof list - used, "; not %s: %s", name, why);
      else
        snprintf(list + used, sizeof list - used, "; %zu: %s", n_usable, name);
      if (!why) usable[n_usable++] = devices[i];
    }
  }
  if (ordinal < 0 || (size_t)ordinal >= n_usable)
    NVM_FAIL(NVM_DEVICE_ERROR, "opencl: there is no device %d%s", ordinal, list);
  *out_device = usable[ordinal];
  return NVM_OK;
}
