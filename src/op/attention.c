/* SPDX-License-Identifier: Apache-2.0 */
/* attention.c -- attention: q [T, heads D], k [S, kv_heads D], v [S, kv_heads DV] -> [T, heads DV].
 * The fused form maps qkv [T, 3C], in which q, k and v lie side by side, to [T, C]. Source: Vaswani
 * et al. 2017, arXiv:1706.03762.
 *
 * Forward saves two values [heads, T] per query: the largest q k, and the log of the sum of
 * exponentials. They are saved separately, because one f32 for both would lose the probabilities of
 * large scores. Backward recomputes the probabilities p from these values, and uses sum(p dp) = dy
 * . y for each query.
 *
 * cached_attention is for prediction and has a KV cache. Each sample consists of one row of q, k
 * and v, and the position of the row, [1] i32. The op writes k and v of all samples to a cache
 * [length, kv_heads (D + DV)], and each query attends to the cache rows up to its own position. */
#include "op/rules.h"

#include <inttypes.h>
#include <math.h>

static int64_t kv_heads_of(const cgp__attention_attributes *a) {
    return a->kv_heads ? a->kv_heads : a->heads;
}

/* --- shapes --- */

/* Check that the numbers that dropout assigns to pairs (head, query), and to groups of four keys,
 * fit in 32 bits. */
static cgp_status check_counts(int64_t heads, int64_t queries, int64_t keys) {
    if (queries > UINT32_MAX / heads)
        return cgp_fail(CGP_EINVAL, "expects heads x T < 2^32, got %" PRId64 " x %" PRId64, heads,
                        queries);
    if (keys > (int64_t)1 << 34)
        return cgp_fail(CGP_EINVAL, "expects at most 2^34 keys, got %" PRId64, keys);
    return CGP_OK;
}

static cgp_status check_heads(const cgp__attention_attributes *a) {
    const int64_t kv_heads = kv_heads_of(a);
    if (a->heads < 1) return cgp_fail(CGP_EINVAL, "expects heads >= 1, got %" PRId64, a->heads);
    if (kv_heads < 1 || a->heads % kv_heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "expects kv_heads that divide heads = %" PRId64 ", got %" PRId64, a->heads,
                        kv_heads);
    return CGP_OK;
}

static cgp_status check_options(const cgp__attention_attributes *a, int64_t queries, int64_t keys) {
    if (a->causal && queries != keys)
        return cgp_fail(CGP_EINVAL,
                        "expects as many keys as queries where it is causal, got %" PRId64
                        " and %" PRId64,
                        keys, queries);
    if (a->window < 0 || (a->window > 0 && !a->causal))
        return cgp_fail(CGP_EINVAL,
                        "expects a window >= 0, and 0 where it is not causal, got %" PRId64,
                        a->window);
    if (a->scale != 0 && !((float)a->scale > 0.0f && isfinite((float)a->scale)))
        return cgp_fail(CGP_EINVAL, "expects a scale above 0 and finite as f32, or 0, got %g",
                        a->scale);
    return cgp__op_check_probability(a->p);
}

/* Return the number of columns per head. `heads` must divide the width of a value. */
static cgp_status head_width(const char *name, const cgp_op_type *type, int64_t heads,
                             int64_t *out) {
    const int64_t width = cgp__op_width(&type->shape);
    if (width % heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "expects %s of a width that %" PRId64 " heads divide, got %" PRId64, name,
                        heads, width);
    *out = width / heads;
    return CGP_OK;
}

static cgp_status check_separate(const cgp__attention_attributes *a, const cgp_op_type *inputs,
                                 int64_t *out) {
    static const char *const names[] = {"q", "k", "v"};
    int64_t width[3];
    for (int i = 0; i < 3; i++) {
        CGP_TRY(cgp__op_check(names[i], &inputs[i], CGP_F32, 2, 2));
        CGP_TRY(head_width(names[i], &inputs[i], i ? kv_heads_of(a) : a->heads, &width[i]));
    }
    if (width[1] != width[0])
        return cgp_fail(CGP_EINVAL,
                        "expects heads of k as wide as those of q, %" PRId64 ", got %" PRId64,
                        width[0], width[1]);
    if (inputs[1].shape.dims[0] != inputs[2].shape.dims[0])
        return cgp_fail(CGP_EINVAL, "expects as many rows of v as of k, %" PRId64 ", got %" PRId64,
                        inputs[1].shape.dims[0], inputs[2].shape.dims[0]);
    CGP_TRY(cgp__op_check_size("heads", a->heads, width[2]));
    *out = a->heads * width[2];
    return CGP_OK;
}

