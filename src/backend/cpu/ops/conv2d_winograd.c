/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_winograd.c -- Winograd convolution (Lavin and Gray 2016, arXiv:1509.09308) with a 3 x 3
 * kernel and stride 1. It computes tiles of 2 x 2 output pixels, with 16 products per tile instead
 * of 36 (kernels/winograd.c).
 *
 *     y, dx     U = G w G^T, packed     V = B^T d B of a block of tiles     M[i] = V[i] U[i]
 *               y = A^T M A
 *     dw        V, Z = A dy A^T of a block of tiles     dU[i] += V[i]^T Z[i]     dw = G^T dU G
 *
 * With many tiles, U is computed once, and blocks of tiles follow one after the other. With few
 * tiles, V is computed once, and panels of columns follow one after the other. In this case U is
 * far larger than the image, but the U of one panel stays in the cache. dx is the convolution of dy
 * with the filter rotated by 180 degrees. The result for an output pixel depends only on its tile,
 * whose place in the image is fixed. So the result depends neither on other samples nor on the
 * number of threads. Threads take blocks or panels. */
#include "backend/cpu/gemm/gemm.h"
#include "backend/cpu/ops/winograd.h"

/* Minimum numbers of input channels, output channels and output pixels for which the transforms pay
 * off. */
#define MIN_CHANNELS 16
#define MIN_PIXELS 36

bool cgp__winograd_applies(const cgp_op_windows *s) {
    return s->tile == 2 && s->in >= MIN_CHANNELS && s->out >= MIN_CHANNELS &&
           (int64_t)s->out_height * s->out_width >= MIN_PIXELS;
}

/* --- y and dx --- */

typedef struct convolution {
    cgp_device *device;
    cgp__winograd_image x;
    cgp__winograd_tiling tiles;
    /* The filter, with all columns. */
    cgp__winograd_filter filter;
    const float *bias;
    cgp_dtype type;
    void *to;
    bool add;
    /* Number of columns in a part, and the first column and number of columns of the current
     * part. */
    int64_t part, column, columns;
    /* Number of runs in a block. */
    int64_t runs;
    /* Packed weights of a part, and V if there are few tiles. The scratch of thread 0 follows. */
    float *u, *v;
    char *scratch;
} convolution;

static int64_t u_matrix(int64_t k, int64_t columns) {
    return cgp__winograd_matrix(1, cgp__gemm_panels_bytes(columns, k) / (int64_t)sizeof(float));
}

/* Return the bytes of a thread's U and M for a panel. */
static int64_t panel_bytes(const cgp__winograd_tiling *t, int64_t k) {
    return cgp__winograd_matrices_bytes(u_matrix(k, CGP__WINOGRAD_PANEL)) +
           cgp__winograd_tiles_bytes(t, CGP__WINOGRAD_PANEL);
}

/* Compute rows begin .. end - 1 of the part's U. */
static void make_weights(const convolution *p, int64_t begin, int64_t end) {
    cgp__winograd_filter part = p->filter;
    part.at += p->column * (part.turned ? part.row : 1);
    part.columns = p->columns;
    p->device->kernels->winograd_weights(p->u, u_matrix(part.k, part.columns), &part, begin, end);
}

/* Run items begin .. end - 1. An item is CGP__GEMM_MR rows of U. */
static void weights_range(const void *work, int64_t begin, int64_t end, int thread) {
    const convolution *p = work;
    (void)thread;
    make_weights(p, begin * CGP__GEMM_MR, cgp__min(end * CGP__GEMM_MR, p->filter.k));
}

/* Compute M[i] = V[i] U[i]. */
static void multiply(const convolution *p, int64_t tiles, const float *v, float *m) {
    const int64_t k = p->filter.k, columns = p->columns;
    const int64_t depth = cgp__gemm_depth(k);
    for (int64_t i = 0; i < CGP__WINOGRAD_ELEMENTS; i++)
        for (int64_t q = 0; q < k; q += depth) {
            float *c = m + i * cgp__winograd_matrix(tiles, columns);
            cgp__block block = {.rows = tiles,
                                .columns = columns,
                                .k = cgp__min(depth, k - q),
                                .rows_at = v + i * cgp__winograd_matrix(tiles, k) + q,
                                .row = k,
                                .panels = p->u + i * u_matrix(k, columns),
                                .panels_k = k,
                                .panels_row = q,
                                .type = CGP_F32,
                                .c = c,
                                .stride = columns};
            if (q > 0) block.from = (cgp__matrix){CGP_F32, c, columns, 1};
            p->device->kernels->gemm_columns(&block, 0, columns, NULL);
        }
}

