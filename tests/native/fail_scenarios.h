/* What runs while allocations fail: each scenario starts from nothing and leaves nothing. */
#ifndef NVM_FAIL_SCENARIOS_H
#define NVM_FAIL_SCENARIOS_H

#include "programs.h"

enum { MAX_SCENARIOS = 64, MAX_OUTPUTS = 1024 };

/* All numbers of a result. */
typedef struct outputs {
  size_t n;
  double values[MAX_OUTPUTS];
} outputs;

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
/* Equal up to the rounding of other code (machine code may be what could not be had). */
int same_outputs(const outputs *a, const outputs *b);

#endif
