/* SPDX-License-Identifier: Apache-2.0 */
/* row_softmax.c -- softmax of each row.
 *
 *     y = exp(x - m) / sum exp(x - m), m = max x        dx = y (dy - sum dy y)
 *
 * The output y may alias x, and dx may alias dy, because the sums of a row are complete before the
 * row is written. Exponentials are not stored but computed twice, so that y is rounded only
 * once. */
#include "backend/cpu/kernels/row_exp.h"

INLINE void forward(cgp_dtype type, void *y, const void *x, int64_t width) {
    const float max = row_max(type, x, width);
    const float inverse = (float)(1.0 / row_exp_sum(type, x, width, max));
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES)
        store_as(type, y, c, exp_or_zero(load_as(type, x, c) - max) * inverse);
    if (c == width) return;
    const vec part = load_part_as(type, x, c, width - c);
    store_part_as(type, y, c, exp_or_zero(part - max) * inverse, width - c);
}

TYPED(forward, (void *y, const void *x, int64_t width), y, x, width)

void CGP__CPU_NAME(row_softmax_forward)(cgp_dtype type, void *y, const void *x, int64_t rows,
                                        int64_t width) {
    for (int64_t row = 0; row < rows; row++)
        CALL_TYPED(type, forward, cgp__cpu_at(type, y, row * width),
                   cgp__cpu_at(type, x, row * width), width);
}

INLINE void backward_row(cgp_dtype type, void *dx, const void *y, const void *dy, int64_t width,
                         float sum, bool add) {
    int64_t c = 0;
    for (; c + LANES <= width; c += LANES) {
        const vec out = load_as(type, y, c) * (load_as(type, dy, c) - sum);
        store_as(type, dx, c, add ? load_as(type, dx, c) + out : out);
    }
    if (c == width) return;
    const int64_t left = width - c;
    const vec out = load_part_as(type, y, c, left) * (load_part_as(type, dy, c, left) - sum);
    store_part_as(type, dx, c, add ? load_part_as(type, dx, c, left) + out : out, left);
}

INLINE void backward(cgp_dtype type, void *dx, const void *y, const void *dy, int64_t width,
                     float sum, bool add) {
    if (add)
        backward_row(type, dx, y, dy, width, sum, true);
    else
        backward_row(type, dx, y, dy, width, sum, false);
}

TYPED(backward, (void *dx, const void *y, const void *dy, int64_t width, float sum, bool add), dx,
      y, dy, width, sum, add)

void CGP__CPU_NAME(row_softmax_backward)(cgp_dtype type, void *dx, const void *y, const void *dy,
                                         int64_t rows, int64_t width, bool add) {
    for (int64_t row = 0; row < rows; row++) {
        const int64_t at = row * width;
        const void *y_row = cgp__cpu_at(type, y, at), *dy_row = cgp__cpu_at(type, dy, at);
        float sum;
        CGP__CPU_NAME(row_dots)(&sum, type, dy_row, y_row, 1, width, width);
        CALL_TYPED(type, backward, cgp__cpu_at(type, dx, at), y_row, dy_row, width, sum, add);
    }
}
