/* SPDX-License-Identifier: Apache-2.0 */
/* element_losses.c -- losses that are sums over elements. The sums of blocks are added in the order
 * of blocks. The gradient dx may overwrite x. */
#include "backend/cpu/operands.h"
#include "backend/cpu/ops/elementwise.h"

/* Return the loss arguments for elements begin .. end - 1 of all samples. */
static cgp__cpu_element_loss loss_of(const cgp__cpu_call *call, int64_t begin, int64_t end) {
    const cgp_kernel_args *args = call->args;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    void *dx = args->dx[0];
    /* backward of WEIGHTED_MEAN has no x */
    const void *x = args->x[0] ? args->x[0] : args->x[1];
    return (cgp__cpu_element_loss){.op = spec->op,
                                   .type = spec->type,
                                   .n = end - begin,
                                   .beta = (float)cgp_spec_element_loss(spec)->beta,
                                   .x = cgp__cpu_at(spec->type, x, begin),
                                   .targets = cgp__cpu_at(spec->type, args->x[1], begin),
                                   .dx = dx ? cgp__cpu_at(spec->type, dx, begin) : NULL,
                                   .scale = cgp__loss_scale(args),
                                   .add = cgp__cpu_adds(call->kernel, 0)};
}

/* Return the workspace size in bytes: one sum for each block. */
static int64_t loss_workspace(const cgp_kernel_spec *spec, int threads) {
    (void)threads;
    return spec->n * cgp__cpu_sample_blocks(spec->attributes.rows * spec->attributes.out) *
           (int64_t)sizeof(double);
}

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t size = cgp__cpu_sample_size(call->kernel);
    double *sums = call->args->workspace;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const cgp__cpu_sample_block block = cgp__cpu_sample_block_of(i, size);
        const int64_t at = block.sample * size;
        cgp__cpu_element_loss loss = loss_of(call, at + block.begin, at + block.end);
        loss.sum = &sums[i];
        call->kernel->device->kernels->element_loss_forward(&loss);
    }
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t size = cgp__cpu_sample_size(kernel),
                  blocks = kernel->spec.n * cgp__cpu_sample_blocks(size);
    const cgp__cpu_call call = {kernel, args};
    const double *sums = args->workspace;
    cgp__cpu_parallel_for(kernel->device, blocks, cgp__cpu_block_rows(size), forward_range, &call);
    double loss = 0.0;
    for (int64_t i = 0; i < blocks; i++)
        loss += sums[i];
    cgp__set_loss(args, loss);
    return CGP_OK;
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__cpu_element_loss loss = loss_of(call, begin, end);
    (void)thread;
    call->kernel->device->kernels->element_loss_backward(&loss);
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, input_range);
    return CGP_OK;
}

#define ELEMENT_LOSS(name)                                                                         \
    const cgp__cpu_op cgp__cpu_##name[CGP_OP_DIRECTIONS] = {                                       \
        [CGP_OP_FORWARD] = {forward, loss_workspace},                                              \
        [CGP_OP_BACKWARD_INPUT] = {input, NULL},                                                   \
    };
ELEMENT_LOSS(bce_with_logits)
ELEMENT_LOSS(mse)
ELEMENT_LOSS(smooth_l1)
ELEMENT_LOSS(weighted_mean)