static cgp_status check_fused(const cgp__attention_attributes *a, const cgp_op_type *qkv,
                              int64_t *out) {
    CGP_TRY(cgp__op_check("input", qkv, CGP_F32, 2, 2));
    const int64_t width = cgp__op_width(&qkv->shape);
    if (width % 3 != 0)
        return cgp_fail(CGP_EINVAL,
                        "expects input of width 3 C (q, k, v side by side), got %" PRId64, width);
    *out = width / 3;
    if (*out % a->heads != 0)
        return cgp_fail(CGP_EINVAL, "expects heads that divide C = %" PRId64 ", got %" PRId64, *out,
                        a->heads);
    return CGP_OK;
}

static cgp_status infer(const void *attributes, const cgp_op_type *inputs, cgp_op_shapes *out) {
    const cgp__attention_attributes *a = cgp__attention_of(attributes);
    const cgp_shape *q = &inputs[0].shape;
    int64_t width = 0;
    CGP_TRY(check_heads(a));
    CGP_TRY(a->fused ? check_fused(a, &inputs[0], &width) : check_separate(a, inputs, &width));
    const int64_t queries = q->dims[0], keys = inputs[a->fused ? 0 : 1].shape.dims[0];
    CGP_TRY(check_options(a, queries, keys));
    CGP_TRY(check_counts(a->heads, queries, keys));
    CGP_TRY(cgp__op_check_size("output", queries, width));
    out->output.shape = cgp__op_shape_width(q, width);
    for (int k = 0; k < 2; k++)
        cgp__op_add_saved(out, cgp_shape_make(2, (int64_t[]){a->heads, queries}), false);
    return CGP_OK;
}

/* Set the sizes. A window that covers all keys is stored as no window, so that equal uses have
 * equal bytes. */
static void set_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__attention_attributes *a = cgp__attention_of(node->attributes);
    cgp_op_attention *g = &sizes->attention;
    const int64_t depth = (a->fused ? g->out : g->in) / a->heads;
    g->heads = a->heads;
    g->kv_heads = kv_heads_of(a);
    g->keys = node->inputs[a->fused ? 0 : 1].shape.dims[0];
    g->window = a->window < g->keys ? a->window : 0;
    g->scale = (float)(a->scale > 0 ? a->scale : 1.0 / sqrt((double)depth));
    g->fused = a->fused;
    g->causal = a->causal;
}

/* --- cost --- */

/* Return the number of pairs (query, key) in which the query attends to the key. With a window of w
 * keys, the pairs of the first w queries form a triangle. */
static double pairs_of(const cgp__attention_attributes *a, double queries, double keys) {
    const double window = a->window ? fmin((double)a->window, queries) : queries;
    if (!a->causal) return queries * keys;
    return window * (window + 1.0) / 2.0 + (queries - window) * window;
}

/* Count multiply-adds per pair and head. Forward needs D for q k and DV for p v. Backward I needs D
 * each for recomputing q k, for dq and for dk, and DV each for dy v and for dv. An exp with the
 * sums around it counts as 12 FLOPs. */
static double flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__attention_attributes *a = cgp__attention_of(node->attributes);
    const double value = (double)node->shapes.output.shape.dims[1], heads = (double)a->heads;
    const double depth = a->fused ? value : (double)node->inputs[0].shape.dims[1];
    const double gemms[CGP_OP_DIRECTIONS] = {depth + value, 3.0 * depth + 2.0 * value, 0.0};
    const double scores = direction == CGP_OP_BACKWARD_WEIGHT ? 0.0 : 12.0 * heads;
    return pairs_of(a, (double)node->inputs[0].shape.dims[0],
                    (double)node->inputs[a->fused ? 0 : 1].shape.dims[0]) *
           (2.0 * gemms[direction] + scores);
}

