/* SPDX-License-Identifier: Apache-2.0 */
/* gpt2.c -- builds GPT-2, with the names and layouts of Hugging Face's GPT2LMHeadModel.
 *
 *     layer     values                                     parameters, below "transformer."
 *     wte       tokens [T] -> x [T, C]                     wte.weight [V, C]
 *     wpe       x = drop(x + wpe)                          wpe.weight [T, C]
 *     h.0 ..    x += drop(c_proj(attention(c_attn(         h.0.ln_1 [C], attn.c_attn [C, 3C],
 *                    ln_1(x)))))                           attn.c_proj [C, C]
 *               x += drop(c_proj(gelu(c_fc(ln_2(x)))))     h.0.ln_2, mlp.c_fc [C, I],
 *                                                          mlp.c_proj [I, C], I = 4C
 *     ln_f      x = ln_f(x)                                ln_f [C]
 *     lm_head   logits [T, V]                              lm_head.weight [V, C] (no prefix), or
 *                                                          wte.weight, tied
 *
 * Weights inside a block are [in, out] and have a bias (the published code calls them Conv1D); the
 * head is [out, in] without bias. The initial weights at the ends of a block's two residual
 * branches are divided by sqrt(2 x layers). So the sum of all 2 x layers branches has the initial
 * variance of one branch.
 *
 * With `residuals`, there is no running sum: the input of each branch, and of ln_f, is a weighted
 * mean of sources, with weights computed for each token. The sources are the embeddings, the sum of
 * the branches in each complete group of `residuals` blocks, and the sum so far in the current
 * group, if any:
 *
 *     [T, n, C]  v = sources side by side
 *     [T, n]     a = softmax(w . rms_norm(v))
 *     [T, C]     x = sum of a_i v_i
 *
 * w is h.0.mlp_res.query, h.1.attn_res.query .. or ln_f_res.query [1, C], and the norm's weight is
 * .norm [C]. w starts at zero, which makes every mean unweighted. The first branch has one source,
 * and no weights. The embeddings and the sums of complete groups form one value, [T, n C], which
 * crosses to later stages.
 *
 * Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", 2.3;
 * residuals: Kimi Team 2026, "Attention Residuals", arXiv:2603.15031, in its block form. */
#include <cgpipe/models/gpt2.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "zoo.h"

#define EPS 1e-5 /* default of eps */
#define DEVIATION 0.02

static const cgp_init normal = {CGP_INIT_NORMAL, DEVIATION};

/* --- the graph --- */

/* Add a linear map of a block: weight [in, out], with bias. */
static cgp_value block_linear(cgp__network *net, cgp_value x, const char *name, int64_t out,
                              double deviation) {
    const cgp_linear_options options = {
        .out = out, .bias = true, .transposed = true, .init = {CGP_INIT_NORMAL, deviation}};
    return cgp_linear(net->model, x, cgp__name(net, "%s", name), options);
}

static cgp_value norm(cgp__network *net, cgp_value x, const char *name) {
    const cgp_gpt2_options *o = net->options;
    return cgp_layer_norm(net->model, x, cgp__name(net, "%s", name), o->eps > 0 ? o->eps : EPS);
}

static cgp_value rms_norm(cgp__network *net, cgp_value x, const char *name) {
    const cgp_gpt2_options *o = net->options;
    return cgp_rms_norm(net->model, x, cgp__name(net, "%s", name), o->eps > 0 ? o->eps : EPS);
}

/* Return the number of rows of a value: T, or 1 for generation. */
static int64_t rows_of(const cgp_gpt2_options *o) {
    return o->generation ? 1 : o->sequence;
}

/* Return the standard deviation of the initial weights of a linear map at the end of a branch. */
static double end_deviation(const cgp_gpt2_options *o) {
    return DEVIATION / sqrt(2.0 * o->layers);
}

/* Take q, k or v (`part` 0 to 2) from the columns of qkv. */
static cgp_value part_of(cgp__network *net, cgp_value qkv, int part) {
    const int64_t width = ((const cgp_gpt2_options *)net->options)->width;
    return cgp_slice(net->model, qkv, -1, part * width, (part + 1) * width);
}

/* Add attention: qkv [T, 3C] -> [T, C]. For generation, qkv is [1, 3C], and `positions` is not
 * NULL. */
