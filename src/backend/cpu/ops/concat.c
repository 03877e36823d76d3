/* SPDX-License-Identifier: Apache-2.0 */
/* concat.c -- each input is a range of columns of y. Gradients are written from the last input to
 * the first, as in ADD. */
#include "backend/cpu/cpu.h"

static void concat_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_op_parts *g = cgp_spec_parts(&call->kernel->spec);
    const cgp_dtype type = call->kernel->spec.type;
    const bool back = call->kernel->spec.direction == CGP_OP_BACKWARD_INPUT;
    int64_t column = g->out;
    (void)thread;
    for (int k = CGP_OP_MAX_INPUTS - 1; k >= 0; k--) {
        const int64_t width = g->parts[k];
        column -= width;
        const void *input = back ? args->dx[k] : args->x[k];
        if (width == 0 || !input) continue;
        void *piece = cgp__cpu_at(type, input, begin * width);
        void *all = cgp__cpu_at(type, back ? args->dy : args->y, begin * g->out + column);
        if (back)
            call->kernel->device->kernels->copy_rows(type, piece, width, all, g->out, end - begin,
                                                     width, cgp__cpu_adds(call->kernel, k));
        else
            call->kernel->device->kernels->copy_rows(type, all, g->out, piece, width, end - begin,
                                                     width, false);
    }
}

static cgp_status concat_run(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, concat_range);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_concat[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {concat_run, NULL},
    [CGP_OP_BACKWARD_INPUT] = {concat_run, NULL},
};
