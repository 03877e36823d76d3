/* SPDX-License-Identifier: Apache-2.0 */
/* softmax.c -- SOFTMAX and LOG_SOFTMAX compute rows of probabilities, or rows of logs of
 * probabilities. Threads take rows. The ops save nothing; backward reads y. */
#include "backend/cpu/cpu.h"

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_dtype type = call->kernel->spec.type;
    const int64_t width = call->kernel->spec.attributes.out, at = begin * width;
    (void)thread;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    (call->kernel->spec.op == CGP_OP_SOFTMAX ? kernels->row_softmax_forward
                                             : kernels->row_log_softmax_forward)(
        type, cgp__cpu_at(type, call->args->y, at), cgp__cpu_at(type, call->args->x[0], at),
        end - begin, width);
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    const int64_t width = call->kernel->spec.attributes.out, at = begin * width;
    (void)thread;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    (call->kernel->spec.op == CGP_OP_SOFTMAX ? kernels->row_softmax_backward
                                             : kernels->row_log_softmax_backward)(
        type, cgp__cpu_at(type, args->dx[0], at), cgp__cpu_at(type, args->y, at),
        cgp__cpu_at(type, args->dy, at), end - begin, width, cgp__cpu_adds(call->kernel, 0));
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, forward_range);
    return CGP_OK;
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0])
        cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, input_range);
    return CGP_OK;
}

#define SOFTMAX(name)                                                                              \
    const cgp__cpu_op cgp__cpu_##name[CGP_OP_DIRECTIONS] = {                                       \
        [CGP_OP_FORWARD] = {forward, NULL},                                                        \
        [CGP_OP_BACKWARD_INPUT] = {input, NULL},                                                   \
    };
SOFTMAX(softmax)
SOFTMAX(log_softmax)
