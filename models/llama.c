/* SPDX-License-Identifier: Apache-2.0 */
/* llama.c -- builds Llama, with the names and layouts of Hugging Face's LlamaForCausalLM.
 *
 *     layer          values                                  parameters, below "model."
 *     embed_tokens   tokens [T] -> x [T, C]                  embed_tokens.weight [V, C]
 *     layers.0 ..    y = norm(x)                             layers.0.input_layernorm [C]
 *                    q, k = rope(q_proj y), rope(k_proj y)   self_attn.q_proj [H D, C],
 *                                                            k_proj [K D, C]
 *                    x += o_proj(attention(q, k, v_proj y))  v_proj [K D, C], o_proj [C, H D]
 *                                                            with qk_norm: q_norm [D], k_norm [D]
 *                    y = norm(x)                             post_attention_layernorm [C]
 *                    x += down(silu(gate y) * up y)          mlp.gate_proj, up_proj [I, C],
 *                                                            down_proj [C, I]
 *     norm           x = norm(x)                             norm [C]
 *     lm_head        logits [T, V]                           lm_head.weight [V, C] (no prefix), or
 *                                                            embed_tokens.weight, tied
 *
 * There are H query heads and K key/value heads, each of width D. All weights are [out, in]. With
 * qk_norm, q = rope(q_norm q_proj y), where the norm is over each head, and k likewise. */
#include <cgpipe/models/llama.h>

#include <inttypes.h>
#include <stdio.h>

#include "zoo.h"

#define EPS 1e-5      /* default of eps */
#define THETA 10000.0 /* default of theta */

static const cgp_init normal = {CGP_INIT_NORMAL, 0.02};

/* --- the graph --- */

static cgp_value linear(cgp__network *net, cgp_value x, const char *name, int64_t out, bool bias) {
    const cgp_linear_options options = {.out = out, .bias = bias, .init = normal};
    return cgp_linear(net->model, x, cgp__name(net, "%s", name), options);
}

static cgp_value norm(cgp__network *net, cgp_value x, const char *name) {
    const cgp_llama_options *o = net->options;
    return cgp_rms_norm(net->model, x, cgp__name(net, "%s", name), o->eps > 0 ? o->eps : EPS);
}

static cgp_value rotate(cgp__network *net, cgp_value x, int64_t heads, const cgp_value *positions) {
    const cgp_llama_options *o = net->options;
    return cgp_rotary_embedding(
        net->model, x,
        (cgp_rotary_options){.heads = heads,
                             .theta = o->theta > 0 ? o->theta : THETA,
                             .scaling = o->rope,
                             .factor = o->factor,
                             .low_freq_factor = o->low_freq_factor,
                             .high_freq_factor = o->high_freq_factor,
                             .original_max_position = o->original_max_position,
                             .positions = positions});
}

/* Normalise each head of x [T, heads width]. */
static cgp_value norm_heads(cgp__network *net, cgp_value x, const char *name, int64_t heads,
                            int64_t width) {
    const cgp_llama_options *o = net->options;
    const int64_t length = o->generation ? 1 : o->sequence;
    if (!o->qk_norm) return x;
    x = cgp_reshape(net->model, x, 3, (const int64_t[]){length, heads, width});
    x = norm(net, x, name);
    return cgp_reshape(net->model, x, 2, (const int64_t[]){length, heads * width});
}

/* Return the number of keys to which a query of block `i` attends; 0: no limit. */
static int64_t window_of(const cgp_llama_options *o, int i) {
    const bool full = i < o->window_from || (o->full_every > 0 && (i + 1) % o->full_every == 0);
    return full ? 0 : o->window;
}

/* Add attention of block `i`: y [T, C] -> [T, C]. For generation, y is [1, C], and `positions` is
 * not NULL. */
static cgp_value attend(cgp__network *net, cgp_value y, int i, const cgp_value *positions) {
    const cgp_llama_options *o = net->options;
    const int64_t kv_heads = o->kv_heads > 0 ? o->kv_heads : o->heads,
                  width = o->head_width > 0 ? o->head_width : o->width / o->heads;
    const int64_t window = window_of(o, i);
    cgp_value q = linear(net, y, "self_attn.q_proj", o->heads * width, o->bias);
    cgp_value k = linear(net, y, "self_attn.k_proj", kv_heads * width, o->bias);
    const cgp_value v = linear(net, y, "self_attn.v_proj", kv_heads * width, o->bias);
    q = norm_heads(net, q, "self_attn.q_norm", o->heads, width);
    k = norm_heads(net, k, "self_attn.k_norm", kv_heads, width);
    q = rotate(net, q, o->heads, positions);
    k = rotate(net, k, kv_heads, positions);
    if (positions)
        y = cgp_cached_attention(
            net->model, q, k, v, *positions,
            (cgp_cached_attention_options){
                .length = o->sequence, .heads = o->heads, .kv_heads = kv_heads, .window = window});
    else
        y = cgp_attention(
            net->model, q, k, v,
            (cgp_attention_options){
                .heads = o->heads, .kv_heads = kv_heads, .causal = true, .window = window});
    return linear(net, y, "self_attn.o_proj", o->width, false);
}

