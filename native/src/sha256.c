#include "sha256.h"

#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

static const uint32_t round_constants[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u,
    0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu,
    0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu,
    0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau, 0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u,
    0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu,
    0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu,
    0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u, 0x19a4c116u,
    0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u,
    0xc67178f2u};

static uint32_t rotate(uint32_t x, uint32_t n) { return x >> n | x << (32 - n); }

static void block(uint32_t h[8], const uint8_t *p) {
  uint32_t w[64];
  for (int i = 0; i < 16; i++) {
    w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 |
           p[4 * i + 3];
  }
  for (int i = 16; i < 64; i++) {
    uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
    uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4], f = h[5], g = h[6], k = h[7];
  for (int i = 0; i < 64; i++) {
    uint32_t t1 = k + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) +
                  round_constants[i] + w[i];
    uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    k = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  h[0] += a, h[1] += b, h[2] += c, h[3] += d, h[4] += e, h[5] += f, h[6] += g, h[7] += k;
}

static void blocks_plain(uint32_t h[8], const uint8_t *data, size_t count) {
  for (size_t i = 0; i < count; i++) block(h, data + 64 * i);
}

#if defined(__x86_64__)
/* The same with the CPU's instructions for it, six times faster. */
__attribute__((target("sha,sse4.1,ssse3"))) static void blocks_sha(uint32_t h[8],
                                                                   const uint8_t *data,
                                                                   size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const __m128i *k = (const __m128i *)(const void *)round_constants;
  __m128i dcba = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)h), 0xb1);
  __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(const void *)(h + 4)), 0x1b);
  __m128i abef = _mm_alignr_epi8(dcba, hgfe, 8), cdgh = _mm_blend_epi16(hgfe, dcba, 0xf0);
  for (; count > 0; count--, data += 64) {
    const __m128i abef_before = abef, cdgh_before = cdgh;
    __m128i w[4];
    for (int g = 0; g < 16; g++) { /* four rounds */
      __m128i *now = &w[g & 3];
      const __m128i last = w[(g + 3) & 3];
      if (g < 4) {
        const __m128i *at = (const __m128i *)(const void *)(data + 16 * g);
        *now = _mm_shuffle_epi8(_mm_loadu_si128(at), swap);
      } else {
        const __m128i near = _mm_alignr_epi8(last, w[(g + 2) & 3], 4);
        const __m128i far = _mm_sha256msg1_epu32(*now, w[(g + 1) & 3]);
        *now = _mm_sha256msg2_epu32(_mm_add_epi32(far, near), last);
      }
      const __m128i wk = _mm_add_epi32(*now, _mm_loadu_si128(k + g));
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, wk);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(wk, 0x0e));
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128((__m128i *)(void *)h, _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128((__m128i *)(void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* Asked once: CPUID takes microseconds in a virtual machine. */
static int has_sha(void) {
  static atomic_int known; /* 0 not asked, 1 no, 2 yes */
  int found = atomic_load_explicit(&known, memory_order_relaxed);
  if (found == 0) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    /* CPUID itself: __builtin_cpu_supports links 5 KB of libgcc */
    found = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1u) != 0 ? 2 : 1;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c >> 9 & 1u) == 0 || (c >> 19 & 1u) == 0) found = 1;
    atomic_store_explicit(&known, found, memory_order_relaxed);
  }
  return found == 2;
}

static void blocks(uint32_t h[8], const uint8_t *data, size_t count) {
  if (has_sha()) {
    blocks_sha(h, data, count);
  } else {
    blocks_plain(h, data, count);
  }
}
#else
static void blocks(uint32_t h[8], const uint8_t *data, size_t count) {
  blocks_plain(h, data, count);
}
#endif

void nvm_sha256(const void *data, size_t size, uint8_t out_digest[32]) {
  uint32_t h[8] = {0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                   0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  const uint8_t *p = data;
  size_t whole = size / 64;
  blocks(h, p, whole);
  uint8_t tail[128] = {0};
  size_t rest = size % 64, tail_size = rest < 56 ? 64 : 128;
  if (rest > 0) memcpy(tail, p + 64 * whole, rest);
  tail[rest] = 0x80;
  uint64_t bits = (uint64_t)size * 8;
  for (size_t i = 0; i < 8; i++) tail[tail_size - 1 - i] = (uint8_t)(bits >> (8 * i));
  blocks(h, tail, tail_size / 64);
  for (size_t i = 0; i < 8; i++) {
    for (size_t k = 0; k < 4; k++) out_digest[4 * i + k] = (uint8_t)(h[i] >> (24 - 8 * k));
  }
}
