/* SPDX-License-Identifier: Apache-2.0 */
/* upsample.c -- UPSAMPLE: each pixel becomes a block of equal pixels; dx is the sum of dy over a
 * block.
 *
 * This is average pooling with forward and backward exchanged, and sums in place of means. y is the
 * large side, and each pixel of x corresponds to a window of y. */
#include "backend/cpu/ops/pool.h"

static void exchange_sides(cgp__cpu_pooling *w) {
    const cgp_op_windows *g = cgp_spec_windows(&w->kernel->spec);
    w->mean = false;
    w->attributes.height = g->out_height;
    w->attributes.width = g->out_width;
    w->attributes.out_height = g->height;
    w->attributes.out_width = g->width;
    w->attributes.kernel_height = g->stride_height;
    w->attributes.kernel_width = g->stride_width;
}

static cgp_status upsample_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pooling w = cgp__cpu_pooling_forward(kernel, args);
    exchange_sides(&w);
    w.to_large = true;
    w.row = kernel->device->kernels->pool_sum_back;
    return cgp__cpu_pooling_run(&w);
}

static cgp_status upsample_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pooling w = cgp__cpu_pooling_backward(kernel, args);
    exchange_sides(&w);
    w.to_large = false;
    w.row = kernel->device->kernels->pool_sum;
    return cgp__cpu_pooling_run(&w);
}

const cgp__cpu_op cgp__cpu_upsample[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {upsample_forward, cgp__cpu_pooling_workspace},
    [CGP_OP_BACKWARD_INPUT] = {upsample_input, cgp__cpu_pooling_workspace},
};
