/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_bf16.c -- convolution as implicit GEMM in bf16, by AVX512_BF16 or AMX.
 *
 * The GEMMs are the same as in conv2d.c. An element is summed in the order that gemm/tiles.h
 * defines, and k is divided as in gemm/tiles.c. The GEMM of dW divides k into blocks of pixels.
 * Padded rows are in bf16. Blocks of `a` are packed from these rows, one part of k at a time. A
 * step of 32 along k may cross from one run of a window to the next run. Operand b is packed once
 * and used for all blocks. Weights are packed at the start. For dW, dy is packed in each block of
 * pixels. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/gemm/tiles.h"
#include "backend/cpu/ops/windows.h"

#define SIDE CGP__TILE_SIDE
/* Maximum k of a part, as in gemm/tiles.c. */
#define KC 1024
/* Maximum rows of dW in a block. */
#define MC 256
/* The least work, in products of 32 x 32 x 32, for which it pays to wake another thread. */
#define MIN_PARALLEL_WORK 500

static int64_t round_up(int64_t n) {
    return cgp__ceil_div(n, SIDE) * SIDE;
}

static int64_t depth_of(const cgp__output_positions *g) {
    return g->kernel_height * g->segment;
}

/* Return the size of the parts if k is divided into equal parts of at most KC. All parts except the
 * last consist of full steps. */
static int64_t part_of(int64_t k) {
    return round_up(cgp__ceil_div(k, cgp__ceil_div(k, KC)));
}

static int64_t pixels_of(const cgp__output_positions *g, int64_t pixels) {
    return cgp__output_runs_per_block(g, pixels) * g->run;
}

/* --- windows times weights --- */

/* One thread's workspace. */
typedef struct buffers {
    void *padded;
    int64_t *windows, *pixels;
    uint16_t *a;
    char *scratch;
    float *sums;
} buffers;

static int64_t a_bytes(const cgp__output_positions *g) {
    return cgp__tiles_packed_bytes(pixels_of(g, CGP__WINDOW_PIXELS), part_of(depth_of(g)));
}

static int64_t scratch_bytes(const cgp__output_positions *g) {
    return cgp__align_up(
        cgp__tile_scratch_bytes(pixels_of(g, CGP__WINDOW_PIXELS), part_of(depth_of(g))));
}

/* Return the bytes of the f32 partial sums, which exist until the last part of k is added. */
static int64_t sums_bytes(const cgp__output_positions *g, int64_t columns) {
    if (depth_of(g) <= KC) return 0;
    return cgp__align_up(pixels_of(g, CGP__WINDOW_PIXELS) * columns * (int64_t)sizeof(float));
}

static int64_t thread_bytes(const cgp__output_positions *g, int64_t columns) {
    return cgp__padded_rows_bytes(g, CGP__WINDOW_PIXELS, CGP_BF16) +
           2 * cgp__window_table_bytes(g, CGP__WINDOW_PIXELS) + a_bytes(g) + scratch_bytes(g) +
           sums_bytes(g, columns);
}

int64_t cgp__window_gemm_bf16_bytes(const cgp__output_positions *g, int64_t columns, int threads) {
    return cgp__tiles_packed_bytes(columns, depth_of(g)) + threads * thread_bytes(g, columns);
}

static buffers buffers_of(const cgp__window_gemm *p, int thread) {
    const cgp__output_positions *g = &p->positions;
    const int64_t table = cgp__window_table_bytes(g, CGP__WINDOW_PIXELS);
    char *at = p->workspace + cgp__tiles_packed_bytes(p->columns, depth_of(g)) + thread * p->bytes;
    buffers r = {.padded = at};
    r.windows = (int64_t *)(void *)(at += cgp__padded_rows_bytes(g, CGP__WINDOW_PIXELS, CGP_BF16));
    r.pixels = (int64_t *)(void *)(at += table);
    r.a = (uint16_t *)(void *)(at += table);
    r.scratch = at += a_bytes(g);
    r.sums = (float *)(void *)(at + scratch_bytes(g));
    return r;
}

static void set_c(cgp__tile_block *block, const cgp__window_gemm *p, const buffers *r, bool first,
                  bool last) {
    if (!first)
        block->from = (cgp__matrix){CGP_F32, r->sums, p->columns, 1};
    else if (p->add) {
        block->from = (cgp__matrix){p->to.type, p->to.at, 0, 1};
        block->from_rows = r->pixels;
    }
    block->stride = p->columns;
    block->type = last ? p->to.type : CGP_F32;
    block->c = last ? p->to.at : (void *)r->sums;
    block->c_rows = last ? r->pixels : NULL;
}

