/* SPDX-License-Identifier: Apache-2.0 */
/* silu.c -- y = x s, s = 1 / (1 + exp(-x)).
 *
 *     dx = dy (s + y (1 - s))
 *
 * With e = exp(-|x|), which cannot overflow, s is 1 / (1 + e) for x >= 0 and e / (1 + e) below; 1 -
 * s is the other of these two fractions. The kernels are elementwise; y may alias x, and dx may
 * alias dy. Backward reads x, not y. */
#include "backend/cpu/kernels/map.h"

INLINE vec forward_of(vec x, float slope) {
    const vec e = exp_of_minus_abs(x);
    (void)slope;
    return x * pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e);
}

INLINE vec backward_of(vec x, vec dy, float slope) {
    const vec e = exp_of_minus_abs(x), inverse = 1.0f / (1.0f + e);
    const vec s = pick(x < 0.0f, e, splat(1.0f)) * inverse;
    const vec rest = pick(x < 0.0f, splat(1.0f), e) * inverse;
    (void)slope;
    return dy * (s + x * s * rest);
}

ELEMENTWISE(silu)
