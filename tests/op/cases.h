/* SPDX-License-Identifier: Apache-2.0 */
/* cases.h -- test cases. A case is an op, its sizes, and how to run the op. Cases are written by
 * hand or drawn at random. */
#ifndef CGP_TESTS_OP_CASES_H
#define CGP_TESTS_OP_CASES_H

#include "sizes.h"

typedef struct op_case {
    cgp_op_kind op;
    cgp_op_attributes attributes;
    int64_t n;
    uint32_t add;
    bool accumulate; /* kernels add to dparam and to the accumulator */
    bool evaluate;   /* evaluation: no dropout; BATCH_NORM uses its state */
    bool deferred;   /* BATCH_NORM has deferred statistics; ROTARY has positions */
    int64_t sample;
    int shift; /* shift of operands, in elements */
    cgp_dtype type;
    bool tf32;
} op_case;

static inline bool op_has(cgp_op_kind op, cgp_op_direction direction) {
    if (direction == CGP_OP_BACKWARD_INPUT)
        return op != CGP_OP_EMBEDDING && op != CGP_OP_ARGMAX && op != CGP_OP_CACHED_ATTENTION &&
               op != CGP_OP_DETACH;
    return direction == CGP_OP_FORWARD || op == CGP_OP_EMBEDDING || op == CGP_OP_POSITION ||
           op == CGP_OP_LINEAR || is_convolution(op);
}

/* Return true if the op has a kernel for the direction in this case. BATCH_NORM has no backward in
 * evaluation. */
static inline bool case_has(const op_case *c, cgp_op_direction direction) {
    const bool fixed = c->op == CGP_OP_BATCH_NORM && c->evaluate;
    return op_has(c->op, direction) && (direction == CGP_OP_FORWARD || !fixed);
}

static inline bool is_loss(cgp_op_kind op) {
    return cgp__op_find(op)->op.is_loss;
}

/* Return true for elementwise ops on two values of equal shape. */
static inline bool is_binary(cgp_op_kind op) {
    return op == CGP_OP_ADD || op == CGP_OP_MULTIPLY || op == CGP_OP_SUBTRACT;
}

static inline bool is_function(cgp_op_kind op) {
    return op == CGP_OP_FUNCTION || op == CGP_OP_FUNCTION_OF_Y;
}

/* Return true if the case's function is defined only from 0 to 1. */
static inline bool takes_probabilities(const op_case *c) {
    return is_function(c->op) && c->attributes.function.function >= CGP_FUNCTION_BCE_ONE;
}

static inline bool is_softmax(cgp_op_kind op) {
    return op == CGP_OP_SOFTMAX || op == CGP_OP_LOG_SOFTMAX;
}

/* Return true for ops that are GEMMs with `in` inputs and `out` outputs. */
static inline bool is_gemm(cgp_op_kind op) {
    return op == CGP_OP_LINEAR || is_convolution(op) || op == CGP_OP_MATMUL;
}

/* Return the flag `bias` of the op's attributes. Pools and PAD have the flag too, but do not read
 * it. */
static inline bool has_bias(const op_case *c) {
    if (c->op == CGP_OP_LINEAR) return c->attributes.linear.has_bias;
    return is_window_op(c->op) && c->attributes.windows.has_bias;
}

/* --- random cases --- */

/* Draw a kernel, a stride and a padding for one dimension of an image. Return the size that the
 * image must have in this dimension to contain `windows` windows. */
static inline int64_t draw_side(cgp_op_kind op, int64_t windows, int side,
                                cgp__windows_attributes *a, uint64_t *seed) {
    static const int kernels[] = {1, 1, 2, 3, 3, 3, 5, 7};
    const bool pool = op == CGP_OP_MAX_POOL || op == CGP_OP_AVERAGE_POOL;
    int *kernel = &a->kernel[side], *stride = &a->stride[side], *padding = &a->padding[2 * side];
    *kernel = op == CGP_OP_PAD ? 1 : kernels[test_random(seed) % 8];
    *stride = op == CGP_OP_PAD ? 1 : test_between(seed, 1, 3);
    for (int k = 0; k < 2; k++)
        padding[k] = pool ? test_between(seed, 0, *kernel - 1) : test_between(seed, -2, *kernel);
    if (op == CGP_OP_CONV_TRANSPOSE2D) a->output_padding[side] = test_between(seed, 0, *stride - 1);
    if (op == CGP_OP_UPSAMPLE || op == CGP_OP_CONV_TRANSPOSE2D) return windows / *stride + 1;
    return (windows - 1) * *stride + (*kernel - 1) * cgp__op_or_one(a->dilation[side]) + 1 -
           padding[0] - padding[1];
}

