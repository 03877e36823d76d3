/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h -- the vector kernels of the `cpu` backend, one table per instruction set.
 *
 * Every file in kernels/ is compiled three times for x86-64 (v1, v3 and v4), or once for aarch64
 * (neon). Its functions end in _v1, _v3, _v4 or _neon. They are called only through the tables
 * below, so that no instruction runs on a machine that lacks it. The result for a row (or an
 * element, if rows do not matter) depends on that row alone. Neighbours, addresses and the position
 * of a loop's end do not affect it. */
#ifndef CGP_SRC_CPU_KERNELS_H
#define CGP_SRC_CPU_KERNELS_H

#include <cgpipe/ext/backend.h>

#include "base/base.h"

#define CGP__CPU_BLOCK 64 /* rows in a partial sum of a parameter's gradient */

/* A dropout mask; cgpipe/ext/ops/common.h defines the rule. */
typedef struct cgp__cpu_mask {
    cgp__rng_key key;
    uint32_t threshold, group;
    uint64_t sample;
    /* Factor of kept elements, 1 / (1 - p). */
    float scale;
} cgp__cpu_mask;

/* Consecutive rows of LAYER_NORM or RMS_NORM; C = width. Backward takes at most CGP__CPU_BLOCK
 * rows. */
typedef struct cgp__cpu_norm {
    /* Type of x, y, dy and dx. */
    cgp_dtype type;
    int64_t rows, width;
    float eps;
    const void *x;              /* [rows, C] */
    const float *weight, *bias; /* [C]; bias: LAYER_NORM only */
    void *y;                    /* [rows, C] */
    /* [rows] Read by backward. In RMS_NORM `mean` is NULL. */
    float *mean, *rstd;
    const void *dy;
    /* [rows, C] dx may be dy; NULL: not wanted. `add`: add to dx. */
    void *dx;
    bool add;
    /* Backward: sums of dweight and, for LAYER_NORM, dbias, [2, padded C]. Overwritten. */
    float *sums;
} cgp__cpu_norm;

/* Return the floats of a row, padded so that full vectors may be read and written. */
static inline int64_t cgp__cpu_padded(int64_t width) {
    return (width + 15) / 16 * 16;
}

typedef struct cgp__cpu_loss {
    /* Type of x and dx. */
    cgp_dtype type;
    int64_t rows, classes, ignore;
    const void *x; /* [rows, classes] */
    const int32_t *targets;
    float *max, *log_sum; /* [rows], read by backward */
    double *losses;       /* [rows] forward */
    /* [rows, classes] dx is multiplied by `scale` and may be x. `add`: add to dx. */
    void *dx;
    float scale;
    bool add;
} cgp__cpu_loss;

/* Rows of one head's scores. Row i is query first + i, and column j is key begin + j. `begin` is a
 * multiple of 64. Rows begin at multiples of 64 bytes and may be read and written up to the next
 * row. */
typedef struct cgp__cpu_scores {
    int64_t rows, first, begin;
    /* `width`: keys in every row. `stride`: floats from one row to the next. */
    int64_t width, stride;
    /* A causal query attends to no key after its own position. `window`: a query attends to at most
     * this many last keys; 0: to all keys. */
    bool causal;
    int64_t window;
    /* Scores are multiplied by this factor. */
    float scale;
    /* Scores; then probabilities after dropout. */
    float *s;
    /* Backward: the gradients of the probabilities; then the gradients of the scores. */
    float *dp;
    /* [rows] Maximum of s, and log sum_j exp(scale (s - max)). NULL: not saved. */
    float *max, *log_sum;
    const float *delta; /* [rows] dot products dy . y */
    /* Dropout mask, whose group is the group of row 0; NULL: no dropout. */
    const cgp__cpu_mask *mask;
} cgp__cpu_scores;

/* One row of ROTARY: `heads` heads of `width` columns, of which the first `rotated` are rotated.
 * `to` may be `from`. */
