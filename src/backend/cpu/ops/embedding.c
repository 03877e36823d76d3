/* SPDX-License-Identifier: Apache-2.0 */
/* embedding.c -- y [N, C] = weight[ids]; dweight[ids] += dy, in the order of rows.
 *
 * Threads take columns of dweight, not rows, because several rows of dy may have the same id. */
#include "backend/cpu/cpu.h"

static void embedding_forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = call->kernel->spec.attributes.out;
    const float *weight = call->args->param[0];
    const int32_t *ids = call->args->x[0];
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t row = begin; row < end; row++)
        call->kernel->device->kernels->convert(type, cgp__cpu_at(type, call->args->y, row * width),
                                               CGP_F32, weight + ids[row] * width, width);
}

static cgp_status embedding_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, embedding_forward_range);
    return CGP_OK;
}

/* Run columns begin .. end - 1, for all rows. */
static void embedding_weight_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t rows = cgp__cpu_rows(call->kernel), width = call->kernel->spec.attributes.out;
    const int32_t *ids = call->args->x[0];
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t row = 0; row < rows; row++) {
        float *to = call->args->dparam[0] + ids[row] * width + begin;
        const void *dy = cgp__cpu_at(type, call->args->dy, row * width + begin);
        call->kernel->device->kernels->add(CGP_F32, to, to, type, dy, end - begin);
    }
}

static cgp_status embedding_weight(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t width = kernel->spec.attributes.out;
    const cgp__cpu_call call = {kernel, args};
    if (args->first)
        cgp__cpu_clear(kernel->device, args->dparam[0], kernel->spec.attributes.in * width);
    cgp__cpu_parallel_for(kernel->device, width,
                          cgp__cpu_block_columns(cgp__cpu_rows(kernel), width),
                          embedding_weight_range, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_embedding[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {embedding_forward, NULL},
    [CGP_OP_BACKWARD_WEIGHT] = {embedding_weight, NULL},
};
