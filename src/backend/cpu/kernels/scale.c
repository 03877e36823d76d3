/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c -- y = slope x, dx = slope dy. Elementwise. The output y may share memory with x, and dx
 * with dy. Backward reads neither x nor y. */
#include "backend/cpu/kernels/map.h"

INLINE vec forward_of(vec x, float slope) {
    return x * slope;
}

INLINE vec backward_of(vec operand, vec dy, float slope) {
    (void)operand;
    return dy * slope;
}

ELEMENTWISE_OF_DY(scale)
