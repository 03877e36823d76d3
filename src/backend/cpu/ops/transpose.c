/* SPDX-License-Identifier: Apache-2.0 */
/* transpose.c -- TRANSPOSE: to [a, j, b, i, c] = from [a, i, b, j, c]; `a` includes samples. Runs
 * of c elements are copied; if c = 1, squares are transposed. Backward exchanges i and j. Threads
 * take blocks of j. */
#include "backend/cpu/cpu.h"

/* Number of values of j per item. It is a multiple of the vector length of every instruction
 * set. */
#define COLUMNS 16

typedef struct exchange {
    const cgp_kernel *kernel;
    void *to;
    const void *from;
    /* Extents of `from`. */
    int64_t i, b, j, c;
    bool add;
} exchange;

/* Copy `count` values of j, starting at `first`, for one value of `a` and one value of `b`. */
static void run_columns(const exchange *w, int64_t a, int64_t b, int64_t first, int64_t count) {
    const cgp__cpu_kernels *kernels = w->kernel->device->kernels;
    const cgp_dtype type = w->kernel->spec.type;
    const int64_t to_row = w->b * w->i * w->c, from_row = w->b * w->j * w->c;
    void *to = cgp__cpu_at(type, w->to, (a * w->j + first) * to_row + b * w->i * w->c);
    const void *from = cgp__cpu_at(type, w->from, a * w->i * from_row + (b * w->j + first) * w->c);
    if (w->c == 1) {
        kernels->transpose(type, to, to_row, from, from_row, w->i, count, w->add);
        return;
    }
    for (int64_t k = 0; k < count; k++)
        kernels->copy_rows(type, cgp__cpu_at(type, to, k * to_row), w->c,
                           cgp__cpu_at(type, from, k * w->c), from_row, w->i, w->c, w->add);
}

static void exchange_range(const void *work, int64_t begin, int64_t end, int thread) {
    const exchange *w = work;
    const int64_t blocks = cgp__ceil_div(w->j, COLUMNS);
    (void)thread;
    for (int64_t item = begin; item < end; item++) {
        const int64_t first = item / w->b % blocks * COLUMNS;
        run_columns(w, item / w->b / blocks, item % w->b, first, cgp__min(w->j - first, COLUMNS));
    }
}

static void run(const exchange *w) {
    const int64_t elements = cgp__cpu_rows(w->kernel) * w->kernel->spec.attributes.out;
    const int64_t lines = elements / (w->i * w->c), blocks = cgp__ceil_div(w->j, COLUMNS);
    cgp__cpu_parallel_for(w->kernel->device, lines / w->j * blocks,
                          cgp__cpu_block_rows(cgp__min(w->j, COLUMNS) * w->i * w->c),
                          exchange_range, w);
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t *parts = cgp_spec_parts(&kernel->spec)->parts;
    const exchange w = {.kernel = kernel,
                        .to = args->y,
                        .from = args->x[0],
                        .i = parts[0],
                        .b = parts[1],
                        .j = parts[2],
                        .c = parts[3]};
    run(&w);
    return CGP_OK;
}

static cgp_status input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const int64_t *parts = cgp_spec_parts(&kernel->spec)->parts;
    const exchange w = {.kernel = kernel,
                        .to = args->dx[0],
                        .from = args->dy,
                        .i = parts[2],
                        .b = parts[1],
                        .j = parts[0],
                        .c = parts[3],
                        .add = cgp__cpu_adds(kernel, 0)};
    if (w.to) run(&w);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_transpose[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, NULL},
    [CGP_OP_BACKWARD_INPUT] = {input, NULL},
};
