/* SPDX-License-Identifier: Apache-2.0 */
/* add.c -- y = x[0] + x[1]. A fused RELU is applied to each block while the block is in the cache.
 *
 *     dx[0] = dx[1] = dy
 *
 * Nothing is saved. A dx[k] that shares dy's memory needs no work. */
#include "backend/cpu/ops/elementwise.h"

static void add_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_dtype type = call->kernel->spec.type;
    const cgp__cpu_kernels *kernels = call->kernel->device->kernels;
    const float slope = call->kernel->spec.attributes.slope;
    (void)thread;
    for (int64_t e = begin, n; e < end; e += n) {
        void *y = cgp__cpu_at(type, args->y, e);
        n = end - e < CGP__CPU_SPLIT ? end - e : CGP__CPU_SPLIT;
        kernels->add(type, y, cgp__cpu_at(type, args->x[0], e), type,
                     cgp__cpu_at(type, args->x[1], e), n);
        if (slope != 1.0f) kernels->elementwise[CGP_OP_RELU]->forward(type, y, y, n, slope);
    }
}

static cgp_status add_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, add_range);
    return CGP_OK;
}

/* Process the last input first. Both inputs may be the same value, and the gradients of a value's
 * uses are added from the last use to the first. */
static cgp_status add_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    for (int k = CGP_OP_MAX_INPUTS - 1; k >= 0; k--)
        cgp__cpu_pass(kernel->device, kernel->spec.type, args->dx[k], args->dy,
                      cgp__cpu_size(kernel), cgp__cpu_adds(kernel, k));
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_add[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {add_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {add_input, NULL},
};
