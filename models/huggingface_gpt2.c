/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface_gpt2.c -- converts the config.json of a GPT-2 to options of the model and back.
 *
 * The keys are those of GPT2Config of Hugging Face's transformers. The sizes are required; other
 * keys default to the values of that class. Keys that do not change the results are ignored
 * (initializer_range, summary_..., use_cache, torch_dtype, and reorder_and_upcast_attn, which
 * affects only the rounding of 16-bit numbers). */
#include <string.h>

#include "huggingface.h"
#include "zoo.h"

#define PRESET_DROPOUT 0.1
#define PUBLISHED_VOCAB 50257 /* the last token marks the end of a text */

/* --- reading --- */

static cgp_status take_sizes(const cgp__config *c, cgp_gpt2_options *o) {
    int64_t layers = 0;
    const bool old_name = !json_object_get(c->root, "n_positions");
    CGP_TRY(cgp__config_size(c, "n_layer", CGP__MAX_LAYERS, &layers));
    o->layers = (int)layers;
    CGP_TRY(cgp__config_size(c, "n_embd", CGP__MAX_WIDTH, &o->width));
    CGP_TRY(cgp__config_size(c, "n_head", CGP__MAX_WIDTH, &o->heads));
    CGP_TRY(cgp__config_size(c, "vocab_size", CGP__MAX_COUNT, &o->vocab));
    CGP_TRY(
        cgp__config_size(c, old_name && json_object_get(c->root, "n_ctx") ? "n_ctx" : "n_positions",
                         CGP__MAX_COUNT, &o->sequence));
    const json_t *inner = json_object_get(c->root, "n_inner");
    o->inner = o->residuals = 0;
    if (!inner || json_is_null(inner)) return CGP_OK;
    return cgp__config_size(c, "n_inner", 4 * CGP__MAX_WIDTH, &o->inner);
}

static cgp_status take_activation(const cgp__config *c, cgp_gpt2_options *o) {
    enum { BY_TANH = 3 }; /* the first BY_TANH names are tanh forms; the others use erf */
    static const char *const names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu",
                                        "gelu_python"};
    const json_t *value = json_object_get(c->root, "activation_function");
    const char *name = value ? json_string_value(value) : names[0];
    for (int i = 0; name && i < 5; i++) {
        o->gelu = i < BY_TANH ? CGP_GPT2_GELU_TANH : CGP_GPT2_GELU_ERF;
        if (strcmp(name, names[i]) == 0) return CGP_OK;
    }
    return cgp__config_unexpected(c, "activation_function",
                                  "gelu_new, gelu_pytorch_tanh, gelu_fast or gelu");
}

static cgp_status take_eps(const cgp__config *c, cgp_gpt2_options *o) {
    const json_t *value = json_object_get(c->root, "layer_norm_epsilon");
    o->eps = 0;
    if (!value) return CGP_OK;
    o->eps = json_number_value(value);
    if (json_is_number(value) && o->eps > 0 && o->eps <= 1) return CGP_OK;
    return cgp__config_unexpected(c, "layer_norm_epsilon", "a number above 0 and at most 1");
}

/* Read the three dropout probabilities. A model has one value for all three. */
static cgp_status take_dropout(const cgp__config *c, cgp_gpt2_options *o) {
    static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    double dropouts[3];
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(c->root, keys[i]);
        dropouts[i] = value ? json_number_value(value) : PRESET_DROPOUT;
        if (value && (!json_is_number(value) || !(dropouts[i] >= 0 && dropouts[i] < 1)))
            return cgp__config_unexpected(c, keys[i], "a number from 0 on and below 1");
    }
    o->dropout = dropouts[0] == dropouts[1] && dropouts[0] == dropouts[2] ? dropouts[0] : 0;
    return CGP_OK;
}

cgp_status cgp__gpt2_from_config(const cgp__config *c, cgp_gpt2_options *o) {
    CGP_TRY(take_sizes(c, o));
    CGP_TRY(take_activation(c, o));
    CGP_TRY(take_eps(c, o));
    CGP_TRY(take_dropout(c, o));
    CGP_TRY(cgp__config_flag(c, "tie_word_embeddings", true, &o->tied));
    CGP_TRY(cgp__config_need(c, "scale_attn_weights", true));
    CGP_TRY(cgp__config_need(c, "scale_attn_by_inverse_layer_idx", false));
    return cgp__config_need(c, "add_cross_attention", false);
}

/* --- writing --- */

/* Only the published vocabulary has a token for the end of a text. */
static json_t *end_of_text(const cgp_gpt2_options *o) {
    return o->vocab == PUBLISHED_VOCAB ? json_integer(PUBLISHED_VOCAB - 1) : json_null();
}

json_t *cgp__gpt2_to_config(const cgp_gpt2_options *o) {
    json_t *inner = o->inner > 0 ? json_integer(o->inner) : json_null();
    return json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:b, s:f, s:f, "
        "s:f, s:o, s:o, "
        "s:s}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function",
        o->gelu == CGP_GPT2_GELU_TANH ? "gelu_new" : "gelu", "n_layer", o->layers, "n_embd",
        (json_int_t)o->width, "n_head", (json_int_t)o->heads, "vocab_size", (json_int_t)o->vocab,
        "n_positions", (json_int_t)o->sequence, "n_ctx", (json_int_t)o->sequence, "n_inner", inner,
        "layer_norm_epsilon", o->eps > 0 ? o->eps : 1e-5, "tie_word_embeddings", (int)o->tied,
        "resid_pdrop", o->dropout, "embd_pdrop", o->dropout, "attn_pdrop", o->dropout,
        "bos_token_id", end_of_text(o), "eos_token_id", end_of_text(o), "torch_dtype", "float32");
}
