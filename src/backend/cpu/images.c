/* SPDX-License-Identifier: Apache-2.0 */
/* images.c -- MAX_POOL, AVERAGE_POOL, UPSAMPLE, PAD, CONCAT: rows of images handed to the loops.
 *
 * None saves anything. UPSAMPLE is the average pool turned round: what the pool reads, it writes, and instead
 * of means it has sums. */
#include "backend/cpu/cpu.h"

#include <string.h>

/* --- pools: the small side has a pixel for each window over the large side --- */

typedef void run_row(const cgp__cpu_pool *p, void *to, int64_t row);

typedef struct pool {
    const cgp__kernel *kernel;
    const cgp__kernel_args *args;
    cgp__op_attributes g; /* large: height, width. small: out_height, out_width */
    const void *from;
    void *to;
    bool mean, add;
    bool back;    /* from small to large */
    run_row *row; /* a row of what is made */
} pool;

/* Row `row` of those of all samples, of the small or the large side. */
static void *row_of(const pool *w, const void *memory, bool large, int64_t row) {
    const int64_t width = large ? w->g.width : w->g.out_width;
    return cgp__cpu_at(w->kernel->spec.type, memory, row * width * w->g.in);
}

static int64_t height_of(const pool *w, bool large) {
    return large ? w->g.height : w->g.out_height;
}

static int64_t pool_temporaries(const cgp__kernel_spec *spec, int threads) {
    return threads * cgp__cpu_pool_capacity(&spec->attributes) * (int64_t)sizeof(float);
}

static cgp__cpu_pool pool_of(const pool *w, int64_t sample, float *capacity) {
    return (cgp__cpu_pool){.type = w->kernel->spec.type,
                           .attributes = &w->g,
                           .from =
                               row_of(w, w->from, !w->back, sample * height_of(w, !w->back)),
                           .mean = w->mean,
                           .add = w->add,
                           .capacity = capacity};
}

static void pool_part(const void *work, int64_t begin, int64_t end, int thread) {
    const pool *w = work;
    const int64_t height = height_of(w, w->back);
    float *capacity = (float *)w->args->workspace + thread * cgp__cpu_pool_capacity(&w->g);
    for (int64_t row = begin; row < end; row++) {
        const cgp__cpu_pool p = pool_of(w, row / height, capacity);
        w->row(&p, row_of(w, w->to, w->back, row), row % height);
    }
}

static cgp_status pool_run(const pool *w) {
    const int64_t width = w->back ? w->g.width : w->g.out_width;
    if (w->to)
        cgp__cpu_parallel_for(w->kernel->device, w->kernel->spec.n * height_of(w, w->back),
                              cgp__cpu_block_rows(width * w->g.in), pool_part, w);
    return CGP_OK;
}

static pool pool_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    return (pool){.kernel = kernel,
                  .args = args,
                  .g = kernel->spec.attributes,
                  .from = args->x[0],
                  .to = args->y,
                  .mean = true};
}

static pool pool_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    return (pool){.kernel = kernel,
                  .args = args,
                  .g = kernel->spec.attributes,
                  .from = args->dy,
                  .to = args->dx[0],
                  .mean = true,
                  .add = cgp__cpu_adds(kernel, 0),
                  .back = true};
}

static cgp_status average_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pool w = pool_forward(kernel, args);
    w.row = kernel->device->loops->pool_sum;
    return pool_run(&w);
}

static cgp_status average_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pool w = pool_input(kernel, args);
    w.row = kernel->device->loops->pool_sum_back;
    return pool_run(&w);
}

const cgp__cpu_op cgp__cpu_average_pool[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {average_forward, pool_temporaries},
    [CGP__BACKWARD_INPUT] = {average_input, pool_temporaries},
};

/* --- MAX_POOL backward: the places of the maxima, then what they bring to each row of dx ---
 *
 * Both for a block of rows at a time, so that the places, in the workspace of a thread, stay in the cache. A window that
 * reaches into two blocks is looked at for each: an element's sum is the same wherever a block ends. */

#define PLACES 65536 /* of a block, if its windows are not larger */

/* Rows of a block of dx: a multiple of the stride, few windows reach into two then. */
static int64_t max_rows(const cgp__op_attributes *g) {
    const int64_t stride = g->stride_height;
    const int64_t fit = PLACES / ((int64_t)g->out_width * g->in) * stride;
    const int64_t rows = fit > g->kernel_height ? fit : g->kernel_height;
    return cgp__min((rows + stride - 1) / stride * stride, g->height);
}

