/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c -- MAX_POOL, AVERAGE_POOL, and MEAN, which is an average pool. Kernels of the kernel table
 * (kernels.h) compute rows of y or dx. Nothing is saved. */
#include "backend/cpu/ops/pool.h"

#include "backend/cpu/operands.h"

/* --- rows of windows --- */

/* Return the address of row `row`, counted over all samples, on the large or the small side. */
static void *row_of(const cgp__cpu_pooling *w, const void *memory, bool large, int64_t row) {
    const int64_t width = large ? w->attributes.width : w->attributes.out_width;
    return cgp__cpu_at(w->kernel->spec.type, memory, row * width * w->attributes.in);
}

static int64_t height_of(const cgp__cpu_pooling *w, bool large) {
    return large ? w->attributes.height : w->attributes.out_height;
}

int64_t cgp__cpu_pooling_workspace(const cgp_kernel_spec *spec, int threads) {
    return threads * cgp__cpu_pool_scratch(cgp_spec_windows(spec)) * (int64_t)sizeof(float);
}

static cgp__cpu_pool pool_of(const cgp__cpu_pooling *w, int64_t sample, float *scratch) {
    return (cgp__cpu_pool){
        .type = w->kernel->spec.type,
        .attributes = &w->attributes,
        .from = row_of(w, w->from, !w->to_large, sample * height_of(w, !w->to_large)),
        .mean = w->mean,
        .add = w->add,
        .scratch = scratch};
}

static void pool_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_pooling *w = work;
    const int64_t height = height_of(w, w->to_large);
    float *scratch = (float *)w->args->workspace + thread * cgp__cpu_pool_scratch(&w->attributes);
    for (int64_t row = begin; row < end; row++) {
        const cgp__cpu_pool p = pool_of(w, row / height, scratch);
        w->row(&p, row_of(w, w->to, w->to_large, row), row % height);
    }
}

cgp_status cgp__cpu_pooling_run(const cgp__cpu_pooling *w) {
    const int64_t width = w->to_large ? w->attributes.width : w->attributes.out_width;
    if (w->to)
        cgp__cpu_parallel_for(w->kernel->device, w->kernel->spec.n * height_of(w, w->to_large),
                              cgp__cpu_block_rows(width * w->attributes.in), pool_range, w);
    return CGP_OK;
}

cgp__cpu_pooling cgp__cpu_pooling_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    return (cgp__cpu_pooling){.kernel = kernel,
                              .args = args,
                              .attributes = *cgp_spec_windows(&kernel->spec),
                              .from = args->x[0],
                              .to = args->y,
                              .mean = true};
}

cgp__cpu_pooling cgp__cpu_pooling_backward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    return (cgp__cpu_pooling){.kernel = kernel,
                              .args = args,
                              .attributes = *cgp_spec_windows(&kernel->spec),
                              .from = args->dy,
                              .to = args->dx[0],
                              .mean = true,
                              .add = cgp__cpu_adds(kernel, 0),
                              .to_large = true};
}

static cgp_status average_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pooling w = cgp__cpu_pooling_forward(kernel, args);
    w.row = kernel->device->kernels->pool_sum;
    return cgp__cpu_pooling_run(&w);
}

static cgp_status average_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pooling w = cgp__cpu_pooling_backward(kernel, args);
    w.row = kernel->device->kernels->pool_sum_back;
    return cgp__cpu_pooling_run(&w);
}

const cgp__cpu_op cgp__cpu_average_pool[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {average_forward, cgp__cpu_pooling_workspace},
    [CGP_OP_BACKWARD_INPUT] = {average_input, cgp__cpu_pooling_workspace},
};

const cgp__cpu_op cgp__cpu_mean[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {average_forward, cgp__cpu_pooling_workspace},
    [CGP_OP_BACKWARD_INPUT] = {average_input, cgp__cpu_pooling_workspace},
};

/* --- MAX_POOL backward: the argmax of each window, then the rows of dx ---
 *
 * The argmax is in the workspace of a thread. It stays in the cache, because the argmax and dx are
 * computed for one block of rows at a time. If a window lies in two blocks, its argmax is computed
 * for each of them, so an element's sum does not depend on where a block ends. */

