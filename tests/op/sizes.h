/* SPDX-License-Identifier: Apache-2.0 */
/* sizes.h -- functions that return attributes of kernels for tests, one per op or group of ops. */
#ifndef CGP_TESTS_OP_SIZES_H
#define CGP_TESTS_OP_SIZES_H

#include <inttypes.h>

#include "backend/rotary.h"
#include "op/attributes.h"
#include "op/op.h"
#include "op/rules.h"
#include "support.h"

static inline bool is_convolution(cgp_op_kind op) {
    return op == CGP_OP_CONV2D || op == CGP_OP_CONV_TRANSPOSE2D;
}

/* Return attributes of an elementwise op; slope 1 means no fused RELU after ADD. */
static inline cgp_op_attributes plain_attributes(int64_t rows, int64_t width) {
    return (cgp_op_attributes){.rows = rows, .in = width, .out = width, .slope = 1.0f};
}

static inline cgp_op_attributes embedding_attributes(int64_t rows, int64_t vocab, int64_t width) {
    return (cgp_op_attributes){.rows = rows, .in = vocab, .out = width};
}

static inline cgp_op_attributes linear_attributes(int64_t rows, int64_t in, int64_t out, bool bias,
                                                  bool transposed) {
    return (cgp_op_attributes){
        .linear = {.rows = rows, .in = in, .out = out, .has_bias = bias, .transposed = transposed}};
}

/* Return attributes of LAYER_NORM, RMS_NORM, INSTANCE_NORM, and BATCH_NORM with a momentum of 0.
 * They have no fused RELU. */
static inline cgp_op_attributes norm_attributes(int64_t rows, int64_t width) {
    return (cgp_op_attributes){
        .norm = {.rows = rows, .in = width, .out = width, .eps = 1e-5f, .slope = 1.0f}};
}

static inline cgp_op_attributes group_norm_attributes(int64_t rows, int64_t width, int64_t groups) {
    cgp_op_attributes g = norm_attributes(rows, width);
    g.norm.groups = groups;
    return g;
}

/* Return attributes of causal attention with q, k and v in one fused tensor. */
static inline cgp_op_attributes attention_attributes(int64_t rows, int64_t heads, int64_t depth,
                                                     double p) {
    const int64_t width = heads * depth;
    return (cgp_op_attributes){.attention = {.rows = rows,
                                             .in = 3 * width,
                                             .out = width,
                                             .heads = heads,
                                             .kv_heads = heads,
                                             .keys = rows,
                                             .p = (float)p,
                                             .scale = (float)(1.0 / sqrt((double)depth)),
                                             .fused = true,
                                             .causal = true}};
}

/* Return attributes of attention that is not causal, with separate q, k and v. Each of `kv_heads`
 * key/value heads serves `group` query heads. A head has `depth` columns in q and k, and `width`
 * columns in v. */
static inline cgp_op_attributes grouped_attributes(int64_t rows, int64_t keys, int64_t kv_heads,
                                                   int64_t group, int64_t depth, int64_t width,
                                                   double p) {
    cgp_op_attributes g = attention_attributes(rows, kv_heads * group, depth, p);
    g.in = g.attention.heads * depth;
    g.out = g.attention.heads * width;
    g.attention.kv_heads = kv_heads;
    g.attention.keys = keys;
    g.attention.fused = g.attention.causal = false;
    return g;
}

/* Return attributes of causal attention with a window; 0 means no window. */
static inline cgp_op_attributes windowed_attributes(int64_t rows, int64_t window, int64_t kv_heads,
                                                    int64_t group, int64_t depth, int64_t width,
                                                    double p) {
    cgp_op_attributes g = grouped_attributes(rows, rows, kv_heads, group, depth, width, p);
    g.attention.causal = true;
    g.attention.window = window < rows ? window : 0;
    return g;
}

/* Return attributes of attention with a cache of `length` rows; q and k have `depth` columns per
 * head. */
static inline cgp_op_attributes cached_attributes(int64_t length, int64_t window, int64_t kv_heads,
                                                  int64_t group, int64_t depth, int64_t width) {
    cgp_op_attributes g = windowed_attributes(1, 0, kv_heads, group, depth, width, 0.0);
    g.attention.keys = length;
    g.attention.window = window < length ? window : 0;
    return g;
}

