/* SPDX-License-Identifier: Apache-2.0 */
/* conv_transpose2d.c -- transposed convolution from x [H, W, in] to y [OH, OW, out], with weight
 * [KH, KW, out / groups, in]. Reference kernels.
 *
 *     Pixel (i, j) of x and tap (u, v) contribute to pixel (h, w) of y, if it exists:
 *     h = i stride + u dilation - top     w = j stride + v dilation - left
 *
 *     y  [h, w, o]    = bias[o] + sum of x [i, j, c] weight [u, v, o, c]
 *     dx [i, j, c]    = sum of dy [h, w, o] weight [u, v, o, c]
 *     dweight         = sum of x [i, j, c] dy [h, w, o]            dbias = sum of dy
 *
 * The channels c and o belong to the same group, and the weight's index of o is relative to the
 * group's first channel.
 *
 * The kernel overwrites y. It either overwrites dx or adds to it. The first micro-batch overwrites
 * dweight and dbias; later micro-batches add to them. */
#include "backend/ref/ref.h"

/* x_at() and y_at() return the offset of channel 0 of a pixel of x and of y. weight_at() returns
 * the offset of element (u, v, o, 0) of the weight. */
static int64_t x_at(const cgp_op_windows *g, int64_t sample, int64_t i, int64_t j) {
    return ((sample * g->height + i) * g->width + j) * g->in;
}

static int64_t y_at(const cgp_op_windows *g, int64_t sample, int64_t h, int64_t w) {
    return ((sample * g->out_height + h) * g->out_width + w) * g->out;
}

static int64_t weight_at(const cgp_op_windows *g, int64_t u, int64_t v, int64_t o) {
    return ((u * g->kernel_width + v) * (g->out / g->groups) + o) * g->in;
}

/* Return y[h, w, o] without the bias. */
static double output_element(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                             int64_t sample, int64_t h, int64_t w, int64_t o) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t in = g->in / g->groups, out = g->out / g->groups, first = o / out * in;
    double sum = 0.0;
    for (int64_t u = 0; u < g->kernel_height; u++) {
        const int64_t i =
            cgp__ref_window_of(h + g->top - u * g->dilation_height, g->stride_height, g->height);
        for (int64_t v = 0; i >= 0 && v < g->kernel_width; v++) {
            const int64_t j =
                cgp__ref_window_of(w + g->left - v * g->dilation_width, g->stride_width, g->width);
            for (int64_t c = first; j >= 0 && c < first + in; c++)
                sum += (double)cgp__ref_load(spec->type, args->x[0], x_at(g, sample, i, j) + c) *
                       args->param[0][weight_at(g, u, v, o % out) + c];
        }
    }
    return sum;
}

static void conv_transpose2d_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    for (int64_t e = 0; e < cgp__ref_elements(spec); e++) {
        const int64_t o = e % g->out, pixel = e / g->out % g->rows;
        const double sum = output_element(spec, args, e / (g->out * g->rows), pixel / g->out_width,
                                          pixel % g->out_width, o);
        cgp__ref_write(spec->type, args->y, e,
                       (float)(g->has_bias ? args->param[1][o] + sum : sum));
    }
}

/* Return dx[i, j, c]. */
static double input_element(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            int64_t sample, int64_t i, int64_t j, int64_t c) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t out = g->out / g->groups, first = c / (g->in / g->groups) * out;
    double sum = 0.0;
    for (int64_t u = 0; u < g->kernel_height; u++) {
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        for (int64_t v = 0; h >= 0 && h < g->out_height && v < g->kernel_width; v++) {
            const int64_t w = j * g->stride_width - g->left + v * g->dilation_width;
            if (w < 0 || w >= g->out_width) continue;
            for (int64_t o = 0; o < out; o++)
                sum +=
                    (double)cgp__ref_load(spec->type, args->dy, y_at(g, sample, h, w) + first + o) *
                    args->param[0][weight_at(g, u, v, o) + c];
        }
    }
    return sum;
}

static void conv_transpose2d_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t sample = (int64_t)g->height * g->width * g->in;
    for (int64_t e = 0; args->dx[0] && e < spec->n * sample; e++) {
        const int64_t c = e % g->in, pixel = e % sample / g->in;
        cgp__ref_store(
            spec->type, args->dx[0], e, cgp__ref_adds(spec, 0),
            input_element(spec, args, e / sample, pixel / g->width, pixel % g->width, c));
    }
}

/* Return dweight[u, v, o, c]; o is an index within the group of c. */
static double weight_element(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t u,
                             int64_t v, int64_t o, int64_t c) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t first = c / (g->in / g->groups) * (g->out / g->groups);
    double sum = 0.0;
    for (int64_t row = 0; row < spec->n * g->height; row++) {
        const int64_t sample = row / g->height, i = row % g->height;
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        for (int64_t j = 0; h >= 0 && h < g->out_height && j < g->width; j++) {
            const int64_t w = j * g->stride_width - g->left + v * g->dilation_width;
            if (w < 0 || w >= g->out_width) continue;
            sum += (double)cgp__ref_load(spec->type, args->x[0], x_at(g, sample, i, j) + c) *
                   cgp__ref_load(spec->type, args->dy, y_at(g, sample, h, w) + first + o);
        }
    }
    return sum;
}

static void conv_transpose2d_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t out = g->out / g->groups;
    const int64_t count = out * g->kernel_height * g->kernel_width * g->in;
    for (int64_t e = 0; args->dparam[0] && e < count; e++) {
        const int64_t c = e % g->in, o = e / g->in % out, tap = e / (g->in * out);
        cgp__ref_store(
            CGP_F32, args->dparam[0], e, !args->first,
            weight_element(spec, args, tap / g->kernel_width, tap % g->kernel_width, o, c));
    }
    for (int64_t o = 0; g->has_bias && args->dparam[1] && o < g->out; o++) {
        double sum = 0.0;
        for (int64_t row = 0; row < spec->n * g->rows; row++)
            sum += cgp__ref_load(spec->type, args->dy, row * g->out + o);
        cgp__ref_store(CGP_F32, args->dparam[1], o, !args->first, sum);
    }
}

const cgp__ref_op cgp__ref_conv_transpose2d = {
    .run = {conv_transpose2d_forward, conv_transpose2d_input, conv_transpose2d_weight}};
