/* SPDX-License-Identifier: Apache-2.0 */
/* cross_entropy.c -- softmax cross-entropy. Forward computes the loss of each row, then adds up the
 * losses in order. It saves each row's maximum and log_sum. The gradient dx may overwrite the
 * logits. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/operands.h"

/* Return the loss arguments for rows begin .. end - 1. */
static cgp__cpu_loss loss_of(const cgp__cpu_call *call, int64_t begin, int64_t end) {
    const cgp_kernel_args *args = call->args;
    const int64_t classes = call->kernel->spec.attributes.in;
    const cgp_dtype type = call->kernel->spec.type;
    void *dx = args->dx[0];
    return (cgp__cpu_loss){.type = type,
                           .rows = end - begin,
                           .classes = classes,
                           .ignore = cgp_spec_cross_entropy(&call->kernel->spec)->ignore,
                           .x = cgp__cpu_at(type, args->x[0], begin * classes),
                           .targets = (const int32_t *)args->x[1] + begin,
                           .weights = args->x[2] ? cgp__cpu_at(type, args->x[2], begin) : NULL,
                           .smoothing = cgp_spec_cross_entropy(&call->kernel->spec)->smoothing,
                           .max = args->saved[0] + begin,
                           .log_sum = args->saved[1] + begin,
                           .dx = dx ? cgp__cpu_at(type, dx, begin * classes) : NULL,
                           .scale = cgp__loss_scale(args),
                           .add = cgp__cpu_adds(call->kernel, 0)};
}

/* Return the workspace size in bytes: one loss for each row. */
static int64_t loss_workspace(const cgp_kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * spec->attributes.rows * (int64_t)sizeof(double);
}

static void loss_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    cgp__cpu_loss loss = loss_of(call, begin, end);
    (void)thread;
    loss.losses = (double *)call->args->workspace + begin;
    call->kernel->device->kernels->cross_entropy_forward(&loss);
}

static void loss_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__cpu_loss loss = loss_of(call, begin, end);
    (void)thread;
    call->kernel->device->kernels->cross_entropy_backward(&loss);
}

static cgp_status loss_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const double *losses = args->workspace;
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, loss_forward_range);
    double loss = 0.0;
    for (int64_t row = 0; row < cgp__cpu_rows(kernel); row++)
        loss += losses[row];
    cgp__set_loss(args, loss);
    return CGP_OK;
}

static cgp_status loss_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0])
        cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, loss_input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_cross_entropy[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {loss_forward, loss_workspace},
    [CGP_OP_BACKWARD_INPUT] = {loss_input, NULL},
};
