/* SPDX-License-Identifier: Apache-2.0 */
/* pad.c -- y[i, j] = x[i - top, j - left], or 0 outside x. Reference kernels.
 *
 *     dx[h, w] = dy[h + top, w + left], or 0 outside y
 *
 * Backward needs nothing from forward. */
#include "backend/ref/ref.h"

/* Return the offset of element c of pixel (h, w) of a sample; -1: the pixel is outside the
 * image. */
static int64_t element(int64_t sample, int64_t h, int64_t w, int64_t height, int64_t width,
                       int64_t channels, int64_t c) {
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return ((sample * height + h) * width + w) * channels + c;
}

static void pad_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    for (int64_t e = 0; e < cgp__ref_elements(spec); e++) {
        const int64_t row = e / g->out;
        const int64_t i = row % g->rows / g->out_width, j = row % g->out_width;
        const int64_t from = element(row / g->rows, i - g->top, j - g->left, g->height, g->width,
                                     g->out, e % g->out);
        if (from < 0)
            cgp__ref_write(spec->type, args->y, e, 0.0f);
        else
            cgp__ref_move(spec, args->y, e, args->x[0], from);
    }
}

/* Compute dx. A -0 of dy becomes +0, as in a sum that starts at 0. */
static void pad_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const int64_t rows = (int64_t)g->height * g->width;
    for (int64_t e = 0; args->dx[0] && e < spec->n * rows * g->out; e++) {
        const int64_t row = e / g->out, h = row % rows / g->width, w = row % g->width;
        const int64_t from = element(row / rows, h + g->top, w + g->left, g->out_height,
                                     g->out_width, g->out, e % g->out);
        const double dy = from < 0 ? 0.0 : 0.0 + (double)cgp__ref_load(spec->type, args->dy, from);
        cgp__ref_store(spec->type, args->dx[0], e, cgp__ref_adds(spec, 0), dy);
    }
}

const cgp__ref_op cgp__ref_pad = {.run = {pad_forward, pad_input}};
