/* SPDX-License-Identifier: Apache-2.0 */
/* conv2d_winograd.c -- 3 x 3 convolutions of stride 1 by tiles of 2 x 2 output pixels: 16 products a tile instead of 36
 * (kernels/winograd.c).
 *
 *     y, dx     U = G w G^T, packed once          for each block of tiles: V = B^T d B, M[i] = V[i] U[i], y = A^T M A
 *     dw        for each block of tiles: V, Z = A dy A^T, dU[i] += V[i]^T Z[i]          dw = G^T dU G
 *
 * dx is the convolution of dy with the filter turned round. An output pixel depends on its tile alone, whose place in the image is fixed:
 * not on the samples beside it, nor on threads, which take blocks of tiles, or of dU the matrices. */
#include "backend/cpu/ops/windows.h"

/* Channels on either side, and pixels of an output, from which on transforms cost less than they save. */
#define MIN_CHANNELS 16
#define MIN_PIXELS 64
/* Tiles in a block. */
#define TILES 128
/* Of k at a time, a multiple of 16. */
#define KC 512
/* Elements of a matrix of U, and of dU, at a time: 18 MiB of all. */
#define PART 294912
#define ELEMENTS CGP__WINOGRAD_ELEMENTS
#define SIDE CGP__WINOGRAD_SIDE

bool cgp__winograd_applies(const cgp_op_attributes *s) {
    return s->tile == 2 && s->in >= MIN_CHANNELS && s->out >= MIN_CHANNELS &&
           (int64_t)s->out_height * s->out_width >= MIN_PIXELS;
}

/* --- tiles --- */

/* The tiles of the output pixels of n images, in runs within a row of tiles. */
typedef struct tiling {
    int64_t n, height, width;
    /* Rows of tiles in an image; tiles of a run, runs of a row. */
    int64_t rows, run, parts;
} tiling;

static tiling tiling_of(int64_t n, int64_t height, int64_t width) {
    const int64_t tiles = cgp__ceil_div(width, 2);
    tiling t = {.n = n, .height = height, .width = width, .rows = cgp__ceil_div(height, 2)};
    t.parts = cgp__ceil_div(tiles, TILES);
    t.run = cgp__ceil_div(tiles, t.parts);
    return t;
}

static int64_t runs_of(const tiling *t) {
    return t->n * t->rows * t->parts;
}

/* Runs in a block, at most. */
static int64_t runs_at_once(const tiling *t) {
    return t->parts > 1 ? 1 : cgp__min(cgp__max(TILES / t->run, 1), runs_of(t));
}

static int64_t block_tiles(const tiling *t) {
    return runs_at_once(t) * t->run;
}

/* A run: its image, its first output pixel, and its tiles. */
typedef struct run {
    int64_t image, row, column, tiles;
} run;

static run run_at(const tiling *t, int64_t number) {
    const int64_t part = number % t->parts, row = number / t->parts;
    const int64_t tiles = cgp__ceil_div(t->width, 2) - part * t->run;
    return (run){.image = row / t->rows,
                 .row = row % t->rows * 2,
                 .column = part * t->run * 2,
                 .tiles = cgp__min(tiles, t->run)};
}

static int64_t tiles_between(const tiling *t, int64_t begin, int64_t end) {
    int64_t tiles = 0;
    for (int64_t i = begin; i < end; i++)
        tiles += run_at(t, i).tiles;
    return tiles;
}

/* An image [n, height, width, channels] whose pixels, or windows, tiles read. */
typedef struct image {
    cgp_dtype type;
    const void *at;
    int64_t height, width, channels;
    /* Channels that are read, from `at` on. */
    int64_t count;
    /* Padding. */
    int64_t top, left;
} image;

/* The `count` rows of pixels of a run. */
static cgp__winograd_row rows_of(const image *x, const run *r, int count) {
    cgp__winograd_row out = {.type = x->type,
                             .width = x->width,
                             .channels = x->channels,
                             .count = x->count,
                             .column = r->column - x->left,
                             .tiles = r->tiles};
    for (int i = 0; i < count; i++) {
        const int64_t row = r->row - x->top + i;
        if (row >= 0 && row < x->height)
            out.rows[i] = cgp__cpu_at(x->type, x->at,
                                      (r->image * x->height + row) * x->width * x->channels);
    }
    return out;
}

