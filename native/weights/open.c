/* Files of weights: opened, mapped or copied, and found below a folder without leaving it. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "weights.h"

/* The file's bytes, mapped or copied. */
static nvm_status take_bytes(nvm_weights *weights, int fd, size_t size, uint32_t flags,
                             const uint8_t **out_bytes) {
  if ((flags & (NVM_LOAD_COPY | NVM_LOAD_VERIFY_FULL)) == 0) {
    void *mapping = NVM_SYSTEM(mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0), MAP_FAILED);
    if (mapping == MAP_FAILED) {
      return nvm_fail(NVM_FILE_ERROR, "mapping failed: %s", strerror(errno));
    }
    weights->mapping = mapping;
    weights->mapping_size = size;
    *out_bytes = mapping;
    return NVM_OK;
  }
  void *copy = NULL;
  NVM_TRY(nvm_arena_alloc(weights->arena, size, 64, &copy));
  for (size_t done = 0; done < size;) {
    ssize_t got = pread(fd, (char *)copy + done, size - done, (off_t)done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return nvm_fail(NVM_FILE_ERROR, "reading failed: %s", strerror(errno));
    if (got == 0) {
      return nvm_fail(NVM_INVALID_WEIGHTS, "the file became shorter while it was read");
    }
    done += (size_t)got;
  }
  *out_bytes = copy;
  return NVM_OK;
}

static nvm_status read_file(nvm_weights *weights, int fd, uint32_t flags) {
  struct stat info;
  if (fstat(fd, &info) != 0) return nvm_fail(NVM_FILE_ERROR, "%s", strerror(errno));
  if (!S_ISREG(info.st_mode)) return nvm_fail(NVM_FILE_ERROR, "expected a regular file");
  size_t size = (size_t)info.st_size;
  const uint8_t *bytes = NULL;
  if (size < 8) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "no safetensors file: expected 8 bytes, it has %zu", size);
  }
  NVM_TRY(take_bytes(weights, fd, size, flags, &bytes));
  return nvm_safetensors_read(weights, bytes, size);
}

NVM_EXPORT nvm_status nvm_weights_read(int32_t fd, const char *name, uint32_t flags,
                                       nvm_weights **out_weights) {
  nvm_weights *weights = NULL;
  *out_weights = NULL;
  nvm_status status = nvm_weights_create(&weights);
  if (status == NVM_OK) status = read_file(weights, fd, flags);
  if (status != NVM_OK) {
    char text[1024];
    snprintf(text, sizeof text, "%s", nvm_last_error()->message);
    nvm_weights_release(weights);
    return nvm_fail(status, "%s: %s", name, text);
  }
  *out_weights = weights;
  return nvm_ok();
}

NVM_EXPORT nvm_status nvm_weights_open(const char *path, uint32_t flags,
                                       nvm_weights **out_weights) {
  *out_weights = NULL;
  int fd = NVM_SYSTEM(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), -1);
  if (fd < 0) return nvm_fail(NVM_FILE_ERROR, "%s: %s", path, strerror(errno));
  nvm_status status = nvm_weights_read(fd, path, flags, out_weights);
  close(fd);
  return status;
}

/* Open file by its components, none of which may be "..", empty or a symbolic link. -1: errno. */
static int open_below(int folder, const char *file) {
  int at = fcntl(folder, F_DUPFD_CLOEXEC, 0);
  for (const char *rest = file; at >= 0;) {
    char name[256];
    size_t length = strcspn(rest, "/");
    int last = rest[length] == 0;
    int wrong = length == 0 || length >= sizeof name ||
                (rest[0] == '.' && (length == 1 || (length == 2 && rest[1] == '.')));
    if (!wrong) {
      memcpy(name, rest, length);
      name[length] = 0;
    }
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | (last ? O_NONBLOCK : O_DIRECTORY);
    int next = wrong ? -1 : openat(at, name, flags);
    int error = wrong ? EACCES : errno;
    close(at);
    errno = error;
    if (next < 0 || last) return next;
    at = next;
    rest += length + 1;
  }
  return -1;
}

NVM_EXPORT nvm_status nvm_open_below(const char *folder, const char *file, int32_t *out_fd) {
  *out_fd = -1;
  int at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return nvm_fail(NVM_FILE_ERROR, "%s: %s", folder, strerror(errno));
  int fd = open_below(at, file);
  int error = errno;
  close(at);
  if (fd < 0 && (error == EACCES || error == ELOOP || error == ENOTDIR || error == EMLINK)) {
    return nvm_fail(NVM_FILE_ERROR,
                    "%s: refused: it leaves the folder %s, or a part of it is a symbolic link, no "
                    "folder, or may not be read",
                    file, folder);
  }
  if (fd < 0) return nvm_fail(NVM_FILE_ERROR, "%s/%s: %s", folder, file, strerror(error));
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return nvm_fail(NVM_FILE_ERROR, "%s/%s: expected a regular file", folder, file);
  }
  *out_fd = fd;
  return nvm_ok();
}
