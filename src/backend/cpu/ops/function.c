/* SPDX-License-Identifier: Apache-2.0 */
/* function.c -- FUNCTION and FUNCTION_OF_Y: y = f(x), dx = dy f', elementwise. */
#include "backend/cpu/ops/elementwise.h"

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    (void)thread;
    call->kernel->device->kernels->function_forward(
        cgp_spec_function(spec), spec->type, cgp__cpu_at(spec->type, call->args->y, begin),
        cgp__cpu_at(spec->type, call->args->x[0], begin), end - begin);
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const void *operand = spec->op == CGP_OP_FUNCTION_OF_Y ? call->args->y : call->args->x[0];
    (void)thread;
    call->kernel->device->kernels->function_backward(
        cgp_spec_function(spec), spec->type, cgp__cpu_at(spec->type, call->args->dx[0], begin),
        cgp__cpu_at(spec->type, operand, begin), cgp__cpu_at(spec->type, call->args->dy, begin),
        end - begin, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, forward_range);
    return CGP_OK;
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_function[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, NULL}, [CGP_OP_BACKWARD_INPUT] = {input, NULL}};
const cgp__cpu_op cgp__cpu_function_of_y[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, NULL}, [CGP_OP_BACKWARD_INPUT] = {input, NULL}};
