/* SPDX-License-Identifier: Apache-2.0 */
/* gelu.c -- GELU and GELU_TANH: elementwise, backward reads x. */
#include "backend/cpu/ops/elementwise.h"

/* Both forms differ in the kernel only. */
typedef void gelu_forward_kernel(cgp_dtype type, void *y, const void *x, int64_t n);
typedef void gelu_backward_kernel(cgp_dtype type, void *dx, const void *x, const void *dy,
                                  int64_t n, bool add);

static void gelu_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    const bool erf_form = call->kernel->spec.op == CGP__OP_GELU;
    gelu_forward_kernel *gelu = erf_form ? kernels->gelu_forward : kernels->gelu_tanh_forward;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    gelu(type, cgp__cpu_at(type, call->args->y, begin),
         cgp__cpu_at(type, call->args->x[0], begin), end - begin);
}

static void gelu_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    const bool erf_form = call->kernel->spec.op == CGP__OP_GELU;
    gelu_backward_kernel *gelu =
        erf_form ? kernels->gelu_backward : kernels->gelu_tanh_backward;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    gelu(type, cgp__cpu_at(type, args->dx[0], begin), cgp__cpu_at(type, args->x[0], begin),
         cgp__cpu_at(type, args->dy, begin), end - begin, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status gelu_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, gelu_forward_range);
    return CGP_OK;
}

static cgp_status gelu_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, gelu_input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_gelu[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {gelu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {gelu_input, NULL},
};

const cgp__cpu_op cgp__cpu_gelu_tanh[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {gelu_forward, NULL},
    [CGP__BACKWARD_INPUT] = {gelu_input, NULL},
};
