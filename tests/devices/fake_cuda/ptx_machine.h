/* What PTX that was translated to C (ptx_to_c.py) runs on: one thread at a time, memory accesses
 * checked. */
#ifndef PTX_MACHINE_H
#define PTX_MACHINE_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Where a device address lies in this process. Outside of live memory: NULL, and the fault is on
 * record. */
typedef struct ptx_machine {
  void *(*find)(uint64_t address, size_t size);
  uint64_t low, high; /* the allocation found last, as device addresses */
  char *host;         /* of `low` */
  char *shared;
  uint64_t shared_size;
  int faulted;
} ptx_machine;

typedef struct ptx_thread {
  ptx_machine *machine;
  const uint64_t *params;
  uint32_t tid[3], ctaid[3], ntid[3], nctaid[3];
  int resume; /* the barrier that it waits at, 0 at the start, -1 when it has ended */
  void *registers;
} ptx_thread;

typedef struct ptx_kernel {
  const char *name;
  uint32_t n_params, shared_bytes, register_bytes, barriers, reqntid[3];
  void (*run)(ptx_thread *thread);
} ptx_kernel;

typedef struct ptx_module {
  uint32_t count;
  ptx_kernel kernels[];
} ptx_module;

static char ptx_nowhere[64]; /* where accesses go that have no place */

static inline void *ptx_global(ptx_thread *t, uint64_t address, size_t size) {
  ptx_machine *m = t->machine;
  if (__builtin_expect(address >= m->low && address + size <= m->high, 1))
    return m->host + (address - m->low);
  void *found = address % size ? NULL : m->find(address, size);
  if (found) return found;
  m->faulted = 1;
  return ptx_nowhere;
}

static inline void *ptx_shared(ptx_thread *t, uint64_t address, size_t size) {
  uint64_t offset = address - (uint64_t)(uintptr_t)t->machine->shared;
  if (offset <= t->machine->shared_size && size <= t->machine->shared_size - offset &&
      offset % size == 0)
    return t->machine->shared + offset;
  t->machine->faulted = 1;
  return ptx_nowhere;
}

/* Of a thread's own arrays: addresses of this process. */
static inline void *ptx_local(ptx_thread *t, uint64_t address, size_t size) {
  (void)t, (void)size;
  return (void *)(uintptr_t)address;
}

static inline uint32_t bits_f32(float x) {
  uint32_t r;
  memcpy(&r, &x, 4);
  return r;
}
static inline uint64_t bits_f64(double x) {
  uint64_t r;
  memcpy(&r, &x, 8);
  return r;
}
static inline float f32(uint64_t bits) {
  uint32_t b = (uint32_t)bits;
  float r;
  memcpy(&r, &b, 4);
  return r;
}
static inline double f64(uint64_t bits) {
  double r;
  memcpy(&r, &bits, 8);
  return r;
}
static inline float f16(uint64_t bits) {
  uint16_t b = (uint16_t)bits;
  _Float16 h;
  memcpy(&h, &b, 2);
  return (float)h;
}
static inline uint16_t bits_f16(float x) {
  _Float16 h = (_Float16)x;
  uint16_t r;
  memcpy(&r, &h, 2);
  return r;
}

/* min and max prefer a number to NaN, and -0 to +0 by sign. */
#define PTX_EXTREMES(T, suffix)                                                     \
  static inline T min_##suffix(T x, T y) {                                          \
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? x : y) : x < y ? x : y; \
  }                                                                                 \
  static inline T max_##suffix(T x, T y) {                                          \
    return x != x ? y : y != y ? x : x == y ? (signbit(x) ? y : x) : x > y ? x : y; \
  }
PTX_EXTREMES(float, f32)
PTX_EXTREMES(double, f64)

/* Float to integer: the whole number nearest to zero, saturating; NaN gives 0, except into 64 bits
 * of the high bit alone, which nothing here may rely on: it gives 0 too. */
static inline int64_t to_signed(double x, int bits) {
  const double limit = ldexp(1.0, bits - 1);
  if (x != x) return 0;
  if (x >= limit) return (int64_t)(UINT64_MAX >> (65 - bits));
  if (x < -limit) return -(int64_t)(UINT64_MAX >> (65 - bits)) - 1;
  return (int64_t)x;
}
static inline uint64_t to_unsigned(double x, int bits) {
  if (x != x || x <= 0) return 0;
  if (x >= ldexp(1.0, bits)) return UINT64_MAX >> (64 - bits);
  return (uint64_t)x;
}

static inline uint64_t ptx_shl(uint64_t x, uint32_t count, uint32_t width) {
  return count >= width ? 0 : x << count;
}
static inline uint64_t ptx_shr(uint64_t x, uint32_t count, uint32_t width) {
  return count >= width ? 0 : x >> count;
}
static inline int64_t ptx_sar(int64_t x, uint32_t count, uint32_t width) {
  return x >> (count >= width ? width - 1 : count);
}
static inline uint64_t ptx_mulhi_u64(uint64_t x, uint64_t y) {
  return (uint64_t)(((unsigned __int128)x * y) >> 64);
}
static inline int64_t ptx_mulhi_s64(int64_t x, int64_t y) {
  return (int64_t)(((__int128)x * y) >> 64);
}
/* An integer division by zero gives all ones and the dividend: GPUs do not trap. */
#define PTX_DIVIDES(T, U, suffix)                                                       \
  static inline T div_##suffix(T x, T y) {                                              \
    return y == 0 ? (T) - 1 : y == (T) - 1 && (T) - 1 < 0 ? (T)(0 - (U)x) : (T)(x / y); \
  }                                                                                     \
  static inline T rem_##suffix(T x, T y) {                                              \
    return y == 0 ? x : y == (T) - 1 && (T) - 1 < 0 ? 0 : (T)(x % y);                   \
  }
PTX_DIVIDES(int16_t, uint16_t, s16)
PTX_DIVIDES(uint16_t, uint16_t, u16)
PTX_DIVIDES(int32_t, uint32_t, s32)
PTX_DIVIDES(uint32_t, uint32_t, u32)
PTX_DIVIDES(int64_t, uint64_t, s64)
PTX_DIVIDES(uint64_t, uint64_t, u64)

static inline uint64_t ptx_bfe(uint64_t x, uint32_t start, uint32_t length, uint32_t width,
                               int is_signed) {
  start &= 255, length &= 255;
  if (length == 0) return 0;
  const uint32_t end = start + length - 1 < width - 1 ? start + length - 1 : width - 1;
  const uint64_t sign = is_signed ? x >> end & 1 : 0;
  uint64_t found = 0;
  for (uint32_t i = 0; i < width; i++)
    found |= (i < length && start + i < width ? x >> (start + i) & 1 : sign) << i;
  return found;
}
static inline uint64_t ptx_bfi(uint64_t a, uint64_t b, uint32_t start, uint32_t length,
                               uint32_t width) {
  start &= 255, length &= 255;
  for (uint32_t i = 0; i < length && start + i < width; i++)
    b = (b & ~((uint64_t)1 << (start + i))) | (a >> i & 1) << (start + i);
  return b;
}
static inline uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = (uint64_t)b << 32 | a;
  uint32_t found = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t s = selector >> (4 * i) & 15;
    uint32_t byte = (uint32_t)(bytes >> (8 * (s & 7))) & 255;
    if (s & 8) byte = byte & 128 ? 255 : 0;
    found |= byte << (8 * i);
  }
  return found;
}
static inline uint32_t ptx_clz(uint64_t x, int width) {
  return x == 0 ? (uint32_t)width : (uint32_t)(__builtin_clzll(x) - (64 - width));
}

#endif