/* Equal parts of a side of a filter, whole micro-panels but for the last, so that part * other fits PART. */
static int64_t part_of(int64_t side, int64_t other) {
    const int64_t fit = cgp__max(PART / other / CGP__GEMM_NR, 1) * CGP__GEMM_NR;
    const int64_t even = cgp__ceil_div(side, cgp__ceil_div(side, fit));
    return cgp__ceil_div(even, CGP__GEMM_NR) * CGP__GEMM_NR;
}

/* Elements from one of the 16 matrices to the next: a line more than they have, or all 16 would be in the same cache sets. */
static int64_t matrix_of(int64_t rows, int64_t columns) {
    return cgp__cpu_padded(rows * columns) + 16;
}

static int64_t matrices_bytes(int64_t matrix) {
    return cgp__align_up(ELEMENTS * matrix * (int64_t)sizeof(float));
}

static int64_t tiles_bytes(const tiling *t, int64_t channels) {
    return matrices_bytes(matrix_of(block_tiles(t), channels));
}

/* --- y and dx --- */

typedef struct convolution {
    cgp_device *device;
    image x;
    tiling tiles;
    /* Of all columns. */
    cgp__winograd_filter filter;
    const float *bias;
    cgp_dtype type;
    void *to;
    bool add;
    /* Columns at a time; those of the part. */
    int64_t part, column, columns;
    /* Runs in a block. */
    int64_t runs;
    /* Packed weights of a part; what follows is a thread's. */
    float *u;
    char *scratch;
} convolution;

static int64_t u_matrix(int64_t k, int64_t columns) {
    return matrix_of(1, cgp__gemm_panels_bytes(columns, k) / (int64_t)sizeof(float));
}

static int64_t thread_bytes(const tiling *t, int64_t k, int64_t columns) {
    return tiles_bytes(t, k) + tiles_bytes(t, columns);
}

static int64_t convolution_bytes(const tiling *t, int64_t k, int64_t columns, int threads) {
    const int64_t part = cgp__min(part_of(columns, k), columns);
    return matrices_bytes(u_matrix(k, part)) + threads * thread_bytes(t, k, part);
}

/* Items are rows of U, CGP__GEMM_MR at a time. */
static void weights_range(const void *work, int64_t begin, int64_t end, int thread) {
    const convolution *p = work;
    const int64_t last = cgp__min(end * CGP__GEMM_MR, p->filter.k);
    cgp__winograd_filter part = p->filter;
    part.at += p->column * (part.turned ? part.row : 1);
    part.columns = p->columns;
    (void)thread;
    p->device->kernels->winograd_weights(p->u, u_matrix(part.k, part.columns), &part,
                                         begin * CGP__GEMM_MR, last);
}

