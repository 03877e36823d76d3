/* SPDX-License-Identifier: Apache-2.0 */
/* detach.c -- y = x: a copy, or nothing if both share memory. There is no backward. */
#include "backend/cpu/ops/elementwise.h"

static cgp_status detach_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pass(kernel->device, kernel->spec.type, args->y, args->x[0], cgp__cpu_size(kernel),
                  false);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_detach[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {detach_forward, NULL},
};
