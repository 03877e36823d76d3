/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c -- rotary position embedding (RoPE, Su et al. 2021, arXiv:2104.09864), which rotates
 * each pair (a, b) of columns by an angle.
 *
 *     y_a = a cos - b sin      y_b = b cos + a sin
 *
 * Cosines and sines are computed again for each row. A table would be slower, because it would
 * occupy space in the cache. The cosines and sines of a row serve all heads of all samples. They
 * are computed in double with IEEE operations, and rounded once:
 *
 *     n = round(angle 2 / pi)      r = angle - n pi / 2, |r| <= pi / 4, in two parts of pi / 2
 *     sin r = r + r^3 S(r^2)       cos r = 1 - r^2 / 2 + r^4 C(r^2)       Taylor, error < 3e-14
 *
 * n mod 4 determines which of the two series is the cosine, which is the sine, and their signs. For
 * -angle, the cosine is bit-identical to the cosine of angle, and the sine is the exact negative of
 * the sine of angle. */
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/operands.h"

typedef double dvec __attribute__((vector_size(4 * LANES))); /* LANES / 2 lanes */

#if LANES == 16
#define SWAP_PAIRS(x)                                                                              \
    __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14)
#define TWICE(x) __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
#define ODD                                                                                        \
    { 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1, 0, -1 }
#elif LANES == 8
#define SWAP_PAIRS(x) __builtin_shufflevector(x, x, 1, 0, 3, 2, 5, 4, 7, 6)
#define TWICE(x) __builtin_shufflevector(x, x, 0, 0, 1, 1, 2, 2, 3, 3)
#define ODD                                                                                        \
    { 0, -1, 0, -1, 0, -1, 0, -1 }
#else
#define SWAP_PAIRS(x) __builtin_shufflevector(x, x, 1, 0, 3, 2)
#define TWICE(x) __builtin_shufflevector(x, x, 0, 0, 1, 1)
#define ODD                                                                                        \
    { 0, -1, 0, -1 }
#endif

/* --- angles --- */

INLINE dvec multiply_add_double(dvec a, dvec b, dvec c) {
#ifdef CGP_ISA_v4
    return (dvec)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif LANES == 8
    return (dvec)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined CGP_ISA_neon
    return (dvec)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

INLINE dvec splat_double(double x) {
    return x - (dvec){0};
}

/* Return c[0] + z c[1] + ... */
INLINE dvec polynomial(dvec z, const double c[6]) {
    dvec sum = splat_double(c[5]);
#pragma GCC unroll 5
    for (int i = 4; i >= 0; i--)
        sum = multiply_add_double(sum, z, splat_double(c[i]));
    return sum;
}

INLINE dvec pick_double(wvec mask, dvec x, dvec otherwise) {
    return (dvec)((mask & (wvec)x) | (~mask & (wvec)otherwise));
}

/* Return x or, if bit 1 of n is set, -x. */
INLINE dvec signed_by(wvec n, dvec x) {
    return (dvec)((wvec)x ^ (n & 2) << 62);
}

INLINE void angle_of(halfvec *cosines, halfvec *sines, halfvec angle) {
    static const double s[] = {-1.0 / 6,     1.0 / 120,       -1.0 / 5040,
                               1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800},
                        c[] = {1.0 / 24,       -1.0 / 720,      1.0 / 40320,
                               -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200};
    const dvec x = __builtin_convertvector(angle, dvec);
    const dvec shifted =
        multiply_add_double(x, splat_double(0x1.45f306dc9c883p-1), splat_double(0x1.8p52));
    const dvec whole = shifted - 0x1.8p52;
    const wvec n = (wvec)shifted, odd = -(n & 1);
    dvec r = multiply_add_double(whole, splat_double(-0x1.921fb54442d18p0), x);
    r = multiply_add_double(whole, splat_double(-0x1.1a62633145c07p-54), r);
    const dvec z = r * r;
    const dvec sine = multiply_add_double(r * z, polynomial(z, s), r);
    const dvec cosine = multiply_add_double(
        z * z, polynomial(z, c), multiply_add_double(z, splat_double(-0.5), splat_double(1.0)));
    *sines = __builtin_convertvector(signed_by(n, pick_double(odd, cosine, sine)), halfvec);
    *cosines = __builtin_convertvector(signed_by(n + 1, pick_double(odd, sine, cosine)), halfvec);
}

void CGP__CPU_NAME(rotary_angles)(float *cos, float *sin, const float *frequencies, int64_t n,
                                  float position) {
    for (int64_t i = 0; i < (n + LANES - 1) / LANES * LANES; i += LANES / 2) {
        halfvec f, c, s;
        memcpy(&f, frequencies + i, sizeof f);
        angle_of(&c, &s, position * f);
        memcpy(cos + i, &c, sizeof c);
        memcpy(sin + i, &s, sizeof s);
    }
}

/* --- rows --- */

/* Load n <= LANES elements, starting at element i. */
INLINE vec load_some(cgp_dtype type, const void *from, int64_t i, int64_t n) {
    return n >= LANES ? load_as(type, from, i) : load_part_as(type, from, i, n);
}

INLINE void put_some(cgp_dtype type, void *to, int64_t i, vec x, int64_t n, bool add) {
    if (add) x = load_some(type, to, i, n) + x;
    if (n >= LANES)
        store_as(type, to, i, x);
    else
        store_part_as(type, to, i, x, n);
}

/* Rotate pairs (i, i + rotated / 2). */
INLINE void halves(cgp_dtype type, const cgp__cpu_rotation *a, int64_t at) {
    const int64_t half = a->rotated / 2;
    for (int64_t i = 0; i < half; i += LANES) {
        const int64_t n = half - i;
        const vec c = load(a->cos + i), s = load(a->sin + i);
        const vec x = load_some(type, a->from, at + i, n);
        const vec y = load_some(type, a->from, at + half + i, n);
        put_some(type, a->to, at + i, x * c - y * s, n, a->add);
        put_some(type, a->to, at + half + i, y * c + x * s, n, a->add);
    }
}

/* Rotate pairs (2 i, 2 i + 1). An even column adds its neighbour times -sin, which gives the same
 * bits as a subtraction. */
INLINE void neighbours(cgp_dtype type, const cgp__cpu_rotation *a, int64_t at) {
    const ivec odd = ODD;
    for (int64_t e = 0; e < a->rotated; e += LANES) {
        const int64_t n = a->rotated - e;
        const vec cosines = load(a->cos + e / 2), sines = load(a->sin + e / 2);
        const vec c = TWICE(cosines), s = TWICE(sines);
        const vec x = load_some(type, a->from, at + e, n);
        const vec y = x * c + SWAP_PAIRS(x) * pick(odd, s, -s);
        put_some(type, a->to, at + e, y, n, a->add);
    }
}

INLINE void row_of(cgp_dtype type, const cgp__cpu_rotation *given) {
    const cgp__cpu_rotation a = *given;
    for (int64_t h = 0; h < a.heads; h++) {
        const int64_t at = h * a.width;
        if (a.interleaved)
            neighbours(type, &a, at);
        else
            halves(type, &a, at);
        for (int64_t e = a.rotated; e < a.width && (a.add || a.to != a.from); e += LANES)
            put_some(type, a.to, at + e, load_some(type, a.from, at + e, a.width - e), a.width - e,
                     a.add);
    }
}

TYPED(row_of, (const cgp__cpu_rotation *a), a)

void CGP__CPU_NAME(rotary)(const cgp__cpu_rotation *a) {
    CALL_TYPED(a->type, row_of, a);
}
