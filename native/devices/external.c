/* Runtimes of external code on the host, by name: those built in, those that a program registers,
 * those of libraries. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "alloc.h"
#include "nvm_api.h"
#include "nvm_device.h"
#include "status.h"

extern const nvm_external_runtime *const nvm_external_blas;

/* Nodes stay for ever: VMs point to them. The newest of a name counts. */
typedef struct node {
  nvm_external_runtime runtime;
  struct node *older;
  int gone; /* unregistered */
  char name[];
} node;

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.";
static node *newest;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const node *find(const char *name) {
  for (const node *n = newest; n; n = n->older)
    if (strcmp(n->name, name) == 0) return n->gone ? NULL : n;
  return NULL;
}

NVM_EXPORT size_t nvm_external_names(char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "%s", nvm_external_blas->name);
  pthread_mutex_lock(&lock);
  for (const node *n = newest; n; n = n->older) {
    if (find(n->name) != n || strcmp(n->name, nvm_external_blas->name) == 0) continue;
    const int fits = used < size;
    used += (size_t)snprintf(fits ? text + used : NULL, fits ? size - used : 0, ", %s", n->name);
  }
  pthread_mutex_unlock(&lock);
  return used;
}

nvm_status nvm_external_find(const char *name, int fallback,
                             const nvm_external_runtime **out_runtime) {
  pthread_mutex_lock(&lock);
  const node *found = find(name);
  pthread_mutex_unlock(&lock);
  *out_runtime = found ? &found->runtime : NULL;
  if (!found && strcmp(name, nvm_external_blas->name) == 0) *out_runtime = nvm_external_blas;
  if (*out_runtime || fallback) return NVM_OK;
  char names[512];
  nvm_external_names(names, sizeof names);
  NVM_FAIL(NVM_DEVICE_ERROR,
           "the file wants the external runtime \"%s\", which is not registered; there are %s. "
           "fallback runs what has kernel IR too",
           name, names);
}

NVM_EXPORT nvm_status nvm_external_register(const nvm_external_runtime *runtime) {
  nvm_error_clear();
  if (!runtime || runtime->size != sizeof *runtime)
    NVM_FAIL(NVM_INVALID_INPUT, "nvm_external_runtime.size is %u, expected %zu",
             runtime ? runtime->size : 0, sizeof *runtime);
  if (!runtime->name || !*runtime->name || !runtime->create || !runtime->run || !runtime->destroy)
    NVM_FAIL(NVM_INVALID_INPUT, "a runtime of external code has a name, create, run and destroy");
  if (runtime->name[strspn(runtime->name, letters)])
    NVM_FAIL(NVM_INVALID_INPUT,
             "a runtime's name has letters, digits, '_' and '.' alone: \"%s\" has others",
             runtime->name);
  if (nvm_device_find(runtime->name))
    NVM_FAIL(NVM_INVALID_INPUT, "\"%s\" is a device backend, which runs code of that name itself",
             runtime->name);
  const size_t length = strlen(runtime->name) + 1;
  node *made = nvm_malloc(sizeof *made + length);
  if (!made) NVM_FAIL(NVM_OUT_OF_MEMORY, "no memory for a runtime of external code");
  made->runtime = *runtime;
  made->gone = 0;
  memcpy(made->name, runtime->name, length);
  made->runtime.name = made->name;
  pthread_mutex_lock(&lock);
  made->older = newest;
  newest = made;
  pthread_mutex_unlock(&lock);
  return NVM_OK;
}

NVM_EXPORT int32_t nvm_external_unregister(const char *name) {
  int32_t found = 0;
  pthread_mutex_lock(&lock);
  for (node *n = newest; n; n = n->older)
    if (strcmp(n->name, name) == 0) {
      found |= !n->gone;
      n->gone = 1;
    }
  pthread_mutex_unlock(&lock);
  return found;
}

/* --- libraries -------------------------------------------------------------------------------- */

static const nvm_external_api api = {.size = sizeof api,
                                     .fail = nvm_external_fail,
                                     .operand_count = nvm_external_operand_count,
                                     .dim_count = nvm_external_dim_count,
                                     .operands = nvm_external_operands};

NVM_EXPORT nvm_status nvm_external_load(const char *path, const char **out_name) {
  nvm_error_clear();
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* stays: its code may run at any time */
  if (!library) NVM_FAIL(NVM_FILE_ERROR, "%s", dlerror());
  const nvm_external_runtime *(*entry)(const nvm_external_api *) = NULL;
  void *symbol = dlsym(library, "nvm_external_entry");
  memcpy(&entry, &symbol, sizeof entry);
  if (!entry) {
    dlclose(library);
    NVM_FAIL(NVM_INVALID_INPUT, "%s has no function nvm_external_entry", path);
  }
  const nvm_external_runtime *runtime = entry(&api);
  NVM_TRY(nvm_external_register(runtime));
  *out_name = runtime->name;
  return NVM_OK;
}
