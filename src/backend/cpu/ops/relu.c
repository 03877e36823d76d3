/* SPDX-License-Identifier: Apache-2.0 */
/* relu.c -- y = x above 0, slope x elsewhere: elementwise, backward reads y. */
#include "backend/cpu/ops/elementwise.h"

static void relu_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->kernels->relu_forward(type, cgp__cpu_at(type, call->args->y, begin),
                                                cgp__cpu_at(type, call->args->x[0], begin),
                                                end - begin,
                                                call->kernel->spec.attributes.slope);
}

static void relu_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp__kernel_spec *spec = &call->kernel->spec;
    (void)thread;
    call->kernel->device->kernels->relu_backward(
        spec->type, cgp__cpu_at(spec->type, args->dx[0], begin),
        cgp__cpu_at(spec->type, args->y, begin), cgp__cpu_at(spec->type, args->dy, begin),
        end - begin, spec->attributes.slope, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status relu_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, relu_forward_range);
    return CGP_OK;
}

static cgp_status relu_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, relu_input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_relu[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {relu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {relu_input, NULL},
};
