/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d.c -- convolution as implicit GEMM (Chetlur et al. 2014, arXiv:1410.0759): windows of the
 * image times weights W [KH, KW, in, out].
 *
 *     y [pixels, out]         = windows of x [pixels, KH KW in]    W [KH KW in, out]
 *     dx [pixels, in]         = windows of dy [pixels, KH KW out]  W flipped [KH KW out, in]
 *     dW [KH KW in, out]      = (windows of x)^T                   dy [pixels, out]
 *
 * Windows are not copied one by one (no im2col). A block of output pixels is computed from a copy
 * of its input rows, which is in f32 and padded with zeros (padded_rows.c). A window then consists
 * of KH runs of KW * in floats. The distances between the runs are the same for every pixel. The
 * micro-kernel takes the address of each row of `a` from a table: indirect convolution (Dukhan
 * 2019, arXiv:1907.02129).
 *
 * With a stride of s, dx is computed by s x s GEMMs, one for each class of pixels (i mod s, j mod
 * s). The pixels of a class have the same taps of the kernel and read dy without gaps, so no GEMM
 * multiplies zeros that the stride would insert. A pointwise convolution (1 x 1, stride 1) is a
 * plain GEMM.
 *
 * conv2d_depthwise.c runs depthwise convolutions. conv2d_parts.c runs other convolutions with
 * groups or a dilation. In bf16, conv2d_bf16.c may run the GEMMs. conv2d_weight.c computes dW.
 * conv2d_winograd.c runs convolutions with a Winograd `tile`, if this is faster.
 *
 * Threads take blocks of pixels or ranges of columns. The result is the same in both cases, because
 * the division of k depends only on the size of k. Each thread has its own padded rows. */
#include "backend/cpu/ops/conv2d.h"
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/ops/windows.h"

#include <string.h>

/* Maximum k of a part, a multiple of 16. */
#define KC 512

/* --- windows times weights --- */

/* Return how many segments a part of k has. The depth k is divided into parts of whole segments. A
 * segment longer than KC is divided into equal parts; all but the last are multiples of 16. */
static int64_t segments_at_once(const cgp__output_positions *g) {
    const int64_t fit = cgp__max(KC / g->segment, 1);
    return cgp__ceil_div(g->kernel_height, cgp__ceil_div(g->kernel_height, fit));
}

static int64_t part_of_segment(const cgp__output_positions *g) {
    if (g->segment <= KC) return g->segment;
    return cgp__ceil_div(cgp__ceil_div(g->segment, cgp__ceil_div(g->segment, KC)), 16) * 16;
}

static int64_t depth_of(const cgp__output_positions *g) {
    return segments_at_once(g) * part_of_segment(g);
}

/* These functions return the bytes of each buffer in a thread's workspace: padded rows, windows,
 * pixel offsets, micro-panels of b, sums. */
static int64_t padded_bytes(const cgp__output_positions *g) {
    return cgp__padded_rows_bytes(g, CGP__WINDOW_PIXELS, CGP_F32);
}

static int64_t micro_panels_bytes(const cgp__output_positions *g) {
    return cgp__align_up(2 * depth_of(g) * CGP__GEMM_NR * (int64_t)sizeof(float));
}

static bool has_sums(const cgp__output_positions *g, cgp_dtype type) {
    return type != CGP_F32 && depth_of(g) < g->kernel_height * g->segment;
}

static int64_t window_gemm_bytes(const cgp__output_positions *g, int64_t columns, cgp_dtype type) {
    const int64_t sums = cgp__output_runs_per_block(g, CGP__WINDOW_PIXELS) * g->run * columns *
                         (int64_t)sizeof(float);
    return padded_bytes(g) + 2 * cgp__window_table_bytes(g, CGP__WINDOW_PIXELS) +
           micro_panels_bytes(g) + (has_sums(g, type) ? cgp__align_up(sums) : 0);
}

/* One thread's workspace. */
typedef struct buffers {
    float *padded, *micro_panels, *sums;
    int64_t *windows, *pixels;
} buffers;

static buffers buffers_of(const cgp__window_gemm *p, int thread) {
    const cgp__output_positions *g = &p->positions;
    char *at = p->workspace + thread * p->bytes;
    buffers r = {.padded = (float *)(void *)at};
    r.windows = (int64_t *)(void *)(at += padded_bytes(g));
    r.pixels = (int64_t *)(void *)(at += cgp__window_table_bytes(g, CGP__WINDOW_PIXELS));
    r.micro_panels = (float *)(void *)(at += cgp__window_table_bytes(g, CGP__WINDOW_PIXELS));
    r.sums = (float *)(void *)(at + micro_panels_bytes(g));
    return r;
}

