/* Loads a program: fixed header, digests, layout of the file; program_tables.c reads the header's
 * tables, verify.c the code. Whatever the bytes are, the answer is a program or a typed error, in
 * time and memory linear in the file's size.
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "code_sections.h"
#include "kernel_ir.h"
#include "log.h"
#include "native_code.h"
#include "program_tables.h"
#include "sha256.h"
#include "verify.h"

enum { FIXED_HEADER = 96, SEALED = 64, ALIGNMENT = 64 };
enum { FLAG_SIGNED = 1, SIGNATURE_BLOCK = 128, ED25519 = 1, ED25519_SIZE = 64 };

static const uint8_t magic[8] = {0x89, 'N', 'V', 'M', '\r', '\n', 0x1a, '\n'};
static const char signature_magic[8] = "NVM-SIGN";
/* What the signed message starts with, its NUL included; bytes 0 to 63 of the file follow. */
static const char signature_context[32] = "nimblevm executable signature 1";

static _Thread_local int32_t load_stage;

/* Where the bytes come from: a file, or memory if fd < 0. */
typedef struct input {
  int fd;
  const uint8_t *memory;
  uint64_t size; /* without a signature block, once the fixed header is read */
  uint32_t flags;
  const nvm_signature_check *check; /* NULL: a signature is not asked for */
} input;

static nvm_status invalid(const char *text) { return nvm_fail(NVM_INVALID_EXECUTABLE, "%s", text); }

