/* SPDX-License-Identifier: Apache-2.0 */
/* rotary.c -- rotary position embedding (RoPE, Su et al. 2021, arXiv:2104.09864), which rotates
 * each pair (a, b) of columns by the angle of its row. Reference kernels.
 *
 *     y_a = a cos - b sin     y_b = b cos + a sin
 *     angle = float(offset + t) f[i], rounded to f32
 *
 * The gradient is dy rotated by the negative angle. Columns after the rotated columns are copied.
 * The output y may alias x, and dx may alias dy, because both elements of a pair are read before
 * either is written. */
#include "backend/ref/ref.h"
#include "backend/rotary.h"

/* Rotate a head of a row. The head begins at element `at`. */
static void rotate_head(const cgp_kernel_spec *spec, void *to, const void *from, int64_t at,
                        const float *frequencies, float position, bool add) {
    const cgp_op_rotary *g = cgp_spec_rotary(spec);
    const int64_t half = g->rotated / 2, width = g->out / g->heads;
    for (int64_t i = 0; i < half; i++) {
        const int64_t one = at + (g->interleaved ? 2 * i : i);
        const int64_t other = one + (g->interleaved ? 1 : half);
        const float angle = position * frequencies[i];
        const float c = (float)cos((double)angle), s = (float)sin((double)angle);
        const double a = cgp__ref_load(spec->type, from, one);
        const double b = cgp__ref_load(spec->type, from, other);
        cgp__ref_store(spec->type, to, one, add, a * c - b * s);
        cgp__ref_store(spec->type, to, other, add, b * c + a * s);
    }
    for (int64_t e = at + g->rotated; e < at + width; e++)
        cgp__ref_store(spec->type, to, e, add, cgp__ref_load(spec->type, from, e));
}

static void rotate(const cgp_kernel_spec *spec, const int32_t *positions, void *to,
                   const void *from, float sign, bool add) {
    const cgp_op_rotary *g = cgp_spec_rotary(spec);
    float frequencies[CGP__ROTARY_PAIRS];
    cgp__rotary_frequencies(g, frequencies);
    for (int64_t row = 0; row < spec->n * g->rows; row++) {
        const float position =
            sign * cgp__rotary_position(g, positions, row / g->rows, row % g->rows);
        for (int64_t h = 0; h < g->heads; h++)
            rotate_head(spec, to, from, row * g->out + h * (g->out / g->heads), frequencies,
                        position, add);
    }
}

static void rotary_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    rotate(spec, args->x[1], args->y, args->x[0], 1.0f, false);
}

static void rotary_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    if (args->dx[0]) rotate(spec, args->x[1], args->dx[0], args->dy, -1.0f, cgp__ref_adds(spec, 0));
}

const cgp__ref_op cgp__ref_rotary = {.run = {rotary_forward, rotary_input}};
