/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- the maximum or the mean of the pixels of a window, per channel. Reference kernels.
 *
 *     MAX_POOL       y = the maximum, the first if several are equal     dx[argmax] += dy
 *     AVERAGE_POOL   y = sum / pixels in the window    dx[each pixel] += dy / pixels in the window
 *     MEAN           an AVERAGE_POOL
 *
 * backward_input of MAX_POOL recomputes the argmax from x. backward_input of AVERAGE_POOL needs
 * nothing from forward. The gradient of a sample is first summed over windows in the workspace. The
 * kernel then stores the sums in dx or adds them to dx. */
#include "backend/ref/ref.h"

#include <math.h>

/* A window on one channel of a sample, limited to pixels within the image. Pixel (h, w) is element
 * first + (h width + w) channels. */
typedef struct window {
    cgp__ref_span rows, columns;
    int64_t width, channels, first;
} window;

static window window_of(const cgp_op_windows *g, int64_t sample, int64_t row, int64_t c) {
    const int64_t i = row / g->out_width, j = row % g->out_width;
    return (window){
        cgp__ref_span_of(i * g->stride_height - g->top, g->kernel_height, g->height),
        cgp__ref_span_of(j * g->stride_width - g->left, g->kernel_width, g->width),
        g->width,
        g->out,
        sample * g->height * g->width * g->out + c,
    };
}

static int64_t element(const window *at, int64_t h, int64_t w) {
    return at->first + (h * at->width + w) * at->channels;
}

static double pixels(const window *at) {
    return (double)((at->rows.end - at->rows.begin) * (at->columns.end - at->columns.begin));
}

/* Return the offset in x of a window's first maximum. */
static int64_t argmax(cgp_dtype type, const void *x, const window *at) {
    int64_t max = element(at, at->rows.begin, at->columns.begin);
    for (int64_t h = at->rows.begin; h < at->rows.end; h++) {
        for (int64_t w = at->columns.begin; w < at->columns.end; w++) {
            const int64_t e = element(at, h, w);
            const float value = cgp__ref_load(type, x, e), top = cgp__ref_load(type, x, max);
            if (value > top || (isnan(value) && !isnan(top))) max = e;
        }
    }
    return max;
}

static double mean(cgp_dtype type, const void *x, const window *at) {
    double sum = 0.0;
    for (int64_t h = at->rows.begin; h < at->rows.end; h++) {
        for (int64_t w = at->columns.begin; w < at->columns.end; w++)
            sum += cgp__ref_load(type, x, element(at, h, w));
    }
    return sum / pixels(at);
}

static void pool_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t e = 0; e < count; e++) {
        const int64_t row = e / g->out;
        const window at = window_of(g, row / g->rows, row % g->rows, e % g->out);
        const double y =
            spec->op == CGP_OP_MAX_POOL
                ? cgp__ref_load(spec->type, args->x[0], argmax(spec->type, args->x[0], &at))
                : mean(spec->type, args->x[0], &at);
        cgp__ref_write(spec->type, args->y, e, (float)y);
    }
}

static int64_t sample_elements(const cgp_op_windows *g) {
    return (int64_t)g->height * g->width * g->out;
}

static int64_t pool_workspace(const cgp_kernel_spec *spec) {
    if (spec->direction != CGP_OP_BACKWARD_INPUT) return 0;
    return sample_elements(cgp_spec_windows(spec)) * (int64_t)sizeof(double);
}

/* Add dy of one element of y to the sums of a sample. `sums` begins at element `first` of dx. */
static void spread(const cgp_kernel_spec *spec, const cgp_kernel_args *args, const window *at,
                   double dy, double *sums, int64_t first) {
    if (spec->op == CGP_OP_MAX_POOL) {
        sums[argmax(spec->type, args->x[0], at) - first] += dy;
        return;
    }
    for (int64_t h = at->rows.begin; h < at->rows.end; h++) {
        for (int64_t w = at->columns.begin; w < at->columns.end; w++)
            sums[element(at, h, w) - first] += dy / pixels(at);
    }
}

static void pool_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t size = sample_elements(g), out = g->rows * g->out;
    double *sums = args->workspace;
    for (int64_t s = 0; args->dx[0] && s < spec->n; s++) {
        for (int64_t i = 0; i < size; i++)
            sums[i] = 0.0;
        for (int64_t e = 0; e < out; e++) {
            const window at = window_of(g, s, e / g->out, e % g->out);
            spread(spec, args, &at, cgp__ref_load(spec->type, args->dy, s * out + e), sums,
                   s * size);
        }
        for (int64_t i = 0; i < size; i++)
            cgp__ref_store(spec->type, args->dx[0], s * size + i, cgp__ref_adds(spec, 0), sums[i]);
    }
}

const cgp__ref_op cgp__ref_max_pool = {.run = {pool_forward, pool_input},
                                       .workspace = pool_workspace};

const cgp__ref_op cgp__ref_average_pool = {.run = {pool_forward, pool_input},
                                           .workspace = pool_workspace};

const cgp__ref_op cgp__ref_mean = {.run = {pool_forward, pool_input}, .workspace = pool_workspace};