static void write_pixels(const convolution *p, const cgp__winograd_run *r, const float *m,
                         int64_t matrix) {
    const cgp__winograd_tiling *t = &p->tiles;
    const int64_t channels = p->filter.columns, row = t->width * channels;
    const cgp__winograd_pixels pixels = {
        .type = p->type,
        .at = cgp__cpu_at(p->type, p->to, (r->image * t->height + r->row) * row + p->column),
        .row = row,
        .rows = (int)cgp__min(t->height - r->row, 2),
        .width = t->width,
        .channels = channels,
        .count = p->columns,
        .column = r->column,
        .tiles = r->tiles,
        .bias = p->bias ? p->bias + p->column : NULL,
        .add = p->add};
    p->device->kernels->winograd_output(m, matrix, &pixels);
}

/* Compute V of runs first .. last - 1 in matrices of `tiles` tiles. */
static void transform(const convolution *p, int64_t first, int64_t last, int64_t tiles, float *v) {
    for (int64_t i = first; i < last; i++) {
        const cgp__winograd_run r = cgp__winograd_run_at(&p->tiles, i);
        const cgp__winograd_row rows = cgp__winograd_rows(&p->x, &r, CGP__WINOGRAD_SIDE);
        p->device->kernels->winograd_input(v, cgp__winograd_matrix(tiles, p->filter.k), &rows);
        v += r.tiles * p->filter.k;
    }
}

/* Compute the products and pixels of runs first .. last - 1. */
static void finish(const convolution *p, int64_t first, int64_t last, const float *v, float *m) {
    const int64_t tiles = cgp__winograd_tiles_between(&p->tiles, first, last);
    multiply(p, tiles, v, m);
    for (int64_t i = first; i < last; i++) {
        const cgp__winograd_run r = cgp__winograd_run_at(&p->tiles, i);
        write_pixels(p, &r, m, cgp__winograd_matrix(tiles, p->columns));
        m += r.tiles * p->columns;
    }
}

/* --- blocks of tiles --- */

/* Run items begin .. end - 1. An item is a block of tiles. */
static void blocks_range(const void *work, int64_t begin, int64_t end, int thread) {
    const convolution *p = work;
    const cgp__winograd_tiling *t = &p->tiles;
    char *scratch = p->scratch + thread * cgp__winograd_thread_bytes(t, p->filter.k, p->part);
    float *v = (float *)(void *)scratch;
    float *m = (float *)(void *)(scratch + cgp__winograd_tiles_bytes(t, p->filter.k));
    for (int64_t block = begin; block < end; block++) {
        const int64_t first = block * p->runs,
                      last = cgp__min(first + p->runs, cgp__winograd_runs(t));
        transform(p, first, last, cgp__winograd_tiles_between(t, first, last), v);
        finish(p, first, last, v, m);
    }
}

/* Return the number of runs in a block. It is smaller if there are several threads, so that each
 * thread gets blocks. */
static int64_t runs_of_block(const convolution *p, bool little) {
    const int64_t runs = cgp__winograd_runs_at_once(&p->tiles), threads = p->device->threads;
    if (threads == 1 || little) return runs;
    return cgp__min(runs, cgp__max(cgp__winograd_runs(&p->tiles) / (2 * threads), 1));
}

static void convolve_by_blocks(convolution *p, bool little) {
    const int64_t k = p->filter.k, all = p->filter.columns;
    const int64_t rows = cgp__ceil_div(k, CGP__GEMM_MR), runs = cgp__winograd_runs(&p->tiles);
    p->part = cgp__min(cgp__winograd_part(all, k), all);
    p->scratch = (char *)p->u + cgp__winograd_matrices_bytes(u_matrix(k, p->part));
    p->runs = runs_of_block(p, little);
    const int64_t blocks = cgp__ceil_div(runs, p->runs);
    for (p->column = 0; p->column < all; p->column += p->part) {
        p->columns = cgp__min(p->part, all - p->column);
        cgp__cpu_parallel_for(p->device, rows, little ? rows : 1, weights_range, p);
        cgp__cpu_parallel_for(p->device, blocks, little ? blocks : 1, blocks_range, p);
    }
}

static int64_t blocks_bytes(const cgp__winograd_tiling *t, int64_t k, int64_t columns,
                            int threads) {
    const int64_t part = cgp__min(cgp__winograd_part(columns, k), columns);
    return cgp__winograd_matrices_bytes(u_matrix(k, part)) +
           threads * cgp__winograd_thread_bytes(t, k, part);
}

/* --- panels of columns --- */

/* Transform items begin .. end - 1. An item is a run of tiles. */
static void tiles_range(const void *work, int64_t begin, int64_t end, int thread) {
    const convolution *p = work;
    const cgp__winograd_tiling *t = &p->tiles;
    (void)thread;
    transform(p, begin, end, cgp__winograd_tiles_between(t, 0, cgp__winograd_runs(t)),
              p->v + cgp__winograd_tiles_between(t, 0, begin) * p->filter.k);
}

