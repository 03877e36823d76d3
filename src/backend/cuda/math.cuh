/* SPDX-License-Identifier: Apache-2.0 */
/* math.cuh -- exp, erf, tanh and log as fixed sequences of IEEE operations. Results are
 * bit-identical on every GPU, on the host and in the cpu backend's kernels. Division and square
 * root are the IEEE operations `/` and sqrtf(). Errors below are in units of the last place, as
 * measured by tests/cuda/test_cuda_functions.c. */
#ifndef CGP_SRC_CUDA_MATH_CUH
#define CGP_SRC_CUDA_MATH_CUH

#include <math.h>
#include <string.h>

#include "backend/cuda/cuda.cuh"

/* Return the larger of `a` and `b`. If one of them is a NaN, return `b`. */
__device__ static inline float larger(float a, float b) {
    return a > b ? a : b;
}

/* For -87 <= x <= 88, return exp(r) - 1 and set *scale to 2^n. Range reduction by Cody and Waite
 * (1980):
 *
 *     exp(x) = 2^n exp(r)      n = round(x / ln 2)      r = x - n ln 2, |r| <= ln 2 / 2
 *     exp(r) = 1 + r + r^2 P(r)      P interpolates at Chebyshev points
 *
 * The addition of 1.5 2^23 rounds n and leaves n in the low bits of the sum. The addition of 127
 * turns these bits into the exponent of 2^n. */
__device__ static inline float exp_parts(float x, float *scale) {
    const float shift = 0x1.8p23f + 127.0f;
    const float shifted = fmaf(x, 0x1.715476p0f, shift);
    const float n = shifted - shift;
    float r = fmaf(n, -0x1.62e400p-1f, x); /* ln 2 in two parts */
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = 0x1.6d444ep-10f;
    p = fmaf(p, r, 0x1.120c68p-7f);
    p = fmaf(p, r, 0x1.5554e8p-5f);
    p = fmaf(p, r, 0x1.5554dcp-3f);
    p = fmaf(p, r, 0.5f);
    *scale = __uint_as_float(__float_as_uint(shifted) << 23);
    return fmaf(p, r * r, r);
}

/* Return exp(x) for x <= 88; 0 below -87, where the result would be denormal. NaN stays NaN. The
 * error is at most 1.1 units in the last place. */
__device__ static inline float exp_or_zero(float x) {
    float scale;
    const float p = exp_parts(x, &scale) + 1.0f;
    return x < -87.0f ? 0.0f : p * scale;
}

/* Return exp(x) for any x. The result is infinity above 88.73. For x > 88, compute the square of
 * exp(x / 2); the error is then at most 2.7 units in the last place. */
__device__ static inline float exp_of(float x) {
    const bool high = x > 88.0f;
    const float e = exp_or_zero(high ? 0.5f * (x > 104.0f ? 104.0f : x) : x);
    return high ? e * e : e;
}

/* Return exp(x) - 1 for x <= 0, without cancellation near 0: 2^n (exp(r) - 1) + (2^n - 1). The
 * error is at most 1 unit in the last place. */
__device__ static inline float exp_minus_one(float x) {
    float scale;
    const float p = exp_parts(x < -87.0f ? -87.0f : x, &scale);
    return fmaf(p, scale, scale - 1.0f);
}

/* Return erf(x). For |x| < L = 3.84, erf(x) = x Q(s) with s = 2 (x / L)^2 - 1. For larger |x|,
 * erf(x) rounds to 1 or -1. Q interpolates erf(x) / x at Chebyshev points. The error is at most 3.7
 * units in the last place, and at most 2e-7. */
__device__ static inline float erf_of(float x) {
    const float q[] = {
        0x1.7913c4p-2f,  -0x1.7859f6p-3f,  0x1.179714p-3f,  -0x1.c4d5bcp-4f,
        0x1.73e814p-4f,  -0x1.2afb4cp-4f,  0x1.cdb2e2p-5f,  -0x1.4fd6a6p-5f,
        0x1.bfc798p-6f,  -0x1.1f239ep-6f,  0x1.867a48p-7f,  -0x1.af0e68p-8f,
        0x1.ca4068p-10f, -0x1.ea139ep-11f, 0x1.8602dcp-10f, -0x1.4c0ba4p-11f,
    };
    const float s = fmaf(x * x, 2.0f / (3.84f * 3.84f), -1.0f);
    float sum = q[15];
    for (int i = 14; i >= 0; i--)
        sum = fmaf(sum, s, q[i]);
    const float sign = x < 0.0f ? -1.0f : 1.0f;
    return x >= 3.84f || x <= -3.84f ? sign : x * sum;
}

