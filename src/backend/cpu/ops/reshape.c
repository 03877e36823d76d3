/* SPDX-License-Identifier: Apache-2.0 */
/* reshape.c -- y = x, dx = dy: a copy, or nothing if both share memory. */
#include "backend/cpu/ops/elementwise.h"

static cgp_status reshape_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pass(kernel->device, kernel->spec.type, args->y, args->x[0], cgp__cpu_size(kernel),
                  false);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_reshape[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {reshape_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {cgp__cpu_pass_dy, NULL},
};
