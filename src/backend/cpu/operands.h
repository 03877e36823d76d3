/* SPDX-License-Identifier: Apache-2.0 */
/* operands.h -- the operands of vector kernels over rows, heads and windows of pools. */
#ifndef CGP_SRC_CPU_OPERANDS_H
#define CGP_SRC_CPU_OPERANDS_H

#include "backend/cpu/kernels.h"

/* A dropout mask; cgpipe/ext/ops/common.h defines the rule. */
typedef struct cgp__cpu_mask {
    cgp__rng_key key;
    uint32_t threshold, group;
    uint64_t sample;
    /* Factor of kept elements, 1 / (1 - p). */
    float scale;
} cgp__cpu_mask;

/* Set the dropout mask of one sample (dropout.c). Return false if nothing is dropped. */
bool cgp__cpu_mask_of(cgp__cpu_mask *out, const cgp_kernel *kernel, const cgp_kernel_args *args,
                      int64_t sample);

/* Consecutive rows of LAYER_NORM or RMS_NORM; C = width. A call of backward has at most
 * CGP__CPU_BLOCK rows. */
typedef struct cgp__cpu_norm {
    /* Type of x, y, dy and dx. */
    cgp_dtype type;
    int64_t rows, width;
    float eps;
    const void *x;              /* [rows, C] */
    const float *weight, *bias; /* [C]; bias: LAYER_NORM only */
    void *y;                    /* [rows, C] */
    /* [rows] Statistics that forward saves and backward reads. In RMS_NORM, `mean` is NULL. */
    float *mean, *rstd;
    const void *dy;
    /* [rows, C] dx may alias dy; NULL: no gradient is needed. If `add` is set, the gradient is
     * added to dx. */
    void *dx;
    bool add;
    /* [2, padded C] Backward overwrites this array with the sums of dweight and, for LAYER_NORM,
     * the sums of dbias. */
    float *sums;
} cgp__cpu_norm;

typedef struct cgp__cpu_loss {
    /* Type of x, weights and dx. */
    cgp_dtype type;
    int64_t rows, classes, ignore;
    const void *x; /* [rows, classes] */
    const int32_t *targets;
    const void *weights;  /* [rows] NULL: all weights are 1 */
    double smoothing;     /* label smoothing */
    float *max, *log_sum; /* [rows], read by backward */
    double *losses;       /* [rows] forward */
    /* [rows, classes] The gradient times `scale`. dx may alias x. If `add` is set, the gradient is
     * added to dx. */
    void *dx;
    float scale;
    bool add;
} cgp__cpu_loss;

/* Consecutive elements of an elementwise loss. */
typedef struct cgp__cpu_element_loss {
    cgp_op_kind op;
    /* Type of x, targets and dx. */
    cgp_dtype type;
    int64_t n;
    float beta; /* SMOOTH_L1 */
    const void *x, *targets;
    double *sum; /* forward: the sum of the losses */
    /* [n] The slopes times `scale`. dx may alias x. If `add` is set, the gradient is added to
     * dx. */
    void *dx;
    float scale;
    bool add;
} cgp__cpu_element_loss;

/* Rows of one head's scores. Row i is query first + i, and column j is key begin + j. `begin` is a
 * multiple of 64. Rows begin at multiples of 64 bytes and may be read and written up to the next
 * row. */
typedef struct cgp__cpu_scores {
    int64_t rows, first, begin;
    /* `width`: number of keys in every row. `stride`: number of floats from one row to the next. */
    int64_t width, stride;
    /* `causal`: a query attends to no key after its own position. `window`: of these keys, a query
     * attends only to the last `window`; 0: no limit. */
    bool causal;
    int64_t window;
    /* Scores are multiplied by this factor. */
    float scale;
    /* Initially the scores; at the end the probabilities after dropout. */
    float *s;
    /* In backward: initially the gradients of the probabilities; at the end the gradients of the
     * scores. */
    float *dp;
    /* [rows] maximum of each row of s, and log sum_j exp(scale (s - max)). NULL: they are not
     * saved. */
    float *max, *log_sum;
    const float *delta; /* [rows] dot products dy . y */
    /* Dropout mask. Its field `group` is the dropout group of row 0; row i is in group `group` + i.
     * NULL: no dropout. */
    const cgp__cpu_mask *mask;
} cgp__cpu_scores;

