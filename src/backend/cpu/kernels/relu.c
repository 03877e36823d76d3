/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- y = x above 0, slope x elsewhere.
 *
 *     dx = dy where y > 0, slope dy elsewhere        slope >= 0: the sign of y is that of x
 *
 * Elementwise; y may be x, dx may be dy. Backward reads y, not x. A NaN stays one; a slope of 0 leaves nothing of an
 * infinity. */
#include "backend/cpu/kernels/map.h"

INLINE vec backward_of(vec y, vec dy, float slope) {
    return pick(y <= 0.0f, slope > 0.0f ? dy * slope : splat(0.0f), dy);
}

INLINE vec forward_of(vec x, float slope) {
    return backward_of(x, x, slope);
}

INLINE void forward(cgp_dtype type, void *y, const void *x, int64_t n, float slope) {
    map_one(type, y, x, n, slope, forward_of);
}

TYPED(forward, (void *y, const void *x, int64_t n, float slope), y, x, n, slope)

void CGP__CPU_NAME(relu_forward)(cgp_dtype type, void *y, const void *x, int64_t n,
                                 float slope) {
    CALL_TYPED(type, forward, y, x, n, slope);
}

INLINE void backward(cgp_dtype type, void *dx, const void *y, const void *dy, int64_t n,
                     float slope, bool add) {
    map_two(type, dx, y, dy, n, slope, add, backward_of);
}

TYPED(backward, (void *dx, const void *y, const void *dy, int64_t n, float slope, bool add), dx,
      y, dy, n, slope, add)

void CGP__CPU_NAME(relu_backward)(cgp_dtype type, void *dx, const void *y, const void *dy,
                                  int64_t n, float slope, bool add) {
    CALL_TYPED(type, backward, dx, y, dy, n, slope, add);
}
