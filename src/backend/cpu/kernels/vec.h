/* SPDX-License-Identifier: Apache-2.0 */
/* vec.h -- vectors of LANES floats, the widest of the instruction set: 16 (v4), 8 (v3) or 4 (v1,
 * which is x86-64 without AVX2, and neon).
 *
 * Vectors are explicit, because a loop that the compiler vectorises ends in scalar code, and scalar
 * and vector functions round differently. Here the tail of a loop is loaded into a zeroed vector
 * and runs through the same vector code. A product and a sum are contracted to an FMA only in
 * multiply_add(); v1 has no FMA, so multiply_add() rounds twice in v1. */
#ifndef CGP_SRC_CPU_VEC_H
#define CGP_SRC_CPU_VEC_H

#ifdef __aarch64__
#include <arm_neon.h>
#else
#include <immintrin.h>
#endif
#include <string.h>

#include "backend/cpu/kernels.h"

#if defined CGP_ISA_v4
#define LANES 16
#elif defined CGP_ISA_v3
#define LANES 8
#else
#define LANES 4
#endif

/* Number of rows of the GEMM's micro-tile. With 3 vectors of columns, the micro-tile fills the
 * vector registers, of which there are 32 (v4 and neon) or 16 (v3 and v1). */
#ifdef CGP_ISA_neon
#define MICRO_ROWS 8
#elif LANES == 4
#define MICRO_ROWS 4
#else
#define MICRO_ROWS (LANES / 2)
#endif
#define MICRO_COLUMNS (3 * LANES)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float halfvec __attribute__((vector_size(2 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES))); /* also serves as a mask, in which
                                                               * each lane is 0 or -1 */
typedef uint32_t uvec __attribute__((vector_size(4 * LANES)));
typedef uint64_t wvec __attribute__((vector_size(4 * LANES))); /* LANES / 2 lanes of 64 bits */

#define INLINE static inline __attribute__((always_inline))

#ifdef CGP_ISA_v4
#define IOTA                                                                                       \
    { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 }
#define ROTATE(x, by)                                                                              \
    __builtin_shufflevector(x, x, (0 + by) % 16, (1 + by) % 16, (2 + by) % 16, (3 + by) % 16,      \
                            (4 + by) % 16, (5 + by) % 16, (6 + by) % 16, (7 + by) % 16,            \
                            (8 + by) % 16, (9 + by) % 16, (10 + by) % 16, (11 + by) % 16,          \
                            (12 + by) % 16, (13 + by) % 16, (14 + by) % 16, (15 + by) % 16)
#define LOW_HALF(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define HIGH_HALF(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#define WIDE_IOTA                                                                                  \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#define WIDE_LOW(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define WIDE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#elif LANES == 8
#define IOTA                                                                                       \
    { 0, 1, 2, 3, 4, 5, 6, 7 }
#define ROTATE(x, by)                                                                              \
    __builtin_shufflevector(x, x, (0 + by) % 8, (1 + by) % 8, (2 + by) % 8, (3 + by) % 8,          \
                            (4 + by) % 8, (5 + by) % 8, (6 + by) % 8, (7 + by) % 8)
#define LOW_HALF(x) __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define HIGH_HALF(x) __builtin_shufflevector(x, x, 4, 5, 6, 7)
#define WIDE_IOTA                                                                                  \
    { 0, 1, 2, 3 }
#define WIDE_LOW(a, b) __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define WIDE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#else
#define IOTA                                                                                       \
    { 0, 1, 2, 3 }
#define ROTATE(x, by)                                                                              \
    __builtin_shufflevector(x, x, (0 + by) % 4, (1 + by) % 4, (2 + by) % 4, (3 + by) % 4)
#define LOW_HALF(x) __builtin_shufflevector(x, x, 0, 1)
#define HIGH_HALF(x) __builtin_shufflevector(x, x, 2, 3)
#define WIDE_IOTA                                                                                  \
    { 0, 1 }
#define WIDE_LOW(a, b) __builtin_shufflevector(a, b, 0, 2)
#define WIDE_HIGH(a, b) __builtin_shufflevector(a, b, 1, 3)
#endif

/* --- memory, at any address of a float --- */

