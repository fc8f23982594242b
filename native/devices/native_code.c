#include "native_code.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "alloc.h"
#include "cpu_features.h"
#include "log.h"

_Static_assert(offsetof(nvm_kernel_ctx, fail) == NVM_CTX_FAIL &&
                   offsetof(nvm_kernel_ctx, poll) == NVM_CTX_POLL &&
                   offsetof(nvm_kernel_ctx, parallel_for) == NVM_CTX_PARALLEL_FOR,
               "machine code in files calls what stands there");

struct nvm_native_code {
  void *handle;
  int fd; /* kept open, or -1: dlopen would take another file under the same number for this one */
};

#if defined(__x86_64__)
#define HOST_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define HOST_MACHINE EM_AARCH64
#else
#define HOST_MACHINE EM_NONE
#endif

/* --- is it the kind of object we write -------------------------------------------------------- */

static nvm_status refuse(const char *why) { return nvm_fail(NVM_UNSUPPORTED, "%s", why); }

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

/* --- mapping ---------------------------------------------------------------------------------- */

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
  int fd = NVM_SYSTEM(memfd_create("nimblevm-native", MFD_CLOEXEC), -1);
  if (fd < 0) return NULL;
  void *handle = NULL;
  if (write_all(fd, elf, size)) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    handle = NVM_SYSTEM(dlopen(path, RTLD_NOW | RTLD_LOCAL), NULL);
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
  int fd = NVM_SYSTEM(mkstemp(path), -1);
  if (fd < 0) return NULL;
  void *handle = NULL;
  if (write_all(fd, elf, size)) handle = NVM_SYSTEM(dlopen(path, RTLD_NOW | RTLD_LOCAL), NULL);
  unlink(path);
  close(fd);
  return handle;
}

static nvm_status load_code(const uint8_t *elf, size_t size, uint32_t n_functions_needed,
                            nvm_native_code **out_code, const nvm_kernel_table **out_table) {
  NVM_TRY(check_elf(elf, size));
  int fd = -1;
  void *handle = open_memfd(elf, size, &fd);
  if (handle == NULL) handle = open_temporary(elf, size);
  if (handle == NULL) {
    const char *why = dlerror();
    return nvm_fail(NVM_UNSUPPORTED, "it can't be mapped (%s)", why ? why : "no place to put it");
  }
  const nvm_kernel_table *table = dlsym(handle, "nvm_kernel_table");
  nvm_status status = NVM_OK;
  if (table == NULL) {
    status = refuse("it exports no nvm_kernel_table");
  } else if (table->abi != NVM_KERNEL_ABI) {
    status = nvm_fail(NVM_UNSUPPORTED, "its ABI is %u, ours is %u", table->abi, NVM_KERNEL_ABI);
  } else if (table->count < n_functions_needed) {
    status =
        nvm_fail(NVM_UNSUPPORTED, "%u functions, expected %u", table->count, n_functions_needed);
  }
  nvm_native_code *code = status == NVM_OK ? nvm_malloc(sizeof *code) : NULL;
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

/* --- which section is used -------------------------------------------------------------------- */

/* Try one section: its code becomes the program's, or `why` says why not. */
static void try_section(nvm_loader *loader, const nvm_cpu *cpu, const nvm_section *section,
                        int64_t needed, char *why, size_t why_size) {
  nvm_program *p = loader->program;
  const nvm_kernel_table *table = NULL;
  if (!nvm_cpu_fits(cpu, section->target, why, why_size)) return;
  if (load_code(section->data, section->size, (uint32_t)needed, &p->native, &table) != NVM_OK) {
    snprintf(why, why_size, "%s", nvm_last_error()->message);
    nvm_error_clear();
    return;
  }
  why[0] = 0;
  for (uint32_t k = 0; k < p->n_kernels; k++) {
    const int64_t native = loader->kernel_rows[k].native;
    if (native >= 0) loader->kernels[k].fn = table->functions[native];
  }
}

/* All reasons as one text, cut at its end. */
static void add_reason(const nvm_cpu *cpu, char *all, size_t size, const char *why) {
  const size_t used = strlen(all);
  if (used > 0) {
    snprintf(all + used, size - used, "; %s", why);
  } else {
    snprintf(all, size, "machine code not used (CPU: %s%s): %s", nvm_cpu_level_name(cpu),
             cpu->only != NULL ? ", as NVM_CPU limits it" : "", why);
  }
}

static int any_interpreted(const nvm_program *p) {
  for (uint32_t k = 0; k < p->n_kernels; k++) {
    if (p->kernels[k].kind == 0 && p->kernels[k].fn == NULL) return 1;
  }
  return 0;
}

nvm_status nvm_native_bind(nvm_loader *loader, uint32_t flags) {
  nvm_program *p = loader->program;
  int64_t needed = 0;
  char all[1024] = "";
  nvm_cpu cpu;
  p->warning = "";
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    if (loader->kernel_rows[i].native >= needed) needed = loader->kernel_rows[i].native + 1;
  }
  nvm_cpu_read(&cpu);
  for (uint32_t i = 0; i < p->n_sections; i++) {
    nvm_section *section = &loader->sections[i];
    char why[512] = "no kernel needs it";
    section->why = "";
    if (section->kind != NVM_SECTION_NATIVE) continue;
    if (p->native != NULL) {
      snprintf(why, sizeof why, "section %d comes first", p->native_section);
    } else if ((flags & NVM_LOAD_NO_NATIVE) != 0) {
      snprintf(why, sizeof why, "it was not asked for");
    } else if (needed > 0) {
      try_section(loader, &cpu, section, needed, why, sizeof why);
      if (p->native != NULL) p->native_section = (int32_t)i;
      if (why[0] != 0) add_reason(&cpu, all, sizeof all, why);
    }
    if (why[0] == 0) {
      NVM_LOG(INFO, "machine code of section %u (%s) is used", i, section->target);
    } else {
      NVM_LOG(DEBUG, "section %u (%s) not used: %s", i, section->target, why);
    }
    NVM_TRY(nvm_arena_string(loader->arena, why, strlen(why), &section->why));
  }
  if ((flags & NVM_LOAD_NO_NATIVE) != 0 || p->native != NULL) return NVM_OK;
  const int required = (flags & NVM_LOAD_REQUIRE_NATIVE) != 0 && any_interpreted(p);
  if (needed == 0 && !required) return NVM_OK;
  if (all[0] == 0) add_reason(&cpu, all, sizeof all, "the file has none");
  if (required) return nvm_fail(NVM_UNSUPPORTED, "%s", all);
  return nvm_arena_string(loader->arena, all, strlen(all), &p->warning);
}

void nvm_native_code_free(nvm_native_code *code) {
  if (code == NULL) return;
  dlclose(code->handle);
  if (code->fd >= 0) close(code->fd);
  nvm_free(code);
}
