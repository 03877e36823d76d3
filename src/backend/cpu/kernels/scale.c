/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c -- y = slope x, dx = slope dy. The kernels are elementwise; y may alias x, and dx may
 * alias dy. Backward reads neither x nor y. */
#include "backend/cpu/kernels/map.h"

INLINE vec forward_of(vec x, float slope) {
    return x * slope;
}

INLINE vec backward_of(vec operand, vec dy, float slope) {
    (void)operand;
    return dy * slope;
}

ELEMENTWISE_OF_DY(scale)