#define WINDOWS 65536 /* maximum number of windows x channels in a block, unless one row has more */

/* Return the number of rows of a block of dx. It is a multiple of the stride, so that few windows
 * lie in two blocks. */
static int64_t max_rows(const cgp_op_windows *g) {
    const int64_t stride = g->stride_height;
    const int64_t fit = WINDOWS / ((int64_t)g->out_width * g->in) * stride;
    const int64_t rows = fit > g->kernel_height ? fit : g->kernel_height;
    return cgp__min((rows + stride - 1) / stride * stride, g->height);
}

/* Return the size, in floats, of the argmax buffer: it covers every window that overlaps the rows
 * of a block. */
static int64_t argmax_floats(const cgp_op_windows *g) {
    const int64_t windows = (max_rows(g) + g->kernel_height - 2) / g->stride_height + 1;
    return cgp__cpu_padded(cgp__min(windows, g->out_height) * g->out_width * g->in) +
           CGP__CPU_POOL_SLACK;
}

/* Return the number of scratch floats per thread. */
static int64_t max_scratch(const cgp_op_windows *g) {
    return argmax_floats(g) + 2 * cgp__cpu_pool_scratch(g);
}

static int64_t max_workspace(const cgp_kernel_spec *spec, int threads) {
    return threads * max_scratch(cgp_spec_windows(spec)) * (int64_t)sizeof(float);
}

/* Compute rows begin .. end - 1 of dx of a sample. */
static void max_block(const cgp__cpu_pooling *w, int64_t sample, int64_t begin, int64_t end,
                      float *scratch) {
    const cgp_op_windows *g = &w->attributes;
    const cgp__cpu_kernels *kernels = w->kernel->device->kernels;
    const int64_t before = begin + g->top - g->kernel_height + g->stride_height;
    const int64_t first = before < 0 ? 0 : before / g->stride_height;
    const int64_t last =
        cgp__min((end - 1 + g->top) / g->stride_height, (int64_t)g->out_height - 1);
    float *argmax = scratch + 2 * cgp__cpu_pool_scratch(g);
    cgp__cpu_pool image = pool_of(w, sample, scratch), gradient = image;
    image.from = row_of(w, w->args->x[0], true, sample * g->height);
    gradient.argmax = argmax;
    gradient.first = first;
    for (int64_t i = first; i <= last; i++)
        kernels->pool_argmax(&image, argmax + (i - first) * g->out_width * g->in, i);
    for (int64_t row = begin; row < end; row++)
        kernels->pool_max_back(&gradient, row_of(w, w->to, true, sample * g->height + row), row);
}

static void max_input_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_pooling *w = work;
    const int64_t height = w->attributes.height, each = max_rows(&w->attributes);
    const int64_t blocks = (height + each - 1) / each;
    float *scratch = (float *)w->args->workspace + thread * max_scratch(&w->attributes);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item % blocks * each;
        max_block(w, item / blocks, row, cgp__min(row + each, height), scratch);
    }
}

static cgp_status max_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp__cpu_pooling w = cgp__cpu_pooling_backward(kernel, args);
    const int64_t each = max_rows(&w.attributes), blocks = (w.attributes.height + each - 1) / each;
    if (w.to)
        cgp__cpu_parallel_for(kernel->device, kernel->spec.n * blocks,
                              cgp__cpu_block_rows(each * w.attributes.width * w.attributes.in),
                              max_input_range, &w);
    return CGP_OK;
}

static cgp_status max_forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp__cpu_pooling w = cgp__cpu_pooling_forward(kernel, args);
    w.row = kernel->device->kernels->pool_max;
    return cgp__cpu_pooling_run(&w);
}

const cgp__cpu_op cgp__cpu_max_pool[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {max_forward, cgp__cpu_pooling_workspace},
    [CGP_OP_BACKWARD_INPUT] = {max_input, max_workspace},
};
