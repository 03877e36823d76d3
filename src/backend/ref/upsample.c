/* SPDX-License-Identifier: Apache-2.0 */
/* upsample.c -- y[i, j] = x[i / stride_height, j / stride_width]; dx[h, w] = sum of dy over the
 * block of pixel (h, w). Reference kernels.
 *
 * Backward needs nothing from forward. */
#include "backend/ref/ref.h"

static void upsample_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    for (int64_t e = 0; e < cgp__ref_elements(spec); e++) {
        const int64_t row = e / g->out, sample = row / g->rows;
        const int64_t h = row % g->rows / g->out_width / g->stride_height,
                      w = row % g->out_width / g->stride_width;
        cgp__ref_move(spec, args->y, e, args->x[0],
                      ((sample * g->height + h) * g->width + w) * g->out + e % g->out);
    }
}

/* Return the sum of channel c of dy over the block of pixel (h, w) of x. */
static double block_sum(const cgp_kernel_spec *spec, const void *dy, int64_t sample, int64_t h,
                        int64_t w, int64_t c) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    double sum = 0.0;
    for (int64_t u = 0; u < g->stride_height; u++) {
        for (int64_t v = 0; v < g->stride_width; v++) {
            const int64_t i = h * g->stride_height + u, j = w * g->stride_width + v;
            sum += cgp__ref_load(spec->type, dy,
                                 ((sample * g->out_height + i) * g->out_width + j) * g->out + c);
        }
    }
    return sum;
}

static void upsample_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t rows = (int64_t)g->height * g->width;
    for (int64_t e = 0; args->dx[0] && e < spec->n * rows * g->out; e++) {
        const int64_t row = e / g->out;
        cgp__ref_store(spec->type, args->dx[0], e, cgp__ref_adds(spec, 0),
                       block_sum(spec, args->dy, row / rows, row % rows / g->width, row % g->width,
                                 e % g->out));
    }
}

const cgp__ref_op cgp__ref_upsample = {.run = {upsample_forward, upsample_input}};