/* One row of ROTARY: `heads` heads of `width` columns, of which the first `rotated` are rotated.
 * `to` may alias `from`. */
typedef struct cgp__cpu_rotation {
    /* Type of `from` and `to`. */
    cgp_dtype type;
    int64_t heads, width, rotated;
    bool interleaved;
    /* [pairs] Cosines and sines. The arrays are padded, because full vectors are read. */
    const float *cos, *sin;
    const void *from;
    void *to;
    /* True: add to `to` instead of overwriting it. */
    bool add;
} cgp__cpu_rotation;

/* Rows of BATCH_NORM, INSTANCE_NORM and GROUP_NORM, `stride` elements apart, normalised by column.
 * Arrays that are indexed by column may be read up to the padded width. */
typedef struct cgp__cpu_columns {
    /* Type of x, y, dy and dx. */
    cgp_dtype type;
    int64_t rows, width, stride;
    const void *x, *dy; /* operands; only backward has dy */
    const float *mean;
    const float *scale; /* weight x rstd */
    const float *shift; /* forward: bias; backward: mean(dy) or, if grouped, rstd mean(g) */
    const float *slope; /* backward: -rstd mean(dy h) or, if grouped, -rstd^2 mean(g h) */
    /* True for GROUP_NORM, in which the channels of a group share their means. (g is dy weight.) */
    bool grouped;
    /* The result, which is y or dx. dx may alias dy. If `add` is set, the gradient is added to
     * dx. */
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
    /* The image or, in backward, the gradient of y. */
    const void *from;
    /* True: compute the mean of a window's pixels instead of the sum. */
    bool mean;
    /* Add to the result instead of overwriting it. */
    bool add;
    /* Scratch memory of cgp__cpu_pool_scratch() floats, or twice as many for pool_argmax. */
    float *scratch;
    /* The argmax of each window, in the layout of y, starting at row `first` of y. Each element has
     * the bits of an int32. Up to CGP__CPU_POOL_SLACK floats after the end may be read. */
    const float *argmax;
    int64_t first;
} cgp__cpu_pool;

#define CGP__CPU_POOL_SLACK 64 /* four vectors */

/* Return the number of floats of scratch for a row of the image or of y. */
static inline int64_t cgp__cpu_pool_scratch(const cgp_op_windows *g) {
    const int64_t max = g->width > g->out_width ? g->width : g->out_width;
    return cgp__cpu_padded(max * g->in) + CGP__CPU_POOL_SLACK;
}

/* A tap of the window: the first element of the tap's row in `from`, the column that output 0
 * reads, and the first element of the tap's weight. */
typedef struct cgp__cpu_tap {
    int64_t row, column, weight;
} cgp__cpu_tap;

/* A row of a depthwise convolution, or of its input gradient; C = channels. */
typedef struct cgp__cpu_depthwise {
    /* Type of `from` and `to`. */
    cgp_dtype type;
    const void *from;
    const float *weight; /* [taps, C] */
    const float *bias;   /* [C], or NULL */
    void *to;
    /* Add to the result instead of overwriting it. */
    bool add;
    /* `columns`: number of pixels in a row of `from`. `step`: number of columns from one output to
     * the next. */
    int64_t channels, columns, step;
    /* Number of outputs, and number of elements of `to` from one output to the next. */
    int64_t outputs, to_step;
    const cgp__cpu_tap *taps;
    int64_t n_taps;
} cgp__cpu_depthwise;

/* The gradient of a depthwise weight, summed over rows first .. first + rows - 1 of all y. */
typedef struct cgp__cpu_depthwise_weight {
    /* Type of x and dy. */
    cgp_dtype type;
    const cgp_op_windows *attributes;
    const void *x, *dy;
    int64_t first, rows;
    float *sums; /* [KH, KW, C], overwritten */
} cgp__cpu_depthwise_weight;

#endif