/* Add block `i`: x [T, C] -> [T, C]. */
static cgp_value add_block(cgp__network *net, cgp_value x, int i, const cgp_value *positions) {
    const cgp_llama_options *o = net->options;
    cgp_model *model = net->model;
    x = cgp_add(model, x, attend(net, norm(net, x, "input_layernorm"), i, positions));

    const cgp_value y = norm(net, x, "post_attention_layernorm");
    const cgp_value gate = cgp_silu(model, linear(net, y, "mlp.gate_proj", o->inner, false));
    const cgp_value up = linear(net, y, "mlp.up_proj", o->inner, false);
    const cgp_value product = cgp_multiply(model, gate, up);
    return cgp_add(model, x, linear(net, product, "mlp.down_proj", o->width, false));
}

static void build(cgp_model *model, const void *options) {
    const cgp_llama_options *o = options;
    const bool has_loss = o->loss && !o->generation;
    cgp__network net = {.model = model, .options = o};
    const int64_t length[1] = {o->generation ? 1 : o->sequence};
    const cgp_value tokens = cgp_model_input(model, "tokens", CGP_I32, 1, length);
    cgp_value targets = {-1}, positions = {-1};
    if (o->generation) positions = cgp_model_input(model, "positions", CGP_I32, 1, length);
    if (has_loss) targets = cgp_model_input(model, "targets", CGP_I32, 1, length);

    cgp_model_layer(model, "embed_tokens");
    cgp_value x = cgp_embedding(model, tokens, "model.embed_tokens", o->vocab, o->width, normal);
    for (int i = 0; i < o->layers; i++) {
        net.prefix[0] = '\0';
        cgp__layer(&net, "layers.%d", i);
        snprintf(net.prefix, sizeof net.prefix, "model.layers.%d.", i);
        x = add_block(&net, x, i, o->generation ? &positions : NULL);
    }
    cgp_model_layer(model, "norm");
    snprintf(net.prefix, sizeof net.prefix, "model.");
    x = norm(&net, x, "norm");
    cgp_model_layer(model, "lm_head");
    if (o->tied) cgp_model_tie(model, "lm_head.weight", "model.embed_tokens.weight");
    x = cgp_linear(model, x, "lm_head", (cgp_linear_options){.out = o->vocab, .init = normal});

    cgp_model_output(model, x);
    if (has_loss) cgp_model_loss_cross_entropy(model, x, targets, -100, 1);
}

/* --- options --- */

static cgp_status check_heads(const cgp_llama_options *o) {
    if (o->head_width == 0 && o->width % o->heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "llama: heads: expected a divisor of the width, got heads=%" PRId64
                        ", width=%" PRId64 " (or head_width)",
                        o->heads, o->width);
    if (o->kv_heads > 0 && o->heads % o->kv_heads != 0)
        return cgp_fail(CGP_EINVAL,
                        "llama: kv_heads: expected a divisor of heads, got kv_heads=%" PRId64
                        ", heads=%" PRId64,
                        o->kv_heads, o->heads);
    if (o->qk_norm && o->bias)
        return cgp_fail(CGP_EINVAL, "llama: qk_norm: expected bias=0 with it, got bias=1");
    const int64_t width = o->head_width > 0 ? o->head_width : o->width / o->heads;
    if (width % 2 != 0)
        return cgp_fail(CGP_EINVAL, "llama: head_width: expected an even number, got %" PRId64,
                        width);
    return CGP_OK;
}

