#include "native_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct nvm_native_code {
  void *handle;
  int fd; /* kept open, or -1: dlopen would take another file under the same number for this one */
};

/* --- does the CPU fit
 * --------------------------------------------------------------------------------- */

#if defined(__x86_64__)
#include <cpuid.h>
#define HOST_ARCH    "x86_64"
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_ARCH    "aarch64"
#define HOST_MACHINE EM_AARCH64
#else
#define HOST_ARCH    "none"
#define HOST_MACHINE EM_NONE
#endif

#if defined(__x86_64__)
/* Bits of CPUID leaf 7 that __builtin_cpu_supports of older compilers does not know. */
static const struct {
  const char *name;
  uint8_t subleaf, reg, bit; /* reg: 0 eax, 3 edx */
} leaf7[] = {{"avxvnni", 1, 0, 4},     {"avx512bf16", 1, 0, 5},        {"avxifma", 1, 0, 23},
             {"avxvnniint8", 1, 3, 4}, {"avxneconvert", 1, 3, 5},      {"avxvnniint16", 1, 3, 10},
             {"avx512fp16", 0, 3, 23}, {"avx512vp2intersect", 0, 3, 8}};

static int has_leaf7(size_t row) {
  unsigned regs[4] = {0, 0, 0, 0};
  if (!__get_cpuid_count(7, leaf7[row].subleaf, &regs[0], &regs[1], &regs[2], &regs[3])) return 0;
  return (regs[leaf7[row].reg] >> leaf7[row].bit & 1u) != 0;
}
#endif

/* Does the CPU have a feature of LLVM's name? Vector features decide; of these an unknown one
 * counts as missing, because code for it would end in SIGILL. Others are used by intrinsics alone,
 * which generated kernels have none of. */
static int has_feature(const char *name) {
#if defined(__x86_64__)
#define CHECK(text) \
  if (strcmp(name, text) == 0) return __builtin_cpu_supports(text) != 0
  CHECK("sse3");
  CHECK("ssse3");
  CHECK("sse4.1");
  CHECK("sse4.2");
  CHECK("popcnt");
  CHECK("avx");
  CHECK("avx2");
  CHECK("fma");
  CHECK("bmi");
  CHECK("bmi2");
  CHECK("avx512f");
  CHECK("avx512cd");
  CHECK("avx512bw");
  CHECK("avx512dq");
  CHECK("avx512vl");
  CHECK("avx512ifma");
  CHECK("avx512vbmi");
  CHECK("avx512vbmi2");
  CHECK("avx512vnni");
  CHECK("avx512bitalg");
  CHECK("avx512vpopcntdq");
#undef CHECK
  for (size_t i = 0; i < sizeof leaf7 / sizeof *leaf7; i++) {
    if (strcmp(name, leaf7[i].name) == 0) return has_leaf7(i);
  }
  /* The three came with AVX2 on every CPU that was made. */
  if (strcmp(name, "lzcnt") == 0 || strcmp(name, "movbe") == 0 || strcmp(name, "f16c") == 0) {
    return __builtin_cpu_supports("avx2") != 0;
  }
  return strncmp(name, "avx", 3) != 0 && strncmp(name, "fma", 3) != 0;
#else
  (void)name;
  return 1; /* aarch64: the base set has all that is generated */
#endif
}

int nvm_native_target_fits(const char *target, char *why, size_t why_size) {
  const char *colon = strchr(target, ':');
  size_t arch = colon ? (size_t)(colon - target) : strlen(target);
  if (arch != strlen(HOST_ARCH) || memcmp(target, HOST_ARCH, arch) != 0) {
    snprintf(why, why_size, "it is for %.*s, this CPU is %s", (int)(arch > 100 ? 100 : arch),
             target, HOST_ARCH);
    return 0;
  }
  for (const char *at = colon; at != NULL && *at != 0;) {
    at++; /* ':' or ',' */
    size_t length = strcspn(at, ",");
    char name[64];
    int fits = length < sizeof name;
    if (fits && length > 1 && at[0] == '+') {
      memcpy(name, at + 1, length - 1);
      name[length - 1] = 0;
      fits = has_feature(name);
    }
    if (!fits) {
      snprintf(why, why_size, "this CPU lacks %.*s", (int)(length > 100 ? 100 : length), at);
      return 0;
    }
    at += length;
  }
  return 1;
}

/* --- is it the kind of object we write
 * ------------------------------------------------------------------- */

static nvm_status refuse(const char *why) {
  return nvm_fail(NVM_UNSUPPORTED, "machine code not used: %s", why);
}

/* The dynamic section must ask for no other library. */
static nvm_status check_dynamic(const uint8_t *elf, size_t size, const Elf64_Phdr *segment) {
  if (segment->p_offset > size || segment->p_filesz > size - segment->p_offset) {
    return refuse("its dynamic section lies outside");
  }
  for (uint64_t at = 0; segment->p_filesz - at >= sizeof(Elf64_Dyn); at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    memcpy(&entry, elf + segment->p_offset + at, sizeof entry);
    if (entry.d_tag == DT_NULL) break;
    if (entry.d_tag == DT_NEEDED) return refuse("it needs other libraries");
    if (entry.d_tag == DT_TEXTREL) return refuse("it has text relocations");
  }
  return NVM_OK;
}

