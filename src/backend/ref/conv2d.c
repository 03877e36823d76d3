/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.c -- y = windows of x times weight, plus bias. Reference kernels. Window (i, j) begins at
 * pixel (a, b) of x:
 *
 *     a = i stride_height - top                b = j stride_width - left
 *     y[i, j, o]         = bias[o] + sum_{u, v, c} x[a + u, b + v, c] weight[u, v, c, o]
 *     dx[h, w, c]        = sum over o, and over windows whose element (u, v) is (h, w), of
 *                          dy[i, j, o] weight[u, v, c, o]
 *     dweight[u, v, c, o] = sum over samples and windows of dy[i, j, o] x[a + u, b + v, c]
 *     dbias[o]           = sum over samples and windows of dy[i, j, o]
 *
 * Where u and v select a pixel, they are multiplied by the dilation. The channels c and o belong to
 * the same group, and the weight's index of c is relative to the group's first channel.
 *
 * Pixels outside x are zero. backward_input needs weight; backward_weight needs x; neither needs y.
 * The output y is overwritten. The kernel either overwrites dx or adds to it. The first micro-batch
 * overwrites dweight and dbias; later micro-batches add to them. */
#include "backend/ref/ref.h"

/* x_at() and y_at() return the offset of channel 0 of a pixel of x and of y. weight_at() returns
 * the offset of element (u, v, 0) in the weight of an output channel. */
static int64_t x_at(const cgp_op_windows *g, int64_t sample, int64_t h, int64_t w) {
    return ((sample * g->height + h) * g->width + w) * g->in;
}

static int64_t y_at(const cgp_op_windows *g, int64_t sample, int64_t i, int64_t j) {
    return ((sample * g->out_height + i) * g->out_width + j) * g->out;
}

static int64_t weight_at(const cgp_op_windows *g, int64_t o, int64_t u, int64_t v) {
    return (u * g->kernel_width + v) * (g->in / g->groups) * g->out + o;
}

/* Return y[i, j, o] without the bias. */
static double window(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t sample,
                     int64_t i, int64_t j, int64_t o) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t in = g->in / g->groups, first = o / (g->out / g->groups) * in;
    double sum = 0.0;
    for (int64_t u = 0; u < g->kernel_height; u++) {
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        for (int64_t v = 0; h >= 0 && h < g->height && v < g->kernel_width; v++) {
            const int64_t w = j * g->stride_width - g->left + v * g->dilation_width;
            if (w < 0 || w >= g->width) continue;
            const int64_t x = x_at(g, sample, h, w) + first, weight = weight_at(g, o, u, v);
            for (int64_t c = 0; c < in; c++)
                sum += (double)cgp__ref_load(spec->type, args->x[0], x + c) *
                       args->param[0][weight + c * g->out];
        }
    }
    return sum;
}

static void conv2d_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t e = 0; e < count; e++) {
        const int64_t o = e % g->out, pixel = e / g->out % g->rows;
        const double sum = window(spec, args, e / (g->out * g->rows), pixel / g->out_width,
                                  pixel % g->out_width, o);
        cgp__ref_write(spec->type, args->y, e,
                       (float)(g->has_bias ? args->param[1][o] + sum : sum));
    }
}

/* Return dx[h, w, c]. */
static double input_element(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            int64_t sample, int64_t h, int64_t w, int64_t c) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t in = g->in / g->groups, out = g->out / g->groups, first = c / in * out;
    double sum = 0.0;
    for (int64_t u = 0; u < g->kernel_height; u++) {
        const int64_t i = cgp__ref_window_of(h + g->top - u * g->dilation_height, g->stride_height,
                                             g->out_height);
        for (int64_t v = 0; i >= 0 && v < g->kernel_width; v++) {
            const int64_t j = cgp__ref_window_of(w + g->left - v * g->dilation_width,
                                                 g->stride_width, g->out_width);
            for (int64_t o = first; j >= 0 && o < first + out; o++)
                sum += (double)cgp__ref_load(spec->type, args->dy, y_at(g, sample, i, j) + o) *
                       args->param[0][weight_at(g, o, u, v) + c % in * g->out];
        }
    }
    return sum;
}

static void conv2d_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t sample = (int64_t)g->height * g->width * g->in;
    for (int64_t e = 0; args->dx[0] && e < spec->n * sample; e++) {
        const int64_t c = e % g->in, pixel = e % sample / g->in;
        cgp__ref_store(
            spec->type, args->dx[0], e, cgp__ref_adds(spec, 0),
            input_element(spec, args, e / sample, pixel / g->width, pixel % g->width, c));
    }
}

/* Return dweight[u, v, c, o]; c is an index within the group of o. */
static double weight_element(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int64_t o,
                             int64_t u, int64_t v, int64_t c) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t first = o / (g->out / g->groups) * (g->in / g->groups);
    double sum = 0.0;
    for (int64_t row = 0; row < spec->n * g->out_height; row++) {
        const int64_t sample = row / g->out_height, i = row % g->out_height;
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        for (int64_t j = 0; h >= 0 && h < g->height && j < g->out_width; j++) {
            const int64_t w = j * g->stride_width - g->left + v * g->dilation_width;
            if (w < 0 || w >= g->width) continue;
            sum += (double)cgp__ref_load(spec->type, args->dy, y_at(g, sample, i, j) + o) *
                   cgp__ref_load(spec->type, args->x[0], x_at(g, sample, h, w) + first + c);
        }
    }
    return sum;
}

static void conv2d_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t in = g->in / g->groups;
    const int64_t count = g->out * g->kernel_height * g->kernel_width * in;
    for (int64_t e = 0; args->dparam[0] && e < count; e++) {
        const int64_t o = e % g->out, c = e / g->out % in;
        const int64_t tap = e / (g->out * in);
        const int64_t u = tap / g->kernel_width, v = tap % g->kernel_width;
        cgp__ref_store(CGP_F32, args->dparam[0], e, !args->first,
                       weight_element(spec, args, o, u, v, c));
    }
    for (int64_t o = 0; g->has_bias && args->dparam[1] && o < g->out; o++) {
        double sum = 0.0;
        for (int64_t row = 0; row < spec->n * g->rows; row++)
            sum += cgp__ref_load(spec->type, args->dy, row * g->out + o);
        cgp__ref_store(CGP_F32, args->dparam[1], o, !args->first, sum);
    }
}

const cgp__ref_op cgp__ref_conv2d = {.run = {conv2d_forward, conv2d_input, conv2d_weight}};