static uint64_t little(const uint8_t *bytes, uint32_t count) {
  uint64_t value = 0;
  for (uint32_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

/* Copy bytes that are known to lie inside. */
static nvm_status read_input(const input *in, uint64_t offset, size_t size, void *to) {
  if (in->fd < 0) {
    if (size > 0) memcpy(to, in->memory + offset, size);
    return NVM_OK;
  }
  for (char *at = to; size > 0;) {
    ssize_t got = pread(in->fd, at, size, (off_t)offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return nvm_fail(NVM_FILE_ERROR, "reading failed: %s", strerror(errno));
    if (got == 0) return invalid("the file became shorter while it was read");
    at += got;
    offset += (uint64_t)got;
    size -= (size_t)got;
  }
  return NVM_OK;
}

static nvm_status check_digest(const void *data, size_t size, const uint8_t *expected,
                               const char *what, uint32_t index) {
  uint8_t got[32];
  nvm_sha256(data, size, got);
  if (memcmp(got, expected, sizeof got) != 0) {
    return nvm_fail(NVM_INVALID_EXECUTABLE,
                    "%s %u: SHA-256 is %02x%02x%02x%02x..., expected %02x%02x%02x%02x...: the file "
                    "was damaged or changed; get it again",
                    what, index, got[0], got[1], got[2], got[3], expected[0], expected[1],
                    expected[2], expected[3]);
  }
  return NVM_OK;
}

static nvm_status check_padding(const input *in, uint64_t offset, uint64_t end) {
  uint8_t bytes[ALIGNMENT];
  NVM_TRY(read_input(in, offset, (size_t)(end - offset), bytes));
  for (uint64_t i = 0; i < end - offset; i++) {
    if (bytes[i] != 0) {
      return nvm_fail(NVM_INVALID_EXECUTABLE, "byte %llu: padding must be zero, got %u",
                      (unsigned long long)(offset + i), bytes[i]);
    }
  }
  return NVM_OK;
}

/* --- header ----------------------------------------------------------------------------------- */

/* The signature block at the end of a signed file: its form, and with a check who signed. Sections
 * end before it. */
static nvm_status read_signature(input *in, nvm_loader *loader, const uint8_t *fixed) {
  nvm_program *p = loader->program;
  uint8_t message[sizeof signature_context + SEALED];
  void *copy = NULL;
  if (in->size < FIXED_HEADER + SIGNATURE_BLOCK) {
    return nvm_fail(NVM_SIGNATURE_MALFORMED, "signature: %d bytes do not fit in a file of %llu",
                    SIGNATURE_BLOCK, (unsigned long long)in->size);
  }
  in->size -= SIGNATURE_BLOCK;
  NVM_TRY(nvm_arena_alloc(loader->arena, SIGNATURE_BLOCK, ALIGNMENT, &copy));
  NVM_TRY(read_input(in, in->size, SIGNATURE_BLOCK, copy));
  const uint8_t *block = copy;
  p->signature = block;
  p->signature_size = SIGNATURE_BLOCK;
  uint32_t kind = (uint32_t)little(block + 8, 4), size = (uint32_t)little(block + 12, 4);
  uint8_t rest = 0;
  for (uint32_t i = 48 + ED25519_SIZE; i < SIGNATURE_BLOCK; i++) rest |= block[i];
  if (memcmp(block, signature_magic, sizeof signature_magic) != 0 || rest != 0 ||
      in->size % ALIGNMENT != 0) {
    return nvm_fail(NVM_SIGNATURE_MALFORMED, "signature: no signature block at byte %llu",
                    (unsigned long long)in->size);
  }
  if (kind != ED25519 || size != ED25519_SIZE) {
    return nvm_fail(NVM_SIGNATURE_MALFORMED,
                    "signature: algorithm %u of %u bytes, expected %d (ed25519) of %d", kind, size,
                    ED25519, ED25519_SIZE);
  }
  if (in->check == NULL) return NVM_OK;
  memcpy(message, signature_context, sizeof signature_context);
  memcpy(message + sizeof signature_context, fixed, SEALED);
  if (in->check->verify(in->check->context, block + 16, message, sizeof message, block + 48,
                        ED25519_SIZE) != 1) {
    return nvm_fail(NVM_SIGNATURE_MISMATCH,
                    "signature: it is not this key's of this file (the file names key "
                    "%02x%02x%02x%02x%02x%02x%02x%02x)",
                    block[16], block[17], block[18], block[19], block[20], block[21], block[22],
                    block[23]);
  }
  return NVM_OK;
}

static nvm_status check_version(const uint8_t *fixed) {
  uint32_t version = (uint32_t)little(fixed + 8, 4);
  if (version >= 1 && version <= nvm_format_version()) return NVM_OK;
  if (version == 0) {
    return nvm_fail(NVM_UNSUPPORTED_VERSION,
                    "fixed header: the file has format version 0, which was never released; this "
                    "runtime (nimblevm %s) reads versions 1 to %u",
                    nvm_version(), nvm_format_version());
  }
  return nvm_fail(NVM_UNSUPPORTED_VERSION,
                  "fixed header: the file has format version %u, which needs nimblevm %u.%u.%u or "
                  "newer; this runtime (nimblevm %s) reads versions 1 to %u",
                  version, fixed[13], fixed[14], fixed[15], nvm_version(), nvm_format_version());
}

/* What the fixed header says of sizes and signature. */
static nvm_status check_fixed(input *in, nvm_loader *loader, const uint8_t *fixed) {
  if (memcmp(fixed, magic, sizeof magic) != 0) {
    return invalid("fixed header: no nimblevm executable (the magic number is another)");
  }
  NVM_TRY(check_version(fixed));
  NVM_TRY(check_digest(fixed, SEALED, fixed + SEALED, "fixed header, bytes 0 to", SEALED - 1));
  uint32_t flags = fixed[12];
  uint64_t file_size = little(fixed + 24, 8);
  if ((flags & ~(uint32_t)FLAG_SIGNED) != 0) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "fixed header: flags %u, expected at most %d", flags,
                    FLAG_SIGNED);
  }
  const uint32_t version = loader->program->version = (uint32_t)little(fixed + 8, 4);
  if (fixed[13] != 0 || fixed[14] != version || fixed[15] != 0) { /* version n came with 0.n.0 */
    return nvm_fail(NVM_INVALID_EXECUTABLE,
                    "fixed header: nimblevm %u.%u.%u for format version %u, expected 0.%u.0",
                    fixed[13], fixed[14], fixed[15], version, version);
  }
  if (file_size != in->size) {
    int cut = (flags & FLAG_SIGNED) != 0 && in->size < file_size &&
              file_size - in->size <= SIGNATURE_BLOCK;
    return nvm_fail(cut ? NVM_SIGNATURE_MALFORMED : NVM_INVALID_EXECUTABLE,
                    "%s: file_size is %llu, the file has %llu",
                    cut ? "signature: it is cut off" : "fixed header",
                    (unsigned long long)file_size, (unsigned long long)in->size);
  }
  if ((flags & FLAG_SIGNED) != 0) return read_signature(in, loader, fixed);
  if (in->check != NULL) {
    return nvm_fail(NVM_SIGNATURE_MISSING, "signature: the file is not signed");
  }
  return NVM_OK;
}

/* Check the fixed header; returns the msgpack header (private, digest checked) and where sections
 * start. */
static nvm_status read_header(input *in, nvm_loader *loader, const uint8_t **out_header,
                              size_t *out_size, uint64_t *out_first) {
  uint8_t fixed[FIXED_HEADER];
  if (in->size < FIXED_HEADER) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "fixed header: expected %d bytes, the file has %llu",
                    FIXED_HEADER, (unsigned long long)in->size);
  }
  NVM_TRY(read_input(in, 0, sizeof fixed, fixed));
  NVM_TRY(check_fixed(in, loader, fixed));
  uint64_t header_size = little(fixed + 16, 8);
  if (header_size > in->size - FIXED_HEADER) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "fixed header: header_size %llu goes beyond the file",
                    (unsigned long long)header_size);
  }
  void *header = NULL;
  NVM_TRY(nvm_arena_alloc(loader->arena, (size_t)header_size, ALIGNMENT, &header));
  NVM_TRY(read_input(in, FIXED_HEADER, (size_t)header_size, header));
  NVM_TRY(check_digest(header, (size_t)header_size, fixed + 32, "msgpack header, version",
                       loader->program->version));
  uint64_t end = FIXED_HEADER + header_size,
           first = (end + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
  if (first > in->size) return invalid("the file ends inside the padding of its header");
  NVM_TRY(check_padding(in, end, first));
  *out_header = header;
  *out_size = (size_t)header_size;
  *out_first = first;
  return NVM_OK;
}

