/* SPDX-License-Identifier: Apache-2.0 */
/* depthwise.c -- direct depthwise convolution (Zhang, Franchetti and Low 2018, arXiv:1809.10170),
 * one row of pixels at a time, with vectors of channels:
 *
 *     to(q)     = bias + sum over taps of from(column + q step) weight(tap)
 *     sums(tap) = sum over rows and pixels j of x(column + j step) dy(j)
 *
 * PIXELS x WIDE accumulators share the vectors of a tap's weight. A tap outside the row is skipped.
 * The gradient of the input is computed like to(q), with taps that select pixels of dy. */
#include "backend/cpu/kernels/vec.h"
#include "backend/cpu/operands.h"

#define PIXELS 4
#define WIDE 2 /* number of vectors of channels that are processed at a time */
#define TAPS 8 /* number of taps of a kernel row that the weight's gradient takes at a time */

/* --- a row of pixels --- */

/* Compute `pixels` pixels, starting at pixel q, for `wide` vectors of channels, starting at channel
 * c. `inside`: all taps of all these pixels are inside the row. */
INLINE void row_pixels(cgp_dtype type, const cgp__cpu_depthwise *p, int64_t q, int pixels,
                       bool inside, int64_t c, int wide, int64_t left) {
    vec sum[PIXELS][WIDE];
    for (int k = 0; k < pixels; k++)
        for (int w = 0; w < wide; w++)
            sum[k][w] = p->bias ? load_left(CGP_F32, p->bias, c + w * LANES, left - w * LANES)
                                : splat(0.0f);
    for (int64_t t = 0; t < p->n_taps; t++) {
        const cgp__cpu_tap tap = p->taps[t];
        vec weight[WIDE];
        for (int w = 0; w < wide; w++)
            weight[w] = load_left(CGP_F32, p->weight, tap.weight + c + w * LANES, left - w * LANES);
#pragma GCC unroll 4
        for (int k = 0; k < pixels; k++) {
            const int64_t column = tap.column + (q + k) * p->step;
            if (!inside && (column < 0 || column >= p->columns)) continue;
            const int64_t at = tap.row + column * p->channels + c;
            for (int w = 0; w < wide; w++)
                sum[k][w] = multiply_add(load_left(type, p->from, at + w * LANES, left - w * LANES),
                                         weight[w], sum[k][w]);
        }
    }
    for (int k = 0; k < pixels; k++)
        for (int w = 0; w < wide; w++)
            store_left(type, p->to, (q + k) * p->to_step + c + w * LANES, sum[k][w],
                       left - w * LANES, p->add);
}

/* Compute all pixels of the row for `wide` vectors of channels. Pixels first .. end - 1 have all of
 * their taps in the row. */
INLINE void row_channels(cgp_dtype type, const cgp__cpu_depthwise *p, int64_t first, int64_t end,
                         int64_t c, int wide, int64_t left) {
    int64_t q = 0;
    for (; q + PIXELS <= p->outputs; q += PIXELS) {
        if (q >= first && q + PIXELS <= end)
            row_pixels(type, p, q, PIXELS, true, c, wide, left);
        else
            row_pixels(type, p, q, PIXELS, false, c, wide, left);
    }
    for (; q < p->outputs; q++)
        row_pixels(type, p, q, 1, false, c, wide, left);
}

INLINE void row(cgp_dtype type, const cgp__cpu_depthwise *p) {
    int64_t first = 0, end = p->outputs, c = 0;
    for (int64_t t = 0; t < p->n_taps; t++) {
        const int64_t column = p->taps[t].column;
        while (first < p->outputs && column + first * p->step < 0)
            first++;
        while (end > 0 && column + (end - 1) * p->step >= p->columns)
            end--;
    }
    for (; c + WIDE * LANES <= p->channels; c += WIDE * LANES)
        row_channels(type, p, first, end, c, WIDE, WIDE * LANES);
    if (c + LANES < p->channels)
        row_channels(type, p, first, end, c, WIDE, p->channels - c);
    else if (c < p->channels)
        row_channels(type, p, first, end, c, 1, p->channels - c);
}

TYPED(row, (const cgp__cpu_depthwise *p), p)

void CGP__CPU_NAME(depthwise_row)(const cgp__cpu_depthwise *p) {
    CALL_TYPED(p->type, row, p);
}

/* --- the gradient of the weight --- */

/* Add a row of pixels to the sums of taps v .. v + taps - 1 of row u of the kernel. */
INLINE void row_taps(cgp_dtype type, const cgp__cpu_depthwise_weight *p, const void *x,
                     const void *dy, int64_t v, int taps, vec sum[TAPS], int64_t c, int64_t left) {
    const cgp_op_windows *g = p->attributes;
    const int64_t channels = g->in, step = g->stride_width;
    const int64_t front = v * g->dilation_width - g->left;
    const int64_t back = (v + taps - 1) * g->dilation_width - g->left;
    for (int64_t j = 0; j < g->out_width; j++) {
        const bool inside = front + j * step >= 0 && back + j * step < g->width;
        const vec d = load_left(type, dy, j * channels + c, left);
        const int64_t at = (front + j * step) * channels + c;
        for (int k = 0; k < taps; k++) {
            const int64_t column = front + j * step + k * g->dilation_width;
            if (!inside && (column < 0 || column >= g->width)) continue;
            sum[k] = multiply_add(load_left(type, x, at + k * g->dilation_width * channels, left),
                                  d, sum[k]);
        }
    }
}

/* Set the sums of taps v .. v + taps - 1 of row u of the kernel. */
INLINE void taps_of_row(cgp_dtype type, const cgp__cpu_depthwise_weight *p, int64_t u, int64_t v,
                        int taps, int64_t c, int64_t left) {
    const cgp_op_windows *g = p->attributes;
    vec sum[TAPS] = {{0}};
    for (int64_t r = p->first; r < p->first + p->rows; r++) {
        const int64_t sample = r / g->out_height, i = r % g->out_height;
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        if (h < 0 || h >= g->height) continue;
        row_taps(type, p, cgp__cpu_at(type, p->x, (sample * g->height + h) * g->width * g->in),
                 cgp__cpu_at(type, p->dy, r * g->out_width * g->in), v, taps, sum, c, left);
    }
    for (int k = 0; k < taps; k++)
        store_left(CGP_F32, p->sums, (u * g->kernel_width + v + k) * g->in + c, sum[k], left,
                   false);
}

INLINE void weight_channels(cgp_dtype type, const cgp__cpu_depthwise_weight *p, int64_t c,
                            int64_t left) {
    const int64_t width = p->attributes->kernel_width;
    for (int64_t u = 0; u < p->attributes->kernel_height; u++) {
        int64_t v = 0;
        for (; v + 7 <= width; v += 7)
            taps_of_row(type, p, u, v, 7, c, left);
        for (; v + 3 <= width; v += 3)
            taps_of_row(type, p, u, v, 3, c, left);
        for (; v < width; v++)
            taps_of_row(type, p, u, v, 1, c, left);
    }
}

INLINE void weight(cgp_dtype type, const cgp__cpu_depthwise_weight *p) {
    const int64_t channels = p->attributes->in;
    int64_t c = 0;
    for (; c + LANES <= channels; c += LANES)
        weight_channels(type, p, c, LANES);
    if (c < channels) weight_channels(type, p, c, channels - c);
}

TYPED(weight, (const cgp__cpu_depthwise_weight *p), p)

void CGP__CPU_NAME(depthwise_weight)(const cgp__cpu_depthwise_weight *p) {
    CALL_TYPED(p->type, weight, p);
}
