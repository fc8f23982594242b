/* Which features a CPU has, from made-up answers of CPUID and XCR0: also of CPUs and systems that
 * are not at hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_features.h"

#define REQUIRE(condition)                                            \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

static const char v2[] = "x86_64:+cx16,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3";

static uint64_t bits(int count, const int *numbers) {
  uint64_t found = 0;
  for (int i = 0; i < count; i++) found |= UINT64_C(1) << numbers[i];
  return found;
}
#define BITS(...) bits((int)(sizeof (int[]){__VA_ARGS__} / sizeof(int)), (const int[]){__VA_ARGS__})

/* Bits as the manuals number them: of a CPU with AVX-512 under a system that saves `xcr0`. */
static nvm_cpu x86(uint64_t xcr0) {
  nvm_cpu cpu = {.arch = NVM_CPU_X86_64, .xcr0 = xcr0};
  cpu.words[NVM_CPU_LEAF1_ECX] = BITS(0, 9, 12, 13, 19, 20, 22, 23, 27, 28, 29);
  cpu.words[NVM_CPU_LEAF7_EBX] = BITS(3, 5, 8, 16, 17, 28, 30, 31);
  cpu.words[NVM_CPU_EXTENDED1_ECX] = BITS(0, 5);
  return cpu;
}

static void require_why(const nvm_cpu *cpu, const char *target, const char *expected) {
  char why[256] = "";
  REQUIRE(!nvm_cpu_fits(cpu, target, why, sizeof why));
  if (strcmp(why, expected) != 0) fprintf(stderr, "got: %s\n", why);
  REQUIRE(strcmp(why, expected) == 0);
}

/* What the CPU can but the system does not save is not there: VEX code would end in SIGILL. */
static void test_system(void) {
  char why[256];
  nvm_cpu all = x86(0xe7), no_512 = x86(7), no_avx = x86(3), none = x86(0);
  REQUIRE(strcmp(nvm_cpu_level_name(&all), "x86-64-v4") == 0);
  REQUIRE(strcmp(nvm_cpu_level_name(&no_512), "x86-64-v3") == 0);
  REQUIRE(strcmp(nvm_cpu_level_name(&no_avx), "x86-64-v2") == 0);
  REQUIRE(strcmp(nvm_cpu_level_name(&none), "x86-64-v2") == 0);
  nvm_cpu half_512 = x86(0x67); /* without the upper 16 registers */
  REQUIRE(strcmp(nvm_cpu_level_name(&half_512), "x86-64-v3") == 0);
  REQUIRE(nvm_cpu_fits(&all, "x86_64:+avx512f,+avx512vl", why, sizeof why));
  require_why(&no_512, "x86_64:+avx2,+avx512f,+avx512vl", "this CPU lacks avx512f, avx512vl");
  require_why(&no_avx, "x86_64:+avx2,+bmi2,+f16c", "this CPU lacks avx2, f16c");
  REQUIRE(nvm_cpu_fits(&none, v2, why, sizeof why));
}