/* Draw an image with about `rows` windows. All other attributes are copied from `given`. Repeat the
 * draw until the op accepts the image. */
static inline cgp_op_attributes draw_windows(cgp_op_kind op, int64_t rows, int64_t width,
                                             cgp__windows_attributes given, uint64_t *seed) {
    cgp_op_attributes g;
    for (;;) {
        cgp__attributes a = {.windows = given};
        a.windows.bias = test_random(seed) & 1;
        const int64_t high = test_between(seed, 1, rows < 14 ? (int)rows : 14);
        const int64_t height = draw_side(op, high, 0, &a.windows, seed);
        const int64_t across = draw_side(op, rows / high, 1, &a.windows, seed);
        a.windows.global = op == CGP_OP_AVERAGE_POOL && test_random(seed) % 8 == 0;
        if (op == CGP_OP_UPSAMPLE)
            a = (cgp__attributes){
                .windows = {.stride = {a.windows.stride[0], a.windows.stride[1]}}};
        if (infer_image(op, height, across, width, &a, &g) == CGP_OK) return g;
    }
}

static inline cgp_op_attributes draw_image(cgp_op_kind op, int64_t rows, int64_t width, int64_t out,
                                           uint64_t *seed) {
    return draw_windows(op, rows, width, (cgp__windows_attributes){.size = out}, seed);
}

/* Draw a mean over one of three dimensions. The first two dimensions have about `rows` rows
 * together. */
static inline cgp_op_attributes draw_mean(int64_t rows, int64_t width, uint64_t *seed) {
    const int64_t first = test_between(seed, 1, rows < 14 ? (int)rows : 14);
    return mean_attributes(3, (int64_t[]){first, rows / first, width}, test_between(seed, 0, 2));
}

/* Draw a divisor of `number`. The divisors 1 and `number` are more likely than others. */
static inline int64_t draw_divisor(int64_t number, uint64_t *seed) {
    int64_t divisor = test_between(seed, 0, 1) ? 1 : number;
    for (int tries = 0; tries < 8; tries++) {
        const int64_t candidate = test_between(seed, 1, (int)number);
        if (number % candidate == 0) divisor = candidate;
    }
    return divisor;
}

/* Draw a convolution with groups or dilations. Half of the cases are depthwise. In the other half,
 * a group has about `width` input channels and `out` output channels. */
static inline cgp_op_attributes draw_grouped(cgp_op_kind op, int64_t rows, int64_t width,
                                             int64_t out, uint64_t *seed) {
    const bool depthwise = test_random(seed) & 1;
    const int64_t groups = depthwise ? width : test_between(seed, 1, 3);
    const int64_t per_group = depthwise ? 1 : (width + groups - 1) / groups;
    const cgp__windows_attributes given = {
        .size = depthwise ? width : (out + groups - 1) / groups * groups,
        .groups = groups,
        .dilation = {test_between(seed, 1, 4), test_between(seed, 1, 3)}};
    return draw_windows(op, rows, per_group * groups, given, seed);
}

static inline cgp_op_attributes draw_concat(int64_t rows, int64_t width, uint64_t *seed) {
    int64_t parts[CGP_OP_MAX_INPUTS] = {width};
    const int n = test_between(seed, 2, CGP_OP_MAX_INPUTS);
    for (int k = 1; k < n; k++)
        parts[k] = test_random(seed) % 3 ? test_between(seed, 1, 40) : width;
    return concat_attributes(rows, parts);
}

/* In one of three draws, the attention is fused. Otherwise q, k and v are separate, several query
 * heads share a key/value head, and the attention is either causal with a window, or not causal. */
