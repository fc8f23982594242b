/* Which CPU this is, and whether it has what a native section asks for ("x86_64:+avx2,+fma": the
 * architecture, then LLVM's names of features). Features and levels: generated/nvm_cpu.h. */
#ifndef NVM_CPU_FEATURES_H
#define NVM_CPU_FEATURES_H

#include <stddef.h>
#include <stdint.h>

#include "generated/nvm_cpu.h"

typedef struct nvm_cpu {
  uint8_t arch;                  /* enum nvm_cpu_arch */
  uint64_t words[NVM_CPU_WORDS]; /* 0 where the architecture has none */
  uint64_t xcr0;                 /* x86-64: register state that the operating system saves */
  const char *only; /* the features to be used, all of a level's text; NULL: all that there are */
  const char *none; /* why no machine code may be used at all, or NULL */
} nvm_cpu;

/* This CPU, reduced to the level that the environment variable NVM_CPU names, if it is set ("none":
 * no machine code). */
void nvm_cpu_read(nvm_cpu *out_cpu);

/* Reduce to a level's features. NULL or "": no change. */
void nvm_cpu_limit(nvm_cpu *cpu, const char *level);

/* Does the CPU have all that `target` asks for? If not, `why` says all that is missing. An unknown
 * feature is missing, since code for it would end in SIGILL. */
int nvm_cpu_fits(const nvm_cpu *cpu, const char *target, char *why, size_t why_size);

/* The best level that the CPU has all features of, "x86-64-v3"; "another" for an unknown
 * architecture. */
const char *nvm_cpu_level_name(const nvm_cpu *cpu);

/* The level that asks for exactly what a section's target does, by name; else the target itself. */
const char *nvm_cpu_level_of(const char *target);

#endif
