/* SPDX-License-Identifier: Apache-2.0 */
/* tiles.h -- GEMM in bf16 as simple loops, which follow the rule in gemm/tiles.h. */
#ifndef CGP_TESTS_OP_TILES_H
#define CGP_TESTS_OP_TILES_H

#include "harness.h"

#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/tiles.h"

/* The GEMM for AMX, compiled with fake tiles (fake_tiles.c). */
extern const cgp__cpu_tiles cgp__cpu_tiles_fake;

static inline float element(const cgp__matrix *x, int64_t i, int64_t j) {
    const int64_t at = i * x->row + j * x->column;
    return x->type == CGP_BF16 ? cgp__bf16_to_float(((const uint16_t *)x->at)[at])
                               : ((const float *)x->at)[at];
}

/* Flush denormals to 0. */
static inline float flushed(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

static inline float rounded(float x) {
    return cgp__bf16_to_float(cgp__bf16_from_float(flushed(x)));
}

/* Return `sum + a b`. The product of two bf16 numbers is exact unless the product is denormal. */
static inline float add_product(float sum, float a, float b) {
    const float product = a * b;
    return flushed(fabsf(product) < 0x1p-110f ? fmaf(a, b, sum) : sum + product);
}

/* Sum the products for k from `begin` to `end` - 1, in steps of 32. The last step is padded with
 * zeros. */
static inline float chain(const cgp__gemm *p, int64_t i, int64_t j, int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t q = begin; q < end; q += 32) {
        float pair[2] = {0.0f, 0.0f};
        for (int64_t d = q; d < q + 32; d++) {
            const float a = d < end ? rounded(element(&p->a, i, d)) : 0.0f;
            const float b = d < end ? rounded(element(&p->b, d, j)) : 0.0f;
            pair[d % 2] = add_product(pair[d % 2], a, b);
        }
        sum = flushed(sum + flushed(pair[0] + pair[1]));
    }
    return sum;
}

/* Return the expected element of c. If k is above 1024, k is split into equal parts that are
 * multiples of 32, and each part has its own sum. */
static inline float expected(const cgp__gemm *p, int64_t i, int64_t j, float before) {
    const int64_t parts = (p->k + 1023) / 1024, even = (p->k + parts - 1) / parts;
    const int64_t part = (even + 31) / 32 * 32;
    float c = p->add ? before : 0.0f;
    for (int64_t q = 0; q < p->k; q += part) {
        float sum = chain(p, i, j, q, q + part < p->k ? q + part : p->k);
        if (q == 0 && p->bias) sum += p->bias[j];
        c = q > 0 || p->add ? sum + c : sum;
    }
    return p->type == CGP_BF16 ? rounded(c) : c;
}

/* Set c to `a b + bias` by the rule of GEMM in bf16. If `add` is true, add the previous value of c
 * too. */
static inline void plainly(int64_t m, int64_t n, int64_t k, cgp__matrix a, cgp__matrix b,
                           const float *bias, cgp_dtype type, float *c, int64_t stride, bool add) {
    const cgp__gemm p = {.m = m,
                         .n = n,
                         .k = k,
                         .a = a,
                         .b = b,
                         .bias = bias,
                         .type = type,
                         .stride = stride,
                         .add = add};
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            c[i * stride + j] = expected(&p, i, j, c[i * stride + j]);
}

#endif
