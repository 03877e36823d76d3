/* SPDX-License-Identifier: Apache-2.0 */
/* multiply.c -- y = x[0] x[1], element by element; dx[0] = dy x[1], dx[1] = dy x[0]. Saves nothing. */
#include "backend/cpu/ops/elementwise.h"

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->kernels->multiply(type, cgp__cpu_at(type, args->y, begin),
                                            cgp__cpu_at(type, args->x[0], begin),
                                            cgp__cpu_at(type, args->x[1], begin), end - begin);
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    void *dx[2];
    (void)thread;
    for (int k = 0; k < 2; k++)
        dx[k] = args->dx[k] ? cgp__cpu_at(type, args->dx[k], begin) : NULL;
    call->kernel->device->kernels->multiply_backward(
        type, dx, cgp__cpu_at(type, args->x[0], begin), cgp__cpu_at(type, args->x[1], begin),
        cgp__cpu_at(type, args->dy, begin), end - begin, call->kernel->spec.add);
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, forward_range);
    return CGP_OK;
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_multiply[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {input, NULL},
};