/* Compute columns of one part of k. The first part adds the bias and the previous value of c. */
static void run_columns(const cgp__window_gemm *p, const buffers *r, int64_t pixels, int64_t begin,
                        int64_t end) {
    const cgp__output_positions *g = &p->positions;
    const cgp__tile_lines windows = {.type = CGP_BF16,
                                     .at = r->padded,
                                     .lines = r->windows,
                                     .length = g->segment,
                                     .per = 1,
                                     .outer = g->padded_width * g->channels};
    const int64_t all = depth_of(g), part = part_of(all);
    for (int64_t q = 0; q < all; q += part) {
        const int64_t k = cgp__min(part, all - q);
        cgp__tile_block block = {.rows = pixels,
                                 .columns = p->columns,
                                 .k = k,
                                 .a = r->a,
                                 .packed_b =
                                     (const uint16_t *)(const void *)p->workspace + q * SIDE,
                                 .packed_stride = round_up(all) * SIDE,
                                 .bias = q == 0 ? p->bias : NULL};
        p->device->tiles->pack_lines(r->a, &windows, 0, pixels, q, k, false);
        set_c(&block, p, r, q == 0, q + k == all);
        p->device->tiles->columns(&block, begin, end, r->scratch);
    }
}

/* Run items begin .. end - 1. An item is a range of columns of one block of pixels. */
static void window_range(const void *work, int64_t begin, int64_t end, int thread) {
    const cgp__window_gemm *p = work;
    const cgp__output_positions *g = &p->positions;
    const int64_t ranges = cgp__ceil_div(cgp__ceil_div(p->columns, SIDE), p->micro_panels);
    const buffers r = buffers_of(p, thread);
    int64_t made = -1, pixels = 0;
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item / ranges, first = block * p->runs;
        const int64_t column = item % ranges * p->micro_panels * SIDE;
        const int64_t count = cgp__min(p->runs, cgp__output_runs(g) - first);
        if (block != made) {
            pixels = cgp__padded_rows_copy(p->device, true, g, first, count, CGP_BF16, r.padded,
                                           r.windows);
            cgp__window_pixels(p, first, count, r.pixels);
            made = block;
        }
        run_columns(p, &r, pixels, column, cgp__min(column + p->micro_panels * SIDE, p->columns));
    }
}

static void pack_weights(const cgp__window_gemm *p) {
    cgp__tile_packing weights = {.tiles = p->device->tiles,
                                 .b = p->b,
                                 .columns = p->columns,
                                 .k = depth_of(&p->positions),
                                 .to = (uint16_t *)(void *)p->workspace};
    if (p->taps.depth)
        weights.lines = (cgp__tile_lines){.type = CGP_F32,
                                          .at = p->b.at,
                                          .line = p->taps.depth,
                                          .length = p->taps.depth,
                                          .per = p->positions.kernel_width,
                                          .inner = p->taps.tap,
                                          .outer = p->taps.segment};
    cgp__tiles_pack(p->device, &weights);
}

void cgp__window_gemm_bf16(cgp__window_gemm *p, void *workspace) {
    const cgp__output_positions *g = &p->positions;
    const int threads = p->device->threads;
    const int64_t all = cgp__ceil_div(p->columns, SIDE);
    p->runs = cgp__output_runs_per_block(g, CGP__WINDOW_PIXELS);
    p->bytes = thread_bytes(g, p->columns);
    p->workspace = workspace;
    pack_weights(p);
    const int64_t blocks = cgp__ceil_div(cgp__output_runs(g), p->runs);
    const int64_t work =
        cgp__ceil_div(cgp__output_runs(g) * g->run, SIDE) * cgp__ceil_div(depth_of(g), SIDE) * all;
    p->micro_panels =
        blocks >= 2 * threads ? all : cgp__ceil_div(all, cgp__ceil_div(2 * threads, blocks));
    const int64_t items = blocks * cgp__ceil_div(all, p->micro_panels);
    cgp__cpu_parallel_for(p->device, items, work < MIN_PARALLEL_WORK ? items : 1, window_range, p);
}

/* --- the weight's gradient --- */

/* The work for one block of pixels: add windows^T dy to dW. */
typedef struct weight_gemm {
    cgp_device *device;
    const cgp__output_positions *positions;
    const uint16_t *dy;
    int64_t columns, pixels;
    cgp__tile_lines windows;
    float *dw;
    bool add;
    /* Number of micro-panels of columns in an item. */
    int64_t micro_panels;
    /* Thread 0's workspace of `bytes` bytes; the workspaces of the other threads follow. */
    char *workspace;
    int64_t bytes;
} weight_gemm;

static int64_t blocks_of_segment(const cgp__output_positions *g) {
    return cgp__ceil_div(g->segment, MC);
}

static int64_t block_of_segment(const cgp__output_positions *g) {
    return round_up(cgp__ceil_div(g->segment, blocks_of_segment(g)));
}

static int64_t turned_bytes(const cgp__output_positions *g) {
    return cgp__tiles_packed_bytes(block_of_segment(g), pixels_of(g, CGP__WINDOW_WEIGHT_PIXELS));
}

static int64_t weight_thread_bytes(const cgp__output_positions *g) {
    return turned_bytes(g) + cgp__align_up(cgp__tile_scratch_bytes(
                                 block_of_segment(g), pixels_of(g, CGP__WINDOW_WEIGHT_PIXELS)));
}

