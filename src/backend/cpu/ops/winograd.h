/* SPDX-License-Identifier: Apache-2.0 */
/* winograd.h -- tiles of 2 x 2 output pixels, their runs and blocks, and the matrices of their
 * Winograd transforms (conv2d_winograd.c, conv2d_winograd_weight.c). */
#ifndef CGP_SRC_CPU_WINOGRAD_H
#define CGP_SRC_CPU_WINOGRAD_H

#include "backend/cpu/ops/windows.h"

/* Maximum number of tiles in a block. */
#define CGP__WINOGRAD_TILES 128
/* Maximum elements of one matrix of U or dU in a part. The part's 16 matrices then take at most 18
 * MiB. */
#define CGP__WINOGRAD_PART 294912
/* Number of columns of U, or rows of dU, in a panel. For example, 16 matrices of 256 x 48 take 0.75
 * MiB. */
#define CGP__WINOGRAD_PANEL CGP__GEMM_NR

/* The tiles of the output pixels of n images. A run is a sequence of adjacent tiles in one row of
 * tiles. */
typedef struct cgp__winograd_tiling {
    int64_t n, height, width;
    /* Number of rows of tiles in an image, number of tiles in a run, and number of runs in a
     * row. */
    int64_t rows, run, parts;
} cgp__winograd_tiling;

static inline cgp__winograd_tiling cgp__winograd_tiling_of(int64_t n, int64_t height,
                                                           int64_t width) {
    const int64_t tiles = cgp__ceil_div(width, 2);
    cgp__winograd_tiling t = {
        .n = n, .height = height, .width = width, .rows = cgp__ceil_div(height, 2)};
    t.parts = cgp__ceil_div(tiles, CGP__WINOGRAD_TILES);
    t.run = cgp__ceil_div(tiles, t.parts);
    return t;
}

static inline int64_t cgp__winograd_runs(const cgp__winograd_tiling *t) {
    return t->n * t->rows * t->parts;
}

/* Return the maximum number of runs in a block. */
static inline int64_t cgp__winograd_runs_at_once(const cgp__winograd_tiling *t) {
    return t->parts > 1
               ? 1
               : cgp__min(cgp__max(CGP__WINOGRAD_TILES / t->run, 1), cgp__winograd_runs(t));
}

static inline int64_t cgp__winograd_block_tiles(const cgp__winograd_tiling *t) {
    return cgp__winograd_runs_at_once(t) * t->run;
}

/* A run: its image, its first output pixel, and its number of tiles. */
typedef struct cgp__winograd_run {
    int64_t image, row, column, tiles;
} cgp__winograd_run;

static inline cgp__winograd_run cgp__winograd_run_at(const cgp__winograd_tiling *t,
                                                     int64_t number) {
    const int64_t part = number % t->parts, row = number / t->parts;
    const int64_t tiles = cgp__ceil_div(t->width, 2) - part * t->run;
    return (cgp__winograd_run){.image = row / t->rows,
                               .row = row % t->rows * 2,
                               .column = part * t->run * 2,
                               .tiles = cgp__min(tiles, t->run)};
}

static inline int64_t cgp__winograd_tiles_between(const cgp__winograd_tiling *t, int64_t begin,
                                                  int64_t end) {
    int64_t tiles = 0;
    for (int64_t i = begin; i < end; i++)
        tiles += cgp__winograd_run_at(t, i).tiles;
    return tiles;
}

/* An image [n, height, width, channels]; a tile reads 4 x 4 pixels of x, or 2 x 2 of dy. */
typedef struct cgp__winograd_image {
    cgp_dtype type;
    const void *at;
    int64_t height, width, channels;
    /* Number of channels that are read, starting at `at`. */
    int64_t count;
    /* Padding above and to the left, in pixels. */
    int64_t top, left;
} cgp__winograd_image;

/* Return the `count` rows of pixels that a run reads. */
static inline cgp__winograd_row cgp__winograd_rows(const cgp__winograd_image *x,
                                                   const cgp__winograd_run *r, int count) {
    cgp__winograd_row out = {.type = x->type,
                             .width = x->width,
                             .channels = x->channels,
                             .count = x->count,
                             .column = r->column - x->left,
                             .tiles = r->tiles};
    for (int i = 0; i < count; i++) {
        const int64_t row = r->row - x->top + i;
        if (row >= 0 && row < x->height)
            out.rows[i] =
                cgp__cpu_at(x->type, x->at, (r->image * x->height + row) * x->width * x->channels);
    }
    return out;
}

/* Divide one side of a filter (its rows or its columns) into equal parts, and return their size.
 * All parts but the last are full micro-panels. The size times `other`, the length of the other
 * side, is at most CGP__WINOGRAD_PART. */
static inline int64_t cgp__winograd_part(int64_t side, int64_t other) {
    const int64_t fit = cgp__max(CGP__WINOGRAD_PART / other / CGP__GEMM_NR, 1) * CGP__GEMM_NR;
    const int64_t even = cgp__ceil_div(side, cgp__ceil_div(side, fit));
    return cgp__ceil_div(even, CGP__GEMM_NR) * CGP__GEMM_NR;
}

/* Return the number of elements from one of the 16 matrices to the next. A cache line is added,
 * because all 16 matrices would otherwise share cache sets. */
static inline int64_t cgp__winograd_matrix(int64_t rows, int64_t columns) {
    return cgp__cpu_padded(rows * columns) + 16;
}

static inline int64_t cgp__winograd_matrices_bytes(int64_t matrix) {
    return cgp__align_up(CGP__WINOGRAD_ELEMENTS * matrix * (int64_t)sizeof(float));
}

static inline int64_t cgp__winograd_tiles_bytes(const cgp__winograd_tiling *t, int64_t channels) {
    return cgp__winograd_matrices_bytes(
        cgp__winograd_matrix(cgp__winograd_block_tiles(t), channels));
}

static inline int64_t cgp__winograd_thread_bytes(const cgp__winograd_tiling *t, int64_t k,
                                                 int64_t columns) {
    return cgp__winograd_tiles_bytes(t, k) + cgp__winograd_tiles_bytes(t, columns);
}

/* Return the number of images whose tiles fit a block; 0: not even one image fits. */
static inline int64_t cgp__winograd_images_at_once(const cgp__winograd_tiling *t) {
    return t->parts > 1 ? 0 : cgp__max(CGP__WINOGRAD_TILES / t->run, 1) / t->rows;
}

/* Return whether all tiles are transformed once, and then panels of one side of the filter are
 * processed one after the other. The U or dU of a panel stays in a cache, and threads take
 * panels. */
static inline bool cgp__winograd_by_panels(const cgp__winograd_tiling *t, int64_t side,
                                           int threads) {
    const int64_t panels = cgp__ceil_div(side, CGP__WINOGRAD_PANEL);
    return t->n <= cgp__winograd_images_at_once(t) && (threads == 1 || panels >= 2 * threads);
}

/* Return the largest tiling that is processed by panels and has at most as many images as `t`; if
 * there is none, return `t`. */
static inline cgp__winograd_tiling cgp__winograd_fewer(const cgp__winograd_tiling *t) {
    cgp__winograd_tiling fewer = *t;
    if (cgp__winograd_images_at_once(t) > 0)
        fewer.n = cgp__min(t->n, cgp__winograd_images_at_once(t));
    return fewer;
}

#endif
