/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_weight.c -- the gradient of a convolution's weight in f32, as implicit GEMM: dW [KH KW in,
 * out] = (windows of x)^T dy.
 *
 * The gradient is summed over blocks of pixels in order. The pixels of a block are the k indices of
 * a GEMM, and their windows lie in padded rows (padded_rows.c). Windows are packed from the padded
 * rows as blocks of `a`, whose rows correspond to rows of dW.
 *
 * Threads take rows of dW, and every block of pixels ends with a barrier. If the filter is small,
 * there are few rows to divide, so threads take blocks of pixels instead. Each thread has its own
 * padded rows and its own sums, which are added to dW in the order of blocks. The results of both
 * ways are bit-identical. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/ops/windows.h"

#include <string.h>

/* Maximum rows of dW in a block. */
#define MC 256
/* Maximum elements of a small filter's dW. */
#define SMALL_FILTER 16384

/* The GEMM that computes the gradient, over all pixels. */
typedef struct weight_gemm {
    cgp_device *device;
    const cgp__output_positions *positions;
    cgp_dtype type;
    const void *dy;
    int64_t columns;
    float *dw;
    bool add;
    /* Number of runs in a block of pixels. */
    int64_t runs;
    char *workspace;
} weight_gemm;

/* The work for one block of pixels: set dw to windows^T dy, or add the product. */
typedef struct pixel_block {
    const weight_gemm *of;
    int64_t pixels;
    cgp__matrix dy;
    float *padded;
    int64_t *windows;
    float *dw;
    bool add;
    /* x and dy of the block to prefetch. */
    cgp__cpu_prefetch prefetch[2];
    /* Size of an item. Its `rows` rows of dW are in one segment, and its columns are `micro_panels`
     * micro-panels. */
    int64_t rows, micro_panels;
    /* Thread 0's buffers of `bytes` bytes; the buffers of the other threads follow. */
    char *buffers;
    int64_t bytes;
} pixel_block;

/* --- a block of pixels --- */

static int64_t block_of_segment(const cgp__output_positions *g) {
    const int64_t blocks = cgp__ceil_div(g->segment, MC);
    return cgp__ceil_div(cgp__ceil_div(g->segment, blocks), CGP__GEMM_MR) * CGP__GEMM_MR;
}

static int64_t pixels_in_block(const cgp__output_positions *g) {
    return cgp__output_runs_per_block(g, CGP__WINDOW_WEIGHT_PIXELS) * g->run;
}

static int64_t packed_bytes(const cgp__output_positions *g) {
    return cgp__align_up(block_of_segment(g) * pixels_in_block(g) * (int64_t)sizeof(float));
}

static int64_t buffers_bytes(const cgp__output_positions *g) {
    return packed_bytes(g) +
           cgp__align_up(2 * pixels_in_block(g) * CGP__GEMM_NR * (int64_t)sizeof(float));
}

/* Return the number of blocks of dW, with at most `rows` rows each. */
static int64_t row_blocks(const cgp__output_positions *g, int64_t rows) {
    return g->kernel_height * cgp__ceil_div(g->segment, rows);
}

/* Run items begin .. end - 1. An item is a range of columns of one block of rows of dW. */
static void rows_range(const void *work, int64_t begin, int64_t end, int thread) {
    const pixel_block *p = work;
    const cgp__output_positions *g = p->of->positions;
    const cgp__cpu_kernels *kernels = p->of->device->kernels;
    const int64_t columns = p->of->columns;
    const int64_t size = p->rows, blocks = cgp__ceil_div(g->segment, size);
    const int64_t ranges = cgp__ceil_div(cgp__ceil_div(columns, CGP__GEMM_NR), p->micro_panels);
    float *a = (float *)(void *)(p->buffers + thread * p->bytes);
    float *micro_panels = (float *)(void *)((char *)a + packed_bytes(g));
    int64_t packed = -1;
    for (int64_t item = begin; item < end; item++) {
        const int64_t block = item / ranges, u = block / blocks, q = block % blocks * size;
        const int64_t rows = cgp__min(size, g->segment - q);
        const int64_t column = item % ranges * p->micro_panels * CGP__GEMM_NR;
        float *c = p->dw + (u * g->segment + q) * columns;
        if (block != packed)
            kernels->gemm_pack_windows(a, p->padded, p->windows, p->pixels,
                                       u * g->padded_width * g->channels + q, rows);
        packed = block;
        cgp__block b = {.rows = rows,
                        .columns = columns,
                        .k = p->pixels,
                        .a = a,
                        .b = p->dy,
                        .type = CGP_F32,
                        .c = c,
                        .stride = columns,
                        .prefetch = p->prefetch,
                        .n_prefetch = block == 0 ? 2 : 0};
        if (p->add) b.from = (cgp__matrix){CGP_F32, c, columns, 1};
        kernels->gemm_columns(
            &b, column, cgp__min(column + p->micro_panels * CGP__GEMM_NR, columns), micro_panels);
    }
}

