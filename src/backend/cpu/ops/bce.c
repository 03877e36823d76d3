/* SPDX-License-Identifier: Apache-2.0 */
/* bce.c -- binary cross-entropy with logits; the losses of blocks are summed in block order. The
 * gradient dx may overwrite the logits. */
#include "backend/cpu/ops/elementwise.h"

/* Return the workspace size in bytes: one sum for each block. */
static int64_t bce_workspace(const cgp_kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * cgp__cpu_sample_blocks(spec->attributes.rows * spec->attributes.out) *
           (int64_t)sizeof(double);
}

static void bce_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t size = cgp__cpu_sample_size(call->kernel);
    const cgp_dtype type = call->kernel->spec.type;
    double *sums = call->args->workspace;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const cgp__cpu_sample_block block = cgp__cpu_sample_block_of(i, size);
        const int64_t at = block.sample * size + block.begin;
        call->kernel->device->kernels->bce_forward(
            &sums[i], type, cgp__cpu_at(type, call->args->x[0], at),
            cgp__cpu_at(type, call->args->x[1], at), block.end - block.begin);
    }
}

static cgp_status bce_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t size = cgp__cpu_sample_size(kernel),
                  blocks = kernel->spec.n * cgp__cpu_sample_blocks(size);
    const cgp__cpu_call call = {kernel, args};
    const double *sums = args->workspace;
    cgp__cpu_parallel_for(kernel->device, blocks, cgp__cpu_block_rows(size), bce_forward_range,
                          &call);
    double loss = 0.0;
    for (int64_t i = 0; i < blocks; i++)
        loss += sums[i];
    cgp__set_loss(args, loss);
    return CGP_OK;
}

static void bce_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    call->kernel->device->kernels->bce_backward(
        type, cgp__cpu_at(type, args->dx[0], begin), cgp__cpu_at(type, args->x[0], begin),
        cgp__cpu_at(type, args->x[1], begin), end - begin, cgp__loss_scale(args),
        cgp__cpu_adds(call->kernel, 0));
}

static cgp_status bce_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, bce_input_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_bce_with_logits[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {bce_forward, bce_workspace},
    [CGP_OP_BACKWARD_INPUT] = {bce_input, NULL},
};