/* Set the block's part of b, which begins at element q of segment u. */
static void set_b(cgp__block *block, const cgp__window_gemm *p, int64_t u, int64_t q,
                  int64_t length) {
    block->b = p->b;
    block->taps = p->taps;
    if (p->taps.depth == 0) {
        block->b = cgp__matrix_from(p->b, u * p->positions.segment + q, 0);
        return;
    }
    block->b.at = (const float *)p->b.at + u * p->taps.segment;
    block->taps.first = q;
    block->taps.length = length;
}

/* Set the address of the sums. Before the last part of k is added, partial sums are kept in the
 * result or, if the result is bf16, in a buffer. */
static void set_c(cgp__block *block, const cgp__window_gemm *p, const buffers *r, bool first,
                  bool last) {
    const bool apart = has_sums(&p->positions, p->to.type);
    if (apart && !first)
        block->from = (cgp__matrix){CGP_F32, r->sums, p->columns, 1};
    else if (!first || p->add) {
        block->from = (cgp__matrix){p->to.type, p->to.at, 0, 1};
        block->from_rows = r->pixels;
    }
    block->type = apart && !last ? CGP_F32 : p->to.type;
    block->c = apart && !last ? (void *)r->sums : p->to.at;
    block->stride = p->columns;
    block->c_rows = apart && !last ? NULL : r->pixels;
}

static void run_columns(const cgp__window_gemm *p, const buffers *r, int64_t pixels, int64_t begin,
                        int64_t end, cgp__cpu_prefetch prefetch) {
    const cgp__output_positions *g = &p->positions;
    const int64_t segments = segments_at_once(g), part = part_of_segment(g);
    for (int64_t u = 0; u < g->kernel_height; u += segments)
        for (int64_t q = 0; q < g->segment; q += part) {
            const int64_t length = cgp__min(part, g->segment - q);
            const int64_t count = cgp__min(segments, g->kernel_height - u);
            const bool first = u == 0 && q == 0;
            const bool last = u + count == g->kernel_height && q + length == g->segment;
            cgp__block block = {.rows = pixels,
                                .columns = p->columns,
                                .k = count * length,
                                .bias = first ? p->bias : NULL,
                                .prefetch = &prefetch,
                                .n_prefetch = last};
            block.windows = (cgp__windows){
                .at = r->padded + u * g->padded_width * g->channels + q,
                .rows = r->windows,
                .segments = count,
                .jump = g->padded_width * g->channels,
            };
            set_b(&block, p, u, q, length);
            set_c(&block, p, r, first, last);
            p->device->kernels->gemm_columns(&block, begin, end, r->micro_panels);
        }
}

/* Run items begin .. end - 1. An item is a range of columns of one block of pixels. */
static void window_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__window_gemm *p = work;
    const cgp__output_positions *g = &p->positions;
    const int64_t all = cgp__ceil_div(p->columns, CGP__GEMM_NR);
    const int64_t ranges = cgp__ceil_div(all, p->micro_panels);
    const buffers r = buffers_of(p, thread);
    int64_t made = -1, pixels = 0;
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item / ranges, first = block * p->runs;
        const int64_t column = item % ranges * p->micro_panels * CGP__GEMM_NR;
        const int64_t count = cgp__min(p->runs, cgp__output_runs(g) - first);
        if (block != made) {
            pixels = cgp__padded_rows_copy(p->device, true, g, first, count, CGP_F32, r.padded,
                                           r.windows);
            cgp__window_pixels(p, first, count, r.pixels);
            made = block;
        }
        run_columns(p, &r, pixels, column,
                    cgp__min(column + p->micro_panels * CGP__GEMM_NR, p->columns),
                    cgp__input_rows_prefetch(g, first + p->runs, p->runs));
    }
}

/* Return the number of runs in a block. It is at least half of the number in the largest equal
 * blocks that fit. It is chosen so that the busiest thread multiplies and packs the fewest rows of
 * micro-panels. */
