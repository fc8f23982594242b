/* Programs built from source, and a cache of what the driver made of them: a driver may take
 * seconds for a file's kernels. The cache is the folder NVM_CACHE, else nimblevm in XDG_CACHE_HOME
 * or
 * ~/.cache; NVM_CACHE="" is none. A file's name is the digest of all that the binary depends on; it
 * holds a magic number, the digest of the binary, and the binary. It is written under another name
 * first, so that no reader sees a part of it; whatever is wrong with it or the folder, the source
 * is built. Binaries are code, so a file that others may write is not taken. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "log.h"
#include "opencl_api.h"
#include "sha256.h"

#define MAGIC      "nvmocl1\n"
#define MAX_BINARY ((off_t)1 << 30)
enum { MAGIC_BYTES = 8, DIGEST_BYTES = 32, HEAD_BYTES = MAGIC_BYTES + DIGEST_BYTES };

typedef struct place {
  char folder[512];
  char file[640];
} place;

/* --- where ------------------------------------------------------------------------------------ */

/* The cache's folder; 0 if there is none. */
static int find_folder(place *p) {
  const char *own = getenv("NVM_CACHE"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int n = 0;
  if (own)
    n = own[0] == '/' ? snprintf(p->folder, sizeof p->folder, "%s", own) : 0;
  else if (xdg && xdg[0] == '/')
    n = snprintf(p->folder, sizeof p->folder, "%s/nimblevm", xdg);
  else if (home && home[0] == '/')
    n = snprintf(p->folder, sizeof p->folder, "%s/.cache/nimblevm", home);
  return n > 0 && (size_t)n < sizeof p->folder;
}

/* Whether the driver caches by itself what it compiles, and asking for binaries is slow. */
static int has_own_cache(const nvm_opencl *cl, cl_device_id device) {
  char version[256];
  nvm_opencl_text(cl, device, CL_DEVICE_VERSION, version, sizeof version);
  return !getenv("NVM_CACHE") && strstr(version, "PoCL") != NULL;
}

/* Make the folder, and those around it. */
static void make_folder(const place *p) {
  char path[sizeof p->folder];
  snprintf(path, sizeof path, "%s", p->folder);
  for (char *at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    (void)mkdir(path, 0700);
    *at = '/';
  }
  (void)mkdir(path, 0700);
}

/* The digest of source, device, driver and options. */
static int find_place(const nvm_opencl *cl, cl_device_id device, const char *options,
                      const char *source, size_t size, place *p) {
  if (!find_folder(p)) return 0;
  char text[2048], name[256], version[256], driver[256];
  uint8_t digest[DIGEST_BYTES], of_source[DIGEST_BYTES];
  nvm_opencl_text(cl, device, CL_DEVICE_NAME, name, sizeof name);
  nvm_opencl_text(cl, device, CL_DEVICE_VERSION, version, sizeof version);
  nvm_opencl_text(cl, device, CL_DRIVER_VERSION, driver, sizeof driver);
  nvm_sha256(source, size, of_source);
  int n = snprintf(text, sizeof text - DIGEST_BYTES, "%s\n%s\n%s\n%s\n%s\n", MAGIC, name, version,
                   driver, options);
  if (n < 0 || (size_t)n >= sizeof text - DIGEST_BYTES) return 0;
  memcpy(text + n, of_source, DIGEST_BYTES);
  nvm_sha256(text, (size_t)n + DIGEST_BYTES, digest);
  n = snprintf(p->file, sizeof p->file, "%s/opencl-", p->folder);
  for (int i = 0; i < DIGEST_BYTES; i++, n += 2)
    snprintf(p->file + n, sizeof p->file - (size_t)n, "%02x", digest[i]);
  return 1;
}

/* --- files ------------------------------------------------------------------------------------ */

static int read_all(int file, uint8_t *data, size_t size) {
  while (size) {
    const ssize_t got = read(file, data, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return 0;
    data += got;
    size -= (size_t)got;
  }
  return 1;
}

static int write_all(int file, const uint8_t *data, size_t size) {
  while (size) {
    const ssize_t put = write(file, data, size);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return 0;
    data += put;
    size -= (size_t)put;
  }
  return 1;
}

/* The binary of a cache file, or NULL. owned. */
static uint8_t *read_binary(const char *path, size_t *out_size) {
  uint8_t *data = NULL, head[HEAD_BYTES], digest[DIGEST_BYTES];
  struct stat info;
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return NULL;
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & (S_IWGRP | S_IWOTH)) || info.st_size <= HEAD_BYTES ||
      info.st_size > MAX_BINARY)
    goto done;
  *out_size = (size_t)info.st_size - HEAD_BYTES;
  data = nvm_malloc(*out_size);
  if (!data) goto done;
  int good = read_all(file, head, HEAD_BYTES) && read_all(file, data, *out_size) &&
             memcmp(head, MAGIC, MAGIC_BYTES) == 0;
  if (good) nvm_sha256(data, *out_size, digest);
  if (!good || memcmp(head + MAGIC_BYTES, digest, DIGEST_BYTES) != 0) {
    nvm_free(data);
    data = NULL;
  }
done:
  close(file);
  return data;
}

