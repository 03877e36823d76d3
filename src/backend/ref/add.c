/* SPDX-License-Identifier: Apache-2.0 */
/* add.c -- y [n, R, C] = x[0] + x[1]; dx[0] = dx[1] = dy. Reference kernels.
 *
 * Backward needs nothing from forward. The output y may alias an x[k]. */
#include "backend/ref/ref.h"

/* Process the last input first, because the gradients of a value are added from its last use to its
 * first. If both inputs are the same value, dx[0] is added to what was just written as dx[1]. */
void cgp__ref_pass_dy(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int inputs) {
    const int64_t count = cgp__ref_elements(spec);
    for (int k = inputs - 1; k >= 0; k--) {
        void *dx = args->dx[k];
        const bool add = cgp__ref_adds(spec, k);
        if (!dx || (dx == args->dy && !add)) continue;
        for (int64_t i = 0; i < count; i++)
            cgp__ref_store(spec->type, dx, i, add, cgp__ref_load(spec->type, args->dy, i));
    }
}

static void add_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_dtype type = spec->type;
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++) {
        const float a = cgp__ref_load(type, args->x[0], i), b = cgp__ref_load(type, args->x[1], i);
        cgp__ref_write(type, args->y, i, a + b);
    }
}

static void add_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 2);
}

const cgp__ref_op cgp__ref_add = {.run = {add_forward, add_input}};