/* depth_of() returns the number of columns that k has per head, value_width_of() the number that v
 * has. */
static inline int64_t depth_of(const cgp_op_attributes *g) {
    return (g->attention.fused ? g->out : g->in) / g->attention.heads;
}

static inline int64_t value_width_of(const cgp_op_attributes *g) {
    return g->out / g->attention.heads;
}

/* Return attributes of ROTARY. `scaling` is a cgp_rotary_scaling. The scaling constants are Llama
 * 3.1's, except that the original sequence is shorter. */
static inline cgp_op_attributes rotary_attributes(int64_t rows, int64_t heads, int64_t width,
                                                  int64_t rotated, bool interleaved, int scaling) {
    cgp_op_attributes g = {.rotary = {.rows = rows,
                                      .in = heads * width,
                                      .out = heads * width,
                                      .heads = heads,
                                      .rotated = rotated,
                                      .theta = 10000.0f,
                                      .interleaved = interleaved,
                                      .scaling = scaling}};
    if (scaling != CGP_ROTARY_UNSCALED) g.rotary.factor = 8.0f;
    if (scaling != CGP_ROTARY_LLAMA3) return g;
    g.rotary.low_freq_factor = 1.0f;
    g.rotary.high_freq_factor = 4.0f;
    g.rotary.original_length = 64;
    return g;
}

/* Return attributes of DROPOUT and DROPOUT2D. */
static inline cgp_op_attributes dropout_attributes(int64_t rows, int64_t width, double p) {
    return (cgp_op_attributes){.rows = rows, .in = width, .out = width, .p = (float)p};
}

/* Return attributes of RELU and SCALE. */
static inline cgp_op_attributes relu_attributes(int64_t rows, int64_t width, double slope) {
    return (cgp_op_attributes){.rows = rows, .in = width, .out = width, .slope = (float)slope};
}

/* Return attributes of FUNCTION or FUNCTION_OF_Y. All constants are exact in bf16. */
static inline cgp_op_attributes function_attributes(int64_t rows, int64_t width, int function) {
    static const float constants[CGP_FUNCTIONS][2] = {[CGP_FUNCTION_HARDTANH] = {-0.5f, 0.625f},
                                                      [CGP_FUNCTION_CLAMP] = {-0.5f, 0.625f},
                                                      [CGP_FUNCTION_ELU] = {0.75f, 1.25f},
                                                      [CGP_FUNCTION_SOFTPLUS] = {1.5f, 6.0f}};
    return (cgp_op_attributes){.function = {.rows = rows,
                                            .in = width,
                                            .out = width,
                                            .slope = constants[function][0],
                                            .function = function,
                                            .second = constants[function][1]}};
}

/* Spread random numbers over all pieces of a piecewise function. For other functions, move the
 * numbers to where the function is defined and has moderate slopes. */
static inline void spread_function(float *x, int64_t count, int function) {
    const bool positive = function == CGP_FUNCTION_SQRT || function == CGP_FUNCTION_RSQRT ||
                          function == CGP_FUNCTION_LOG || function == CGP_FUNCTION_RECIPROCAL;
    const bool probability = function >= CGP_FUNCTION_BCE_ONE;
    for (int64_t i = 0; i < count; i++)
        x[i] = probability ? 0.5f + 0.4f * sinf(x[i]) : positive ? fabsf(x[i]) + 0.5f : 4.0f * x[i];
}

static inline cgp_op_kind kind_of_function(int function) {
    return cgp_function_is_of_y((cgp_function)function) ? CGP_OP_FUNCTION_OF_Y : CGP_OP_FUNCTION;
}

static inline cgp_op_attributes loss_attributes(int64_t rows, int64_t classes) {
    return (cgp_op_attributes){.cross_entropy = {.rows = rows, .in = classes, .ignore = -100}};
}

/* Return attributes of CROSS_ENTROPY with label smoothing and weights. */
static inline cgp_op_attributes weighted_attributes(int64_t rows, int64_t classes) {
    cgp_op_attributes g = loss_attributes(rows, classes);
    g.cross_entropy.smoothing = 0.2;
    g.cross_entropy.weighted = 1;
    return g;
}

