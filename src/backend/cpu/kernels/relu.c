/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- RELU, leaky if slope > 0: y = x where x > 0, slope * x elsewhere.
 *
 *     dx = dy where y > 0, slope * dy elsewhere      slope >= 0, so y > 0 exactly where x > 0
 *
 * The kernels are elementwise; y may alias x, and dx may alias dy. Backward reads y, not x. NaN
 * stays NaN. If slope is 0, y is 0 for x = -infinity. */
#include "backend/cpu/kernels/map.h"

INLINE vec backward_of(vec y, vec dy, float slope) {
    return pick(y <= 0.0f, slope > 0.0f ? dy * slope : splat(0.0f), dy);
}

INLINE vec forward_of(vec x, float slope) {
    return backward_of(x, x, slope);
}

ELEMENTWISE_OF_Y(relu)
