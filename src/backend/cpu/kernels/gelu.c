/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2.
 *
 *     dx = dy (P(x) + x exp(-x^2 / 2) / sqrt(2 pi))
 *
 * Elementwise; y may be x, dx may be dy. Backward reads x, not y. */
#include "backend/cpu/kernels/map.h"

#define SQRT_HALF 0.70710678118654752f
#define SQRT_TWO_PI_INVERSE 0.39894228040143268f

INLINE vec forward_of(vec x, float constant) {
    (void)constant;
    return 0.5f * x * (1.0f + erf_vec(x * SQRT_HALF));
}

INLINE vec backward_of(vec x, vec dy, float constant) {
    const vec half_erf = 0.5f + 0.5f * erf_vec(x * SQRT_HALF);
    (void)constant;
    return dy * (half_erf + x * (SQRT_TWO_PI_INVERSE * exp_or_zero(-0.5f * x * x)));
}

INLINE void forward(cgp_dtype type, void *y, const void *x, int64_t n) {
    map_one(type, y, x, n, 0.0f, forward_of);
}

TYPED(forward, (void *y, const void *x, int64_t n), y, x, n)

void CGP__CPU_NAME(gelu_forward)(cgp_dtype type, void *y, const void *x, int64_t n) {
    CALL_TYPED(type, forward, y, x, n);
}

INLINE void backward(cgp_dtype type, void *dx, const void *x, const void *dy, int64_t n,
                     bool add) {
    map_two(type, dx, x, dy, n, 0.0f, add, backward_of);
}

TYPED(backward, (void *dx, const void *x, const void *dy, int64_t n, bool add), dx, x, dy, n,
      add)

void CGP__CPU_NAME(gelu_backward)(cgp_dtype type, void *dx, const void *x, const void *dy,
                                  int64_t n, bool add) {
    CALL_TYPED(type, backward, dx, x, dy, n, add);
}