static inline cgp_op_attributes draw_attention(int64_t rows, int64_t depth, double p,
                                               uint64_t *seed) {
    if (test_random(seed) % 3 == 0)
        return attention_attributes(rows, test_between(seed, 1, 3), depth, p);
    const int64_t kv_heads = test_between(seed, 1, 2), group = test_between(seed, 1, 3);
    const int64_t width = test_random(seed) % 2 ? depth : test_between(seed, 1, 80);
    cgp_op_attributes g;
    if (test_random(seed) % 3 == 0)
        g = grouped_attributes(rows, test_between(seed, 1, 150), kv_heads, group, depth, width, p);
    else
        g = windowed_attributes(rows, test_random(seed) % 2 ? test_between(seed, 1, 150) : rows,
                                kv_heads, group, depth, width, p);
    if (test_random(seed) % 2) g.attention.scale = (float)(1.5 / sqrt((double)depth));
    return g;
}

/* Draw attention with a cache that is large enough for the samples of a case. */
static inline cgp_op_attributes draw_cached(int64_t length, int64_t depth, uint64_t *seed) {
    const int64_t kv_heads = test_between(seed, 1, 2), group = test_between(seed, 1, 3);
    const int64_t width = test_random(seed) % 2 ? depth : test_between(seed, 1, 80);
    return cached_attributes(length + 12, test_random(seed) % 2 ? test_between(seed, 1, 150) : 0,
                             kv_heads, group, depth, width);
}

/* Draw attributes of ROTARY. Heads have at least `width` columns, and some or all pairs of columns
 * are rotated. */
static inline cgp_op_attributes draw_rotary(int64_t rows, int64_t width, uint64_t *seed) {
    const int64_t even = width + width % 2;
    const int64_t most = even / 2 < CGP__ROTARY_PAIRS ? even / 2 : CGP__ROTARY_PAIRS;
    const int64_t pairs = test_random(seed) % 2 ? most : test_between(seed, 1, (int)most);
    cgp_op_attributes g = rotary_attributes(
        rows, test_between(seed, 1, 3), even + test_between(seed, 0, 1), 2 * pairs,
        test_random(seed) & 1, test_between(seed, 0, CGP_ROTARY_LLAMA3));
    if (test_random(seed) % 2) g.rotary.offset = test_between(seed, 1, 20000);
    return g;
}

/* Draw a transposition of about `rows` x `width` elements. The transposition moves single elements,
 * runs of `width` elements, or short runs. */
static inline cgp_op_attributes draw_transpose(int64_t rows, int64_t width, uint64_t *seed) {
    const int64_t a = test_between(seed, 1, 3), b = test_between(seed, 1, 3);
    const int64_t some = test_between(seed, 1, 7);
    if (test_random(seed) & 1) return transpose_attributes(a, width, b, rows, 1);
    return transpose_attributes(a, rows / some + 1, b, some, test_random(seed) % 3 ? width : some);
}

static inline cgp_op_attributes draw_slice(int64_t rows, int64_t width, uint64_t *seed) {
    const int64_t begin = test_random(seed) % 3 ? test_between(seed, 0, 40) : 0;
    const int64_t behind = test_random(seed) % 3 ? test_between(seed, 0, 40) : 0;
    return slice_attributes(rows, begin + width + behind, begin, width);
}

/* Draw attributes with about `rows` rows (output pixels) of `width` columns or channels. A GEMM
 * maps `width` columns to `out` columns. */