INLINE vec load(const float *from) {
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

INLINE void store(float *to, vec x) {
    memcpy(to, &x, sizeof x);
}

/* Load the first n <= LANES lanes; the others are 0. Masked loads are used instead of memcpy, which
 * may become a call that spills all vectors of the surrounding loop. */
INLINE vec load_part(const float *from, int64_t n) {
#ifdef CGP_ISA_v4
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), from);
#elif LANES == 8
    const ivec iota = IOTA, mask = iota < (int32_t)n;
    return (vec)_mm256_maskload_ps(from, (__m256i)mask);
#else
    if (n >= LANES) return load(from);
    return (vec){n > 0 ? from[0] : 0.0f, n > 1 ? from[1] : 0.0f, n > 2 ? from[2] : 0.0f, 0.0f};
#endif
}

INLINE void store_part(float *to, vec x, int64_t n) {
#ifdef CGP_ISA_v4
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)x);
#elif LANES == 8
    const ivec iota = IOTA, mask = iota < (int32_t)n;
    _mm256_maskstore_ps(to, (__m256i)mask, (__m256)x);
#else
    if (n > 0) to[0] = x[0];
    if (n > 1) to[1] = x[1];
    if (n > 2) to[2] = x[2];
    if (n > 3) to[3] = x[3];
#endif
}

/* --- memory that is f32 or bf16, starting at element i; arithmetic is f32 either way --- */

typedef uint16_t hvec __attribute__((vector_size(2 * LANES)));

INLINE vec widen(hvec x) {
#ifdef CGP_ISA_v4
    return (vec)((uvec)_mm512_cvtepu16_epi32((__m256i)x) << 16);
#elif LANES == 8
    return (vec)((uvec)_mm256_cvtepu16_epi32((__m128i)x) << 16);
#else
    return (vec)(__builtin_convertvector(x, uvec) << 16);
#endif
}

/* Return the low half of each lane. */
INLINE hvec low_halves(uvec x) {
#ifdef CGP_ISA_v4
    return (hvec)_mm512_cvtepi32_epi16((__m512i)x);
#elif LANES == 4
    return __builtin_convertvector(x, hvec);
#else
    const __m256i packed = _mm256_packus_epi32((__m256i)x, (__m256i)x); /* packs within each 128-bit
                                                                         * half */
    return (hvec)_mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 8));
#endif
}

/* Apply cgp__bf16_from_float() to each lane. It uses integer arithmetic, so every instruction set
 * gives the same bits. */
INLINE hvec narrow(vec x) {
    /* NOLINTNEXTLINE(misc-redundant-expression): x != x if x is NaN */
    const uvec bits = (uvec)x, nan = (uvec)(ivec)(x != x);
    const uvec rounded = bits + 0x7FFFu + (bits >> 16 & 1u);
    return low_halves(((nan & (bits | 0x400000u)) | (~nan & rounded)) >> 16);
}

/* Load the first n <= LANES bf16 elements. Only AVX-512 has masked loads of 16-bit elements. */
INLINE hvec load_part_bf16(const uint16_t *from, int64_t n) {
#ifdef CGP_ISA_v4
    return (hvec)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1), from);
#else
    hvec x = {0};
    for (int64_t i = 0; i < n; i++)
        x[i] = from[i];
    return x;
#endif
}

INLINE void store_part_bf16(uint16_t *to, hvec x, int64_t n) {
#ifdef CGP_ISA_v4
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << n) - 1), (__m256i)x);
#else
    for (int64_t i = 0; i < n; i++)
        to[i] = x[i];
#endif
}

INLINE vec load_as(cgp_dtype type, const void *from, int64_t i) {
    if (type == CGP_F32) return load((const float *)from + i);
    hvec x;
    memcpy(&x, (const uint16_t *)from + i, sizeof x);
    return widen(x);
}

INLINE void store_as(cgp_dtype type, void *to, int64_t i, vec x) {
    if (type == CGP_F32) {
        store((float *)to + i, x);
        return;
    }
    const hvec half = narrow(x);
    memcpy((uint16_t *)to + i, &half, sizeof half);
}

INLINE vec load_part_as(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    if (type == CGP_F32) return load_part((const float *)from + i, n);
    return widen(load_part_bf16((const uint16_t *)from + i, n));
}

INLINE void store_part_as(cgp_dtype type, void *to, int64_t i, vec x, int64_t n) {
    if (type == CGP_F32) {
        store_part((float *)to + i, x, n);
        return;
    }
    store_part_bf16((uint16_t *)to + i, narrow(x), n);
}

