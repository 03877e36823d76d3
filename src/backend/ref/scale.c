/* SPDX-License-Identifier: Apache-2.0 */
/* scale.c -- y = slope x, dx = slope dy. Reference kernels. Backward needs nothing from forward.
 * The output y may alias x. The gradient dx may alias dy unless the kernel adds to dx. */
#include "backend/ref/ref.h"

static void scale_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; i < count; i++)
        cgp__ref_write(spec->type, args->y, i,
                       cgp__ref_load(spec->type, args->x[0], i) * spec->attributes.slope);
}

static void scale_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->dx[0] && i < count; i++)
        cgp__ref_store(spec->type, args->dx[0], i, cgp__ref_adds(spec, 0),
                       (double)cgp__ref_load(spec->type, args->dy, i) * spec->attributes.slope);
}

const cgp__ref_op cgp__ref_scale = {.run = {scale_forward, scale_input}};
