/* Counts calls of the system's allocator while `counting` is set: malloc and kin, and mmap. For one
 * C file a program; needs glibc and no sanitizer (else COUNTED is 0). What moves brk shows in
 * sbrk(0). */
#ifndef NVM_COUNTING_H
#define NVM_COUNTING_H

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned long calls;
static int counting;

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTED 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
#define COUNT_CALL() (counting ? calls++ : 0)
void *malloc(size_t size) { return COUNT_CALL(), __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return COUNT_CALL(), __libc_calloc(n, size); }
void *realloc(void *memory, size_t size) { return COUNT_CALL(), __libc_realloc(memory, size); }
void *aligned_alloc(size_t alignment, size_t size) {
  return COUNT_CALL(), __libc_memalign(alignment, size);
}
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  COUNT_CALL();
  return (void *)syscall(SYS_mmap, at, size, protection, flags, file, offset);
}
#else
#define COUNTED 0
#endif

#endif
