/* SPDX-License-Identifier: Apache-2.0 */
/* kernels.h -- the vector loops of the `cpu` backend, a table of them per instruction set.
 *
 * Every file in kernels/ is compiled once for x86-64-v3 and once for v4; its functions end in
 * _v3 or _v4 and are reached through the tables below alone, so that no instruction runs on a
 * machine that lacks it. What a kernel gives for a row (or an element, where rows do not
 * matter) depends on that row alone: not on its neighbours, its address or where a loop
 * ends. */
#ifndef CGP_SRC_CPU_KERNELS_H
#define CGP_SRC_CPU_KERNELS_H

#include "backend/backend.h"

#define CGP__CPU_BLOCK 64 /* rows in a partial sum of a parameter's gradient */

/* Which elements live, and by what they are multiplied: the rule in backend.h. */
typedef struct cgp__cpu_mask {
    cgp__rng_key key;
    uint32_t threshold, group;
    uint64_t sample;
    float scale; /* 1 / (1 - p) */
} cgp__cpu_mask;

/* Rows of LAYER_NORM, one after the other; C = width. Backward: at most a block of them. */
typedef struct cgp__cpu_norm {
    cgp_dtype type; /* of x, y, dy and dx */
    int64_t rows, width;
    float eps;
    const void *x;              /* [rows, C] */
    const float *weight, *bias; /* [C] */
    void *y;                    /* [rows, C] */
    float *mean, *rstd;         /* [rows], backward reads them */
    const void *dy;
    void *dx;    /* [rows, C], may be dy; NULL: not wanted */
    bool add;    /* to dx */
    float *sums; /* [2, padded C] backward: of dweight and dbias, overwritten */
} cgp__cpu_norm;

/* Floats of a row that whole vectors may be read from and written to. */
static inline int64_t cgp__cpu_padded(int64_t width) {
    return (width + 15) / 16 * 16;
}

typedef struct cgp__cpu_loss {
    cgp_dtype type; /* of x and dx */
    int64_t rows, classes, ignore;
    const void *x; /* [rows, classes] */
    const int32_t *targets;
    float *lse;
    double *losses; /* [rows] forward */
    void *dx;       /* [rows, classes], may be x */
    float scale;    /* of dx */
    bool add;       /* to dx */
} cgp__cpu_loss;

/* Rows of one head's scores: row i belongs to query first + i and sees the keys 0 .. first + i.
 * Rows begin at multiples of 64 bytes and may be read and written up to the next one. */
typedef struct cgp__cpu_scores {
    int64_t rows, first;
    int64_t width, stride;     /* keys to be defined in every row; floats from row to row */
    float scale;               /* of scores */
    float *s;                  /* scores; then probabilities, dropped */
    float *dp;                 /* backward: their gradients; then those of the scores */
    float *lse;                /* [rows] */
    const float *delta;        /* [rows] dy . y */
    const cgp__cpu_mask *mask; /* NULL: no dropout; its group is that of row 0 */
} cgp__cpu_scores;

/* Memory from element i on, of a type; as strchr() it leaves it to the caller whether it may be
 * written. */
static inline void *cgp__cpu_at(cgp_dtype type, const void *memory, int64_t i) {
    return (char *)memory + i * (type == CGP_BF16 ? 2 : 4);
}

/* A matrix of f32 or bf16 in memory, from element [0, 0] on: elements from one row to the next
 * and from one column to the next, one of which is 1. */
typedef struct cgp__matrix {
    cgp_dtype type;
    const void *at;
    int64_t row, column;
} cgp__matrix;

/* The same from element [i, j] on. */
static inline cgp__matrix cgp__matrix_from(cgp__matrix x, int64_t i, int64_t j) {
    x.at = cgp__cpu_at(x.type, x.at, i * x.row + j * x.column);
    return x;
}

/* Slivers of a product's blocks divide these on every instruction set. */
#define CGP__PRODUCT_ROWS 16
#define CGP__PRODUCT_COLUMNS 48

/* Windows of an image, each a row of k = segments x length floats: `length` contiguous ones for each row of a window,
 * `jump` floats from one to the next. */
typedef struct cgp__windows {
    const float *at;
    const int64_t *rows; /* [rows] floats from `at` to a window */
    int64_t segments, jump;
} cgp__windows;

/* How a matrix b [k, columns] lies that is made of taps [columns, depth], depth contiguous: k runs through the depth of
 * a tap, the taps of a segment, the segments; each is so many elements behind the one before. */
typedef struct cgp__taps {
    int64_t depth, tap, segment;
    int64_t
        first; /* of the block, in its segment: k is from there to the segment's end, or whole segments */
    int64_t length; /* of a segment of the block */
} cgp__taps;

