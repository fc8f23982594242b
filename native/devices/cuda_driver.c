/* Finds libcuda.so.1 and its functions. See cuda_driver.h. */
#include "cuda_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "nvm_api.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static nvm_cuda_driver driver;
static atomic_int loaded;
/* A child of fork() that happened after cuInit: CUDA does not work there, by its own statement. */
static atomic_int forked;
static char path[4096] = "libcuda.so.1";

static const struct {
  const char *symbol;
  size_t offset;
  int optional;
} functions[] = {
#define X(symbol, member, optional, parameters) \
  {#symbol, offsetof(nvm_cuda_driver, member), optional},
    NVM_CUDA_FUNCTIONS(X)
#undef X
};

static void in_child(void) {
  /* Another thread may have held it at fork(). */
  lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
  if (atomic_load(&loaded)) atomic_store(&forked, 1);
}

int nvm_cuda_forked(void) { return atomic_load_explicit(&forked, memory_order_relaxed); }

/* By what the driver's documentation says of each: the process has to be started again. */
static int is_sticky(cu_result result) {
  return result == 214 || result == 220 || result == 700 || result == 702 || result == 709 ||
         result == 710 || (result >= 714 && result <= 719);
}

nvm_status nvm_cuda_failed(const nvm_cuda_driver *from, cu_result result, const char *what) {
  const char *name = NULL, *text = NULL;
  if (from->error_name(result, &name) != CU_SUCCESS || !name) name = "an error without a name";
  if (from->error_text(result, &text) != CU_SUCCESS || !text) text = "no text";
  const nvm_status code = result == CU_ERROR_OUT_OF_MEMORY ? NVM_OUT_OF_MEMORY : NVM_DEVICE_ERROR;
  const char *hint =
      is_sticky(result) ? "; no call of this process can use the device any more" : "";
  NVM_FAIL(code, "cuda: %s: %s (%d): %s%s", what, name, (int)result, text, hint);
}

NVM_EXPORT nvm_status nvm_cuda_driver_set(const char *new_path) {
  nvm_status status = NVM_OK;
  nvm_error_clear();
  pthread_mutex_lock(&lock);
  const int same = new_path && strcmp(new_path, path) == 0;
  if (!new_path || !*new_path || strlen(new_path) >= sizeof path)
    status = nvm_fail(NVM_INVALID_INPUT, "the driver's path: 1 to %zu bytes", sizeof path - 1);
  else if (atomic_load(&loaded) && !same)
    status = nvm_fail(NVM_INVALID_INPUT, "the CUDA driver %s is in use by this process", path);
  else if (!same)
    memcpy(path, new_path, strlen(new_path) + 1);
  pthread_mutex_unlock(&lock);
  return status;
}

/* Fill `driver` from the library. A library that lacks a function is closed again. */
static nvm_status find_functions(void) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    NVM_FAIL(NVM_DEVICE_ERROR, "cuda: this machine has no CUDA driver: %s", why ? why : path);
  }
  for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
    void *function = dlsym(library, functions[i].symbol);
    if (!function && !functions[i].optional) {
      (void)dlclose(library);
      NVM_FAIL(NVM_DEVICE_ERROR,
               "cuda: the driver %s has no %s: it is too old (CUDA 9.0 is needed)", path,
               functions[i].symbol);
    }
    memcpy((char *)&driver + functions[i].offset, &function, sizeof function);
  }
  const cu_result result = driver.init(0);
  if (result == CU_SUCCESS) return NVM_OK;
  const nvm_status status = nvm_cuda_failed(&driver, result, "cuInit");
  (void)dlclose(library);
  return status;
}

nvm_status nvm_cuda_driver_get(const nvm_cuda_driver **out_driver) {
  if (!atomic_load_explicit(&loaded, memory_order_acquire)) {
    nvm_status status = NVM_OK;
    pthread_mutex_lock(&lock);
    if (!atomic_load(&loaded)) {
      status = find_functions();
      if (status == NVM_OK) {
        (void)pthread_atfork(NULL, NULL, in_child);
        atomic_store_explicit(&loaded, 1, memory_order_release);
      }
    }
    pthread_mutex_unlock(&lock);
    NVM_TRY(status);
  }
  if (nvm_cuda_forked())
    NVM_FAIL(NVM_DEVICE_ERROR,
             "cuda: this process was forked from one that uses CUDA, whose driver works in no "
             "child: start workers by \"spawn\", or open the VM in the child only");
  *out_driver = &driver;
  return NVM_OK;
}
