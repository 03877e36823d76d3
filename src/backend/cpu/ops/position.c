/* SPDX-License-Identifier: Apache-2.0 */
/* position.c -- POSITION: y = x + weight [R, C], the same weight for every sample; dx = dy, dweight
 * = sum over samples of dy. */
#include "backend/cpu/ops/elementwise.h"

static void position_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t size = cgp__cpu_sample_size(call->kernel);
    const cgp_dtype type = call->kernel->spec.type;
    (void)thread;
    for (int64_t e = begin, n; e < end; e += n) {
        const int64_t at = e % size; /* offset of the elements in their sample */
        n = size - at < end - e ? size - at : end - e;
        call->kernel->device->kernels->add(type, cgp__cpu_at(type, call->args->y, e),
                                           cgp__cpu_at(type, call->args->x[0], e), CGP_F32,
                                           call->args->param[0] + at, n);
    }
}

static cgp_status position_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, position_range);
    return CGP_OK;
}

/* Sum dy over the samples. Each sample counts as one row. */
static cgp_status position_weight(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_sum_rows(kernel->device, args->dparam[0], kernel->spec.type, args->dy, kernel->spec.n,
                      cgp__cpu_sample_size(kernel), !args->first);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_position[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {position_forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {cgp__cpu_pass_dy, NULL},
    [CGP_OP_BACKWARD_WEIGHT] = {position_weight, NULL},
};
