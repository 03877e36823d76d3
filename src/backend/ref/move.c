/* SPDX-License-Identifier: Apache-2.0 */
/* move.c -- ops whose results are elements of their inputs, in other places, reference kernels.
 *
 *     FLATTEN    y = x                                                  dx = dy
 *     CONCAT     y[row] = x[0][row], x[1][row], ...                     dx[k][row] = its columns of dy[row]
 *     UPSAMPLE   y[i, j] = x[i / stride_height, j / stride_width]       dx[h, w] = sum over its block of dy
 *     PAD        y[i, j] = x[i - top, j - left], or 0 outside of x      dx[h, w] = dy[h + top, w + left], or 0
 *                                                                                  outside of y
 *
 * Backward needs nothing of forward. y may be the x of FLATTEN, whose gradient is dy itself, as that of ADD. */
#include "backend/ref/ref.h"

static void move(const cgp__kernel_spec *spec, void *to, int64_t i, const void *from,
                 int64_t j) {
    cgp__ref_write(spec->type, to, i, cgp__ref_load(spec->type, from, j));
}

void cgp__ref_flatten_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->y != args->x[0] && i < count; i++)
        move(spec, args->y, i, args->x[0], i);
}

void cgp__ref_flatten_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 1);
}

void cgp__ref_concat_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const cgp__op_attributes *g = &spec->attributes;
    int64_t first = 0;
    for (int k = 0; k < CGP__MAX_INPUTS; first += g->parts[k++]) {
        for (int64_t e = 0; e < spec->n * g->rows * g->parts[k]; e++)
            move(spec, args->y, e / g->parts[k] * g->out + first + e % g->parts[k], args->x[k],
                 e);
    }
}

/* From the last input to the first, as pass_dy. */
void cgp__ref_concat_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const cgp__op_attributes *g = &spec->attributes;
    int64_t first = g->out;
    for (int k = CGP__MAX_INPUTS - 1; k >= 0; k--) {
        first -= g->parts[k];
        for (int64_t e = 0; args->dx[k] && e < spec->n * g->rows * g->parts[k]; e++) {
            const int64_t from = e / g->parts[k] * g->out + first + e % g->parts[k];
            cgp__ref_store(spec->type, args->dx[k], e, cgp__ref_adds(spec, k),
                           cgp__ref_load(spec->type, args->dy, from));
        }
    }
}

/* Pixel number of (h, w) in an image that is one of many; -1: outside. */
static int64_t pixel(int64_t sample, int64_t h, int64_t w, int64_t height, int64_t width) {
    if (h < 0 || h >= height || w < 0 || w >= width) return -1;
    return (sample * height + h) * width + w;
}

/* Pixel of x that pixel `row` of y is. */
static int64_t source(const cgp__kernel_spec *spec, int64_t row) {
    const cgp__op_attributes *g = &spec->attributes;
    const int64_t sample = row / g->rows, i = row % g->rows / g->out_width,
                  j = row % g->out_width;
    if (spec->op == CGP__OP_PAD)
        return pixel(sample, i - g->top, j - g->left, g->height, g->width);
    return pixel(sample, i / g->stride_height, j / g->stride_width, g->height, g->width);
}

/* UPSAMPLE, PAD */
void cgp__ref_place_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t width = spec->attributes.out;
    for (int64_t row = 0; row < spec->n * spec->attributes.rows; row++) {
        const int64_t from = source(spec, row);
        for (int64_t c = 0; c < width; c++) {
            if (from < 0)
                cgp__ref_write(spec->type, args->y, row * width + c, 0.0f);
            else
                move(spec, args->y, row * width + c, args->x[0], from * width + c);
        }
    }
}

/* Element c of dx at (h, w): of a block of one pixel for PAD. */
static double block(const cgp__kernel_spec *spec, const void *dy, int64_t sample, int64_t h,
                    int64_t w, int64_t c) {
    const cgp__op_attributes *g = &spec->attributes;
    double sum = 0.0;
    for (int64_t u = 0; u < g->stride_height; u++) {
        for (int64_t v = 0; v < g->stride_width; v++) {
            const int64_t from =
                pixel(sample, h * g->stride_height + g->top + u,
                      w * g->stride_width + g->left + v, g->out_height, g->out_width);
            if (from >= 0) sum += cgp__ref_load(spec->type, dy, from * g->out + c);
        }
    }
    return sum;
}

/* UPSAMPLE, which has no padding; PAD, whose strides are 1 */
void cgp__ref_place_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const cgp__op_attributes *g = &spec->attributes;
    const int64_t rows = (int64_t)g->height * g->width;
    for (int64_t e = 0; args->dx[0] && e < spec->n * rows * g->out; e++) {
        const int64_t row = e / g->out;
        cgp__ref_store(spec->type, args->dx[0], e, cgp__ref_adds(spec, 0),
                       block(spec, args->dy, row / rows, row % rows / g->width, row % g->width,
                             e % g->out));
    }
}