static void test_levels(void) {
  nvm_cpu cpu = x86(0xe7), vnni = x86(0xe7);
  vnni.words[NVM_CPU_LEAF7_ECX] = BITS(11);
  REQUIRE(strcmp(nvm_cpu_level_name(&vnni), "x86-64-v4-vnni") == 0);
  cpu.words[NVM_CPU_LEAF7_EBX] &= ~(UINT64_C(1) << 28); /* avx512cd */
  REQUIRE(strcmp(nvm_cpu_level_name(&cpu), "x86-64-v3") == 0);
  cpu.words[NVM_CPU_EXTENDED1_ECX] = 0; /* lzcnt */
  REQUIRE(strcmp(nvm_cpu_level_name(&cpu), "x86-64-v2") == 0);
  cpu.words[NVM_CPU_LEAF1_ECX] = 0;
  REQUIRE(strcmp(nvm_cpu_level_name(&cpu), "x86-64") == 0);
  nvm_cpu arm = {.arch = NVM_CPU_AARCH64}, other = {.arch = NVM_CPU_OTHER};
  arm.words[NVM_CPU_HWCAP] = BITS(0, 1);
  char why[256];
  REQUIRE(strcmp(nvm_cpu_level_name(&arm), "aarch64") == 0);
  REQUIRE(nvm_cpu_fits(&arm, "aarch64:+neon", why, sizeof why));
  require_why(&arm, "aarch64:+dotprod,+neon,+sve2", "this CPU lacks dotprod, sve2");
  require_why(&arm, v2, "it is for x86_64");
  require_why(&other, v2, "it is for x86_64");
  require_why(&other, "another", "it is for another");
  REQUIRE(strcmp(nvm_cpu_level_name(&other), "another") == 0);
  REQUIRE(strcmp(nvm_cpu_level_of(v2), "x86-64-v2") == 0);
  REQUIRE(strcmp(nvm_cpu_level_of("x86_64"), "x86-64") == 0);
  REQUIRE(strcmp(nvm_cpu_level_of("x86_64:+sse3"), "x86_64:+sse3") == 0);
  REQUIRE(strcmp(nvm_cpu_level_of(""), "") == 0);
}

static void test_limit(void) {
  char why[256];
  nvm_cpu cpu = x86(0xe7);
  nvm_cpu_limit(&cpu, NULL);
  nvm_cpu_limit(&cpu, "");
  REQUIRE(strcmp(nvm_cpu_level_name(&cpu), "x86-64-v4") == 0);
  nvm_cpu_limit(&cpu, "x86-64-v3");
  REQUIRE(strcmp(nvm_cpu_level_name(&cpu), "x86-64-v3") == 0);
  require_why(&cpu, "x86_64:+avx512f", "this CPU lacks avx512f");
  REQUIRE(nvm_cpu_fits(&cpu, v2, why, sizeof why) && nvm_cpu_fits(&cpu, "x86_64:+sse2", why, 256));
  nvm_cpu weak = x86(3); /* a limit adds nothing */
  nvm_cpu_limit(&weak, "x86-64-v4");
  REQUIRE(strcmp(nvm_cpu_level_name(&weak), "x86-64-v2") == 0);
  nvm_cpu_limit(&cpu, "none");
  require_why(&cpu, v2, "NVM_CPU is none");
  nvm_cpu wrong = x86(0xe7);
  nvm_cpu_limit(&wrong, "aarch64");
  REQUIRE(!nvm_cpu_fits(&wrong, v2, why, sizeof why) && strstr(why, "names no level") != NULL);
}

/* Texts of a file: nothing that they hold may read or write outside. */
static void test_odd_texts(void) {
  nvm_cpu cpu = x86(0xe7);
  char why[16], long_name[400];
  static const char *const odd[] = {
      "",      ":",           "x86_64:", "x86_64:+",     "x86_64:,,+,-avx9",
      "x86_6", "x86_64,+avx", "mips:+x", "x86_64:+avx2,"};
  static const int fits[] = {0, 0, 1, 1, 1, 0, 0, 0, 1};
  for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
    memset(why, 'x', sizeof why);
    REQUIRE(nvm_cpu_fits(&cpu, odd[i], why, sizeof why) == fits[i]);
    REQUIRE(memchr(why, 0, sizeof why) != NULL);
  }
  memset(long_name, 'a', sizeof long_name);
  memcpy(long_name, "x86_64:+", 8);
  long_name[sizeof long_name - 1] = 0;
  REQUIRE(!nvm_cpu_fits(&cpu, long_name, why, sizeof why) && strlen(why) == sizeof why - 1);
}

int main(void) {
  test_system();
  test_levels();
  test_limit();
  test_odd_texts();
  nvm_cpu host;
  nvm_cpu_read(&host);
  REQUIRE(host.arch == NVM_CPU_OTHER || strcmp(nvm_cpu_level_name(&host), "another") != 0);
  return 0;
}
