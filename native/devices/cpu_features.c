#define NVM_CPU_TABLES
#include "cpu_features.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "status.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* --- reading ---------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static void read_host(nvm_cpu *cpu) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  cpu->arch = NVM_CPU_X86_64;
  if (__get_cpuid(1, &a, &b, &c, &d)) {
    cpu->words[NVM_CPU_LEAF1_ECX] = c;
    if ((c >> 27 & 1u) != 0) { /* OSXSAVE: xgetbv may be executed */
      uint32_t low = 0, high = 0;
      __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
      cpu->xcr0 = (uint64_t)high << 32 | low;
    }
  }
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    const unsigned subleaves = a;
    cpu->words[NVM_CPU_LEAF7_EBX] = b;
    cpu->words[NVM_CPU_LEAF7_ECX] = c;
    cpu->words[NVM_CPU_LEAF7_EDX] = d;
    if (subleaves >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
      cpu->words[NVM_CPU_LEAF7_1_EAX] = a;
      cpu->words[NVM_CPU_LEAF7_1_EDX] = d;
    }
  }
  if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) cpu->words[NVM_CPU_EXTENDED1_ECX] = c;
}
#elif defined(__aarch64__)
static void read_host(nvm_cpu *cpu) {
  cpu->arch = NVM_CPU_AARCH64;
  cpu->words[NVM_CPU_HWCAP] = getauxval(AT_HWCAP);
  cpu->words[NVM_CPU_HWCAP2] = getauxval(AT_HWCAP2);
}
#else
static void read_host(nvm_cpu *cpu) { cpu->arch = NVM_CPU_OTHER; }
#endif

void nvm_cpu_read(nvm_cpu *out_cpu) {
  memset(out_cpu, 0, sizeof *out_cpu);
  read_host(out_cpu);
  nvm_cpu_limit(out_cpu, getenv("NVM_CPU"));
}

void nvm_cpu_limit(nvm_cpu *cpu, const char *level) {
  if (level == NULL || *level == 0) return;
  for (size_t i = 0; i < COUNT(nvm_cpu_levels); i++) {
    if (nvm_cpu_levels[i].arch != cpu->arch || strcmp(nvm_cpu_levels[i].name, level) != 0) continue;
    cpu->only = nvm_cpu_levels[i].features;
    return;
  }
  cpu->none = strcmp(level, "none") == 0
                  ? "NVM_CPU is none"
                  : "NVM_CPU names no level of this CPU (x86-64-v2, ..., aarch64, none)";
}

/* --- asking ----------------------------------------------------------------------------------- */

/* Is "+name" in a list such as "+avx2,+fma"? */
static int listed(const char *list, const char *name, size_t length) {
  for (const char *at = list; *at != 0;) {
    const size_t here = strcspn(at, ",");
    if (here == length + 1 && memcmp(at + 1, name, length) == 0) return 1;
    at += here;
    if (*at == ',') at++;
  }
  return 0;
}

static int has_feature(const nvm_cpu *cpu, const char *name, size_t length) {
  for (size_t i = 0; i < COUNT(nvm_cpu_features); i++) {
    const nvm_cpu_feature *f = &nvm_cpu_features[i];
    if (f->arch != cpu->arch || strlen(f->name) != length || memcmp(f->name, name, length) != 0) {
      continue;
    }
    if (f->word == NVM_CPU_WORDS) return 1;
    if (cpu->only != NULL && !listed(cpu->only, name, length)) return 0;
    return (cpu->words[f->word] >> f->bit & 1u) != 0 && (cpu->xcr0 & f->state) == f->state;
  }
  return 0;
}

/* Append to a text, cut silently at its end. */
static void append(char *text, size_t size, const char *more, size_t length) {
  const size_t used = strlen(text);
  if (used + 1 >= size) return;
  if (length > size - 1 - used) length = size - 1 - used;
  memcpy(text + used, more, length);
  text[used + length] = 0;
}

/* Are all features of "+a,+b" there? Those that are not are appended to `why` (NULL: not asked).
 * What does not start with '+' asks for nothing. */
static int has_all(const nvm_cpu *cpu, const char *list, char *why, size_t why_size) {
  int missing = 0;
  for (const char *at = list; *at != 0;) {
    const size_t length = strcspn(at, ",");
    if (length > 1 && at[0] == '+' && !has_feature(cpu, at + 1, length - 1)) {
      if (why == NULL) return 0;
      if (missing++ > 0) append(why, why_size, ", ", 2);
      append(why, why_size, at + 1, length - 1);
    }
    at += length;
    if (*at == ',') at++;
  }
  return missing == 0;
}

int nvm_cpu_fits(const nvm_cpu *cpu, const char *target, char *why, size_t why_size) {
  const size_t arch = strcspn(target, ":");
  const char *own = nvm_cpu_archs[cpu->arch];
  if (cpu->none != NULL) {
    snprintf(why, why_size, "%s", cpu->none);
    return 0;
  }
  if (cpu->arch == NVM_CPU_OTHER || arch != strlen(own) || memcmp(target, own, arch) != 0) {
    snprintf(why, why_size, "it is for %.*s", (int)(arch > 100 ? 100 : arch), target);
    return 0;
  }
  snprintf(why, why_size, "this CPU lacks ");
  return has_all(cpu, target[arch] == ':' ? target + arch + 1 : "", why, why_size);
}

const char *nvm_cpu_level_name(const nvm_cpu *cpu) {
  const char *best = "another";
  for (size_t i = 0; i < COUNT(nvm_cpu_levels); i++) { /* of one architecture they grow */
    const nvm_cpu_level *level = &nvm_cpu_levels[i];
    if (level->arch == cpu->arch && has_all(cpu, level->features, NULL, 0)) best = level->name;
  }
  return best;
}

const char *nvm_cpu_level_of(const char *target) {
  const size_t arch = strcspn(target, ":");
  const char *features = target + arch + (target[arch] == ':');
  for (size_t i = 0; i < COUNT(nvm_cpu_levels); i++) {
    const char *own = nvm_cpu_archs[nvm_cpu_levels[i].arch];
    if (arch == strlen(own) && memcmp(target, own, arch) == 0 &&
        strcmp(features, nvm_cpu_levels[i].features) == 0) {
      return nvm_cpu_levels[i].name;
    }
  }
  return target;
}

/* --- the API ---------------------------------------------------------------------------------- */

NVM_EXPORT int32_t nvm_cpu_has(const char *feature) {
  char target[96], why[256];
  nvm_cpu cpu;
  nvm_cpu_read(&cpu);
  const int length = snprintf(target, sizeof target, "%s:+%s", nvm_cpu_archs[cpu.arch], feature);
  if (!*feature || (size_t)length >= sizeof target || strchr(feature, ',')) return 0;
  return nvm_cpu_fits(&cpu, target, why, sizeof why);
}

NVM_EXPORT const char *nvm_cpu_best_level(void) {
  nvm_cpu cpu;
  nvm_cpu_read(&cpu);
  return nvm_cpu_level_name(&cpu);
}