/* --- sections --------------------------------------------------------------------------------- */

/* Private memory for the program's constants on pages of 2 MiB, if the system gives such; NULL
 * where that does not pay. Kernels that read weights again and again are slower with pages of 4 KiB
 * (docs/performance.md). The last page is a large one if at least half of it is used. */
static void *map_large_pages(nvm_program *p, size_t size) {
  const size_t page = (size_t)2 << 20;
  if (size < page || size > SIZE_MAX / 2) return NULL;
  const size_t length = size + 2 * page;
  char *start = NVM_SYSTEM(
      mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
  if (start == MAP_FAILED) return NULL;
  p->mapping = start;
  p->mapping_size = length;
  start += -(uintptr_t)start & (page - 1);
  (void)madvise(start, (size + page / 2) / page * page, MADV_HUGEPAGE); /* else small ones */
  return start;
}

/* Constants stay where they are if they can: mapped from a file, borrowed from memory. If their
 * digest is checked they are copied: what is mapped can change after it was looked at. */
static nvm_status place_constants(const input *in, nvm_loader *loader, uint64_t offset, size_t size,
                                  const uint8_t **out_data) {
  nvm_program *p = loader->program;
  int copied = (in->flags & (NVM_LOAD_COPY | NVM_LOAD_VERIFY_FULL)) != 0;
  if (in->fd < 0 && !copied && (in->flags & NVM_LOAD_BORROW) != 0 &&
      (uintptr_t)(in->memory + offset) % ALIGNMENT == 0) {
    *out_data = in->memory + offset;
    return NVM_OK;
  }
  if (in->fd >= 0 && !copied && size > 0) {
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start = offset / page * page;
    size_t length = (size_t)(offset - start) + size;
    void *mapping =
        NVM_SYSTEM(mmap(NULL, length, PROT_READ, MAP_PRIVATE, in->fd, (off_t)start), MAP_FAILED);
    if (mapping == MAP_FAILED) {
      return nvm_fail(NVM_FILE_ERROR, "mapping the constants failed: %s", strerror(errno));
    }
    p->mapping = mapping;
    p->mapping_size = length;
    *out_data = (const uint8_t *)mapping + (offset - start);
    return NVM_OK;
  }
  void *copy = map_large_pages(p, size);
  if (copy == NULL) NVM_TRY(nvm_arena_alloc(loader->arena, size, ALIGNMENT, &copy));
  NVM_TRY(read_input(in, offset, size, copy));
  *out_data = copy;
  return NVM_OK;
}

static nvm_status read_section_data(const input *in, nvm_loader *loader, uint32_t index,
                                    uint64_t offset) {
  nvm_section *section = &loader->sections[index];
  if (section->kind == NVM_SECTION_CONSTANTS) {
    NVM_TRY(place_constants(in, loader, offset, section->size, &section->data));
    if ((in->flags & NVM_LOAD_VERIFY_FULL) == 0) return NVM_OK;
  } else {
    void *copy = NULL;
    NVM_TRY(nvm_arena_alloc(loader->arena, section->size, ALIGNMENT, &copy));
    NVM_TRY(read_input(in, offset, section->size, copy));
    section->data = copy;
  }
  return check_digest(section->data, section->size, loader->section_rows[index].digest, "section",
                      index);
}

/* Sections follow each other, padded to 64, and fill the file. */
static nvm_status read_sections(const input *in, nvm_loader *loader, uint64_t first) {
  uint64_t end = 0, room = in->size - first;
  for (uint32_t i = 0; i < loader->program->n_sections; i++) {
    const nvm_section_row *row = &loader->section_rows[i];
    uint64_t expected = (end + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    if (row->offset != expected || expected > room || row->size > room - expected) {
      return nvm_fail(NVM_INVALID_EXECUTABLE,
                      "section %u: bytes %llu + %llu, expected them at %llu and within %llu", i,
                      (unsigned long long)row->offset, (unsigned long long)row->size,
                      (unsigned long long)expected, (unsigned long long)room);
    }
    NVM_TRY(check_padding(in, first + end, first + expected));
    NVM_TRY(read_section_data(in, loader, i, first + expected));
    end = expected + row->size;
  }
  if (loader->program->signature != NULL) { /* at the next multiple of 64 */
    uint64_t padded = (end + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
    if (padded == room) {
      NVM_TRY(check_padding(in, first + end, first + padded));
      end = room;
    }
  }
  if (end != room) {
    return nvm_fail(NVM_INVALID_EXECUTABLE, "%llu bytes behind the last section",
                    (unsigned long long)(room - end));
  }
  return NVM_OK;
}

/* Turn offsets into pointers. Big-endian hosts would need swapped copies; they are not supported.
 */
static nvm_status place_tables(nvm_loader *loader) {
  nvm_program *p = loader->program;
  const uint8_t *code = loader->sections[NVM_SECTION_BYTECODE].data;
  const uint8_t *constants = loader->sections[NVM_SECTION_CONSTANTS].data;
  const uint8_t *ir = loader->sections[NVM_SECTION_KERNEL_IR].data;
  for (uint32_t i = 0; i < p->n_functions; i++) {
    loader->functions[i].code =
        (const uint32_t *)(const void *)(code + 4 * (size_t)loader->code_first[i]);
  }
  for (uint32_t i = 0; i < p->n_constants; i++) {
    if (p->late[i].weight >= 0) continue; /* bind.c sets it */
    /* nvm_tensor has no const view; NVM_FLAG_READONLY guards the mapping. */
    loader->constants[i]->data = (char *)(uintptr_t)(constants + loader->constant_offsets[i]);
  }
  uint64_t end = 0;
  for (uint32_t i = 0; i < p->n_kernels; i++) {
    if (p->kernels[i].kind != 0) continue;
    for (; end < loader->kernel_rows[i].ir_offset; end++) {
      if (ir[end] != 0) return invalid("kernel IR section: padding must be zero");
    }
    end = loader->kernel_rows[i].ir_offset + loader->kernel_rows[i].ir_size;
  }
  return NVM_OK;
}

/* --- kernels ---------------------------------------------------------------------------------- */

static nvm_status bind_kernels(nvm_loader *loader) {
  const uint8_t *ir = loader->sections[NVM_SECTION_KERNEL_IR].data;
  for (uint32_t i = 0; i < loader->program->n_kernels; i++) {
    nvm_kernel *kernel = &loader->kernels[i];
    const nvm_kernel_row *row = &loader->kernel_rows[i];
    if (kernel->kind == 2) continue;
    if (kernel->kind == 1) {
      NVM_TRY(nvm_verify_c_kernel(kernel, &kernel->fn));
      continue;
    }
    nvm_kernel_ir *parsed = NULL;
    nvm_status status =
        nvm_kernel_ir_parse(ir + row->ir_offset, (size_t)row->ir_size, &kernel->signature, &parsed);
    if (status != NVM_OK) {
      char text[1024];
      snprintf(text, sizeof text, "%s", nvm_last_error()->message);
      return nvm_fail(status, "kernel %s: %s", kernel->name, text);
    }
    kernel->ir = parsed;
  }
  return NVM_OK;
}

/* --- loading ---------------------------------------------------------------------------------- */

static void destroy(nvm_program *program) {
  if (program->parent != NULL) { /* weights/bind.c: all but the bound constants is the parent's */
    nvm_arena_destroy(program->arena);
    nvm_arena_destroy(program->copies);
    if (program->bound != NULL) program->release_bound(program->bound);
    nvm_program_release(program->parent);
    nvm_free(program);
    return;
  }
  for (uint32_t i = 0; i < program->n_kernels; i++) {
    nvm_kernel_ir_free((nvm_kernel_ir *)(uintptr_t)program->kernels[i].ir);
  }
  nvm_native_code_free(program->native);
  if (program->mapping != NULL) munmap(program->mapping, program->mapping_size);
  nvm_arena_destroy(program->arena);
  nvm_free(program);
}

static nvm_status load_into(input *in, nvm_loader *loader) {
  const uint8_t *header = NULL;
  size_t size = 0;
  uint64_t first = 0;
  NVM_TRY(read_header(in, loader, &header, &size, &first));
  loader->program->header = header;
  loader->program->header_size = size;
  NVM_TRY(nvm_read_tables(loader, header, size));
  NVM_TRY(read_sections(in, loader, first));
  NVM_TRY(place_tables(loader));
  NVM_TRY(nvm_check_code_sections(loader));
  load_stage = 1;
  NVM_TRY(bind_kernels(loader));
  NVM_TRY(nvm_verify_program(loader->program));
  load_stage = 2;
  return nvm_native_bind(loader, in->flags);
}

/* path: NULL for a program from memory. */
static void tell(const char *path, const nvm_program *p, uint64_t bytes) {
  const char *name = path ? path : "(memory)";
  NVM_LOG(INFO, "loaded %s: %llu bytes, %u functions, %u kernels, machine code %s", name,
          (unsigned long long)bytes, p->n_functions, p->n_kernels, p->native ? "used" : "not used");
  if (*p->warning) NVM_LOG(WARNING, "%s: %s", name, p->warning);
}

static nvm_status load(input *in, nvm_program **out_program) {
  load_stage = 0;
  *out_program = NULL;
  nvm_log_init();
  nvm_program *program = nvm_calloc(sizeof *program);
  if (program == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for a program");
  program->flags = in->flags;
  atomic_init(&program->refcount, 1);
  nvm_loader loader = {.program = program};
  nvm_status status = nvm_arena_create(&program->arena);
  loader.arena = program->arena;
  if (status == NVM_OK) status = load_into(in, &loader);
  if (status != NVM_OK) {
    destroy(program);
    return status;
  }
  *out_program = program;
  return nvm_ok();
}

NVM_EXPORT nvm_status nvm_program_load_signed(const void *data, size_t size, uint32_t flags,
                                              const nvm_signature_check *check,
                                              nvm_program **out_program) {
  if (check != NULL) flags |= NVM_LOAD_VERIFY_FULL;
  input in = {.fd = -1, .memory = data, .size = size, .flags = flags, .check = check};
  const nvm_status status = load(&in, out_program);
  if (status == NVM_OK)
    tell(NULL, *out_program, size);
  else
    NVM_LOG(ERROR, "loading a program of %zu bytes failed: %s", size, nvm_last_error()->message);
  return status;
}

NVM_EXPORT nvm_status nvm_program_load(const void *data, size_t size, uint32_t flags,
                                       nvm_program **out_program) {
  return nvm_program_load_signed(data, size, flags, NULL, out_program);
}

static nvm_status open_input(input *in, const char *path) {
  struct stat info;
  /* a pipe would wait for its writer */
  in->fd = NVM_SYSTEM(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), -1);
  if (in->fd < 0 || fstat(in->fd, &info) != 0) {
    return nvm_fail(NVM_FILE_ERROR, "%s", strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) return nvm_fail(NVM_FILE_ERROR, "expected a regular file");
  in->size = (uint64_t)info.st_size;
  return NVM_OK;
}

NVM_EXPORT nvm_status nvm_program_open_signed(const char *path, uint32_t flags,
                                              const nvm_signature_check *check,
                                              nvm_program **out_program) {
  if (check != NULL) flags |= NVM_LOAD_VERIFY_FULL;
  input in = {.fd = -1, .flags = flags & ~(uint32_t)NVM_LOAD_BORROW, .check = check};
  *out_program = NULL;
  load_stage = 0;
  nvm_log_init();
  nvm_status status = open_input(&in, path);
  if (status == NVM_OK) status = load(&in, out_program);
  if (in.fd >= 0) close(in.fd);
  if (status != NVM_OK) {
    char text[1024];
    snprintf(text, sizeof text, "%s", nvm_last_error()->message);
    NVM_LOG(ERROR, "loading %s failed: %s", path, text);
    return nvm_fail(status, "%s: %s", path, text);
  }
  tell(path, *out_program, in.size);
  return NVM_OK;
}

NVM_EXPORT nvm_status nvm_program_open(const char *path, uint32_t flags,
                                       nvm_program **out_program) {
  return nvm_program_open_signed(path, flags, NULL, out_program);
}

NVM_EXPORT void nvm_program_retain(nvm_program *program) {
  atomic_fetch_add_explicit(&program->refcount, 1, memory_order_relaxed);
}

NVM_EXPORT void nvm_program_release(nvm_program *program) {
  if (program == NULL) return;
  if (atomic_fetch_sub_explicit(&program->refcount, 1, memory_order_acq_rel) == 1) destroy(program);
}

NVM_EXPORT int32_t nvm_load_stage(void) { return load_stage; }
