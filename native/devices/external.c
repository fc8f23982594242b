/* Runtimes of external code on the host, by name (nvm_device.h). */
#include <pthread.h>
#include <string.h>

#include "nvm_device.h"
#include "status.h"

#include "external.h"

enum { MAX_RUNTIMES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const nvm_external_runtime *runtimes[MAX_RUNTIMES];
static size_t count;

const nvm_external_runtime *nvm_external_find(const char *name) {
  const nvm_external_runtime *found = NULL;
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < count; i++)
    if (strcmp(runtimes[i]->name, name) == 0) found = runtimes[i];
  pthread_mutex_unlock(&lock);
  return found;
}

nvm_status nvm_external_add(const nvm_external_runtime *runtime) {
  nvm_status status = NVM_OK;
  size_t at = 0;
  pthread_mutex_lock(&lock);
  while (at < count && strcmp(runtimes[at]->name, runtime->name) != 0) at++;
  if (at == MAX_RUNTIMES)
    status = nvm_fail(NVM_INVALID_INPUT, "more than %d runtimes of external code", MAX_RUNTIMES);
  else
    runtimes[at] = runtime;
  if (at == count && status == NVM_OK) count++;
  pthread_mutex_unlock(&lock);
  return status;
}
