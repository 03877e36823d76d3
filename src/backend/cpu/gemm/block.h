/* SPDX-License-Identifier: Apache-2.0 */
/* block.h -- the operands of the vector kernels of GEMM and Winograd convolutions. */
#ifndef CGP_SRC_CPU_BLOCK_H
#define CGP_SRC_CPU_BLOCK_H

#include "backend/cpu/kernels.h"

/* A matrix of f32 or bf16; `at` points to element [0, 0]. */
typedef struct cgp__matrix {
    cgp_dtype type;
    const void *at;
    /* Numbers of elements from one row to the next, and from one column to the next. One of the two
     * is 1. */
    int64_t row, column;
} cgp__matrix;

/* Return the submatrix that begins at element [i, j]. */
static inline cgp__matrix cgp__matrix_from(cgp__matrix x, int64_t i, int64_t j) {
    x.at = cgp__cpu_at(x.type, x.at, i * x.row + j * x.column);
    return x;
}

/* For every instruction set, CGP__GEMM_MR is a multiple of MR and CGP__GEMM_NR is a multiple of NR.
 * So blocks of these sizes consist of full micro-panels. */
#define CGP__GEMM_MR 16
#define CGP__GEMM_NR 48

/* Windows of an image. Each window is a row of a GEMM, with k = segments x length floats. A segment
 * is one row of the window: `length` contiguous floats. Segments are `jump` floats apart. */
typedef struct cgp__windows {
    const float *at;
    /* [rows] Offset of each window from `at`, in floats. */
    const int64_t *rows;
    int64_t segments, jump;
} cgp__windows;

/* Layout of a matrix b [k, columns] that consists of taps [columns, depth]. The `depth` elements of
 * a tap are contiguous. Index k runs first over the depth of a tap, then over the taps of a
 * segment, then over the segments. */
typedef struct cgp__taps {
    int64_t depth;
    /* Elements from one tap to the next, and from one segment to the next. */
    int64_t tap, segment;
    /* The block uses `length` elements of k of each segment, starting at `first`. */
    int64_t first, length;
} cgp__taps;

/* Memory to prefetch: `runs` runs of `length` bytes, `stride` bytes apart. */
typedef struct cgp__cpu_prefetch {
    const char *at;
    int64_t runs, length, stride;
} cgp__cpu_prefetch;

/* The part of a triangular product that may be skipped. In row i, on one side of column (`diagonal`
 * + i), either `c` is not needed or `a` is zero. If `b` is finite, the sums are bit-identical with
 * and without skipping. Skipping also leaves out products of these zeros with infinity or NaN. */
typedef enum cgp__triangle {
    CGP__DENSE,   /* no triangle */
    CGP__C_UNTIL, /* `c` is needed up to the diagonal; after it, `c` may stay unwritten */
    CGP__A_UNTIL, /* `a` is zero after the diagonal */
    CGP__A_FROM,  /* `a` is zero before the diagonal */
} cgp__triangle;

/* c [rows, columns] = from + a [rows, k] b [k, columns] + bias [columns]. */
typedef struct cgp__block {
    int64_t rows, columns, k;
    /* `diagonal` counts rows and columns from the start of the block. With windows, the triangle is
     * always CGP__DENSE. */
    cgp__triangle triangle;
    int64_t diagonal;
    /* Operand `a` has one of three forms: packed by gemm_pack_a; contiguous f32 rows in place,
     * `row` floats apart; or windows of an image. */
    const float *a;
    const float *rows_at;
    int64_t row;
    /* True: rows of `a` are read in place and do not fit in the cache. So the next micro-tile's
     * rows are prefetched, instead of the entries of `prefetch`. */
    bool streams;
    cgp__windows windows;
    cgp__matrix b;
    /* A matrix of `panels_k` rows, packed by gemm_pack_b, in which the block begins at row
     * `panels_row`. NULL: b is packed block by block. */
    const float *panels;
    int64_t panels_k, panels_row;
    /* If taps.depth > 0, `b` consists of taps. */
    cgp__taps taps;
    /* NULL: no bias. */
    const float *bias;
    /* The matrix to add. Its columns are contiguous, and it may be c itself. If from.at is NULL,
     * nothing is added. */
    cgp__matrix from;
    /* Type of c. */
    cgp_dtype type;
    void *c;
    /* Number of elements from one row of c to the next. */
    int64_t stride;
    /* [rows] Offset of each row, in elements. NULL: rows are `stride` apart. */
    const int64_t *c_rows, *from_rows;
    /* Memory that is read after this block has been computed, in the order of the reads. */
    const cgp__cpu_prefetch *prefetch;
    int n_prefetch;
} cgp__block;

/* winograd.c: a tile of 2 x 2 output pixels reads 4 x 4 pixels of the image. */
#define CGP__WINOGRAD_SIDE 4
#define CGP__WINOGRAD_ELEMENTS (CGP__WINOGRAD_SIDE * CGP__WINOGRAD_SIDE)

/* Rows of pixels [width, channels] for Winograd tiles, which read the first `count` channels. Tile
 * t reads four pixels of x, or two of dy, starting at pixel `column` + 2 t. Pixels outside the
 * width count as zeros. */
typedef struct cgp__winograd_row {
    cgp_dtype type;
    /* Addresses of the rows; dy uses only the first two. NULL: the row is outside the image. */
    const void *rows[CGP__WINOGRAD_SIDE];
    int64_t width, channels, count, column, tiles;
} cgp__winograd_row;

/* One or two rows of pixels [width, channels], `row` elements apart. Tiles write the first `count`
 * channels of the pixels, starting at pixel `column`. */
typedef struct cgp__winograd_pixels {
    cgp_dtype type;
    void *at;
    int64_t row;
    int rows;
    int64_t width, channels, count, column, tiles;
    /* NULL: no bias. */
    const float *bias;
    bool add;
} cgp__winograd_pixels;

/* A filter [3, 3, k, columns]. If `turned` is set, the filter is stored as [3, 3, columns, k] and
 * rotated by 180 degrees. `tap` and `row` are the numbers of elements from one tap to the next and
 * from one row to the next. */
typedef struct cgp__winograd_filter {
    const float *at;
    int64_t tap, row, k, columns;
    bool turned;
} cgp__winograd_filter;

#endif