typedef struct cgp__cpu_rotation {
    /* Type of `from` and `to`. */
    cgp_dtype type;
    int64_t heads, width, rotated;
    bool interleaved;
    /* [pairs] Padded, because full vectors are read. */
    const float *cos, *sin;
    const void *from;
    void *to;
    /* Add to `to` instead of overwriting it. */
    bool add;
} cgp__cpu_rotation;

/* Return the address of element i of an array of a type. Like strchr(), the function drops const:
 * the caller decides whether to write. */
static inline void *cgp__cpu_at(cgp_dtype type, const void *memory, int64_t i) {
    return (char *)memory + i * (type == CGP_BF16 ? 2 : 4);
}

/* A matrix of f32 or bf16; `at` is element [0, 0]. */
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

/* Multiples of every instruction set's MR and NR: blocks are full micro-panels for every
 * instruction set. */
#define CGP__GEMM_MR 16
#define CGP__GEMM_NR 48

/* Windows of an image. Each window is a row of k = segments x length floats of a GEMM. A segment is
 * one row of the window: `length` contiguous floats. Segments are `jump` floats apart. */
typedef struct cgp__windows {
    const float *at;
    /* [rows] Offset of each window from `at`, in floats. */
    const int64_t *rows;
    int64_t segments, jump;
} cgp__windows;

/* Layout of a matrix b [k, columns] made of taps [columns, depth], whose depth is contiguous. Index
 * k counts the depth of a tap first, then the taps of a segment, then the segments. */
typedef struct cgp__taps {
    int64_t depth;
    /* Elements from one tap to the next, and from one segment to the next. */
    int64_t tap, segment;
    /* The part of each segment in the block: `length` elements of k, starting at `first`. */
    int64_t first, length;
} cgp__taps;

/* Memory to prefetch: `runs` runs of `length` bytes, `stride` bytes apart. */
typedef struct cgp__cpu_prefetch {
    const char *at;
    int64_t runs, length, stride;
} cgp__cpu_prefetch;

/* The part of a triangular product that may be skipped. In row i, on one side of column (`diagonal`
 * + i), either `c` is not needed or `a` is zero. If `b` is finite, skipping does not change a bit
 * of the sums. Products of these zeros with infinity or NaN are skipped too. */
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
    /* Rows read in place do not fit the cache: prefetch the next micro-tile's rows, and skip
     * `prefetch`. */
    bool streams;
    cgp__windows windows;
    cgp__matrix b;
    /* A matrix of `panels_k` rows, packed by gemm_pack_b. The block begins at its row `panels_row`.
     * NULL: b is packed block by block. */
    const float *panels;
    int64_t panels_k, panels_row;
    /* `depth` > 0: `b` is made of taps. */
    cgp__taps taps;
    /* NULL: no bias. */
    const float *bias;
    /* The matrix to add. Its columns are contiguous, and it may be c itself. If `at` is NULL,
     * nothing is added. */
    cgp__matrix from;
    /* Type of c. */
    cgp_dtype type;
    void *c;
    /* Number of elements from one row of c to the next. */
    int64_t stride;
    /* [rows] Offset of each row, in elements. NULL: rows are `stride` apart. */
    const int64_t *c_rows, *from_rows;
    /* Memory that the work after this block reads, in order. */
    const cgp__cpu_prefetch *prefetch;
    int n_prefetch;
} cgp__block;

/* winograd.c: a tile of 2 x 2 output pixels reads 4 x 4 pixels of the image. */
#define CGP__WINOGRAD_SIDE 4
#define CGP__WINOGRAD_ELEMENTS (CGP__WINOGRAD_SIDE * CGP__WINOGRAD_SIDE)

/* Rows of pixels [width, channels], of which tiles read the first `count` channels. Tile t reads
 * four pixels of x, or two of dy, starting at column + 2 t. Pixels outside the width count as
 * zeros. */
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

/* A filter [3, 3, k, columns] or, if `turned`, [3, 3, columns, k], rotated by 180 degrees. `tap`
 * and `row` are the numbers of elements from one tap to the next and from one row to the next. */