static void write_binary(const place *p, const uint8_t *data, size_t size) {
  uint8_t head[HEAD_BYTES];
  char path[sizeof p->folder + 16];
  memcpy(head, MAGIC, MAGIC_BYTES);
  nvm_sha256(data, size, head + MAGIC_BYTES);
  make_folder(p);
  snprintf(path, sizeof path, "%s/tmp-XXXXXX", p->folder);
  const int file = mkstemp(path);
  if (file < 0) return;
  const int written = write_all(file, head, HEAD_BYTES) && write_all(file, data, size);
  if (close(file) != 0 || !written || rename(path, p->file) != 0) (void)unlink(path);
}

/* --- programs --------------------------------------------------------------------------------- */

static cl_program from_binary(const nvm_opencl *cl, cl_context context, cl_device_id device,
                              const char *options, const char *path) {
  size_t size = 0;
  int32_t error = 0, status = 0;
  uint8_t *data = read_binary(path, &size);
  if (!data) return NULL;
  const uint8_t *binary = data;
  cl_program program =
      cl->CreateProgramWithBinary(context, 1, &device, &size, &binary, &status, &error);
  nvm_free(data);
  if (!program) return NULL;
  if (error == 0 && status == 0 && cl->BuildProgram(program, 1, &device, options, NULL, NULL) == 0)
    return program;
  cl->ReleaseProgram(program);
  return NULL;
}

static nvm_status build_failed(const nvm_opencl *cl, cl_device_id device, cl_program program,
                               int32_t error) {
  char log[1500];
  size_t length = 0;
  char *whole = NULL;
  log[0] = 0;
  if (cl->GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, NULL, &length) == 0 &&
      length < (size_t)1 << 24 && (whole = nvm_malloc(length + 1)) != NULL) {
    whole[0] = whole[length] = 0;
    (void)cl->GetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, length, whole, NULL);
    snprintf(log, sizeof log, "%s", whole);
  }
  nvm_free(whole);
  NVM_FAIL(NVM_DEVICE_ERROR, "opencl: the driver can't build the file's kernels (%d): %s", error,
           log);
}

/* Keep the driver's binary of a program, if it gives one. */
static void keep(const nvm_opencl *cl, cl_program program, const place *p) {
  size_t size = 0;
  if (cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != 0 ||
      size == 0 || size > (size_t)MAX_BINARY)
    return;
  uint8_t *data = nvm_malloc(size);
  if (!data) return;
  if (cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, &data, NULL) == 0)
    write_binary(p, data, size);
  nvm_free(data);
}

nvm_status nvm_opencl_build(const nvm_opencl *cl, cl_context context, cl_device_id device,
                            const char *source, size_t size, cl_program *out_program) {
  const uint64_t exact = nvm_opencl_number(cl, device, CL_DEVICE_SINGLE_FP_CONFIG, 8) &
                         CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
  const char *options =
      exact ? "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt" : "-cl-std=CL1.2";
  place p;
  int32_t error = 0;
  const int cached =
      !has_own_cache(cl, device) && find_place(cl, device, options, source, size, &p);
  if (cached) {
    *out_program = from_binary(cl, context, device, options, p.file);
    NVM_LOG(DEBUG, "opencl: %s %s", p.file, *out_program ? "is used" : "is not there or unfit");
    if (*out_program) return NVM_OK;
  }
  cl_program program = cl->CreateProgramWithSource(context, 1, &source, &size, &error);
  if (!program) return nvm_opencl_fail(error, "a program from source");
  error = cl->BuildProgram(program, 1, &device, options, NULL, NULL);
  if (error != 0) {
    const nvm_status status = build_failed(cl, device, program, error);
    cl->ReleaseProgram(program);
    return status;
  }
  if (cached) keep(cl, program, &p);
  *out_program = program;
  return NVM_OK;
}
