#include "weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "alloc.h"
#include "generated/nvm_dtype.h"
#include "nvm_kernel.h"

/* --- sets ------------------------------------------------------------------------------------- */

NVM_EXPORT nvm_status nvm_weights_create(nvm_weights **out_weights) {
  *out_weights = NULL;
  nvm_weights *weights = nvm_calloc(sizeof *weights);
  if (weights == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for weights");
  atomic_init(&weights->refcount, 1);
  nvm_status status = nvm_arena_create(&weights->arena);
  if (status != NVM_OK) {
    nvm_free(weights);
    return status;
  }
  *out_weights = weights;
  return nvm_ok();
}

NVM_EXPORT void nvm_weights_retain(nvm_weights *weights) {
  atomic_fetch_add_explicit(&weights->refcount, 1, memory_order_relaxed);
}

NVM_EXPORT void nvm_weights_release(nvm_weights *weights) {
  if (weights == NULL) return;
  if (atomic_fetch_sub_explicit(&weights->refcount, 1, memory_order_acq_rel) != 1) return;
  if (weights->mapping != NULL) munmap(weights->mapping, weights->mapping_size);
  nvm_arena_destroy(weights->arena);
  nvm_free(weights->entries);
  nvm_free(weights);
}

nvm_status nvm_weights_new(nvm_weights *weights, nvm_weight_entry **out_entry) {
  if (weights->count == weights->room) {
    uint32_t room = weights->room < 16 ? 16 : 2 * weights->room;
    nvm_weight_entry *grown = NULL;
    if (room > weights->room) grown = nvm_realloc(weights->entries, room * sizeof *grown);
    if (grown == NULL) return nvm_fail(NVM_OUT_OF_MEMORY, "no memory for %u weights", room);
    weights->entries = grown;
    weights->room = room;
  }
  *out_entry = &weights->entries[weights->count++];
  **out_entry = (nvm_weight_entry){.name = "", .dtype_name = ""};
  return NVM_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const nvm_weight_entry *)a)->name, ((const nvm_weight_entry *)b)->name);
}

void nvm_weights_sort(nvm_weights *weights) {
  if (weights->count > 0) {
    qsort(weights->entries, weights->count, sizeof *weights->entries, by_name);
  }
}

const nvm_weight_entry *nvm_weights_find(const nvm_weights *weights, const char *name) {
  const nvm_weight_entry wanted = {.name = name};
  if (weights->count == 0) return NULL;
  return bsearch(&wanted, weights->entries, weights->count, sizeof wanted, by_name);
}

NVM_EXPORT nvm_status nvm_weights_add(nvm_weights *weights, const char *name, int32_t dtype,
                                      uint32_t rank, const int64_t *dims, const void *data,
                                      uint32_t flags) {
  if (dtype < 0 || (uint32_t)dtype >= NVM_DTYPE_COUNT || rank > NVM_MAX_RANK) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s: dtype number %d, rank %u: there is none such",
                    name, dtype, rank);
  }
  if (nvm_weights_find(weights, name) != NULL) {
    return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s occurs twice", name);
  }
  int64_t bytes = nvm_dtypes[dtype].itemsize;
  int overflow = 0;
  for (uint32_t i = 0; i < rank; i++) {
    overflow |= dims[i] < 0 || __builtin_mul_overflow(bytes, dims[i], &bytes);
  }
  if (overflow) return nvm_fail(NVM_INVALID_WEIGHTS, "weight %s: impossible dims", name);
  void *own_dims = NULL;
  const char *own_name = NULL;
  nvm_weight_entry *entry = NULL;
  NVM_TRY(nvm_arena_array(weights->arena, rank, sizeof(int64_t), &own_dims));
  NVM_TRY(nvm_arena_string(weights->arena, name, strlen(name), &own_name));
  NVM_TRY(nvm_weights_new(weights, &entry));
  if (rank > 0) memcpy(own_dims, dims, rank * sizeof(int64_t));
  for (; entry > weights->entries && strcmp(entry[-1].name, name) > 0; entry--) *entry = entry[-1];
  *entry = (nvm_weight_entry){.name = own_name,
                              .dtype = dtype,
                              .dtype_name = nvm_dtypes[dtype].name,
                              .rank = rank,
                              .dims = own_dims,
                              .data = data,
                              .size = (size_t)bytes,
                              .stays = (flags & NVM_LOAD_BORROW) != 0};
  return nvm_ok();
}

NVM_EXPORT void nvm_weights_set_limit(nvm_weights *weights, uint64_t max_bytes) {
  weights->max_bytes = max_bytes;
}

NVM_EXPORT uint32_t nvm_weights_count(const nvm_weights *weights) { return weights->count; }

NVM_EXPORT nvm_status nvm_weights_get(const nvm_weights *weights, uint32_t index,
                                      nvm_weight_info *out_info) {
  if (index >= weights->count) {
    return nvm_fail(NVM_INVALID_INPUT, "there is no weight %u of %u", index, weights->count);
  }
  const nvm_weight_entry *entry = &weights->entries[index];
  *out_info = (nvm_weight_info){.name = entry->name,
                                .dtype = entry->dtype,
                                .dtype_name = entry->dtype_name,
                                .rank = entry->rank,
                                .dims = entry->dims,
                                .data = entry->data,
                                .size = entry->size};
  return nvm_ok();
}

/* --- files ------------------------------------------------------------------------------------ */

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
