/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_core_model.h -- a model of how a tensor core adds products, as measured by Fasi, Higham,
 * Mikaitis and Pranesh (2021), "Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science
 * 7:e330. Products of bf16 are exact. Blocks of `block` products are added to c one after the
 * other:
 *
 *     X = the largest exponent of c and of the block's products
 *     each term is cut to a multiple of 2^(X - 23 - extra), toward zero; the terms add exactly
 *     the sum is rounded to f32: toward zero, or to nearest even
 *
 * The exponent of a product is the sum of its factors' exponents, even if the product of the
 * significands is 2 or more. The sum of a block does not depend on the order of its terms. */
#ifndef CGP_TESTS_FAKES_CUDA_TENSOR_CORE_MODEL_H
#define CGP_TESTS_FAKES_CUDA_TENSOR_CORE_MODEL_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { CGP__TENSOR_K = 16, CGP__TENSOR_MAX_EXTRA = 6 };

typedef struct cgp__tensor_core {
    int block; /* 4, 8 or 16 */
    int extra; /* 0 to CGP__TENSOR_MAX_EXTRA */
    bool nearest;
} cgp__tensor_core;

/* The default model: the published behaviour of an H100. */
#define CGP__TENSOR_CORE_DEFAULT                                                                   \
    { 16, 2, false }

/* Decoded factors of a sum. The value of a factor is significand * 2^(exponent - 134). `special` is
 * true if a factor is a NaN or an infinity; `zero` is true if all factors are 0. */
typedef struct cgp__tensor_factors {
    int32_t significand[CGP__TENSOR_K], exponent[CGP__TENSOR_K];
    bool special, zero;
} cgp__tensor_factors;

static inline void cgp__tensor_decode(cgp__tensor_factors *to, const uint16_t *bf16) {
    int32_t special = 0, any = 0;
    for (int i = 0; i < CGP__TENSOR_K; i++) {
        const int32_t exponent = bf16[i] >> 7 & 0xff, fraction = bf16[i] & 0x7f;
        const int32_t size = exponent > 0 ? fraction | 0x80 : fraction;
        to->significand[i] = bf16[i] >> 15 ? -size : size;
        to->exponent[i] = exponent > 0 ? exponent : 1;
        special |= exponent == 0xff;
        any |= size;
    }
    to->special = special != 0;
    to->zero = any == 0;
}

static inline float cgp__tensor_float(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t cgp__tensor_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Return `sum` times 2^`exponent`, rounded to f32. */
static inline float cgp__tensor_rounded(const cgp__tensor_core *t, int64_t sum, int exponent) {
    const uint64_t power = (uint64_t)(exponent + 1023) << 52;
    double scale;
    memcpy(&scale, &power, sizeof scale);
    const double exact = (double)sum * scale;
    const float near = (float)exact;
    if (t->nearest || fabs((double)near) <= fabs(exact)) return near;
    return cgp__tensor_float(cgp__tensor_bits(near) - 1);
}

/* Return c plus the `n` products of factors `first` to `first + n - 1`, added as one block. */
static inline __attribute__((always_inline)) float
cgp__tensor_add_block(const cgp__tensor_core *t, float c, const cgp__tensor_factors *a,
                      const cgp__tensor_factors *b, int first, int n) {
    enum { BIAS = 254, NONE = -100000 };
    int32_t product[CGP__TENSOR_K], exponent[CGP__TENSOR_K];
    const uint32_t bits = cgp__tensor_bits(c);
    const int32_t field = (int32_t)(bits >> 23 & 0xff);
    const uint32_t c_size = (bits & 0x7fffffu) | (field > 0 ? 0x800000u : 0u);
    const int32_t c_exponent = c_size > 0 ? (field > 0 ? field : 1) - 127 : NONE;
    int32_t most = c_exponent;
    for (int i = 0; i < n; i++) {
        product[i] = a->significand[first + i] * b->significand[first + i];
        exponent[i] = product[i] ? a->exponent[first + i] + b->exponent[first + i] - BIAS : NONE;
        most = exponent[i] > most ? exponent[i] : most;
    }
    if (most == NONE) return 0.0f;
    const int shift = 9 + t->extra;
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        const int32_t apart = most - exponent[i] < 31 ? most - exponent[i] : 31;
        const int32_t sign = product[i] >> 31;
        const uint32_t size = (uint32_t)((product[i] ^ sign) - sign) << shift;
        sum += ((int32_t)(size >> apart) ^ sign) - sign;
    }
    const int32_t apart = most - c_exponent < 31 ? most - c_exponent : 31;
    const int32_t cut = (int32_t)(c_size << t->extra >> apart);
    sum += bits >> 31 ? -cut : cut;
    return cgp__tensor_rounded(t, sum, most - 23 - t->extra);
}

static inline float cgp__tensor_special(float c, const cgp__tensor_factors *a,
                                        const cgp__tensor_factors *b) {
    double sum = (double)c;
    for (int i = 0; i < CGP__TENSOR_K; i++) {
        double x = ldexp((double)a->significand[i], a->exponent[i] - 134);
        double y = ldexp((double)b->significand[i], b->exponent[i] - 134);
        if (a->exponent[i] == 0xff) x = fabs(x) > 0x1p128 ? (double)NAN : x * INFINITY;
        if (b->exponent[i] == 0xff) y = fabs(y) > 0x1p128 ? (double)NAN : y * INFINITY;
        sum += x * y;
    }
    return sum == sum ? (float)sum : cgp__tensor_float(0x7fffffffu);
}

/* Return c plus the 16 products of a and b. */
static inline float cgp__tensor_sum(const cgp__tensor_core *t, float c,
                                    const cgp__tensor_factors *a, const cgp__tensor_factors *b) {
    if (a->special || b->special || (cgp__tensor_bits(c) >> 23 & 0xff) == 0xff)
        return cgp__tensor_special(c, a, b);
    if (a->zero || b->zero) return c == 0.0f ? 0.0f : c;
    if (t->block == CGP__TENSOR_K) return cgp__tensor_add_block(t, c, a, b, 0, CGP__TENSOR_K);
    for (int i = 0; i < CGP__TENSOR_K; i += t->block)
        c = cgp__tensor_add_block(t, c, a, b, i, t->block);
    return c;
}

#endif
