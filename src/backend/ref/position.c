/* SPDX-License-Identifier: Apache-2.0 */
/* position.c -- y [n, R, C] = x + weight [R, C]; dx = dy, dweight = sum over samples of dy.
 * Reference kernels.
 *
 * Backward needs nothing from forward. The output y may alias x. */
#include "backend/ref/ref.h"

static void position_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t sample = spec->attributes.rows * spec->attributes.out;
    for (int64_t s = 0; s < spec->n; s++) {
        for (int64_t i = 0; i < sample; i++) {
            const int64_t at = s * sample + i;
            const float x = cgp__ref_load(spec->type, args->x[0], at);
            cgp__ref_write(spec->type, args->y, at, x + args->param[0][i]);
        }
    }
}

static void position_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 1);
}

static void position_weight(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t sample = spec->attributes.rows * spec->attributes.out;
    for (int64_t i = 0; i < sample; i++) {
        double sum = 0.0;
        for (int64_t s = 0; s < spec->n; s++)
            sum += cgp__ref_load(spec->type, args->dy, s * sample + i);
        cgp__ref_store(CGP_F32, args->dparam[0], i, !args->first, sum);
    }
}

const cgp__ref_op cgp__ref_position = {.run = {position_forward, position_input, position_weight}};