static cgp_value attention(cgp__network *net, cgp_value qkv, const cgp_value *positions) {
    const cgp_gpt2_options *o = net->options;
    if (!positions) return cgp_causal_attention(net->model, qkv, o->heads, o->dropout);
    return cgp_cached_attention(
        net->model, part_of(net, qkv, 0), part_of(net, qkv, 1), part_of(net, qkv, 2), *positions,
        (cgp_cached_attention_options){.length = o->sequence, .heads = o->heads});
}

/* The next two functions add the two branches of a block, x [T, C] -> [T, C]. */
static cgp_value attend(cgp__network *net, cgp_value x, const cgp_value *positions) {
    const cgp_gpt2_options *o = net->options;
    cgp_value y = norm(net, x, "ln_1");
    y = block_linear(net, y, "attn.c_attn", 3 * o->width, DEVIATION);
    y = attention(net, y, positions);
    y = block_linear(net, y, "attn.c_proj", o->width, end_deviation(o));
    return cgp_dropout(net->model, y, o->dropout);
}

static cgp_value feed_forward(cgp__network *net, cgp_value x) {
    const cgp_gpt2_options *o = net->options;
    cgp_model *model = net->model;
    cgp_value y = norm(net, x, "ln_2");
    y = block_linear(net, y, "mlp.c_fc", o->inner > 0 ? o->inner : 4 * o->width, DEVIATION);
    y = o->gelu == CGP_GPT2_GELU_TANH ? cgp_gelu_tanh(model, y) : cgp_gelu(model, y);
    y = block_linear(net, y, "mlp.c_proj", o->width, end_deviation(o));
    return cgp_dropout(model, y, o->dropout);
}

/* --- residuals --- */

/* The embeddings and the results of branches so far. Without `residuals`, `sum` is the sum of all
 * of them. */
typedef struct sources {
    cgp_value groups; /* [T, n C]: the embeddings, then complete groups */
    int64_t n;
    cgp_value sum;              /* [T, C], sum of the current group; none if id < 0 */
    const cgp_value *positions; /* positions, for generation; otherwise NULL */
} sources;

static const cgp_value none = {-1};

static void add_branch(cgp__network *net, sources *s, cgp_value y) {
    s->sum = s->sum.id < 0 ? y : cgp_add(net->model, s->sum, y);
}

static void complete_group(cgp__network *net, sources *s) {
    s->groups = cgp_concat(net->model, (const cgp_value[]){s->groups, s->sum}, 2);
    s->n++;
    s->sum = none;
}

/* Take the weighted mean of the sources: v [T, n C] -> [T, C]. */
static cgp_value weighted_mean(cgp__network *net, cgp_value v, int64_t n, const char *name) {
    const cgp_gpt2_options *o = net->options;
    const int64_t length = rows_of(o);
    cgp_model *model = net->model;
    char part[32];
    v = cgp_reshape(model, v, 3, (const int64_t[]){length, n, o->width});
    snprintf(part, sizeof part, "%s.norm", name);
    cgp_value a = rms_norm(net, v, part);
    snprintf(part, sizeof part, "%s.query", name);
    a = cgp_linear(model, a, cgp__name(net, "%s", part), (cgp_linear_options){.out = 1});
    a = cgp_softmax(model, cgp_reshape(model, a, 3, (const int64_t[]){length, 1, n}));
    const cgp_value x = cgp_matmul(model, a, v, (cgp_matmul_options){0});
    return cgp_reshape(model, x, 2, (const int64_t[]){length, o->width});
}

/* Return the input of a branch or of ln_f, [T, C]. */
static cgp_value input_of(cgp__network *net, const sources *s, const char *name) {
    const cgp_gpt2_options *o = net->options;
    const bool begun = s->sum.id >= 0;
    if (o->residuals == 0) return s->sum;
    if (s->n + begun == 1) return s->groups;
    const cgp_value both[2] = {s->groups, s->sum};
    return weighted_mean(net, begun ? cgp_concat(net->model, both, 2) : s->groups, s->n + begun,
                         name);
}

static void add_block(cgp__network *net, sources *s, int i) {
    const cgp_gpt2_options *o = net->options;
    if (o->residuals > 0 && i > 0 && i % o->residuals == 0) complete_group(net, s);
    add_branch(net, s, attend(net, input_of(net, s, "attn_res"), s->positions));
    add_branch(net, s, feed_forward(net, input_of(net, s, "mlp_res")));
}