typedef struct cgp__winograd_filter {
    const float *at;
    int64_t tap, row, k, columns;
    bool turned;
} cgp__winograd_filter;

/* Rows of BATCH_NORM, INSTANCE_NORM and GROUP_NORM, `stride` elements apart, normalised by column.
 * Arrays that are indexed by column may be read up to the padded width. */
typedef struct cgp__cpu_columns {
    /* Type of x, y, dy and dx. */
    cgp_dtype type;
    int64_t rows, width, stride;
    const void *x, *dy; /* dy: backward */
    const float *mean;
    const float *scale; /* weight rstd */
    const float *shift; /* forward: bias; backward: mean(dy), grouped: rstd mean(g) */
    const float *slope; /* backward: -rstd mean(dy h), grouped: -rstd^2 mean(g h) */
    /* GROUP_NORM: channels of a group share their means; g = dy weight. */
    bool grouped;
    /* Result: y, or dx, which may be dy. `add`: add to dx. */
    void *to;
    bool add;
    /* Number of rows that sums[] already covers; 0: sums[] is undefined. */
    int64_t before;
    /* Forward: the mean, and the sum of squared differences from the mean. Backward: the sums of dy
     * and of dy (x - mean). */
    double *sums[2];
} cgp__cpu_columns;

/* Pooling windows over the image of one sample. */
typedef struct cgp__cpu_pool {
    /* Type of `from` and of the result. */
    cgp_dtype type;
    const cgp_op_windows *attributes;
    /* The image; backward: the gradient of y. */
    const void *from;
    /* Compute the mean of a window's pixels instead of the sum. */
    bool mean;
    /* Add to the result instead of overwriting it. */
    bool add;
    /* Scratch of cgp__cpu_pool_scratch() floats, or twice as many for pool_argmax. */
    float *scratch;
    /* Argmax of each window as an integer, in the layout of y, starting at row `first` of y. Up to
     * CGP__CPU_POOL_SLACK floats past the end may be read. */
    const float *argmax;
    int64_t first;
} cgp__cpu_pool;

#define CGP__CPU_POOL_SLACK 64 /* four vectors */

/* Return the floats of scratch for a row of the image or of y. */
static inline int64_t cgp__cpu_pool_scratch(const cgp_op_windows *g) {
    const int64_t max = g->width > g->out_width ? g->width : g->out_width;
    return cgp__cpu_padded(max * g->in) + CGP__CPU_POOL_SLACK;
}

/* X(name, arguments): all functions return void. `add`: add to the output instead of overwriting
 * it. An output may be the input of the same shape. `type`, f32 or bf16, is the type of the `void`
 * operands that follow it. */
