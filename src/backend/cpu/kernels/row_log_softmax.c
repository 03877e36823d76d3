/* SPDX-License-Identifier: Apache-2.0 */
/* row_log_softmax.c -- computes the log of the softmax of each row.
 *
 *     y = (x - m) - log sum exp(x - m), m = max x        dx = dy - exp(y) sum dy
 *
 * The output y may alias x, and dx may alias dy, because the sums of a row are complete before the
 * row is written. */
#include "backend/cpu/kernels/row_exp.h"

INLINE void forward(cgp_dtype type, void *y, const void *x, int64_t width) {
    const float max = row_max(type, x, width);
    const float log_sum = (float)log(row_exp_sum(type, x, width, max));
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
        store_as(type, y, c, (load_as(type, x, c) - max) - log_sum);
    if (c == width) return;
    const vec part = load_part_as(type, x, c, width - c);
    store_part_as(type, y, c, (part - max) - log_sum, width - c);
}

TYPED(forward, (void *y, const void *x, int64_t width), y, x, width)

void CGP__CPU_NAME(row_log_softmax_forward)(cgp_dtype type, void *y, const void *x, int64_t rows,
                                            int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        CALL_TYPED(type, forward, cgp__cpu_at(type, y, row * width),
                   cgp__cpu_at(type, x, row * width), width);
}

/* Return the sum of a row; padding of the last vector is 0. */
INLINE float row_sum(cgp_dtype type, const void *x, int64_t width) {
    vec sum = {0};
    for (int64_t c = 0; c < width; c += LANES)
        sum += load_left(type, x, c, width - c);
    return sum_lanes(sum);
}

INLINE void backward(cgp_dtype type, void *dx, const void *y, const void *dy, int64_t width,
                     bool add) {
    const float sum = row_sum(type, dy, width);
    for (int64_t c = 0; c < width; c += LANES) {
        const int64_t left = width - c;
        const vec d = load_left(type, dy, c, left);
        store_left(type, dx, c, d - exp_or_zero(load_left(type, y, c, left)) * sum, left, add);
    }
}

TYPED(backward, (void *dx, const void *y, const void *dy, int64_t width, bool add), dx, y, dy,
      width, add)

void CGP__CPU_NAME(row_log_softmax_backward)(cgp_dtype type, void *dx, const void *y,
                                             const void *dy, int64_t rows, int64_t width,
                                             bool add) {
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        CALL_TYPED(type, backward, cgp__cpu_at(type, dx, at), cgp__cpu_at(type, y, at),
                   cgp__cpu_at(type, dy, at), width, add);
    }
}