static inline cgp_op_attributes draw_attributes(cgp_op_kind op, int64_t rows, int64_t width,
                                                int64_t out, uint64_t *seed) {
    const double p = test_random(seed) % 3 == 0 ? 0.0 : 0.3;
    const bool yes = test_random(seed) & 1;
    int64_t count;
    cgp_op_attributes g;
    if (op == CGP_OP_MEAN) return draw_mean(rows, width, seed);
    if (is_window_op(op)) return draw_image(op, rows, width, out, seed);
    switch (op) {
    case CGP_OP_EMBEDDING:
        return embedding_attributes(rows, 11, width);
    case CGP_OP_LINEAR:
        return linear_attributes(rows, width, out, yes, test_random(seed) & 1);
    case CGP_OP_LAYER_NORM:
    case CGP_OP_RMS_NORM:
    case CGP_OP_INSTANCE_NORM:
        return norm_attributes(rows, width);
    case CGP_OP_BATCH_NORM:
        g = norm_attributes(rows, width);
        g.norm.momentum = yes ? 0.1f : -1.0f;
        return g;
    case CGP_OP_GROUP_NORM:
        return group_norm_attributes(rows, width, draw_divisor(width, seed));
    case CGP_OP_ATTENTION:
        return draw_attention(rows, width, p, seed);
    case CGP_OP_CACHED_ATTENTION:
        return draw_cached(rows, width, seed);
    case CGP_OP_ROTARY:
        return draw_rotary(rows, width, seed);
    case CGP_OP_DROPOUT:
    case CGP_OP_DROPOUT2D:
        return dropout_attributes(rows, width, p);
    case CGP_OP_RELU:
        return relu_attributes(rows, width, yes ? 0.0 : 0.2);
    case CGP_OP_SCALE:
        return relu_attributes(rows, width, yes ? -1.7 : 0.3);
    case CGP_OP_SMOOTH_L1:
        return element_loss_attributes(rows, width, yes ? 0.0 : 0.7);
    case CGP_OP_FUNCTION:
        return function_attributes(rows, width,
                                   test_between(seed, CGP_FUNCTION_CLAMP, CGP_FUNCTIONS - 1));
    case CGP_OP_FUNCTION_OF_Y:
        return function_attributes(rows, width, test_between(seed, 0, CGP_FUNCTION_CLAMP - 1));
    case CGP_OP_RESHAPE:
        return plain_attributes(1, rows * width);
    case CGP_OP_TRANSPOSE:
        return draw_transpose(rows, width, seed);
    case CGP_OP_SLICE:
        return draw_slice(rows, width, seed);
    case CGP_OP_MATMUL:
        count = test_between(seed, 1, rows < 7 ? (int)rows : 7);
        return matmul_attributes(count, rows / count, width, out, test_between(seed, 0, 3));
    case CGP_OP_CONCAT:
        return draw_concat(rows, width, seed);
    case CGP_OP_CROSS_ENTROPY:
        return yes ? loss_attributes(rows, width) : weighted_attributes(rows, width);
    case CGP_OP_ARGMAX:
        return argmax_attributes(rows, width);
    default:
        return plain_attributes(rows, width);
    }
}

/* Draw all fields of a case except its attributes. It has up to `max` samples. */
static inline op_case draw_case(cgp_op_kind op, int max, uint64_t *seed) {
    return (op_case){
        .op = op,
        .n = test_between(seed, 1, max),
        .add = (uint32_t)test_random(seed) & ((1u << CGP_OP_MAX_INPUTS) - 1),
        .accumulate = test_random(seed) & 1,
        .evaluate = test_random(seed) % 4 == 0,
        .deferred = test_random(seed) & 1,
        .sample = (int64_t)(test_random(seed) >> 30), /* sometimes crosses 2^32 */
        .shift = test_between(seed, 0, 3),
        .type = test_random(seed) & 1 ? CGP_BF16 : CGP_F32,
    };
}

/* Sanitizers make a kernel ten to fifty times slower, so under a sanitizer tests run at most one
 * case in five. */
#if defined(TEST_TSAN) || defined(TEST_ASAN)
#define FEWER 5
#else
#define FEWER 1
#endif

/* Return the number n for a test that runs one case in n. It is `rarely` times FEWER, or larger if
 * CGP_TEST_SCALE is small. */
static inline int one_in(int rarely) {
    const int scaled = 1000 / test_scaled(1000);
    return rarely * (scaled > FEWER ? scaled : FEWER);
}

/* Return the number of pixels in a window. Return 1 for UPSAMPLE, and for ops without windows. */
static inline double window_pixels(const op_case *c) {
    const cgp_op_windows *g = &c->attributes.windows;
    return is_window_op(c->op) && g->kernel_height > 0
               ? (double)g->kernel_height * (double)g->kernel_width
               : 1.0;
}

/* Return true for a convolution with groups or dilations. Each backend adds the terms of these
 * convolutions in a different order. */
static inline bool case_has_parts(const op_case *c) {
    const cgp_op_windows *w = &c->attributes.windows;
    return is_convolution(c->op) &&
           (w->groups > 1 || w->dilation_height > 1 || w->dilation_width > 1);
}

static inline int64_t case_groups(const op_case *c) {
    return is_convolution(c->op) ? c->attributes.windows.groups : 1;
}

