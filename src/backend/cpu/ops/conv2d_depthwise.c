/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_depthwise.c -- depthwise convolution, in which each channel is a group; weight [KH, KW,
 * C].
 *
 * A row of the result is computed directly (kernels/depthwise.c) from a list of taps, without
 * windows or GEMM. For the gradient of the input, a row of pixels is divided into `stride` classes
 * (w mod stride). The pixels of a class have the same taps. Threads take rows.
 *
 * The gradient of the weight is summed over blocks of rows, about PIXELS pixels each. The sums of
 * blocks are added in order. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/operands.h"
#include "backend/cpu/ops/windows.h"

#include <string.h>

#define PIXELS 512

static int64_t taps_of(const cgp_op_windows *g) {
    return (int64_t)g->kernel_height * g->kernel_width;
}

/* --- rows of y and of dx --- */

typedef struct rows_work {
    cgp_device *device;
    const cgp__cpu_convolution *conv;
    cgp__cpu_tap *taps; /* [threads, KH KW] */
} rows_work;

/* Compute row i of a sample's y. */
static void forward_row(const rows_work *w, int64_t sample, int64_t i, cgp__cpu_tap *taps) {
    const cgp__cpu_convolution *conv = w->conv;
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const cgp_dtype type = conv->spec->type;
    const int64_t line = (int64_t)g->width * g->in;
    cgp__cpu_depthwise p = {
        .type = type,
        .from = cgp__cpu_at(type, conv->x, sample * g->height * line),
        .weight = conv->weight,
        .bias = conv->bias,
        .to = cgp__cpu_at(type, conv->to, (sample * g->out_height + i) * g->out_width * g->in),
        .add = conv->add,
        .channels = g->in,
        .columns = g->width,
        .step = g->stride_width,
        .outputs = g->out_width,
        .to_step = g->in,
        .taps = taps};
    for (int64_t u = 0; u < g->kernel_height; u++) {
        const int64_t h = i * g->stride_height - g->top + u * g->dilation_height;
        for (int64_t v = 0; h >= 0 && h < g->height && v < g->kernel_width; v++)
            taps[p.n_taps++] = (cgp__cpu_tap){h * line, v * g->dilation_width - g->left,
                                              (u * g->kernel_width + v) * g->in};
    }
    w->device->kernels->depthwise_row(&p);
}

/* Append the taps of kernel row u that apply to the pixels c + stride * q of a row of dx. Return
 * the number of these taps. */
static int64_t add_taps(const cgp_op_windows *g, int64_t u, int64_t line, int64_t c,
                        cgp__cpu_tap *taps) {
    int64_t n = 0;
    for (int64_t v = 0; v < g->kernel_width; v++) {
        const int64_t from = c + g->left - v * g->dilation_width;
        if (from % g->stride_width == 0)
            taps[n++] =
                (cgp__cpu_tap){line, from / g->stride_width, (u * g->kernel_width + v) * g->in};
    }
    return n;
}

/* Compute row h of a sample's dx. */
static void input_row(const rows_work *w, int64_t sample, int64_t h, cgp__cpu_tap *taps) {
    const cgp__cpu_convolution *conv = w->conv;
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const cgp_dtype type = conv->spec->type;
    const int64_t line = (int64_t)g->out_width * g->in;
    cgp__cpu_depthwise p = {.type = type,
                            .from = cgp__cpu_at(type, conv->x, sample * g->out_height * line),
                            .weight = conv->weight,
                            .bias = conv->bias,
                            .add = conv->add,
                            .channels = g->in,
                            .columns = g->out_width,
                            .step = 1,
                            .to_step = g->stride_width * g->in,
                            .taps = taps};
    for (int64_t c = 0; c < g->stride_width && c < g->width; c++) {
        p.n_taps = 0;
        p.outputs = (g->width - c + g->stride_width - 1) / g->stride_width;
        p.to = cgp__cpu_at(type, conv->to, ((sample * g->height + h) * g->width + c) * g->in);
        for (int64_t u = 0; u < g->kernel_height; u++) {
            const int64_t from = h + g->top - u * g->dilation_height, i = from / g->stride_height;
            if (from >= 0 && from % g->stride_height == 0 && i < g->out_height)
                p.n_taps += add_taps(g, u, i * line, c, taps + p.n_taps);
        }
        w->device->kernels->depthwise_row(&p);
    }
}

