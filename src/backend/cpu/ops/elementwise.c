/* SPDX-License-Identifier: Apache-2.0 */
/* elementwise.c -- the elementwise ops of one input: y = f(x), dx = dy f'. The ops differ only in
 * their kernel, which defines whether backward reads x, y or neither. */
#include "backend/cpu/ops/elementwise.h"

static void forward_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    (void)thread;
    call->kernel->device->kernels->elementwise[spec->op]->forward(
        spec->type, cgp__cpu_at(spec->type, call->args->y, begin),
        cgp__cpu_at(spec->type, call->args->x[0], begin), end - begin, spec->attributes.slope);
}

static const void *operand_of(const cgp_kernel_args *args, cgp__cpu_reads reads) {
    return reads == CGP__CPU_READS_X ? args->x[0] : reads == CGP__CPU_READS_Y ? args->y : args->dy;
}

static void input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp_kernel_args *args = call->args;
    const cgp_kernel_spec *spec = &call->kernel->spec;
    const cgp__cpu_elementwise *op = call->kernel->device->kernels->elementwise[spec->op];
    (void)thread;
    op->backward(spec->type, cgp__cpu_at(spec->type, args->dx[0], begin),
                 cgp__cpu_at(spec->type, operand_of(args, op->reads), begin),
                 cgp__cpu_at(spec->type, args->dy, begin), end - begin, spec->attributes.slope,
                 cgp__cpu_adds(call->kernel, 0));
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_parallel_for_elements(kernel, args, forward_range);
    return CGP_OK;
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (args->dx[0]) cgp__cpu_parallel_for_elements(kernel, args, input_range);
    return CGP_OK;
}

#define OP(kind, name, family)                                                                     \
    const cgp__cpu_op cgp__cpu_##name[CGP_OP_DIRECTIONS] = {                                       \
        [CGP_OP_FORWARD] = {forward, NULL}, [CGP_OP_BACKWARD_INPUT] = {input, NULL}};
CGP_ELEMENTWISE_OPS(OP)
