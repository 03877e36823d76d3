/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- y = x P(x), P(x) = (1 + erf(x / sqrt 2)) / 2.
 *
 *     dx = dy (P(x) + x exp(-x^2 / 2) / sqrt(2 pi))
 *
 * The kernels are elementwise; y may alias x, and dx may alias dy. Backward reads x, not y. */
#include "backend/cpu/kernels/map.h"

#define SQRT_HALF 0.70710678118654752f
#define SQRT_TWO_PI_INVERSE 0.39894228040143268f

INLINE vec forward_of(vec x, float slope) {
    (void)slope;
    return 0.5f * x * (1.0f + erf_vec(x * SQRT_HALF));
}

INLINE vec backward_of(vec x, vec dy, float slope) {
    const vec half_erf = 0.5f + 0.5f * erf_vec(x * SQRT_HALF);
    (void)slope;
    return dy * (half_erf + x * (SQRT_TWO_PI_INVERSE * exp_or_zero(-0.5f * x * x)));
}

ELEMENTWISE(gelu)
