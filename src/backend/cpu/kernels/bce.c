/* SPDX-License-Identifier: Apache-2.0 */
/* bce.c -- binary cross-entropy with logits: -t log s(x) - (1 - t) log(1 - s(x)) of each logit x,
 * with s(x) = 1 / (1 + exp(-x)).
 *
 *     e = exp(-|x|)        loss = max(x, 0) - x t + log(1 + e)        dx = scale (s(x) - t)
 *     s(x) = 1 / (1 + e) for x >= 0, e / (1 + e) below
 *
 * These forms neither overflow nor lose precision. Losses are f32; their sum is double, in LANES
 * lanes. dx and x may share memory. */
#include "backend/cpu/kernels/map.h"

typedef double dvec __attribute__((vector_size(8 * LANES)));

INLINE vec exp_of_minus(vec x) {
    return exp_or_zero(pick(x > 0.0f, -x, x));
}

/* log(1 + e), 0 <= e <= 1:
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

INLINE vec loss(vec x, vec target) {
    return keep(~(x <= 0.0f), x) - x * target + log_one_plus(exp_of_minus(x));
}

INLINE void forward(cgp_dtype type, double *sum, const void *x, const void *targets, int64_t n) {
    dvec sums = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sums += __builtin_convertvector(loss(load_as(type, x, i), load_as(type, targets, i)), dvec);
    if (i < n) {
        const int64_t left = n - i;
        const vec last = loss(load_part_as(type, x, i, left), load_part_as(type, targets, i, left));
        sums += __builtin_convertvector(keep(lanes_below(left), last), dvec);
    }
    *sum = 0.0;
    for (int k = 0; k < LANES; k++)
        *sum += sums[k];
}

TYPED(forward, (double *sum, const void *x, const void *targets, int64_t n), sum, x, targets, n)

void CGP__CPU_NAME(bce_forward)(double *sum, cgp_dtype type, const void *x, const void *targets,
                                int64_t n) {
    CALL_TYPED(type, forward, sum, x, targets, n);
}

INLINE vec backward_of(vec x, vec target, float scale) {
    const vec e = exp_of_minus(x);
    return scale * (pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e) - target);
}

INLINE void backward(cgp_dtype type, void *dx, const void *x, const void *targets, int64_t n,
                     float scale, bool add) {
    map_two(type, dx, x, targets, n, scale, add, backward_of);
}

TYPED(backward, (void *dx, const void *x, const void *targets, int64_t n, float scale, bool add),
      dx, x, targets, n, scale, add)

void CGP__CPU_NAME(bce_backward)(cgp_dtype type, void *dx, const void *x, const void *targets,
                                 int64_t n, float scale, bool add) {
    CALL_TYPED(type, backward, dx, x, targets, n, scale, add);
}
