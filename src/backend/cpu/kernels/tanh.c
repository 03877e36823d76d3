/* SPDX-License-Identifier: Apache-2.0 */
/* tanh.c -- y = tanh(x), dx = dy (1 - y) (1 + y).
 *
 *     |x| < 0.625    y = x + x z P(z), z = x^2     P of Cephes' tanhf; nothing cancels near 0
 *     elsewhere      |y| = (1 - e) / (1 + e), e = exp(-2 |x|), which cannot overflow
 *
 * The kernels are elementwise; y may alias x, and dx may alias dy. Backward reads y, not x. Source:
 * Moshier, Cephes Mathematical Library, tanhf.c. */
#include "backend/cpu/kernels/map.h"

INLINE vec forward_of(vec x, float slope) {
    const vec z = x * x, size = pick(x < 0.0f, -x, x);
    vec p = splat(-5.70498872745e-3f);
    p = multiply_add(p, z, splat(2.06390887954e-2f));
    p = multiply_add(p, z, splat(-5.37397155531e-2f));
    p = multiply_add(p, z, splat(1.33314422036e-1f));
    p = multiply_add(p, z, splat(-3.33332819422e-1f));
    const vec near = multiply_add(p * z, x, x);
    const vec e = exp_or_zero(-2.0f * size), far = (1.0f - e) / (1.0f + e);
    (void)slope;
    return pick(size < 0.625f, near, pick(x < 0.0f, -far, far));
}

INLINE vec backward_of(vec y, vec dy, float slope) {
    (void)slope;
    return dy * ((1.0f - y) * (1.0f + y));
}

ELEMENTWISE_OF_Y(tanh)
