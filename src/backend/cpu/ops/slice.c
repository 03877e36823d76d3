/* SPDX-License-Identifier: Apache-2.0 */
/* slice.c -- SLICE: y [R, C] = columns of x [R, in], starting at parts[0]. Backward either
 * overwrites dx, with zeros outside these columns, or adds to these columns and leaves the others
 * unchanged. Threads take parts of rows, because a slice along the first dimension has a single
 * row. */
#include "backend/cpu/cpu.h"

#include <string.h>

/* Write columns begin .. end - 1 of a row of dx. */
static void write_part(const cgp_kernel *kernel, void *dx, const void *dy, int64_t begin,
                       int64_t end) {
    const cgp_op_parts *g = cgp_spec_parts(&kernel->spec);
    const size_t element = cgp_dtype_bytes(kernel->spec.type);
    const int64_t from = cgp__min(cgp__max(g->parts[0], begin), end);
    const int64_t to = cgp__min(cgp__max(g->parts[0] + g->out, from), end);
    memset((char *)dx + (size_t)begin * element, 0, (size_t)(from - begin) * element);
    if (to > from)
        memcpy((char *)dx + (size_t)from * element,
               (const char *)dy + (size_t)(from - g->parts[0]) * element,
               (size_t)(to - from) * element);
    memset((char *)dx + (size_t)to * element, 0, (size_t)(end - to) * element);
}

/* Return the number of elements of a row that this direction writes. */
static int64_t width_of(const cgp_kernel_spec *spec) {
    const bool writes_all = spec->direction == CGP_OP_BACKWARD_INPUT && !(spec->add & 1u);
    return writes_all ? spec->attributes.in : spec->attributes.out;
}

/* Run columns begin .. end - 1 of one row; columns are counted over the width_of() columns that
 * this direction writes. */
static void run_part(const cgp_kernel *kernel, const cgp_kernel_args *args, int64_t row,
                     int64_t begin, int64_t end) {
    const cgp_op_parts *g = cgp_spec_parts(&kernel->spec);
    const cgp_dtype type = kernel->spec.type;
    const int64_t of_x = row * g->in + g->parts[0] + begin, of_y = row * g->out + begin;
    if (kernel->spec.direction == CGP_OP_FORWARD)
        memcpy(cgp__cpu_at(type, args->y, of_y), cgp__cpu_at(type, args->x[0], of_x),
               (size_t)(end - begin) * cgp_dtype_bytes(type));
    else if (cgp__cpu_adds(kernel, 0))
        kernel->device->kernels->copy_rows(type, cgp__cpu_at(type, args->dx[0], of_x), 0,
                                           cgp__cpu_at(type, args->dy, of_y), 0, 1, end - begin,
                                           true);
    else
        write_part(kernel, cgp__cpu_at(type, args->dx[0], row * g->in),
                   cgp__cpu_at(type, args->dy, row * g->out), begin, end);
}

static void slice_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const int64_t width = width_of(&call->kernel->spec);
    const int64_t parts = cgp__ceil_div(width, CGP__CPU_SPLIT);
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item % parts * CGP__CPU_SPLIT;
        run_part(call->kernel, call->args, item / parts, first,
                 cgp__min(first + CGP__CPU_SPLIT, width));
    }
}

static cgp_status run(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__cpu_call call = {kernel, args};
    const int64_t width = width_of(&kernel->spec);
    if (kernel->spec.direction != CGP_OP_FORWARD && !args->dx[0]) return CGP_OK;
    cgp__cpu_parallel_for(kernel->device,
                          cgp__cpu_rows(kernel) * cgp__ceil_div(width, CGP__CPU_SPLIT),
                          cgp__cpu_block_rows(cgp__min(width, CGP__CPU_SPLIT)), slice_range, &call);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_slice[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {run, NULL},
    [CGP_OP_BACKWARD_INPUT] = {run, NULL},
};
