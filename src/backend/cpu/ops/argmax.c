/* SPDX-License-Identifier: Apache-2.0 */
/* argmax.c -- y[row] = the first c with the largest x[row, c]; a NaN never counts as the
 * largest. */
#include "backend/cpu/cpu.h"

#include "base/bf16.h"

static inline float scalar(cgp_dtype type, const void *x, int64_t i) {
    return type == CGP_BF16 ? cgp__bf16_to_float(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

static inline int64_t largest(cgp_dtype type, const void *x, int64_t width) {
    int64_t best = 0;
    for (int64_t c = 1; c < width; c++)
        best = scalar(type, x, c) > scalar(type, x, best) ? c : best;
    return best;
}

static void argmax_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = call->kernel->spec.attributes.in;
    const cgp_dtype type = call->kernel->spec.type;
    int32_t *y = call->args->y;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const void *x = cgp__cpu_at(type, call->args->x[0], row * width);
        y[row] =
            (int32_t)(type == CGP_BF16 ? largest(CGP_BF16, x, width) : largest(CGP_F32, x, width));
    }
}

static cgp_status argmax_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.in, argmax_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_argmax[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {argmax_forward, NULL},
};