/* Return tanh(x):
 *
 *     |x| < 0.625    x + x z P(z), z = x^2       (P of Cephes' tanhf: no cancellation for small x)
 *     elsewhere      (1 - e) / (1 + e) with the sign of x, e = exp(-2 |x|), which cannot overflow
 *
 * The error is at most 1.6 units in the last place. */
__device__ static inline float tanh_of(float x) {
    const float z = x * x, size = x < 0.0f ? -x : x;
    float p = -5.70498872745e-3f;
    p = fmaf(p, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    const float near = fmaf(p * z, x, x);
    const float e = exp_or_zero(-2.0f * size), far = (1.0f - e) / (1.0f + e);
    return size < 0.625f ? near : x < 0.0f ? -far : far;
}

/* Return log(1 + e) for 0 <= e <= 1:
 *
 *     log(1 + e) = 2 artanh(q) = 2 (q + q^3 / 3 + q^5 / 5 + ...)      q = e / (2 + e) <= 1 / 3
 *
 * The omitted terms are below 2e-8 of the result. The error is at most 2.9 units in the last
 * place. */
__device__ static inline float log_one_plus(float e) {
    const float q = e / (2.0f + e), z = q * q;
    float sum = 1.0f / 13.0f;
    sum = fmaf(sum, z, 1.0f / 11.0f);
    sum = fmaf(sum, z, 1.0f / 9.0f);
    sum = fmaf(sum, z, 1.0f / 7.0f);
    sum = fmaf(sum, z, 1.0f / 5.0f);
    sum = fmaf(sum, z, 1.0f / 3.0f);
    sum = fmaf(sum, z, 1.0f);
    return 2.0f * q * sum;
}

/* Return log(x), computed as follows:
 *
 *     x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt 2        s = f / (2 + f)
 *     log(x) = k ln 2 + 2 artanh(s)        2 artanh(s) = 2 s + 2 s^3 (1/3 + s^2 / 5 + ...)
 *
 * ln 2 is split in two parts, so that k times the first part is exact. The omitted terms are below
 * 1e-9 of the result. A denormal x is first scaled by 2^24. The error is at most 2 units in the
 * last place. */
__device__ static inline float log_f32(float x) {
    const bool tiny = x < 0x1p-126f;
    const unsigned bits = __float_as_uint(tiny ? x * 0x1p24f : x);
    const int k = (int)(bits - 0x3f3504f3u) >> 23; /* sqrt(1/2) */
    const float f = __uint_as_float(bits - ((unsigned)k << 23)) - 1.0f;
    const float s = f / (2.0f + f), z = s * s, power = (float)(k - (tiny ? 24 : 0));
    float sum = 1.0f / 9.0f;
    sum = fmaf(sum, z, 1.0f / 7.0f);
    sum = fmaf(sum, z, 1.0f / 5.0f);
    sum = fmaf(sum, z, 1.0f / 3.0f);
    const float low = fmaf(sum * z, 2.0f * s, power * -0x1.bd0106p-13f);
    const float found = fmaf(power, 0x1.63p-1f, fmaf(2.0f, s, low));
    if (x == INFINITY || x != x) return x;
    return x < 0.0f ? NAN : x > 0.0f ? found : -INFINITY;
}

/* Return log(x) in double, for the sum of a row. x must be > 0 and not denormal. Infinity and NaN
 * are returned unchanged.
 *
 *     x = 2^k (1 + f), 1 + f between sqrt(1/2) and sqrt 2        s = f / (2 + f)
 *     log(1 + f) = 2 artanh(s) = f - (f^2 / 2 - s (f^2 / 2 + R))
 *     R = 2 s^2 (1/3 + s^2 / 5 + s^4 / 7 + ...)
 *
 * ln 2 is split in two parts, so that k times the first part is exact. The error is at most 0.9
 * units in the last place. */
__device__ static inline double log_of(double x) {
    if (!(x < INFINITY)) return x;
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int64_t k = (bits - 0x3fe6a09e667f3bcd) >> 52; /* sqrt(1/2) */
    bits -= k * (INT64_C(1) << 52);
    double near;
    memcpy(&near, &bits, sizeof near);
    const double f = near - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
    double sum = 2.0 / 23.0;
    for (int i = 21; i >= 3; i -= 2)
        sum = fma(sum, z, 2.0 / i);
    const double low = s * (half + z * sum) + (double)k * 0x1.a39ef35793c76p-33;
    return (double)k * 0x1.62e42feep-1 - ((half - low) - f);
}

#endif