static int64_t runs_at_once(const cgp__output_positions *g, int64_t panels, int threads) {
    const int64_t all = cgp__output_runs(g),
                  most = cgp__output_runs_per_block(g, CGP__WINDOW_PIXELS);
    int64_t best = cgp__ceil_div(all, cgp__ceil_div(all, most)), least = INT64_MAX;
    for (int64_t runs = best; threads > 1 && runs > 0 && 2 * runs >= best; runs--) {
        const int64_t blocks = cgp__ceil_div(all, runs);
        const int64_t columns = cgp__columns_at_once(panels, blocks, threads);
        const int64_t items = blocks * cgp__ceil_div(panels, columns);
        const int64_t time =
            cgp__ceil_div(items, threads) * columns * (runs * g->run + CGP__GEMM_PACKING_ROWS);
        if (time < least) best = runs;
        least = cgp__min(least, time);
    }
    return best;
}

static void run_window_gemm(cgp__window_gemm *p, void *workspace) {
    const cgp__output_positions *g = &p->positions;
    if (p->to.type == CGP_BF16 && p->device->tiles) {
        cgp__window_gemm_bf16(p, workspace);
        return;
    }
    const int threads = p->device->threads;
    const int64_t all = cgp__ceil_div(p->columns, CGP__GEMM_NR);
    const int64_t work = cgp__output_runs(g) * g->run * g->kernel_height * g->segment * all * 3;
    p->runs = runs_at_once(g, all, threads);
    const int64_t blocks = cgp__ceil_div(cgp__output_runs(g), p->runs);
    p->micro_panels = cgp__columns_at_once(all, blocks, threads);
    p->bytes = window_gemm_bytes(g, p->columns, p->to.type);
    p->workspace = workspace;
    const int64_t items = blocks * cgp__ceil_div(all, p->micro_panels);
    cgp__cpu_parallel_for(p->device, items, work < CGP__GEMM_MIN_WORK ? items : 1, window_range, p);
}

/* --- the three directions --- */

static bool by_winograd(const cgp_device *device, const cgp_kernel_spec *spec) {
    return cgp__winograd_applies(cgp_spec_windows(spec)) &&
           !(spec->type == CGP_BF16 && device->tiles);
}

cgp_status cgp__cpu_run_pointwise(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    cgp_kernel linear = *kernel;
    linear.spec = cgp__pointwise_linear(&kernel->spec);
    return cgp__cpu_linear[kernel->spec.direction].run(&linear, args);
}

int64_t cgp__cpu_pointwise_workspace(const cgp_kernel_spec *spec, int threads) {
    const cgp_kernel_spec linear = cgp__pointwise_linear(spec);
    return cgp__cpu_linear[spec->direction].workspace(&linear, threads);
}

void cgp__cpu_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace) {
    const cgp_op_windows *s = cgp_spec_windows(conv->spec);
    const cgp_dtype type = conv->spec->type;
    if (cgp__is_depthwise(s)) {
        cgp__depthwise_convolve(device, conv, workspace);
        return;
    }
    if (cgp__has_parts(s)) {
        cgp__convolve_parts(device, conv, workspace);
        return;
    }
    if (by_winograd(device, conv->spec)) {
        cgp__winograd_convolve(device, conv, workspace);
        return;
    }
    cgp__window_gemm p = {.device = device,
                          .positions = cgp__output_positions_of(conv->spec, conv->x),
                          .to = {type, conv->to, s->rows * s->out, s->out_width * s->out, s->out},
                          .add = conv->add,
                          .columns = s->out,
                          .b = cgp__rows(CGP_F32, conv->weight, s->out),
                          .bias = conv->bias};
    run_window_gemm(&p, workspace);
}

static cgp_status forward(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *s = cgp_spec_windows(&kernel->spec);
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    const cgp__cpu_convolution conv = {.spec = &kernel->spec,
                                       .x = args->x[0],
                                       .weight = args->param[0],
                                       .bias = s->has_bias ? args->param[1] : NULL,
                                       .to = args->y};
    cgp__cpu_convolve(kernel->device, &conv, args->workspace);
    return CGP_OK;
}

static cgp__window_gemm input_gemm(const cgp_kernel_spec *spec, const cgp__pixel_class *vertical,
                                   const cgp__pixel_class *horizontal) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    cgp__window_gemm p = {.positions = {.type = spec->type,
                                        .n = spec->n,
                                        .height = s->out_height,
                                        .width = s->out_width,
                                        .channels = s->out,
                                        .out_height = vertical->pixels,
                                        .out_width = horizontal->pixels,
                                        .kernel_height = vertical->taps,
                                        .kernel_width = horizontal->taps,
                                        .stride_height = 1,
                                        .stride_width = 1,
                                        .top = vertical->padding,
                                        .left = horizontal->padding},
                          .columns = s->in};
    cgp__output_positions_set(&p.positions);
    return p;
}