/* Compute items begin .. end - 1. An item is a panel of columns. */
static void panels_range(const void *work, int64_t begin, int64_t end, int thread) {
    convolution p = *(const convolution *)work;
    const int64_t k = p.filter.k;
    char *scratch = p.scratch + thread * panel_bytes(&p.tiles, k);
    p.u = (float *)(void *)scratch;
    for (int64_t panel = begin; panel < end; panel++) {
        p.column = panel * CGP__WINOGRAD_PANEL;
        p.columns = cgp__min(CGP__WINOGRAD_PANEL, p.filter.columns - p.column);
        make_weights(&p, 0, k);
        finish(&p, 0, cgp__winograd_runs(&p.tiles), p.v,
               (float *)(void *)(scratch +
                                 cgp__winograd_matrices_bytes(u_matrix(k, CGP__WINOGRAD_PANEL))));
    }
}

static void convolve_by_panels(convolution *p, bool little) {
    const int64_t runs = cgp__winograd_runs(&p->tiles),
                  panels = cgp__ceil_div(p->filter.columns, CGP__WINOGRAD_PANEL);
    p->scratch = (char *)p->v + cgp__winograd_tiles_bytes(&p->tiles, p->filter.k);
    cgp__cpu_parallel_for(p->device, runs, little ? runs : 1, tiles_range, p);
    cgp__cpu_parallel_for(p->device, panels, little ? panels : 1, panels_range, p);
}

static int64_t panels_bytes(const cgp__winograd_tiling *t, int64_t k, int threads) {
    return cgp__winograd_tiles_bytes(t, k) + threads * panel_bytes(t, k);
}

/* --- either --- */

static void convolve(convolution *p, void *workspace) {
    const int64_t k = p->filter.k, columns = p->filter.columns;
    const int64_t work =
        cgp__winograd_runs(&p->tiles) * p->tiles.run * CGP__WINOGRAD_ELEMENTS * k * columns;
    const bool little = work / 16 < CGP__GEMM_MIN_WORK;
    p->u = p->v = workspace;
    if (cgp__winograd_by_panels(&p->tiles, columns, p->device->threads))
        convolve_by_panels(p, little);
    else
        convolve_by_blocks(p, little);
}

/* Return the workspace size in bytes for at most t->n images. It is enough for both ways to divide
 * the work: by blocks of tiles, and by panels. */
static int64_t convolution_bytes(const cgp__winograd_tiling *t, int64_t k, int64_t columns,
                                 int threads) {
    const cgp__winograd_tiling fewer = cgp__winograd_fewer(t);
    const int64_t blocks = blocks_bytes(t, k, columns, threads);
    if (!cgp__winograd_by_panels(&fewer, columns, threads)) return blocks;
    const int64_t panels = panels_bytes(&fewer, k, threads);
    return fewer.n == t->n ? panels : cgp__max(blocks, panels);
}

void cgp__winograd_convolve(cgp_device *device, const cgp__cpu_convolution *conv, void *workspace) {
    const cgp_kernel_spec *spec = conv->spec;
    const cgp_op_windows *s = cgp_spec_windows(spec);
    convolution p = {.device = device,
                     .x = {spec->type, conv->x, s->height, s->width, s->in, s->in, s->top, s->left},
                     .tiles = cgp__winograd_tiling_of(spec->n, s->out_height, s->out_width),
                     .filter = {conv->weight, s->in * s->out, s->out, s->in, s->out, false},
                     .bias = conv->bias,
                     .type = spec->type,
                     .to = conv->to,
                     .add = conv->add};
    convolve(&p, workspace);
}

void cgp__winograd_convolve_transposed(cgp_device *device, const cgp__cpu_convolution *conv,
                                       void *workspace) {
    const cgp_kernel_spec *spec = conv->spec;
    const cgp_op_windows *s = cgp_spec_windows(spec);
    convolution p = {.device = device,
                     .x = {spec->type, conv->x, s->out_height, s->out_width, s->out, s->out,
                           2 - s->top, 2 - s->left},
                     .tiles = cgp__winograd_tiling_of(spec->n, s->height, s->width),
                     .filter = {conv->weight, s->in * s->out, s->out, s->out, s->in, true},
                     .bias = conv->bias,
                     .type = spec->type,
                     .to = conv->to,
                     .add = conv->add};
    convolve(&p, workspace);
}

int64_t cgp__winograd_convolve_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_windows *s = cgp_spec_windows(spec);
    const bool forward = spec->direction == CGP_OP_FORWARD;
    const cgp__winograd_tiling t =
        forward ? cgp__winograd_tiling_of(spec->n, s->out_height, s->out_width)
                : cgp__winograd_tiling_of(spec->n, s->height, s->width);
    return forward ? convolution_bytes(&t, s->in, s->out, threads)
                   : convolution_bytes(&t, s->out, s->in, threads);
}