/* --- with a cache --- */

static cgp_status infer_cached(const void *attributes, const cgp_op_type *inputs,
                               cgp_op_shapes *out) {
    static const char *const names[] = {"q", "k", "v"};
    const cgp__attention_attributes *a = cgp__attention_of(attributes);
    const cgp_op_type *positions = &inputs[3];
    int64_t width = 0;
    CGP_TRY(check_heads(a));
    CGP_TRY(check_separate(a, inputs, &width));
    for (int i = 0; i < 3; i++) {
        if (inputs[i].shape.dims[0] != 1)
            return cgp_fail(CGP_EINVAL, "expects one row of %s, got %" PRId64, names[i],
                            inputs[i].shape.dims[0]);
    }
    CGP_TRY(cgp__op_check("positions", positions, CGP_I32, 1, 1));
    if (positions->shape.dims[0] != 1)
        return cgp_fail(CGP_EINVAL, "expects one position, got %" PRId64, positions->shape.dims[0]);
    if (a->size < 1 || a->size > INT32_MAX)
        return cgp_fail(CGP_EINVAL, "expects a length of 1 to 2^31 - 1, got %" PRId64, a->size);
    if (positions->upper_bound > a->size)
        return cgp_fail(CGP_EINVAL,
                        "expects positions below the length %" PRId64 ", got up to %" PRId64,
                        a->size, positions->upper_bound - 1);
    cgp__attention_attributes causal = *a;
    causal.causal = true;
    CGP_TRY(check_options(&causal, 1, 1));
    CGP_TRY(cgp__op_check_size("cache of keys", a->size, inputs[1].shape.dims[1]));
    CGP_TRY(cgp__op_check_size("cache of values", a->size, inputs[2].shape.dims[1]));
    out->output.shape = cgp_shape_make(2, (int64_t[]){1, width});
    return CGP_OK;
}

static void set_cached_sizes(const cgp_op_node *node, cgp_op_attributes *sizes) {
    const cgp__attention_attributes *a = cgp__attention_of(node->attributes);
    set_sizes(node, sizes);
    sizes->attention.keys = a->size;
    sizes->attention.causal = true;
    sizes->attention.window = a->window < a->size ? a->window : 0;
}

static int64_t positions_bound(const cgp_op_node *node, int k) {
    return k == 3 ? cgp__attention_of(node->attributes)->size : 0;
}

static int64_t cache_elements(const cgp_op_node *node) {
    const cgp__attention_attributes *a = cgp__attention_of(node->attributes);
    return a->size * (node->inputs[1].shape.dims[1] + node->inputs[2].shape.dims[1]);
}

/* Count the FLOPs of a query that attends to half of the cache. */
static double cached_flops(const cgp_op_node *node, cgp_op_direction direction) {
    const cgp__attention_attributes *a = cgp__attention_of(node->attributes);
    const double half = ((double)a->size + 1.0) / 2.0;
    const double keys = a->window ? fmin((double)a->window, half) : half;
    const double columns =
        (double)(node->inputs[0].shape.dims[1] + node->shapes.output.shape.dims[1]);
    return direction == CGP_OP_FORWARD ? keys * (2.0 * columns + 12.0 * (double)a->heads) : 0.0;
}

const cgp__op cgp__op_cached_attention = {
    .op.name = "cached_attention",
    .op.n_inputs = 4,
    .op.infer = infer_cached,
    .op.upper_bound = positions_bound,
    .op.flops = cached_flops,
    .dx = CGP__DX_NONE,
    .cache = cache_elements,
    .sizes = set_cached_sizes,
};

/* --- without a cache --- */

const cgp__op cgp__op_attention = {
    .op.name = "attention",
    .op.n_inputs = 3,
    .op.infer = infer,
    .op.input_needs_x = 1u << 0 | 1u << 1 | 1u << 2,
    .op.input_needs_saved = 1u << 0 | 1u << 1,
    .op.input_needs_y = true,
    .op.flops = flops,
    .dx = CGP__DX_SEPARATE,
    .sizes = set_sizes,
};
