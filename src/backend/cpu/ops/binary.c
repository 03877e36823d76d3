/* SPDX-License-Identifier: Apache-2.0 */
/* binary.c -- MULTIPLY and SUBTRACT, the elementwise ops of two inputs. They save nothing. One pass
 * computes both gradients. */
#include "backend/cpu/ops/elementwise.h"

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    (void)thread;
    (call->kernel->spec.op == CGP_OP_MULTIPLY ? kernels->multiply : kernels->subtract)(
        type, cgp__cpu_at(type, args->y, begin), cgp__cpu_at(type, args->x[0], begin),
        cgp__cpu_at(type, args->x[1], begin), end - begin);
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    const void *dy = cgp__cpu_at(spec->type, args->dy, begin);
    void *dx[2];
    (void)thread;
    for (int k = 0; k < 2; k++)
        dx[k] = args->dx[k] ? cgp__cpu_at(spec->type, args->dx[k], begin) : NULL;
    if (spec->op == CGP_OP_SUBTRACT)
        kernels->subtract_backward(spec->type, dx, dy, end - begin, spec->add);
    else
        kernels->multiply_backward(spec->type, dx, cgp__cpu_at(spec->type, args->x[0], begin),
                                   cgp__cpu_at(spec->type, args->x[1], begin), dy, end - begin,
                                   spec->add);
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

const cgp__cpu_op cgp__cpu_subtract[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {input, NULL},
};