/* clang-format off */
#define CGP__CPU_KERNELS(X)                                                                    \
    /* y = a + b */                                                                            \
    X(add, (cgp_dtype type, void *y, const void *a, cgp_dtype b_type, const void *b,           \
            int64_t n))                                                                        \
    /* y = a b or a - b; set dx[1], then dx[0], or add; a dx may be dy, NULL or the other dx */    \
    X(multiply, (cgp_dtype type, void *y, const void *a, const void *b, int64_t n))            \
    X(subtract, (cgp_dtype type, void *y, const void *a, const void *b, int64_t n))            \
    X(multiply_backward, (cgp_dtype type, void *const dx[2], const void *a, const void *b,     \
                          const void *dy, int64_t n, uint32_t add))                            \
    X(subtract_backward, (cgp_dtype type, void *const dx[2], const void *dy, int64_t n,        \
                          uint32_t add))                                                       \
    /* Rows of probabilities, one after the other; y may be x, dx may be dy. */                \
    X(row_softmax_forward, (cgp_dtype type, void *y, const void *x, int64_t rows,              \
                            int64_t width))                                                    \
    X(row_softmax_backward, (cgp_dtype type, void *dx, const void *y, const void *dy,          \
                             int64_t rows, int64_t width, bool add))                           \
    /* copy from one type to another */                                                        \
    X(convert, (cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from, int64_t n)) \
    /* set sum[c] to the sum of x[row, c], or add it; blocks of 64 rows, `stride` apart */        \
    X(sum_rows, (float *sum, cgp_dtype type, const void *x, int64_t rows, int64_t width,       \
                 int64_t stride, bool add))                                                    \
    /* out[i] = a[i] . b[i], for vectors of `width` elements, `stride` apart */                \
    X(row_dots, (float *out, cgp_dtype type, const void *a, const void *b, int64_t rows,       \
                 int64_t width, int64_t stride))                                               \
    /* elements begin .. end - 1 of a sample; begin is a multiple of 32 */                     \
    X(dropout, (cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,            \
                const cgp__cpu_mask *mask, bool add))                                          \
    /* multiply channels of a sample's rows by factors; 0 where a factor is 0 */               \
    X(dropout_channels, (cgp_dtype type, void *y, const void *x, int64_t rows, int64_t width,  \
                         const float *factors, bool add))                                      \
    X(layer_norm_forward, (const cgp__cpu_norm *norm))                                         \
    X(layer_norm_backward, (const cgp__cpu_norm *norm))                                        \
    X(cross_entropy_forward, (const cgp__cpu_loss *loss))                                      \
    X(cross_entropy_backward, (const cgp__cpu_loss *loss))                                     \
    /* *sum = sum over n logits, in double */                                                  \
    X(bce_forward, (double *sum, cgp_dtype type, const void *x, const void *targets,           \
                    int64_t n))                                                                \
    X(bce_backward, (cgp_dtype type, void *dx, const void *x, const void *targets, int64_t n,  \
                     float scale, bool add))                                                   \
    /* merge the moments (backward: the sums) of the rows of `a` into sums[] */                \
    X(columns_moments, (const cgp__cpu_columns *a))                                            \
    X(columns_sums, (const cgp__cpu_columns *a))                                               \
    X(columns_forward, (const cgp__cpu_columns *a))                                            \
    X(columns_backward, (const cgp__cpu_columns *a))                                           \
    /* copy or add rows of `width` elements, with a stride for each side */                    \
    X(copy_rows, (cgp_dtype type, void *to, int64_t to_stride, const void *from,               \
                  int64_t from_stride, int64_t rows, int64_t width, bool add))                 \
    /* set `to` [columns, rows] to the transpose of `from` [rows, columns], or add it */       \
    X(transpose, (cgp_dtype type, void *to, int64_t to_stride, const void *from,               \
                  int64_t from_stride, int64_t rows, int64_t columns, bool add))               \
    /* compute row i of y: sums or means, or maxima; row i of the argmax */                    \
    X(pool_sum, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_max, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_argmax, (const cgp__cpu_pool *p, float *argmax, int64_t i))                         \
    /* compute a row of the image's gradient */                                                \
    X(pool_sum_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    X(pool_max_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    X(softmax_forward, (const cgp__cpu_scores *scores))                                        \
    X(softmax_backward, (const cgp__cpu_scores *scores))                                       \
    /* cos and sin of position * frequencies, padded to full vectors */                        \
    X(rotary_angles, (float *cos, float *sin, const float *frequencies, int64_t n,             \
                      float position))                                                         \
    X(rotary, (const cgp__cpu_rotation *a))                                                    \
    /* pack `rows` rows of `a` to [CGP__GEMM_MR-padded rows, k] floats */                      \
    X(gemm_pack_a, (float *to, const cgp__matrix *a, int64_t rows, int64_t k))                 \
    /* pack all of b to micro-panels of columns, cgp__gemm_panels_bytes() */                   \
    X(gemm_pack_b, (float *to, const cgp__matrix *b, int64_t columns, int64_t k))              \
    /* pack elements first .. first + rows - 1 of each window as a column of `a` */            \
    X(gemm_pack_windows, (float *to, const float *at, const int64_t *windows, int64_t count,   \
                        int64_t first, int64_t rows))                                          \
    /* columns begin .. end - 1, begin a multiple of CGP__GEMM_NR; packed_b: two micro-panels  \
     * [2, k, CGP__GEMM_NR], NULL if b is prepacked */                                         \
    X(gemm_columns, (const cgp__block *block, int64_t begin, int64_t end, float *packed_b))    \
    /* columns of a block of one row without windows or taps; sums: as large as packed_b */    \
    X(gemv_columns, (const cgp__block *block, int64_t begin, int64_t end, float *sums))        \
    /* transform x or dy to tiles: 16 matrices, `matrix` elements apart; tiles to pixels */    \
    X(winograd_input, (float *to, int64_t matrix, const cgp__winograd_row *row))               \
    X(winograd_gradient, (float *to, int64_t matrix, const cgp__winograd_row *row))            \
    X(winograd_output, (const float *from, int64_t matrix,                                     \
                        const cgp__winograd_pixels *pixels))                                   \
    /* U = G w G^T, rows begin .. end - 1 of k, as micro-panels of 16 matrices */              \
    X(winograd_weights, (float *to, int64_t matrix, const cgp__winograd_filter *filter,        \
                         int64_t begin, int64_t end))                                          \
    /* set elements begin .. end - 1 of dw to G^T dU G, or add; dw's taps are `tap` apart */   \
    X(winograd_weights_back, (float *dw, int64_t tap, const float *from, int64_t matrix,       \
                              int64_t begin, int64_t end, bool add))                           \
    /* *sum = x . x, in double */                                                              \
    X(sum_squares, (double *sum, const float *x, int64_t n))                                   \
    /* *at: index of the first infinity or NaN in x; -1: there is none */                      \
    X(find_nonfinite, (int64_t *at, const float *x, int64_t n))                                \
    X(update, (const cgp_update *update))
/* clang-format on */

#define CGP__CPU_FIELD(name, arguments) void(*name) arguments;

/* The operand that an elementwise op's backward reads beside dy. */
typedef enum cgp__cpu_reads {
    CGP__CPU_READS_X,
    CGP__CPU_READS_Y,
    CGP__CPU_READS_DY
} cgp__cpu_reads;

/* An elementwise op: y = f(x) and dx = dy f', which needs x, y or neither. RELU and SCALE use
 * `slope`. */
typedef struct cgp__cpu_elementwise {
    void (*forward)(cgp_dtype type, void *y, const void *x, int64_t n, float slope);
    void (*backward)(cgp_dtype type, void *dx, const void *operand, const void *dy, int64_t n,
                     float slope, bool add);
    cgp__cpu_reads reads;
} cgp__cpu_elementwise;

typedef struct cgp__cpu_kernels {
    const char *isa;
    CGP__CPU_KERNELS(CGP__CPU_FIELD)
    /* Set for CGP_ELEMENTWISE_OPS. */
    const cgp__cpu_elementwise *elementwise[CGP_OP_KINDS];
} cgp__cpu_kernels;

#ifdef __aarch64__
extern const cgp__cpu_kernels cgp__cpu_kernels_neon;
#else
extern const cgp__cpu_kernels cgp__cpu_kernels_v1, cgp__cpu_kernels_v3, cgp__cpu_kernels_v4;
#endif

#ifdef CGP_ISA /* inside kernels/ */
#define CGP__CPU_PASTE_(name, isa) cgp__cpu_##name##_##isa
#define CGP__CPU_PASTE(name, isa) CGP__CPU_PASTE_(name, isa)
#define CGP__CPU_NAME(name) CGP__CPU_PASTE(name, CGP_ISA)
#define CGP__CPU_DECLARE(name, arguments) void CGP__CPU_NAME(name) arguments;
CGP__CPU_KERNELS(CGP__CPU_DECLARE)
#define CGP__CPU_DECLARE_ELEMENTWISE(kind, name, family)                                           \
    extern const cgp__cpu_elementwise CGP__CPU_NAME(name);
CGP_ELEMENTWISE_OPS(CGP__CPU_DECLARE_ELEMENTWISE)
#endif

#endif