/* Load a vector that starts at element i. Only `left` elements exist; the others are zeros. */
INLINE vec load_left(cgp_dtype type, const void *from, int64_t i, int64_t left) {
    if (left >= LANES) return load_as(type, from, i);
    return left > 0 ? load_part_as(type, from, i, left) : (vec){0};
}

INLINE void store_left(cgp_dtype type, void *to, int64_t i, vec x, int64_t left, bool add) {
    if (add) x = load_left(type, to, i, left) + x;
    if (left >= LANES)
        store_as(type, to, i, x);
    else if (left > 0)
        store_part_as(type, to, i, x, left);
}

/* Call an INLINE function with a constant type as its first argument, so that each type has its own
 * loops. */
#define FOR_TYPE(type, function, ...)                                                              \
    ((type) == CGP_BF16 ? function(CGP_BF16, __VA_ARGS__) : function(CGP_F32, __VA_ARGS__))

/* Like FOR_TYPE, but with a separate function for each type. In one function, the constants of both
 * types would compete for registers. TYPED defines the functions, and CALL_TYPED calls one of
 * them. */
#define TYPED(name, parameters, ...)                                                               \
    static __attribute__((noinline)) void name##_f32 parameters {                                  \
        name(CGP_F32, __VA_ARGS__);                                                                \
    }                                                                                              \
    static __attribute__((noinline)) void name##_bf16 parameters {                                 \
        name(CGP_BF16, __VA_ARGS__);                                                               \
    }
#define CALL_TYPED(type, name, ...)                                                                \
    ((type) == CGP_BF16 ? name##_bf16(__VA_ARGS__) : name##_f32(__VA_ARGS__))

/* --- lanes --- */

INLINE vec splat(float x) {
    return x - (vec){0};
}

/* Return a mask of the lanes i < n. */
INLINE ivec lanes_below(int64_t n) {
    const ivec iota = IOTA;
    return iota < (int32_t)(n < LANES ? n : LANES);
}

/* Return x where the mask is set, 0 elsewhere. */
INLINE vec keep(ivec mask, vec x) {
    return (vec)(mask & (ivec)x);
}

INLINE vec pick(ivec mask, vec x, vec otherwise) {
    return (vec)((mask & (ivec)x) | (~mask & (ivec)otherwise));
}

INLINE vec larger(vec a, vec b) {
    return pick(a > b, a, b);
}

INLINE vec square_root(vec x) {
#ifdef CGP_ISA_v4
    return (vec)_mm512_sqrt_ps((__m512)x);
#elif LANES == 8
    return (vec)_mm256_sqrt_ps((__m256)x);
#elif defined CGP_ISA_neon
    return (vec)vsqrtq_f32((float32x4_t)x);
#else
    return (vec)_mm_sqrt_ps((__m128)x);
#endif
}

/* Return the 64-bit products of the low halves. */
INLINE wvec multiply_wide(wvec a, wvec b) {
#ifdef CGP_ISA_v4
    return (wvec)_mm512_mul_epu32((__m512i)a, (__m512i)b);
#elif LANES == 8
    return (wvec)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined CGP_ISA_neon
    return (wvec)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b));
#else
    return (wvec)_mm_mul_epu32((__m128i)a, (__m128i)b);
#endif
}