/* M[i] = V[i] U[i] */
static void multiply(const convolution *p, int64_t tiles, const float *v, float *m) {
    const int64_t k = p->filter.k, columns = p->columns;
    const int64_t depth = cgp__ceil_div(cgp__ceil_div(k, cgp__ceil_div(k, KC)), 16) * 16;
    for (int64_t i = 0; i < ELEMENTS; i++)
        for (int64_t q = 0; q < k; q += depth) {
            float *c = m + i * matrix_of(tiles, columns);
            cgp__block block = {.rows = tiles,
                                .columns = columns,
                                .k = cgp__min(depth, k - q),
                                .rows_at = v + i * matrix_of(tiles, k) + q,
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

static void write_pixels(const convolution *p, const run *r, const float *m, int64_t matrix) {
    const tiling *t = &p->tiles;
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

/* Runs first .. last - 1: their tiles, products and pixels. */
static void run_block(const convolution *p, int64_t first, int64_t last, float *v, float *m) {
    const tiling *t = &p->tiles;
    const int64_t tiles = tiles_between(t, first, last), k = p->filter.k;
    int64_t at = 0;
    for (int64_t i = first; i < last; i++) {
        const run r = run_at(t, i);
        const cgp__winograd_row rows = rows_of(&p->x, &r, SIDE);
        p->device->kernels->winograd_input(v + at * k, matrix_of(tiles, k), &rows);
        at += r.tiles;
    }
    multiply(p, tiles, v, m);
    at = 0;
    for (int64_t i = first; i < last; i++) {
        const run r = run_at(t, i);
        write_pixels(p, &r, m + at * p->columns, matrix_of(tiles, p->columns));
        at += r.tiles;
    }
}

/* Items are blocks of tiles. */
static void blocks_range(const void *work, int64_t begin, int64_t end, int thread) {
    const convolution *p = work;
    const tiling *t = &p->tiles;
    char *scratch = p->scratch + thread * thread_bytes(t, p->filter.k, p->part);
    float *v = (float *)(void *)scratch;
    float *m = (float *)(void *)(scratch + tiles_bytes(t, p->filter.k));
    for (int64_t block = begin; block < end; block++)
        run_block(p, block * p->runs, cgp__min((block + 1) * p->runs, runs_of(t)), v, m);
}

/* Runs in a block: where there are several threads, blocks for each of them. */
static int64_t runs_of_block(const convolution *p, bool little) {
    const int64_t runs = runs_at_once(&p->tiles), threads = p->device->threads;
    if (threads == 1 || little) return runs;
    return cgp__min(runs, cgp__max(runs_of(&p->tiles) / (2 * threads), 1));
}

static void convolve(convolution *p, void *workspace) {
    const int64_t k = p->filter.k, all = p->filter.columns;
    const int64_t rows = cgp__ceil_div(k, CGP__GEMM_MR), runs = runs_of(&p->tiles);
    p->part = cgp__min(part_of(all, k), all);
    p->u = workspace;
    p->scratch = (char *)workspace + matrices_bytes(u_matrix(k, p->part));
    const bool little = runs * p->tiles.run * ELEMENTS * k * p->part / 16 < CGP__GEMM_MIN_WORK;
    p->runs = runs_of_block(p, little);
    const int64_t blocks = cgp__ceil_div(runs, p->runs);
    for (p->column = 0; p->column < all; p->column += p->part) {
        p->columns = cgp__min(p->part, all - p->column);
        cgp__cpu_parallel_for(p->device, rows, little ? rows : 1, weights_range, p);
        cgp__cpu_parallel_for(p->device, blocks, little ? blocks : 1, blocks_range, p);
    }
}

void cgp__winograd_convolve(cgp_device *device, const cgp__cpu_convolution *conv,
                            void *workspace) {
    const cgp_kernel_spec *spec = conv->spec;
    const cgp_op_attributes *s = &spec->attributes;
    convolution p = {
        .device = device,
        .x = {spec->type, conv->x, s->height, s->width, s->in, s->in, s->top, s->left},
        .tiles = tiling_of(spec->n, s->out_height, s->out_width),
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
    const cgp_op_attributes *s = &spec->attributes;
    convolution p = {.device = device,
                     .x = {spec->type, conv->x, s->out_height, s->out_width, s->out, s->out,
                           2 - s->top, 2 - s->left},
                     .tiles = tiling_of(spec->n, s->height, s->width),
                     .filter = {conv->weight, s->in * s->out, s->out, s->out, s->in, true},
                     .bias = conv->bias,
                     .type = spec->type,
                     .to = conv->to,
                     .add = conv->add};
    convolve(&p, workspace);
}

int64_t cgp__winograd_convolve_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_attributes *s = &spec->attributes;
    const bool forward = spec->direction == CGP_OP_FORWARD;
    const tiling t = forward ? tiling_of(spec->n, s->out_height, s->out_width)
                             : tiling_of(spec->n, s->height, s->width);
    return forward ? convolution_bytes(&t, s->in, s->out, threads)
                   : convolution_bytes(&t, s->out, s->in, threads);
}

/* --- dw --- */

/* Rows of dU at a time are channels of x. */
typedef struct weight_gradient {
    cgp_device *device;
    image x, dy;
    tiling tiles;
    int64_t in, out;
    float *dw;
    bool add;
    /* Runs of the block, and its tiles. */
    int64_t first, last, count;
    float *du, *v, *z;
    char *scratch;
} weight_gradient;

static int64_t gemm_bytes(const tiling *t, int64_t rows, int64_t out) {
    return cgp__gemm_workspace(rows, out, block_tiles(t), CGP_F32, false, 1);
}

/* Items are runs of the block. */
static void runs_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    const cgp__cpu_kernels *kernels = p->device->kernels;
    int64_t at = tiles_between(&p->tiles, p->first, p->first + begin);
    (void)thread;
    for (int64_t i = p->first + begin; i < p->first + end; i++) {
        const run r = run_at(&p->tiles, i);
        const cgp__winograd_row x = rows_of(&p->x, &r, SIDE), dy = rows_of(&p->dy, &r, 2);
        kernels->winograd_input(p->v + at * p->x.count, matrix_of(p->count, p->x.count), &x);
        kernels->winograd_gradient(p->z + at * p->out, matrix_of(p->count, p->out), &dy);
        at += r.tiles;
    }
}

/* Items are the matrices: dU[i] += V[i]^T Z[i]. */
static void matrices_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    const int64_t rows = p->x.count;
    char *scratch = p->scratch + thread * gemm_bytes(&p->tiles, rows, p->out);
    for (int64_t i = begin; i < end; i++)
        cgp__gemm_run(
            p->device, true,
            &(cgp__gemm){.m = rows,
                         .n = p->out,
                         .k = p->count,
                         .a = cgp__columns(CGP_F32, p->v + i * matrix_of(p->count, rows), rows),
                         .b =
                             cgp__rows(CGP_F32, p->z + i * matrix_of(p->count, p->out), p->out),
                         .type = CGP_F32,
                         .c = p->du + i * matrix_of(rows, p->out),
                         .stride = p->out,
                         .add = p->first > 0},
            scratch);
}

/* Items are vectors of elements of dU[i]. */
static void back_range(const void *work, int64_t begin, int64_t end, int thread) {
    const weight_gradient *p = work;
    (void)thread;
    p->device->kernels->winograd_weights_back(p->dw, p->in * p->out, p->du,
                                              matrix_of(p->x.count, p->out), begin * 16,
                                              cgp__min(end * 16, p->x.count * p->out), p->add);
}

/* Rows of dU, from x's channels on. */
static void run_part(weight_gradient *p) {
    const int64_t runs = runs_at_once(&p->tiles), all = runs_of(&p->tiles), rows = p->x.count;
    const int64_t vectors = cgp__ceil_div(rows * p->out, 16);
    for (p->first = 0; p->first < all; p->first = p->last) {
        p->last = cgp__min(p->first + runs, all);
        p->count = tiles_between(&p->tiles, p->first, p->last);
        const bool little = p->count * ELEMENTS * rows * p->out / 16 < CGP__GEMM_MIN_WORK;
        const int64_t n = p->last - p->first, some = cgp__ceil_div(n, 2 * p->device->threads);
        cgp__cpu_parallel_for(p->device, n, little ? n : some, runs_range, p);
        cgp__cpu_parallel_for(p->device, ELEMENTS, little ? ELEMENTS : 1, matrices_range, p);
    }
    cgp__cpu_parallel_for(p->device, vectors, cgp__cpu_block_rows(16 * 25), back_range, p);
}

void cgp__winograd_weight(cgp_device *device, const cgp_kernel_spec *spec, const void *x,
                          const void *dy, float *dw, bool add, void *workspace) {
    const cgp_op_attributes *s = &spec->attributes;
    const int64_t part = cgp__min(part_of(s->in, s->out), s->in);
    weight_gradient p = {
        .device = device,
        .x = {spec->type, x, s->height, s->width, s->in, 0, s->top, s->left},
        .dy = {spec->type, dy, s->out_height, s->out_width, s->out, s->out, 0, 0},
        .tiles = tiling_of(spec->n, s->out_height, s->out_width),
        .in = s->in,
        .out = s->out,
        .add = add,
        .du = workspace};
    char *after = (char *)workspace + matrices_bytes(matrix_of(part, s->out));
    p.v = (float *)(void *)after;
    p.z = (float *)(void *)(after + tiles_bytes(&p.tiles, part));
    p.scratch = after + thread_bytes(&p.tiles, part, s->out);
    for (int64_t row = 0; row < s->in; row += part) {
        p.x.at = cgp__cpu_at(spec->type, x, row);
        p.x.count = cgp__min(part, s->in - row);
        p.dw = dw + row * s->out;
        run_part(&p);
    }
}

int64_t cgp__winograd_weight_bytes(const cgp_kernel_spec *spec, int threads) {
    const cgp_op_attributes *s = &spec->attributes;
    const tiling t = tiling_of(spec->n, s->out_height, s->out_width);
    const int64_t part = cgp__min(part_of(s->in, s->out), s->in);
    return matrices_bytes(matrix_of(part, s->out)) + thread_bytes(&t, part, s->out) +
           threads * gemm_bytes(&t, part, s->out);
}