/* Memory that will be read soon, in bytes: so many runs, and from one's beginning to the next. */
typedef struct cgp__ahead {
    const char *at;
    int64_t runs, length, stride;
} cgp__ahead;

/* c [rows, columns] = from + a [rows, k] b [k, columns] + bias [columns]. */
typedef struct cgp__block {
    int64_t rows, columns, k;
    const float *a;       /* packed by product_rows */
    const float *rows_at; /* a as it is, if its columns are contiguous floats; else NULL */
    int64_t row;          /* floats from row to row there */
    cgp__windows windows; /* of an image, that a's rows are instead; no table: they are not */
    cgp__matrix b;
    cgp__taps
        taps; /* of b, if its columns are contiguous by taps only; no depth: it has none */
    const float *bias; /* NULL: none */
    cgp__matrix from;  /* its columns are contiguous; may be c. at == NULL: nothing is added */
    cgp_dtype type;    /* of c */
    void *c;
    int64_t stride; /* elements from row to row of c */
    const int64_t *c_rows,
        *from_rows; /* [rows] elements to each row instead; NULL: by stride */
    const cgp__ahead *ahead;
    int n_ahead; /* what is read after the block, in that order */
} cgp__block;

/* Rows of BATCH_NORM and INSTANCE_NORM, `stride` elements from one to the next, whose columns are
 * normalised. All that is indexed by column may be read up to the padded width. */
typedef struct cgp__cpu_columns {
    cgp_dtype type; /* of x, y, dy and dx */
    int64_t rows, width, stride;
    const void *x, *dy; /* backward: dy */
    const float *mean;  /* of a column */
    const float *scale; /* weight rstd */
    const float *shift; /* forward: bias. backward: mean of dy */
    const float *slope; /* backward: - rstd mean of dy h */
    void *to;           /* y, or dx, which may be dy */
    bool add;           /* to dx */
    int64_t before;     /* rows that sums[] holds; 0: nothing */
    double *sums[2]; /* of a column: mean and sum of squared differences from it, or the sums of
                           dy and of dy (x - mean) */
} cgp__cpu_columns;

/* Windows over the image of one sample. */
typedef struct cgp__cpu_pool {
    cgp_dtype type; /* of `from` and what is made */
    const cgp__op_attributes *attributes;
    const void *from; /* the image; backward: y's gradient */
    bool mean;        /* of a window's pixels, instead of the sum */
    bool add;         /* to what is made */
    float *capacity;  /* cgp__cpu_pool_capacity, for places twice that */
    const float *
        places; /* as y, from its row `first` on; as many integers, and then as many floats as a group of
                            vectors has may be read */
    int64_t first;
} cgp__cpu_pool;

#define CGP__CPU_POOL_SLACK 64 /* four vectors */

/* Floats for a row of the image or of y. */
static inline int64_t cgp__cpu_pool_capacity(const cgp__op_attributes *g) {
    const int64_t max = g->width > g->out_width ? g->width : g->out_width;
    return cgp__cpu_padded(max * g->in) + CGP__CPU_POOL_SLACK;
}

/* X(name, arguments), all return nothing. `add`: to the output, which is overwritten otherwise.
 * An output may be the input of the same shape. `type` is that of everything behind it which is
 * `void`, f32 or bf16. */