/* Return attributes of BCE_WITH_LOGITS, MSE and SMOOTH_L1. */
static inline cgp_op_attributes element_loss_attributes(int64_t rows, int64_t width, double beta) {
    return (cgp_op_attributes){
        .element_loss = {.rows = rows, .in = width, .out = width, .beta = (float)beta}};
}

static inline cgp_op_attributes argmax_attributes(int64_t rows, int64_t width) {
    return (cgp_op_attributes){.rows = rows, .in = width, .out = 1};
}

/* Return attributes of CONCAT; `parts` lists the nonzero widths. */
static inline cgp_op_attributes concat_attributes(int64_t rows,
                                                  const int64_t parts[CGP_OP_MAX_INPUTS]) {
    cgp_op_attributes g = {.rows = rows};
    for (int k = 0; k < CGP_OP_MAX_INPUTS; k++) {
        g.parts.parts[k] = parts[k];
        g.out += parts[k];
    }
    g.in = g.out;
    return g;
}

/* Return attributes of TRANSPOSE from [a, i, b, j, c] to [a, j, b, i, c]. The output's last
 * dimension is c, or i if c is 1. */
static inline cgp_op_attributes transpose_attributes(int64_t a, int64_t i, int64_t b, int64_t j,
                                                     int64_t c) {
    const int64_t width = c == 1 ? i : c;
    return (cgp_op_attributes){
        .parts = {
            .rows = a * i * b * j * c / width, .in = width, .out = width, .parts = {i, b, j, c}}};
}

/* Return attributes of SLICE, which selects columns begin .. begin + width - 1 of `in`. */
static inline cgp_op_attributes slice_attributes(int64_t rows, int64_t in, int64_t begin,
                                                 int64_t width) {
    return (cgp_op_attributes){.parts = {.rows = rows, .in = in, .out = width, .parts = {begin}}};
}

/* Return attributes of MATMUL for `count` matrices of `m` rows. If bit k of `transposed` is set,
 * x[k] is stored transposed. */
static inline cgp_op_attributes matmul_attributes(int64_t count, int64_t m, int64_t in, int64_t out,
                                                  int transposed) {
    return (cgp_op_attributes){.matmul = {.rows = count * m,
                                          .in = in,
                                          .out = out,
                                          .heads = count,
                                          .transposed = {transposed & 1, transposed >> 1}}};
}

static inline cgp_op_attributes mean_attributes(int rank, const int64_t *dims, int dim) {
    const cgp__attributes a = {.windows = {.kind = CGP_OP_MEAN, .dim = {dim}}};
    cgp_op_node node = {.op = &cgp__op_mean.op, .attributes = &a};
    cgp_op_attributes g;
    node.inputs[0].shape = cgp_shape_make(rank, dims);
    assert_ok(cgp__op_infer(CGP_OP_MEAN, &node, &g));
    return g;
}

/* Infer attributes of CONV2D, pools, UPSAMPLE and PAD over [H, W, C], by running the op's shape
 * rule. */
static inline cgp_status infer_image(cgp_op_kind op, int64_t height, int64_t width,
                                     int64_t channels, const cgp__attributes *a,
                                     cgp_op_attributes *out) {
    cgp__attributes given = *a;
    cgp_op_node node = {.op = &cgp__op_find(op)->op, .attributes = &given};
    given.kind = op;
    for (int i = 0; op == CGP_OP_PAD && i < 2; i++) /* as the model builder does */
        given.windows.kernel[i] = given.windows.stride[i] = 1;
    node.inputs[0].shape = cgp_shape_make(3, (int64_t[]){height, width, channels});
    return cgp__op_infer(op, &node, out);
}

static inline cgp_op_attributes image_attributes(cgp_op_kind op, int64_t height, int64_t width,
                                                 int64_t channels, cgp__attributes a) {
    cgp_op_attributes g;
    assert_ok(infer_image(op, height, width, channels, &a, &g));
    return g;
}

static inline bool is_window_op(cgp_op_kind op) {
    return is_convolution(op) || op == CGP_OP_MAX_POOL || op == CGP_OP_AVERAGE_POOL ||
           op == CGP_OP_UPSAMPLE || op == CGP_OP_PAD || op == CGP_OP_MEAN;
}

#endif