/* Return the approximate number of multiply-adds that ref needs for a case. */
static inline double case_work(const op_case *c) {
    const cgp_op_attributes *g = &c->attributes;
    const double rows = (double)(c->n * g->rows);
    const double window = window_pixels(c);
    if (is_gemm(c->op))
        return rows * window * (double)g->in * (double)g->out / (double)case_groups(c);
    if (c->op == CGP_OP_ATTENTION || c->op == CGP_OP_CACHED_ATTENTION)
        return rows * (double)(g->attention.keys * g->attention.heads) *
               ((double)(depth_of(g) + value_width_of(g)) / 2 + 20.0);
    return rows * window * (double)g->out;
}

/* Draw a case for every combination of a length and a width. For GEMMs, a combination consists of a
 * length and two widths. Check only one in one_in(`rarely`) of the drawn cases. */
static inline void for_each_case(cgp_op_kind op, int rarely, void (*check)(const op_case *c),
                                 uint64_t *seed) {
    static const int64_t lengths[] = {1, 5, 63, 64, 65, 128, 130, 200};
    static const int64_t widths[] = {1, 3, 17, 64, 768};
    for (int i = 0; i < 8 * 5 * (is_gemm(op) ? 5 : 1); i++) {
        op_case c = draw_case(op, 5, seed);
        const int64_t rows = lengths[i % 8], width = widths[i / 8 % 5], out = widths[i / 40];
        c.attributes = is_convolution(op) && test_random(seed) % 2
                           ? draw_grouped(op, rows, width, out, seed)
                           : draw_attributes(op, rows, width, out, seed);
        if (case_work(&c) > 4e6) c.n = 1;
        if (case_work(&c) <= 1e7 / FEWER && test_between(seed, 1, one_in(rarely)) == 1) check(&c);
    }
}

/* Number of cases that are larger than one launch of the cuda backend, or larger than one block of
 * the cpu backend. A GEMM's block has 256 rows (1024 if read in place) and a depth of 512. A block
 * of channel norms has 131072 elements, or 512 columns. A block of MAX_POOL's gradient has 65536
 * windows. A block of a convolution has 256 pixels, of one row or several rows, and a depth of
 * 512. */
#define BLOCK_CASES 18

static inline op_case block_case(int i) {
    static const struct { int64_t rows, in, out; } sizes[] = {{300, 530, 40}, {1040, 30, 530}};
    static const cgp_op_kind ops[BLOCK_CASES] = {
        CGP_OP_LINEAR,     CGP_OP_LINEAR,   CGP_OP_ATTENTION,        CGP_OP_BATCH_NORM,
        CGP_OP_BATCH_NORM, CGP_OP_MAX_POOL, CGP_OP_MAX_POOL,         CGP_OP_CONV2D,
        CGP_OP_CONV2D,     CGP_OP_CONV2D,   CGP_OP_ATTENTION,        CGP_OP_ATTENTION,
        CGP_OP_MATMUL,     CGP_OP_MATMUL,   CGP_OP_CONV_TRANSPOSE2D, CGP_OP_CONV_TRANSPOSE2D,
        CGP_OP_GROUP_NORM, CGP_OP_TRANSPOSE};
    op_case c = {.op = ops[i], .n = 1, .add = 1, .accumulate = true};
    const cgp__attributes close = {
        .windows = {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1, 1, 1}}};
    const cgp__attributes apart = {
        .windows = {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0, 0, 1}}};
    cgp__attributes conv = i == 7 || i == 9 || i == 12 ? close : apart;
    conv.windows.size = i == 12 ? 20 : 50;
    switch (i) {
    case 0:
    case 1:
        c.attributes =
            linear_attributes(sizes[i].rows, sizes[i].in, sizes[i].out, true, i % 2 == 0);
        break;
    case 2:
        c.attributes = attention_attributes(520, 1, 64, 0.0);
        break;
    case 3:
        c.n = 5;
        c.attributes = norm_attributes(3111, 13);
        break;
    case 4:
        c.attributes = norm_attributes(300, 700);
        break;
    case 5:
        c.attributes = image_attributes(c.op, 100, 90, 20, close);
        break;
    case 6:
        c.attributes = image_attributes(c.op, 60, 220, 64, apart);
        break;
    case 7: /* k is split within a row of a window */
        c.n = 2;
        c.attributes = image_attributes(c.op, 9, 8, 230, conv);
        break;
    case 8: /* a block has two rows of pixels */
        c.attributes = image_attributes(c.op, 50, 60, 90, conv);
        break;
    case 9: /* the rows of the image are split */
        c.attributes = image_attributes(c.op, 3, 600, 5, conv);
        break;
    case 10: /* wide heads; a window spans several tiles */
        c.attributes = windowed_attributes(270, 130, 1, 2, 80, 150, 0.0);
        break;
    case 11:
        c.attributes = grouped_attributes(70, 530, 1, 2, 20, 30, 0.0);
        break;
    case 12: /* several blocks of k in forward; few matrices for the threads */
        c.attributes = matmul_attributes(1, 270, 1100, 30, 1);
        break;
    case 13: /* several blocks of k in backward */
        c.attributes = matmul_attributes(3, 530, 10, 600, 2);
        break;
    case 14: /* k is split within a row of a window; several blocks of pixels */
        c.attributes = image_attributes(c.op, 17, 20, 180, conv);
        break;
    case 15: /* rows of pixels whose windows have the same taps are split */
        c.attributes = image_attributes(c.op, 8, 300, 12, conv);
        break;
    case 16:
        c.n = 3;
        c.attributes = group_norm_attributes(300, 700, 7);
        break;
    default: /* more square tiles than thread blocks */
        c.attributes = transpose_attributes(2, 600, 3, 320, 1);
    }
    return c;
}

