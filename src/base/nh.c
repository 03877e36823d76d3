/* SPDX-License-Identifier: Apache-2.0 */
/* nh.c -- implements nh.h, the universal hash NH (UMAC, CRYPTO 1999). With AVX2, it multiplies four
 * pairs of words at a time. Other processors run a plain loop that follows the definition. */
#include "base/nh.h"

#include "base/base.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { GROUP = 32 }; /* bytes of a vector; data are padded to a multiple of this size */

void cgp__nh_key_fill(cgp__nh_key *key) {
    const uint32_t words = sizeof key->words / sizeof key->words[0];
    for (uint32_t i = 0; 4 * i < words; i++)
        cgp__philox(&key->words[4 * i], (const uint32_t[4]){i, 0, 0, 0}, (cgp__rng_key){0x4E48, 0});
}

/* Function type: add the products of all pairs in `bytes` bytes, a multiple of GROUP, to the
 * sums. */
typedef void add_pairs(const uint32_t *key, const unsigned char *data, size_t bytes,
                       uint64_t sums[CGP__NH_PASSES]);

static void add_plain(const uint32_t *key, const unsigned char *data, size_t bytes,
                      uint64_t sums[CGP__NH_PASSES]) {
    for (size_t at = 0; at < bytes; at += 8, key += 2) {
        uint32_t m[2];
        memcpy(m, data + at, sizeof m);
        for (int p = 0; p < CGP__NH_PASSES; p++) {
            const uint32_t *k = key + CGP__NH_SHIFT * p;
            sums[p] += (uint64_t)(uint32_t)(m[0] + k[0]) * (uint32_t)(m[1] + k[1]);
        }
    }
}

#if defined(__x86_64__)
/* Distance, in bytes, between a read and the prefetch ahead of it. (The processor's own prefetch
 * stops at the end of a page.) */
#define AHEAD 1536

/* Add the products of four pairs to the lanes of a sum. */
__attribute__((target("avx2"))) static inline __m256i add_products(__m256i sum, __m256i m,
                                                                   const uint32_t *key) {
    const __m256i v = _mm256_add_epi32(m, _mm256_loadu_si256((const __m256i *)(const void *)key));
    return _mm256_add_epi64(sum, _mm256_mul_epu32(v, _mm256_srli_epi64(v, 32)));
}

__attribute__((target("avx2"))) static uint64_t add_lanes(__m256i sum) {
    uint64_t lanes[4];
    _mm256_storeu_si256((__m256i *)(void *)lanes, sum);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}

__attribute__((target("avx2"))) static void add_avx2(const uint32_t *key, const unsigned char *data,
                                                     size_t bytes, uint64_t sums[CGP__NH_PASSES]) {
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0;
    for (size_t at = 0; at < bytes; at += GROUP, key += GROUP / 4) {
        const __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(data + at));
        __builtin_prefetch(data + at + AHEAD);
        s0 = add_products(s0, m, key);
        s1 = add_products(s1, m, key + CGP__NH_SHIFT);
        s2 = add_products(s2, m, key + 2 * CGP__NH_SHIFT);
        s3 = add_products(s3, m, key + 3 * CGP__NH_SHIFT);
    }
    sums[0] += add_lanes(s0);
    sums[1] += add_lanes(s1);
    sums[2] += add_lanes(s2);
    sums[3] += add_lanes(s3);
}
#endif

static add_pairs *fastest(void) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return add_avx2;
#endif
    return add_plain;
}

void cgp__nh(const cgp__nh_key *key, const void *data, size_t bytes, uint64_t out[CGP__NH_PASSES]) {
    const size_t whole = bytes / GROUP * GROUP, rest = bytes - whole;
    memset(out, 0, CGP__NH_PASSES * sizeof *out);
    fastest()(key->words, data, whole, out);
    if (rest == 0) return;
    unsigned char last[GROUP] = {0};
    memcpy(last, (const unsigned char *)data + whole, rest);
    add_plain(key->words + whole / 4, last, GROUP, out);
}