/* clang-format off */
#define CGP__CPU_KERNELS(X)                                                                    \
    /* y = a + b */                                                                            \
    X(add, (cgp_dtype type, void *y, const void *a, cgp_dtype b_type, const void *b,           \
            int64_t n))                                                                        \
    /* to = from, of two types */                                                              \
    X(convert, (cgp_dtype to_type, void *to, cgp_dtype from_type, const void *from, int64_t n)) \
    /* sum[c] = or += sum over rows of x[row, c], in blocks of 64 rows that are `stride` apart */ \
    X(sum_rows, (float *sum, cgp_dtype type, const void *x, int64_t rows, int64_t width,       \
                 int64_t stride, bool add))                                                    \
    /* out[i] = a[i] . b[i], vectors of `width` that are `stride` apart */                     \
    X(row_dots, (float *out, cgp_dtype type, const void *a, const void *b, int64_t rows,       \
                 int64_t width, int64_t stride))                                               \
    X(gelu_forward, (cgp_dtype type, void *y, const void *x, int64_t n))                       \
    X(gelu_backward, (cgp_dtype type, void *dx, const void *x, const void *dy, int64_t n,      \
                      bool add))                                                               \
    X(gelu_tanh_forward, (cgp_dtype type, void *y, const void *x, int64_t n))                  \
    X(gelu_tanh_backward, (cgp_dtype type, void *dx, const void *x, const void *dy, int64_t n, \
                           bool add))                                                          \
    /* elements begin .. end - 1 of a sample; begin is a multiple of 32 */                     \
    X(dropout, (cgp_dtype type, void *y, const void *x, int64_t begin, int64_t end,            \
                const cgp__cpu_mask *mask, bool add))                                          \
    /* rows of one sample, channels times factors; where a factor is 0, 0 */                   \
    X(dropout_channels, (cgp_dtype type, void *y, const void *x, int64_t rows, int64_t width,  \
                         const float *factors, bool add))                                      \
    X(relu_forward, (cgp_dtype type, void *y, const void *x, int64_t n, float slope))          \
    X(relu_backward, (cgp_dtype type, void *dx, const void *y, const void *dy, int64_t n,      \
                      float slope, bool add))                                                  \
    X(layer_norm_forward, (const cgp__cpu_norm *norm))                                         \
    X(layer_norm_backward, (const cgp__cpu_norm *norm))                                        \
    X(cross_entropy_forward, (const cgp__cpu_loss *loss))                                      \
    X(cross_entropy_backward, (const cgp__cpu_loss *loss))                                     \
    /* *sum = sum over n logits, in double */                                                  \
    X(bce_forward, (double *sum, cgp_dtype type, const void *x, const void *targets,           \
                    int64_t n))                                                                \
    X(bce_backward, (cgp_dtype type, void *dx, const void *x, const void *targets, int64_t n,  \
                     float scale, bool add))                                                   \
    /* sums[] of a's rows, together with those it holds */                                     \
    X(columns_moments, (const cgp__cpu_columns *a))                                            \
    X(columns_sums, (const cgp__cpu_columns *a))                                               \
    X(columns_forward, (const cgp__cpu_columns *a))                                            \
    X(columns_backward, (const cgp__cpu_columns *a))                                           \
    /* rows of `width`, so many elements from one to the next: to = or += from */              \
    X(copy_rows, (cgp_dtype type, void *to, int64_t to_stride, const void *from,               \
                  int64_t from_stride, int64_t rows, int64_t width, bool add))                 \
    /* Row i of y: sums or means; maxima. Row i of the places of the maxima. */                \
    X(pool_sum, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_max, (const cgp__cpu_pool *p, void *y, int64_t i))                                  \
    X(pool_max_places, (const cgp__cpu_pool *p, float *places, int64_t i))                     \
    /* A row of the image's gradient. */                                                       \
    X(pool_sum_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    X(pool_max_back, (const cgp__cpu_pool *p, void *dx, int64_t row))                          \
    X(softmax_forward, (const cgp__cpu_scores *scores))                                        \
    X(softmax_backward, (const cgp__cpu_scores *scores))                                       \
    /* `rows` rows of a product's a to [CGP__PRODUCT_ROWS-padded rows, k] floats, packed */       \
    X(product_rows, (float *to, const cgp__matrix *a, int64_t rows, int64_t k))                \
    /* windows, of which rows first .. first + rows - 1 of k are wanted, as a packed a of `rows` rows \
     * and a column each */                                                                    \
    X(product_windows, (float *to, const float *at, const int64_t *windows, int64_t count,     \
                        int64_t first, int64_t rows))                                          \
    /* columns begin .. end - 1, begin a multiple of CGP__PRODUCT_COLUMNS; room: two slivers,  \
     * [2, k, CGP__PRODUCT_COLUMNS] */                                                         \
    X(product_columns, (const cgp__block *block, int64_t begin, int64_t end, float *capacity))     \
    /* *sum = x . x, in double */                                                              \
    X(sum_squares, (double *sum, const float *x, int64_t n))                                   \
    /* *at: the first of x that is infinite or NaN, -1 if none is */                           \
    X(find_nonfinite, (int64_t *at, const float *x, int64_t n))                                \
    X(update, (const cgp__update *update))
/* clang-format on */

#define CGP__CPU_FIELD(name, arguments) void(*name) arguments;

typedef struct cgp__cpu_kernels {
    const char *isa;
    CGP__CPU_KERNELS(CGP__CPU_FIELD)
} cgp__cpu_kernels;

extern const cgp__cpu_kernels cgp__cpu_kernels_v3, cgp__cpu_kernels_v4;

#ifdef CGP_ISA /* inside kernels/ */
#define CGP__CPU_PASTE_(name, isa) cgp__cpu_##name##_##isa
#define CGP__CPU_PASTE(name, isa) CGP__CPU_PASTE_(name, isa)
#define CGP__CPU_NAME(name) CGP__CPU_PASTE(name, CGP_ISA)
#define CGP__CPU_DECLARE(name, arguments) void CGP__CPU_NAME(name) arguments;
CGP__CPU_KERNELS(CGP__CPU_DECLARE)
#endif

#endif