static cgp_status check_rope(const cgp_llama_options *o) {
    const bool scaled = o->rope != CGP_ROTARY_UNSCALED, three = o->rope == CGP_ROTARY_LLAMA3;
    if (o->theta > 0 && o->theta < 1)
        return cgp_fail(CGP_EINVAL, "llama: theta: expected at least 1, got %g", o->theta);
    if (scaled ? !(o->factor >= 1) : o->factor != 0)
        return cgp_fail(CGP_EINVAL,
                        scaled ? "llama: factor: expected at least 1, got %g"
                               : "llama: factor: expected rope=linear or rope=llama3 with it, "
                                 "got factor=%g",
                        o->factor);
    if (three && !(o->low_freq_factor > 0 && o->high_freq_factor > o->low_freq_factor))
        return cgp_fail(CGP_EINVAL,
                        "llama: low, high: expected 0 < low < high, got low=%g, high=%g",
                        o->low_freq_factor, o->high_freq_factor);
    if (three && o->original_max_position < 1)
        return cgp_fail(CGP_EINVAL,
                        "llama: original: expected the length that rope=llama3 began with, got "
                        "%" PRId64,
                        o->original_max_position);
    if (!three &&
        (o->low_freq_factor != 0 || o->high_freq_factor != 0 || o->original_max_position != 0))
        return cgp_fail(CGP_EINVAL, "llama: low, high, original: expected rope=llama3 with them");
    return CGP_OK;
}

/* Check the blocks without a window, and store 0 where they are none or all. */
static cgp_status resolve_window(cgp_llama_options *o) {
    if (o->window == 0 && (o->window_from > 0 || o->full_every > 0))
        return cgp_fail(CGP_EINVAL, "llama: window_from, full_every: expected window with them");
    if (o->window_from > 0 && o->full_every > 0)
        return cgp_fail(
            CGP_EINVAL,
            "llama: full_every: expected no window_from with it, got window_from=%" PRId64
            ", full_every=%" PRId64,
            o->window_from, o->full_every);
    if (o->full_every > o->layers) o->full_every = 0;
    const bool none = o->window >= o->sequence || o->window_from >= o->layers || o->full_every == 1;
    if (none) o->window = o->window_from = o->full_every = 0;
    return CGP_OK;
}

static cgp_status resolve(void *options) {
    cgp_llama_options *o = options;
    CGP_TRY(cgp__keys_check(&cgp__llama_keys, o));
    CGP_TRY(check_heads(o));
    CGP_TRY(check_rope(o));
    /* Store 0 for the default, so that equal models get equal specs. */
    if (o->eps == EPS) o->eps = 0;
    if (o->theta == THETA) o->theta = 0;
    if (o->kv_heads == o->heads) o->kv_heads = 0;
    if (o->head_width * o->heads == o->width) o->head_width = 0;
    return resolve_window(o);
}

const cgp__keys cgp__llama_keys = {
    .model = "llama",
    .struct_size = sizeof(cgp_llama_options),
    .resolve = resolve,
    .build = build,
    .keys = {CGP__KEY(cgp_llama_options, "layers", INT, layers, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_llama_options, "width", INT64, width, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_llama_options, "heads", INT64, heads, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_llama_options, "kv_heads", COUNT, kv_heads, 1, CGP__MAX_WIDTH),
             CGP__KEY(cgp_llama_options, "head_width", COUNT, head_width, 1, 1024),
             CGP__KEY(cgp_llama_options, "inner", INT64, inner, 1, 4 * CGP__MAX_WIDTH),
             CGP__KEY(cgp_llama_options, "vocab", INT64, vocab, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_llama_options, "seq", INT64, sequence, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_llama_options, "theta", REAL, theta, 0, 1000000000000),
             CGP__KEY(cgp_llama_options, "rope", WORD, rope, 0, 2, "default", "linear", "llama3"),
             CGP__KEY(cgp_llama_options, "factor", REAL, factor, 0, 1000000),
             CGP__KEY(cgp_llama_options, "low", REAL, low_freq_factor, 0, 1000000),
             CGP__KEY(cgp_llama_options, "high", REAL, high_freq_factor, 0, 1000000),
             CGP__KEY(cgp_llama_options, "original", COUNT, original_max_position, 1, 1 << 24),
             CGP__KEY(cgp_llama_options, "tied", BOOL, tied, 0, 1),
             CGP__KEY(cgp_llama_options, "bias", BOOL, bias, 0, 1),
             CGP__KEY(cgp_llama_options, "qk_norm", BOOL, qk_norm, 0, 1),
             CGP__KEY(cgp_llama_options, "window", COUNT, window, 1, CGP__MAX_COUNT),
             CGP__KEY(cgp_llama_options, "window_from", COUNT, window_from, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_llama_options, "full_every", COUNT, full_every, 1, CGP__MAX_LAYERS),
             CGP__KEY(cgp_llama_options, "eps", REAL, eps, 0, 0)},
};

cgp_status cgp_llama_create(cgp_model **out, const cgp_llama_options *options) {
    return cgp__model_create(__func__, out, &cgp__llama_keys, options);
}

cgp_status cgp_llama_parse(cgp_llama_options *options, const char *text) {
    return cgp__keys_parse(__func__, &cgp__llama_keys, options, text);
}
