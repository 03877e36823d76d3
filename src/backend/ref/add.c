/* SPDX-License-Identifier: Apache-2.0 */
/* add.c -- y = a + b and y = x + weight[position], reference kernels.
 *
 *     ADD        y [n, R, C] = x[0] + x[1]           dx[0] = dx[1] = dy
 *     POSITION   y [n, R, C] = x + weight [R, C]     dx = dy    dweight = sum_n dy
 *
 * Backward needs nothing of forward. y may be an x[k] of ADD, the x of POSITION. The gradient
 * of an input is dy itself: where dx[k] is dy nothing is done, elsewhere dy is copied or
 * added. */
#include "backend/ref/ref.h"

/* From the last input to the first, the order in which gradients of a value are added: dx[0]
 * may add to what dx[1] has just written when both inputs are one value. */
void cgp__ref_pass_dy(const cgp__kernel_spec *spec, const cgp__kernel_args *args, int inputs) {
    const int64_t count = cgp__ref_elements(spec);
    for (int k = inputs - 1; k >= 0; k--) {
        void *dx = args->dx[k];
        const bool add = cgp__ref_adds(spec, k);
        if (!dx || (dx == args->dy && !add)) continue;
        for (int64_t i = 0; i < count; i++)
            cgp__ref_store(spec->type, dx, i, add, cgp__ref_load(spec->type, args->dy, i));
    }
}

void cgp__ref_add_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const cgp_dtype type = spec->type;
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++) {
        const float a = cgp__ref_load(type, args->x[0], i),
                    b = cgp__ref_load(type, args->x[1], i);
        cgp__ref_write(type, args->y, i, a + b);
    }
}

void cgp__ref_add_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 2);
}

void cgp__ref_position_forward(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t sample = spec->attributes.rows * spec->attributes.out;
    for (int64_t s = 0; s < spec->n; s++) {
        for (int64_t i = 0; i < sample; i++) {
            const int64_t at = s * sample + i;
            const float x = cgp__ref_load(spec->type, args->x[0], at);
            cgp__ref_write(spec->type, args->y, at, x + args->param[0][i]);
        }
    }
}

void cgp__ref_position_input(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 1);
}

void cgp__ref_position_weight(const cgp__kernel_spec *spec, const cgp__kernel_args *args) {
    const int64_t sample = spec->attributes.rows * spec->attributes.out;
    for (int64_t i = 0; i < sample; i++) {
        double sum = 0.0;
        for (int64_t s = 0; s < spec->n; s++)
            sum += cgp__ref_load(spec->type, args->dy, s * sample + i);
        cgp__ref_store(CGP_F32, args->dparam[0], i, !args->first, sum);
    }
}