/* Floats for the places of the windows that see some row of a block. */
static int64_t max_places(const cgp__op_attributes *g) {
    const int64_t windows = (max_rows(g) + g->kernel_height - 2) / g->stride_height + 1;
    return cgp__cpu_padded(cgp__min(windows, g->out_height) * g->out_width * g->in) +
           CGP__CPU_POOL_SLACK;
}

/* Floats of a thread. */
static int64_t max_capacity(const cgp__op_attributes *g) {
    return max_places(g) + 2 * cgp__cpu_pool_capacity(g);
}

static int64_t max_temporaries(const cgp__kernel_spec *spec, int threads) {
    return threads * max_capacity(&spec->attributes) * (int64_t)sizeof(float);
}

/* Rows begin .. end - 1 of dx of a sample. */
static void max_block(const pool *w, int64_t sample, int64_t begin, int64_t end,
                      float *capacity) {
    const cgp__op_attributes *g = &w->g;
    const cgp__cpu_kernels *loops = w->kernel->device->loops;
    const int64_t before = begin + g->top - g->kernel_height + g->stride_height;
    const int64_t first = before < 0 ? 0 : before / g->stride_height;
    const int64_t last =
        cgp__min((end - 1 + g->top) / g->stride_height, (int64_t)g->out_height - 1);
    float *places = capacity + 2 * cgp__cpu_pool_capacity(g);
    cgp__cpu_pool image = pool_of(w, sample, capacity), gradient = image;
    image.from = row_of(w, w->args->x[0], true, sample * g->height);
    gradient.places = places;
    gradient.first = first;
    for (int64_t i = first; i <= last; i++)
        loops->pool_max_places(&image, places + (i - first) * g->out_width * g->in, i);
    for (int64_t row = begin; row < end; row++)
        loops->pool_max_back(&gradient, row_of(w, w->to, true, sample * g->height + row), row);
}

static void max_input_part(const void *work, int64_t begin, int64_t end, int thread) {
    const pool *w = work;
    const int64_t height = w->g.height, each = max_rows(&w->g);
    const int64_t blocks = (height + each - 1) / each;
    float *capacity = (float *)w->args->workspace + thread * max_capacity(&w->g);
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = item % blocks * each;
        max_block(w, item / blocks, row, cgp__min(row + each, height), capacity);
    }
}

static cgp_status max_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const pool w = pool_input(kernel, args);
    const int64_t each = max_rows(&w.g), blocks = (w.g.height + each - 1) / each;
    if (w.to)
        cgp__cpu_parallel_for(kernel->device, kernel->spec.n * blocks,
                              cgp__cpu_block_rows(each * w.g.width * w.g.in), max_input_part,
                              &w);
    return CGP_OK;
}

static cgp_status max_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pool w = pool_forward(kernel, args);
    w.row = kernel->device->loops->pool_max;
    return pool_run(&w);
}

const cgp__cpu_op cgp__cpu_max_pool[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {max_forward, pool_temporaries},
    [CGP__BACKWARD_INPUT] = {max_input, max_temporaries},
};

/* --- UPSAMPLE: y is the large side, windows beside each other --- */

static void turn(pool *w) {
    const cgp__op_attributes *g = &w->kernel->spec.attributes;
    w->mean = false;
    w->g.height = g->out_height;
    w->g.width = g->out_width;
    w->g.out_height = g->height;
    w->g.out_width = g->width;
    w->g.kernel_height = g->stride_height;
    w->g.kernel_width = g->stride_width;
}

static cgp_status upsample_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pool w = pool_forward(kernel, args);
    turn(&w);
    w.back = true;
    w.row = kernel->device->loops->pool_sum_back;
    return pool_run(&w);
}

static cgp_status upsample_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    pool w = pool_input(kernel, args);
    turn(&w);
    w.back = false;
    w.row = kernel->device->loops->pool_sum;
    return pool_run(&w);
}

const cgp__cpu_op cgp__cpu_upsample[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {upsample_forward, pool_temporaries},
    [CGP__BACKWARD_INPUT] = {upsample_input, pool_temporaries},
};

/* --- PAD: an image laid on another, of which it covers a part --- */

typedef struct laid {
    const cgp__kernel *kernel;
    void *to;
    const void *from;
    int64_t to_height, to_width, from_height, from_width;
    int64_t top, left; /* to (i, j) is from (i - top, j - left), or zero */
    bool add;
} laid;