/* Set the pixels of dx that no window contains to the bias or zeros. */
static void fill_pixels(cgp_device *device, const cgp__cpu_convolution *conv,
                        const cgp__pixel_class *vertical, const cgp__pixel_class *horizontal) {
    const cgp_op_windows *s = cgp_spec_windows(conv->spec);
    const cgp_dtype type = conv->spec->type;
    for (int64_t n = 0; n < conv->spec->n; n++)
        for (int64_t i = vertical->first; i < s->height; i += s->stride_height)
            for (int64_t j = horizontal->first; j < s->width; j += s->stride_width) {
                void *pixel =
                    cgp__cpu_at(type, conv->to, ((n * s->height + i) * s->width + j) * s->in);
                if (conv->bias)
                    device->kernels->convert(type, pixel, CGP_F32, conv->bias, s->in);
                else
                    memset(pixel, 0, (size_t)s->in * cgp_dtype_bytes(type));
            }
}

static void run_class(cgp_device *device, const cgp__cpu_convolution *conv,
                      const cgp__pixel_class *vertical, const cgp__pixel_class *horizontal,
                      void *workspace) {
    const cgp_op_windows *s = cgp_spec_windows(conv->spec);
    const int64_t tap = s->in * s->out, row = s->kernel_width * tap;
    if (vertical->pixels == 0 || horizontal->pixels == 0) return;
    if (vertical->taps == 0 || horizontal->taps == 0) {
        if (!conv->add) fill_pixels(device, conv, vertical, horizontal);
        return;
    }
    cgp__window_gemm p = input_gemm(conv->spec, vertical, horizontal);
    p.device = device;
    p.positions.image = conv->x;
    p.add = conv->add;
    p.bias = conv->bias;
    p.to =
        (cgp__pixel_layout){conv->spec->type,
                            cgp__cpu_at(conv->spec->type, conv->to,
                                        (vertical->first * s->width + horizontal->first) * s->in),
                            (int64_t)s->height * s->width * s->in,
                            (int64_t)s->stride_height * s->width * s->in, s->stride_width * s->in};
    p.b = (cgp__matrix){CGP_F32, conv->weight + vertical->tap * row + horizontal->tap * tap, 1,
                        s->out};
    p.taps = (cgp__taps){
        .depth = s->out, .tap = -s->stride_width * tap, .segment = -s->stride_height * row};
    run_window_gemm(&p, workspace);
}

void cgp__cpu_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                  void *workspace) {
    const cgp_op_windows *s = cgp_spec_windows(conv->spec);
    if (cgp__is_depthwise(s)) {
        cgp__depthwise_convolve_transposed(device, conv, workspace);
        return;
    }
    if (cgp__has_parts(s)) {
        cgp__convolve_parts_transposed(device, conv, workspace);
        return;
    }
    if (by_winograd(device, conv->spec)) {
        cgp__winograd_convolve_transposed(device, conv, workspace);
        return;
    }
    for (int64_t i = 0; i < s->stride_height; i++) {
        const cgp__pixel_class vertical =
            cgp__pixel_class_of(i, s->stride_height, 1, s->height, s->kernel_height, s->top);
        for (int64_t j = 0; j < s->stride_width; j++) {
            const cgp__pixel_class horizontal =
                cgp__pixel_class_of(j, s->stride_width, 1, s->width, s->kernel_width, s->left);
            run_class(device, conv, &vertical, &horizontal, workspace);
        }
    }
}

static cgp_status backward_input(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    if (!args->dx[0]) return CGP_OK;
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    const cgp__cpu_convolution conv = {.spec = &kernel->spec,
                                       .x = args->dy,
                                       .weight = args->param[0],
                                       .to = args->dx[0],
                                       .add = cgp__cpu_adds(kernel, 0)};
    cgp__cpu_convolve_transposed(kernel->device, &conv, args->workspace);
    return CGP_OK;
}

void cgp__cpu_convolve_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                              const void *dy, float *dw, bool add, void *workspace) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    if (cgp__is_depthwise(s))
        cgp__depthwise_weight(device, spec, x, dy, dw, add, workspace);
    else if (cgp__has_parts(s))
        cgp__convolve_parts_weight(device, spec, x, dy, dw, add, workspace);
    else if (by_winograd(device, spec))
        cgp__winograd_weight(device, spec, x, dy, dw, add, workspace);
    else if (spec->type == CGP_BF16 && device->tiles)
        cgp__convolve_weight_bf16(device, spec, x, dy, dw, add, workspace);
    else
        cgp__convolve_weight_f32(device, spec, x, dy, dw, add, workspace);
}

