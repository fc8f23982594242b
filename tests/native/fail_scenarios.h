/* What runs while allocations fail: each scenario starts from nothing and leaves nothing. */
#ifndef NVM_FAIL_SCENARIOS_H
#define NVM_FAIL_SCENARIOS_H

#include "outputs.h"
#include "programs.h"

enum { MAX_SCENARIOS = 64 };

typedef struct scenario scenario;
struct scenario {
  char name[96];
  const char *path; /* of a model; NULL: built by hand */
  uint32_t flags;   /* of loading */
  uint32_t function;
  nvm_arg args[4];
  size_t n_args;
  int32_t profile;
  const char *device; /* NULL: as the file says */
  char weights[512];  /* a safetensors file to bind, or "" */
  /* The first error, or NVM_OK and the outputs. */
  nvm_status (*run)(const scenario *s, outputs *out);
  outputs expected;
};

size_t make_scenarios(scenario *scenarios, char **paths, int n_paths);

#endif