/* Run items begin .. end - 1. An item is a range of columns of one block of rows of dW. */
static void weight_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gemm *p = work;
    const cgp__output_positions *g = p->positions;
    const int64_t size = block_of_segment(g), blocks = blocks_of_segment(g);
    const int64_t ranges = cgp__ceil_div(cgp__ceil_div(p->columns, SIDE), p->micro_panels);
    char *workspace = p->workspace + thread * p->bytes;
    uint16_t *a = (uint16_t *)(void *)workspace;
    int64_t packed = -1;
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item / ranges, u = block / blocks, q = block % blocks * size;
        const int64_t rows = cgp__min(size, g->segment - q);
        const int64_t column = item % ranges * p->micro_panels * SIDE;
        float *c = p->dw + (u * g->segment + q) * p->columns;
        if (rows <= 0) continue;
        if (block != packed)
            p->device->tiles->pack_turned(a, &p->windows, u * g->padded_width * g->channels + q,
                                          rows, p->pixels);
        packed = block;
        cgp__tile_block b = {.rows = rows,
                             .columns = p->columns,
                             .k = p->pixels,
                             .a = a,
                             .packed_b = p->dy,
                             .packed_stride = round_up(p->pixels) * SIDE,
                             .type = CGP_F32,
                             .c = c,
                             .stride = p->columns};
        if (p->add) b.from = (cgp__matrix){CGP_F32, c, p->columns, 1};
        p->device->tiles->columns(&b, column, cgp__min(column + p->micro_panels * SIDE, p->columns),
                                  workspace + turned_bytes(g));
    }
}

static void run_weight_gemm(weight_gemm *p) {
    const cgp__output_positions *g = p->positions;
    const int threads = p->device->threads;
    const int64_t all = cgp__ceil_div(p->columns, SIDE);
    const int64_t blocks = g->kernel_height * blocks_of_segment(g);
    const int64_t work =
        blocks * cgp__ceil_div(block_of_segment(g), SIDE) * cgp__ceil_div(p->pixels, SIDE) * all;
    p->micro_panels =
        blocks >= 2 * threads ? all : cgp__ceil_div(all, cgp__ceil_div(2 * threads, blocks));
    const int64_t items = blocks * cgp__ceil_div(all, p->micro_panels);
    cgp__cpu_parallel_for(p->device, items, work < MIN_PARALLEL_WORK ? items : 1, weight_range, p);
}

void cgp__convolve_weight_bf16(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                               const void *dy, float *dw, bool add, void *workspace) {
    const int64_t out = spec->attributes.out;
    const cgp__output_positions g = cgp__output_positions_of(spec, x);
    const int64_t runs = cgp__output_runs_per_block(&g, CGP__WINDOW_WEIGHT_PIXELS);
    char *at = (char *)workspace + cgp__padded_rows_bytes(&g, CGP__WINDOW_WEIGHT_PIXELS, CGP_BF16);
    int64_t *windows = (int64_t *)(void *)at;
    uint16_t *packed =
        (uint16_t *)(void *)(at += cgp__window_table_bytes(&g, CGP__WINDOW_WEIGHT_PIXELS));
    at += cgp__tiles_packed_bytes(out, pixels_of(&g, CGP__WINDOW_WEIGHT_PIXELS));
    weight_gemm p = {.device = device,
                     .positions = &g,
                     .dy = packed,
                     .columns = out,
                     .windows = {.type = CGP_BF16, .at = workspace, .lines = windows},
                     .dw = dw,
                     .workspace = at,
                     .bytes = weight_thread_bytes(&g)};
    for (int64_t first = 0, done = 0; first < cgp__output_runs(&g);
         first += runs, done += p.pixels) {
        const int64_t count = cgp__min(runs, cgp__output_runs(&g) - first);
        p.pixels =
            cgp__padded_rows_copy(device, false, &g, first, count, CGP_BF16, workspace, windows);
        cgp__tiles_pack(device,
                        &(cgp__tile_packing){
                            .tiles = device->tiles,
                            .b = cgp__rows(CGP_BF16, cgp__cpu_at(CGP_BF16, dy, done * out), out),
                            .columns = out,
                            .k = p.pixels,
                            .to = packed});
        p.add = first > 0 || add;
        run_weight_gemm(&p);
    }
}

int64_t cgp__convolve_weight_bf16_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp__output_positions g = cgp__output_positions_of(spec, NULL);
    return cgp__padded_rows_bytes(&g, CGP__WINDOW_WEIGHT_PIXELS, CGP_BF16) +
           cgp__window_table_bytes(&g, CGP__WINDOW_WEIGHT_PIXELS) +
           cgp__tiles_packed_bytes(spec->attributes.out, pixels_of(&g, CGP__WINDOW_WEIGHT_PIXELS)) +
           threads * weight_thread_bytes(&g);
}