static cgp_status backward_weight(const cgp_kernel *kernel, const cgp_kernel_args *args) {
    const cgp_op_windows *s = cgp_spec_windows(&kernel->spec);
    if (cgp__is_pointwise(&kernel->spec)) return cgp__cpu_run_pointwise(kernel, args);
    if (args->dparam[0])
        cgp__cpu_convolve_weight(kernel->device, &kernel->spec, args->x[0], args->dy,
                                 args->dparam[0], !args->first, args->workspace);
    if (s->has_bias && args->dparam[1])
        cgp__cpu_sum_rows(kernel->device, args->dparam[1], kernel->spec.type, args->dy,
                          cgp__cpu_rows(kernel), s->out, !args->first);
    return CGP_OK;
}

/* --- workspace; in bf16 it is enough with and without AVX512_BF16 --- */

/* Return the workspace size in bytes of an implicit GEMM, or of Winograd tiles. */
static int64_t gemm_workspace(const cgp_kernel_spec *spec, const cgp__output_positions *g,
                              int64_t columns, int threads) {
    const int64_t bytes = cgp__winograd_applies(cgp_spec_windows(spec))
                              ? cgp__winograd_convolve_bytes(spec, threads)
                              : threads * window_gemm_bytes(g, columns, spec->type);
    if (spec->type == CGP_F32) return bytes;
    return cgp__max(bytes, cgp__window_gemm_bf16_bytes(g, columns, threads));
}

static int64_t forward_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp__output_positions g = cgp__output_positions_of(spec, NULL);
    return gemm_workspace(spec, &g, spec->attributes.out, threads);
}

/* Return the largest workspace, in bytes, of any class of pixels. */
static int64_t input_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    int64_t bytes = 0;
    for (int64_t i = 0; i < s->stride_height; i++) {
        const cgp__pixel_class vertical =
            cgp__pixel_class_of(i, s->stride_height, 1, s->height, s->kernel_height, s->top);
        for (int64_t j = 0; j < s->stride_width; j++) {
            const cgp__pixel_class horizontal =
                cgp__pixel_class_of(j, s->stride_width, 1, s->width, s->kernel_width, s->left);
            if (vertical.pixels == 0 || horizontal.pixels == 0 || vertical.taps == 0 ||
                horizontal.taps == 0)
                continue;
            const cgp__window_gemm p = input_gemm(spec, &vertical, &horizontal);
            bytes = cgp__max(bytes, gemm_workspace(spec, &p.positions, p.columns, threads));
        }
    }
    return bytes;
}

static int64_t weight_bytes(const cgp_kernel_spec *spec, int threads) {
    const int64_t bytes = cgp__winograd_applies(cgp_spec_windows(spec))
                              ? cgp__winograd_weight_bytes(spec, threads)
                              : cgp__convolve_weight_f32_bytes(spec, threads);
    if (spec->type == CGP_F32) return bytes;
    return cgp__max(bytes, cgp__convolve_weight_bf16_bytes(spec, threads));
}

int64_t cgp__cpu_convolve_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    const bool is_weight = spec->direction == CGP_OP_BACKWARD_WEIGHT;
    if (cgp__is_depthwise(s))
        return is_weight ? cgp__depthwise_weight_bytes(spec, threads)
                         : cgp__depthwise_convolve_bytes(spec, threads);
    if (cgp__has_parts(s)) return cgp__convolve_parts_bytes(spec, threads);
    if (is_weight) return weight_bytes(spec, threads);
    return spec->direction == CGP_OP_FORWARD ? forward_bytes(spec, threads)
                                             : input_bytes(spec, threads);
}

static int64_t workspace(const cgp_kernel_spec *spec, int threads) {
    return cgp__is_pointwise(spec) ? cgp__cpu_pointwise_workspace(spec, threads)
                                   : cgp__cpu_convolve_bytes(spec, threads);
}

const cgp__cpu_op cgp__cpu_conv2d[CGP_OP_DIRECTIONS] = {
    [CGP_OP_FORWARD] = {forward, workspace},
    [CGP_OP_BACKWARD_INPUT] = {backward_input, workspace},
    [CGP_OP_BACKWARD_WEIGHT] = {backward_weight, workspace},
};