/* Add the position embeddings: x [T, C] -> [T, C]. */
static cgp_value add_positions(cgp__network *net, cgp_value x, const cgp_value *positions) {
    const cgp_gpt2_options *o = net->options;
    if (!positions) return cgp_position_embedding(net->model, x, "transformer.wpe", normal);
    return cgp_add(
        net->model, x,
        cgp_embedding(net->model, *positions, "transformer.wpe", o->sequence, o->width, normal));
}

static void build(cgp_model *model, const void *options) {
    const cgp_gpt2_options *o = options;
    const bool has_loss = o->loss && !o->generation;
    cgp__network net = {.model = model, .options = o};
    const int64_t length[1] = {rows_of(o)};
    const cgp_value tokens = cgp_model_input(model, "tokens", CGP_I32, 1, length);
    cgp_value targets = {-1}, positions = {-1};
    if (o->generation) positions = cgp_model_input(model, "positions", CGP_I32, 1, length);
    if (has_loss) targets = cgp_model_input(model, "targets", CGP_I32, 1, length);

    cgp_model_layer(model, "wte");
    cgp_value x = cgp_embedding(model, tokens, "transformer.wte", o->vocab, o->width, normal);
    cgp_model_layer(model, "wpe");
    x = add_positions(&net, x, o->generation ? &positions : NULL);
    x = cgp_dropout(model, x, o->dropout);
    sources s = {.groups = x,
                 .n = 1,
                 .sum = o->residuals > 0 ? none : x,
                 .positions = o->generation ? &positions : NULL};
    for (int i = 0; i < o->layers; i++) {
        net.prefix[0] = '\0';
        cgp__layer(&net, "h.%d", i);
        snprintf(net.prefix, sizeof net.prefix, "transformer.h.%d.", i);
        add_block(&net, &s, i);
    }
    cgp_model_layer(model, "ln_f");
    snprintf(net.prefix, sizeof net.prefix, "transformer.");
    x = norm(&net, input_of(&net, &s, "ln_f_res"), "ln_f");
    cgp_model_layer(model, "lm_head");
    if (o->tied) cgp_model_tie(model, "lm_head.weight", "transformer.wte.weight");
    const cgp_linear_options head = {.out = o->vocab, .init = normal};
    x = cgp_linear(model, x, "lm_head", head);

    cgp_model_output(model, x);
    if (has_loss) cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
}

/* --- options --- */

static cgp_status resolve(void *options) {
    cgp_gpt2_options *o = options;
    CGP_TRY(cgp__keys_check(&cgp__gpt2_keys, o));
    if (o->width % o->heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: heads: expected a divisor of the width, got heads=%" PRId64
                        ", width=%" PRId64,
                        o->heads, o->width);
    /* Store 0 for the default, so that equal models get equal specs. */
    if (o->eps == EPS) o->eps = 0;
    if (o->inner == 4 * o->width) o->inner = 0;
    if (o->residuals > o->layers) o->residuals = o->layers;
    return cgp__check_dropout("gpt2", o->dropout);
}

const cgp__keys cgp__gpt2_keys = {
    .model = "gpt2",
    .struct_size = sizeof(cgp_gpt2_options),
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_gpt2_options, "layers", INT, layers, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_gpt2_options, "width", INT64, width, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_gpt2_options, "heads", INT64, heads, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_gpt2_options, "vocab", INT64, vocab, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_gpt2_options, "seq", INT64, sequence, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_gpt2_options, "tied", BOOL, tied, 0, 1),
             CGP__KEY(cgp_gpt2_options, "gelu", WORD, gelu, 0, 1, "erf", "tanh"),
             CGP__KEY(cgp_gpt2_options, "eps", REAL, eps, 0, 0),
             CGP__KEY(cgp_gpt2_options, "inner", COUNT, inner, 1, 4 * CGP__MAX_WIDTH),
             CGP__KEY(cgp_gpt2_options, "residuals", COUNT, residuals, 1, CGP__MAX_LAYERS)},
};

cgp_status cgp_gpt2_create(cgp_model **out, const cgp_gpt2_options *options) {
    return cgp__model_create(__func__, out, &cgp__gpt2_keys, options);
}

cgp_status cgp_gpt2_parse(cgp_gpt2_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__gpt2_keys, options, text);
}