static nvm_status check_elf(const uint8_t *elf, size_t size) {
  Elf64_Ehdr header;
  if (size < sizeof header) return refuse("it is shorter than an ELF header");
  memcpy(&header, elf, sizeof header);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB || header.e_type != ET_DYN) {
    return refuse("it is no 64-bit little-endian ELF shared object");
  }
  if (header.e_machine != HOST_MACHINE) return refuse("it is for another machine");
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      header.e_phnum > (size - header.e_phoff) / sizeof(Elf64_Phdr)) {
    return refuse("its program headers lie outside");
  }
  int dynamic = 0;
  for (uint32_t i = 0; i < header.e_phnum; i++) {
    Elf64_Phdr segment;
    memcpy(&segment, elf + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_INTERP) return refuse("it is a program");
    if (segment.p_type == PT_LOAD &&
        (segment.p_offset > size || segment.p_filesz > size - segment.p_offset)) {
      return refuse("a segment lies outside");
    }
    if (segment.p_type == PT_DYNAMIC) {
      dynamic = 1;
      NVM_TRY(check_dynamic(elf, size, &segment));
    }
  }
  return dynamic ? NVM_OK : refuse("it has no dynamic section");
}

/* --- mapping
 * ------------------------------------------------------------------------------------------------
 */

static int write_all(int fd, const uint8_t *data, size_t size) {
  while (size > 0) {
    ssize_t written = write(fd, data, size);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return 0;
    data += written;
    size -= (size_t)written;
  }
  return 1;
}

/* dlopen the bytes by way of a file that has no name of its own afterwards. NULL: not possible this
 * way. dlopen knows libraries by name first, so the descriptor (a part of the name) must not be
 * reused while the library is loaded: out_fd stays open as long. */
static void *open_memfd(const uint8_t *elf, size_t size, int *out_fd) {
  *out_fd = -1;
  int fd = memfd_create("nimblevm-native", MFD_CLOEXEC);
  if (fd < 0) return NULL;
  void *handle = NULL;
  if (write_all(fd, elf, size)) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  }
  if (handle != NULL) {
    *out_fd = fd;
  } else {
    close(fd);
  }
  return handle;
}

static void *open_temporary(const uint8_t *elf, size_t size) {
  const char *directory = getenv("TMPDIR");
  char path[512];
  int length = snprintf(path, sizeof path, "%s/nimblevm-XXXXXX",
                        directory != NULL && directory[0] != 0 ? directory : "/tmp");
  if (length < 0 || (size_t)length >= sizeof path) return NULL;
  int fd = mkstemp(path);
  if (fd < 0) return NULL;
  void *handle = NULL;
  if (write_all(fd, elf, size)) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  unlink(path);
  close(fd);
  return handle;
}

nvm_status nvm_native_code_load(const uint8_t *elf, size_t size, uint32_t n_functions_needed,
                                nvm_native_code **out_code, const nvm_kernel_table **out_table) {
  NVM_TRY(check_elf(elf, size));
  int fd = -1;
  void *handle = open_memfd(elf, size, &fd);
  if (handle == NULL) handle = open_temporary(elf, size);
  if (handle == NULL) {
    const char *why = dlerror();
    return nvm_fail(NVM_UNSUPPORTED, "machine code not used: it can't be mapped (%s)",
                    why ? why : "no place to put it");
  }
  const nvm_kernel_table *table = dlsym(handle, "nvm_kernel_table");
  nvm_status status = NVM_OK;
  if (table == NULL) {
    status = refuse("it exports no nvm_kernel_table");
  } else if (table->abi != NVM_KERNEL_ABI) {
    status = nvm_fail(NVM_UNSUPPORTED, "machine code not used: its ABI is %u, ours is %u",
                      table->abi, NVM_KERNEL_ABI);
  } else if (table->count < n_functions_needed) {
    status = nvm_fail(NVM_UNSUPPORTED, "machine code not used: %u functions, expected %u",
                      table->count, n_functions_needed);
  }
  nvm_native_code *code = status == NVM_OK ? malloc(sizeof *code) : NULL;
  if (status == NVM_OK && code == NULL) status = nvm_fail(NVM_OUT_OF_MEMORY, "no memory");
  if (status != NVM_OK) {
    dlclose(handle);
    if (fd >= 0) close(fd);
    return status;
  }
  code->handle = handle;
  code->fd = fd;
  *out_code = code;
  *out_table = table;
  return NVM_OK;
}

void nvm_native_code_free(nvm_native_code *code) {
  if (code == NULL) return;
  dlclose(code->handle);
  if (code->fd >= 0) close(code->fd);
  free(code);
}