static cgp__cpu_prefetch prefetch_dy(const weight_gemm *w, int64_t first) {
    const int64_t all = cgp__output_runs(w->positions);
    if (first >= all) return (cgp__cpu_prefetch){0};
    const int64_t begin = cgp__output_pixels_before(w->positions, first);
    const int64_t end = cgp__output_pixels_before(w->positions, cgp__min(first + w->runs, all));
    const int64_t row = w->columns * (int64_t)cgp_dtype_bytes(w->type);
    return (cgp__cpu_prefetch){(const char *)w->dy + begin * row, 1, (end - begin) * row, 0};
}

/* Copy the padded rows of a block, on all threads or, if `alone` is set, on the calling thread
 * only. `next` is the block to prefetch. */
static void set_pixels(pixel_block *p, bool alone, int64_t block, int64_t next) {
    const weight_gemm *w = p->of;
    const cgp__output_positions *g = w->positions;
    const int64_t first = block * w->runs, count = cgp__min(w->runs, cgp__output_runs(g) - first);
    p->pixels =
        cgp__padded_rows_copy(w->device, alone, g, first, count, CGP_F32, p->padded, p->windows);
    p->dy = cgp__matrix_from(cgp__rows(w->type, w->dy, w->columns),
                             cgp__output_pixels_before(g, first), 0);
    p->prefetch[0] = cgp__input_rows_prefetch(g, next * w->runs, w->runs);
    p->prefetch[1] = prefetch_dy(w, next * w->runs);
}

/* Return a block whose padded rows, windows and buffers follow each other in a workspace. */
static pixel_block block_at(const weight_gemm *w, char *workspace) {
    const cgp__output_positions *g = w->positions;
    pixel_block p = {.of = w, .padded = (float *)(void *)workspace};
    char *at = workspace + cgp__padded_rows_bytes(g, CGP__WINDOW_WEIGHT_PIXELS, CGP_F32);
    p.windows = (int64_t *)(void *)at;
    p.buffers = at + cgp__window_table_bytes(g, CGP__WINDOW_WEIGHT_PIXELS);
    p.bytes = buffers_bytes(g);
    return p;
}

static int64_t rows_and_windows_bytes(const cgp__output_positions *g) {
    return cgp__padded_rows_bytes(g, CGP__WINDOW_WEIGHT_PIXELS, CGP_F32) +
           cgp__window_table_bytes(g, CGP__WINDOW_WEIGHT_PIXELS);
}

/* --- threads by rows of dW --- */

/* Estimate the time of the busiest thread, in rows that it multiplies and packs. */
static int64_t time_of_rows(const cgp__output_positions *g, int threads, int64_t rows) {
    return cgp__ceil_div(row_blocks(g, rows), threads) * (rows + CGP__GEMM_PACKING_ROWS);
}

/* Return the rows of dW in an item. Each item packs dy again, but a small filter needs small items
 * to give all threads equal work. */
static int64_t rows_at_once(const cgp__output_positions *g, int threads) {
    int64_t best = block_of_segment(g), least = INT64_MAX;
    for (int64_t rows = best; threads > 1 && rows > 0; rows -= CGP__GEMM_MR) {
        const int64_t time = time_of_rows(g, threads, rows);
        if (time < least) best = rows;
        least = cgp__min(least, time);
    }
    return best;
}

