/* SPDX-License-Identifier: Apache-2.0 */
/* reshape.c -- y = x; dx = dy. Reference kernels. Backward needs nothing from forward. The output y
 * may alias x, and dx may alias dy. */
#include "backend/ref/ref.h"

static void reshape_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const int64_t count = cgp__ref_elements(spec);
    for (int64_t i = 0; args->y != args->x[0] && i < count; i++)
        cgp__ref_move(spec, args->y, i, args->x[0], i);
}

static void reshape_input(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    cgp__ref_pass_dy(spec, args, 1);
}

const cgp__ref_op cgp__ref_reshape = {.run = {reshape_forward, reshape_input}};