static void forward_rows(const void *work, int64_t begin, int64_t end, int thread) {
    const rows_work *w = work;
    const cgp_op_windows *g = cgp_spec_windows(w->conv->spec);
    for (int64_t r = begin; r < end; r++)
        forward_row(w, r / g->out_height, r % g->out_height, w->taps + thread * taps_of(g));
}

static void input_rows(const void *work, int64_t begin, int64_t end, int thread) {
    const rows_work *w = work;
    const cgp_op_windows *g = cgp_spec_windows(w->conv->spec);
    for (int64_t r = begin; r < end; r++)
        input_row(w, r / g->height, r % g->height, w->taps + thread * taps_of(g));
}

/* Return the work of a row of `width` pixels, as an equivalent number of elements. */
static int64_t row_work(const cgp_op_windows *g, int64_t width) {
    return width * g->in * (1 + taps_of(g) / 4);
}

void cgp__depthwise_convolve(cgp_device *device, const cgp__cpu_convolution *conv,
                             void *workspace) {
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const rows_work w = {device, conv, workspace};
    cgp__cpu_parallel_for(device, conv->spec->n * g->out_height,
                          cgp__cpu_block_rows(row_work(g, g->out_width)), forward_rows, &w);
}

void cgp__depthwise_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                        void *workspace) {
    const cgp_op_windows *g = cgp_spec_windows(conv->spec);
    const rows_work w = {device, conv, workspace};
    cgp__cpu_parallel_for(device, conv->spec->n * g->height,
                          cgp__cpu_block_rows(row_work(g, g->width)), input_rows, &w);
}

int64_t cgp__depthwise_convolve_bytes(const cgp_kernel_spec *spec, int threads) {
    return threads * cgp__align_up(taps_of(cgp_spec_windows(spec)) * (int64_t)sizeof(cgp__cpu_tap));
}

/* --- the gradient of the weight --- */

typedef struct weight_work {
    cgp_device *device;
    const cgp_kernel_spec *spec;
    const void *x, *dy;
    float *dw;
    bool add;
    float *sums; /* [threads, KH KW C] */
} weight_work;

static int64_t weight_elements(const cgp_op_windows *g) {
    return taps_of(g) * g->in;
}

static int64_t rows_at_once(const cgp_op_windows *g) {
    return cgp__max(PIXELS / g->out_width, 1);
}

static void make_block(const void *work, int64_t block, int thread) {
    const weight_work *w = work;
    const cgp_op_windows *g = cgp_spec_windows(w->spec);
    const int64_t rows = rows_at_once(g), first = block * rows;
    const cgp__cpu_depthwise_weight p = {.type = w->spec->type,
                                         .attributes = g,
                                         .x = w->x,
                                         .dy = w->dy,
                                         .first = first,
                                         .rows = cgp__min(rows, w->spec->n * g->out_height - first),
                                         .sums = w->sums + thread * weight_elements(g)};
    w->device->kernels->depthwise_weight(&p);
}

static void add_block(const void *work, int64_t block, int thread) {
    const weight_work *w = work;
    const int64_t n = weight_elements(cgp_spec_windows(w->spec));
    const float *sums = w->sums + thread * n;
    if (block > 0 || w->add)
        w->device->kernels->add(CGP_F32, w->dw, w->dw, CGP_F32, sums, n);
    else
        memcpy(w->dw, sums, (size_t)n * sizeof *sums);
}

void cgp__depthwise_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                           const void *dy, float *dw, bool add, void *workspace) {
    const cgp_op_windows *g = cgp_spec_windows(spec);
    const weight_work w = {device, spec, x, dy, dw, add, workspace};
    const int64_t rows = spec->n * g->out_height, blocks = cgp__ceil_div(rows, rows_at_once(g));
    if (device->threads > 1 && rows * row_work(g, g->out_width) >= CGP__GEMM_MIN_WORK) {
        cgp__cpu_parallel_in_order(device, blocks, make_block, add_block, &w);
        return;
    }
    for (int64_t block = 0; block < blocks; block++) {
        make_block(&w, block, 0);
        add_block(&w, block, 0);
    }
}

int64_t cgp__depthwise_weight_bytes(const cgp_kernel_spec *spec, int threads) {
    return cgp__align_up(threads * weight_elements(cgp_spec_windows(spec)) *
                         (int64_t)sizeof(float));
}
