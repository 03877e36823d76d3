/* SPDX-License-Identifier: Apache-2.0 */
/* sigmoid.c -- y = 1 / (1 + exp(-x)), dx = dy y (1 - y).
 *
 * With e = exp(-|x|), which cannot overflow, y is 1 / (1 + e) for x >= 0 and e / (1 + e) below;
 * small values of y lose no precision to cancellation. The kernels are elementwise; y may alias x,
 * and dx may alias dy. Backward reads y, not x. */
#include "backend/cpu/kernels/map.h"

INLINE vec forward_of(vec x, float slope) {
    const vec e = exp_or_zero(pick(x < 0.0f, x, -x));
    (void)slope;
    return pick(x < 0.0f, e, splat(1.0f)) / (1.0f + e);
}

INLINE vec backward_of(vec y, vec dy, float slope) {
    (void)slope;
    return dy * (y * (1.0f - y));
}

ELEMENTWISE_OF_Y(sigmoid)