static void run_by_rows(const weight_gemm *w) {
    const cgp__output_positions *g = w->positions;
    const int threads = w->device->threads;
    const int64_t all = cgp__ceil_div(w->columns, CGP__GEMM_NR);
    pixel_block p = block_at(w, w->workspace);
    p.dw = w->dw;
    p.rows = rows_at_once(g, threads);
    const int64_t blocks = row_blocks(g, p.rows);
    p.micro_panels = blocks >= threads ? all : cgp__columns_at_once(all, blocks, threads);
    const int64_t items = blocks * cgp__ceil_div(all, p.micro_panels);
    for (int64_t block = 0; block * w->runs < cgp__output_runs(g); block++) {
        set_pixels(&p, false, block, block + 1);
        p.add = block > 0 || w->add;
        const int64_t work = p.pixels * g->kernel_height * g->segment * all * 3;
        cgp__cpu_parallel_for(w->device, items, work < CGP__GEMM_MIN_WORK ? items : 1, rows_range,
                              &p);
    }
}

/* --- threads by blocks of pixels --- */

static int64_t elements(const cgp__output_positions *g, int64_t columns) {
    return g->kernel_height * g->segment * columns;
}

static bool is_small(const cgp__output_positions *g, int64_t columns) {
    return elements(g, columns) <= SMALL_FILTER;
}

/* Return the bytes of a thread's workspace. */
static int64_t thread_bytes(const cgp__output_positions *g, int64_t columns) {
    return rows_and_windows_bytes(g) + buffers_bytes(g) +
           cgp__align_up(elements(g, columns) * (int64_t)sizeof(float));
}

static pixel_block block_of_thread(const weight_gemm *w, int thread) {
    pixel_block p = block_at(w, w->workspace + thread * thread_bytes(w->positions, w->columns));
    p.dw = (float *)(void *)(p.buffers + p.bytes);
    p.rows = block_of_segment(w->positions);
    p.micro_panels = cgp__ceil_div(w->columns, CGP__GEMM_NR);
    return p;
}

static void make_block(const void *work, int64_t block, int thread) {
    const weight_gemm *w = work;
    pixel_block p = block_of_thread(w, thread);
    set_pixels(&p, true, block, block + w->device->threads);
    rows_range(&p, 0, row_blocks(w->positions, p.rows), 0);
}

static void add_block(const void *work, int64_t block, int thread) {
    const weight_gemm *w = work;
    const float *sums = block_of_thread(w, thread).dw;
    const int64_t n = elements(w->positions, w->columns);
    if (block > 0 || w->add)
        w->device->kernels->add(CGP_F32, w->dw, w->dw, CGP_F32, sums, n);
    else
        memcpy(w->dw, sums, (size_t)n * sizeof *sums);
}

static bool runs_by_pixels(const weight_gemm *w) {
    const cgp__output_positions *g = w->positions;
    const int threads = w->device->threads;
    const int64_t blocks = cgp__ceil_div(cgp__output_runs(g), w->runs);
    const int64_t work = cgp__output_runs(g) * g->run * elements(g, w->columns) / 16;
    if (threads == 1 || !is_small(g, w->columns) || work < CGP__GEMM_MIN_WORK) return false;
    return cgp__ceil_div(blocks, threads) * time_of_rows(g, 1, block_of_segment(g)) <
           blocks * time_of_rows(g, threads, rows_at_once(g, threads));
}

void cgp__convolve_weight_f32(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                              const void *dy, float *dw, bool add, void *workspace) {
    const cgp__output_positions g = cgp__output_positions_of(spec, x);
    const weight_gemm w = {.device = device,
                           .positions = &g,
                           .type = spec->type,
                           .dy = dy,
                           .columns = spec->attributes.out,
                           .dw = dw,
                           .add = add,
                           .runs = cgp__output_runs_per_block(&g, CGP__WINDOW_WEIGHT_PIXELS),
                           .workspace = workspace};
    if (runs_by_pixels(&w))
        cgp__cpu_parallel_in_order(device, cgp__ceil_div(cgp__output_runs(&g), w.runs), make_block,
                                   add_block, &w);
    else
        run_by_rows(&w);
}

int64_t cgp__convolve_weight_f32_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp__output_positions g = cgp__output_positions_of(spec, NULL);
    const int64_t columns = spec->attributes.out;
    const int64_t by_rows = rows_and_windows_bytes(&g) + threads * buffers_bytes(&g);
    if (threads == 1 || !is_small(&g, columns)) return by_rows;
    return cgp__max(by_rows, threads * thread_bytes(&g, columns));
}