/* Return a b + c, rounded once (v1 rounds twice). */
INLINE vec multiply_add(vec a, vec b, vec c) {
#ifdef CGP_ISA_v4
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined CGP_ISA_neon
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* Return the sum, or the maximum, of all lanes. Upper lanes are combined with lower lanes in an
 * order that is the same for every compiler. */
INLINE float sum_lanes(vec x) {
#ifdef CGP_ISA_v4
    x += ROTATE(x, 8);
#endif
#if LANES > 4
    x += ROTATE(x, 4);
#endif
    x += ROTATE(x, 2);
    x += ROTATE(x, 1);
    return x[0];
}

INLINE float max_lanes(vec x) {
#ifdef CGP_ISA_v4
    x = larger(ROTATE(x, 8), x);
#endif
#if LANES > 4
    x = larger(ROTATE(x, 4), x);
#endif
    x = larger(ROTATE(x, 2), x);
    x = larger(ROTATE(x, 1), x);
    return x[0];
}

/* --- functions --- */

/* For -87 <= x <= 88, return exp(r) - 1 and set *scale to 2^n. Range reduction by Cody and Waite
 * (1980):
 *
 *     exp(x) = 2^n exp(r)      n = round(x / ln 2)      r = x - n ln 2, |r| <= ln 2 / 2
 *     exp(r) = 1 + r + r^2 P(r)      P interpolates at Chebyshev points
 *
 * The addition of 1.5 2^23 rounds n and leaves n in the low bits of the sum. The addition of 127
 * turns these bits into the exponent of 2^n. */
INLINE vec exp_parts(vec x, vec *scale) {
    const vec shift = splat(0x1.8p23f + 127.0f);
    const vec shifted = multiply_add(x, splat(0x1.715476p0f), shift);
    const vec n = shifted - shift;
    vec r = multiply_add(n, splat(-0x1.62e400p-1f), x); /* ln 2 in two parts */
    r = multiply_add(n, splat(-0x1.7f7d1cp-20f), r);
    vec p = splat(0x1.6d444ep-10f);
    p = multiply_add(p, r, splat(0x1.120c68p-7f));
    p = multiply_add(p, r, splat(0x1.5554e8p-5f));
    p = multiply_add(p, r, splat(0x1.5554dcp-3f));
    p = multiply_add(p, r, splat(0.5f));
    *scale = (vec)((ivec)shifted << 23);
    return multiply_add(p, r * r, r);
}

/* Return exp(x) for x <= 88; 0 below -87, where the result would be denormal. NaN stays NaN. The
 * error is about 1 unit in the last place. */
INLINE vec exp_or_zero(vec x) {
    vec scale;
    const vec p = exp_parts(x, &scale) + 1.0f;
    return keep(~(x < -87.0f), p * scale);
}

/* Return exp(-|x|), which cannot overflow. */
INLINE vec exp_of_minus_abs(vec x) {
    return exp_or_zero(pick(x < 0.0f, x, -x));
}

/* Return log(1 + e) for 0 <= e <= 1:
 *
 *     log(1 + e) = 2 artanh(q) = 2 (q + q^3 / 3 + q^5 / 5 + ...)      q = e / (2 + e) <= 1 / 3
 *
 * The omitted terms are below 2e-8 of the result. */
INLINE vec log_one_plus(vec e) {
    const vec q = e / (2.0f + e), z = q * q;
    vec sum = splat(1.0f / 13.0f);
    sum = multiply_add(sum, z, splat(1.0f / 11.0f));
    sum = multiply_add(sum, z, splat(1.0f / 9.0f));
    sum = multiply_add(sum, z, splat(1.0f / 7.0f));
    sum = multiply_add(sum, z, splat(1.0f / 5.0f));
    sum = multiply_add(sum, z, splat(1.0f / 3.0f));
    sum = multiply_add(sum, z, splat(1.0f));
    return 2.0f * q * sum;
}

/* Return erf(x). For |x| < L = 3.84, erf(x) = x Q(s) with s = 2 (x / L)^2 - 1. For larger |x|,
 * erf(x) rounds to 1 or -1. Q interpolates erf(x) / x at Chebyshev points; the absolute error is
 * below 2e-7. */
INLINE vec erf_vec(vec x) {
    static const float q[] = {
        0x1.7913c4p-2f,  -0x1.7859f6p-3f,  0x1.179714p-3f,  -0x1.c4d5bcp-4f,
        0x1.73e814p-4f,  -0x1.2afb4cp-4f,  0x1.cdb2e2p-5f,  -0x1.4fd6a6p-5f,
        0x1.bfc798p-6f,  -0x1.1f239ep-6f,  0x1.867a48p-7f,  -0x1.af0e68p-8f,
        0x1.ca4068p-10f, -0x1.ea139ep-11f, 0x1.8602dcp-10f, -0x1.4c0ba4p-11f,
    };
    const vec s = multiply_add(x * x, splat(2.0f / (3.84f * 3.84f)), splat(-1.0f));
    vec sum = splat(q[15]);
#pragma GCC unroll 15
    for (int i = 14; i >= 0; i--)
        sum = multiply_add(sum, s, splat(q[i]));
    const ivec sign = (ivec)x & INT32_MIN, magnitude = (ivec)x & INT32_MAX;
    return pick((vec)magnitude >= 3.84f, (vec)(sign | (ivec)splat(1.0f)), x * sum);
}

#endif