/* Write to `text` the attributes that only this case's family of ops has; return `text`. */
static inline const char *family_text(const op_case *c, char *text, size_t size) {
    const cgp_op_attributes *g = &c->attributes;
    const cgp_op_attention *a = &g->attention;
    const cgp_op_rotary *r = &g->rotary;
    const cgp_op_windows *w = &g->windows;
    *text = '\0';
    switch (cgp_op_family_of(c->op)) {
    case CGP_OP_FAMILY_LINEAR:
        snprintf(text, size, "bias %d transposed %d", g->linear.has_bias, g->linear.transposed);
        break;
    case CGP_OP_FAMILY_MATMUL:
        snprintf(text, size, "matrices %" PRId64 " transposed %d %d", g->matmul.heads,
                 g->matmul.transposed[0], g->matmul.transposed[1]);
        break;
    case CGP_OP_FAMILY_ATTENTION:
        snprintf(text, size,
                 "heads %" PRId64 " kv_heads %" PRId64 " keys %" PRId64 " window %" PRId64
                 " fused %d causal %d",
                 a->heads, a->kv_heads, a->keys, a->window, a->fused, a->causal);
        break;
    case CGP_OP_FAMILY_ROTARY:
        snprintf(text, size,
                 "heads %" PRId64 " rotated %" PRId64 " offset %" PRId64
                 " interleaved %d scaling %d",
                 r->heads, r->rotated, r->offset, r->interleaved, r->scaling);
        break;
    case CGP_OP_FAMILY_WINDOWS:
        snprintf(text, size,
                 "bias %d image %dx%d -> %dx%d kernel %dx%d stride %dx%d top %d left %d dilation "
                 "%dx%d groups %" PRId64,
                 w->has_bias, w->height, w->width, w->out_height, w->out_width, w->kernel_height,
                 w->kernel_width, w->stride_height, w->stride_width, w->top, w->left,
                 w->dilation_height, w->dilation_width, w->groups);
        break;
    case CGP_OP_FAMILY_FUNCTION:
        snprintf(text, size, "function %d", g->function.function);
        break;
    case CGP_OP_FAMILY_NORM:
        snprintf(text, size, "groups %" PRId64, g->norm.groups);
        break;
    default:
        break;
    }
    return text;
}

/* Describe a case for messages: "gelu n 2 rows 5 in 17 ...". */
static inline const char *case_text(const op_case *c) {
    static char text[512];
    char family[256];
    const cgp_op_attributes *g = &c->attributes;
    snprintf(text, sizeof text,
             "%s n %" PRId64 " rows %" PRId64 " in %" PRId64 " out %" PRId64
             " p %g %s add %u accumulate %d evaluate %d shift %d %s",
             cgp__op_find(c->op)->op.name, c->n, g->rows, g->in, g->out, (double)g->p,
             family_text(c, family, sizeof family), c->add, c->accumulate, c->evaluate, c->shift,
             c->tf32 ? "tf32" : cgp_dtype_name(c->type));
    return text;
}

#endif