/* One row of `to`. */
static void lay_row(const laid *w, void *to, const void *from) {
    const int64_t channels = w->kernel->spec.attributes.in;
    const cgp_dtype type = w->kernel->spec.type;
    const int64_t begin = from && w->left > 0 ? cgp__min(w->left, w->to_width) : 0;
    const int64_t covered = from ? cgp__min(w->left + w->from_width, w->to_width) : 0;
    const int64_t end = covered > begin ? covered : begin;
    const size_t pixel = (size_t)channels * cgp_dtype_bytes(type);
    if (!w->add) {
        memset(to, 0, (size_t)begin * pixel);
        memset((char *)to + (size_t)end * pixel, 0, (size_t)(w->to_width - end) * pixel);
    }
    if (end == begin) return;
    w->kernel->device->loops->copy_rows(type, cgp__cpu_at(type, to, begin * channels), 0,
                                        cgp__cpu_at(type, from, (begin - w->left) * channels),
                                        0, 1, (end - begin) * channels, w->add);
}

static void lay_part(const void *work, int64_t begin, int64_t end, int thread) {
    const laid *w = work;
    const int64_t channels = w->kernel->spec.attributes.in;
    const cgp_dtype type = w->kernel->spec.type;
    (void)thread;
    for (int64_t row = begin; row < end; row++) {
        const int64_t sample = row / w->to_height, i = row % w->to_height - w->top;
        const int64_t at = (sample * w->from_height + i) * w->from_width * channels;
        const bool covered = i >= 0 && i < w->from_height;
        lay_row(w, cgp__cpu_at(type, w->to, row * w->to_width * channels),
                covered ? cgp__cpu_at(type, w->from, at) : NULL);
    }
}

static void lay(const laid *w) {
    const cgp__kernel_spec *spec = &w->kernel->spec;
    cgp__cpu_parallel_for(w->kernel->device, spec->n * w->to_height,
                          cgp__cpu_block_rows(w->to_width * spec->attributes.in), lay_part, w);
}

static cgp_status pad_forward(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__op_attributes *g = &kernel->spec.attributes;
    const laid w = {.kernel = kernel,
                    .to = args->y,
                    .from = args->x[0],
                    .to_height = g->out_height,
                    .to_width = g->out_width,
                    .from_height = g->height,
                    .from_width = g->width,
                    .top = g->top,
                    .left = g->left};
    lay(&w);
    return CGP_OK;
}

static cgp_status pad_input(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    const cgp__op_attributes *g = &kernel->spec.attributes;
    const laid w = {.kernel = kernel,
                    .to = args->dx[0],
                    .from = args->dy,
                    .to_height = g->height,
                    .to_width = g->width,
                    .from_height = g->out_height,
                    .from_width = g->out_width,
                    .top = -g->top,
                    .left = -g->left,
                    .add = cgp__cpu_adds(kernel, 0)};
    if (w.to) lay(&w);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_pad[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {pad_forward, NULL},
    [CGP__BACKWARD_INPUT] = {pad_input, NULL},
};

/* --- CONCAT: inputs are columns of y; as in ADD, the last gradient first --- */

static void concat_part(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__cpu_call *call = work;
    const cgp__kernel_args *args = call->args;
    const cgp__op_attributes *g = &call->kernel->spec.attributes;
    const cgp_dtype type = call->kernel->spec.type;
    const bool back = call->kernel->spec.direction == CGP__BACKWARD_INPUT;
    int64_t column = g->out;
    (void)thread;
    for (int k = CGP__MAX_INPUTS - 1; k >= 0; k--) {
        const int64_t width = g->parts[k];
        column -= width;
        const void *part = back ? args->dx[k] : args->x[k];
        if (width == 0 || !part) continue;
        void *own = cgp__cpu_at(type, part, begin * width);
        void *all = cgp__cpu_at(type, back ? args->dy : args->y, begin * g->out + column);
        if (back)
            call->kernel->device->loops->copy_rows(type, own, width, all, g->out, end - begin,
                                                   width, cgp__cpu_adds(call->kernel, k));
        else
            call->kernel->device->loops->copy_rows(type, all, g->out, own, width, end - begin,
                                                   width, false);
    }
}

static cgp_status concat_run(const cgp__kernel *kernel, const cgp__kernel_args *args) {
    cgp__cpu_parallel_for_rows(kernel, args, kernel->spec.attributes.out, concat_part);
    return CGP_OK;
}

const cgp__cpu_op cgp__cpu_concat[CGP__DIRECTIONS] = {
    [CGP__FORWARD] = {concat_run, NULL},
    [CGP__BACKWARD_INPUT] = {concat_run, NULL},
};
