/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface.c -- the config.json of a Hugging Face directory to GPT-2's options and back.
 *
 * The keys are those of GPT2Config of Hugging Face's transformers; a missing key has that class's default, except for the
 * sizes, which are required. Keys that do not change the results (initializer_range, summary_..., use_cache, torch_dtype,
 * reorder_and_upcast_attn, which is about the rounding of halves) are ignored. */
#include <cgpipe/models/weights.h>

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "zoo.h"
#include "weights_files.h"

#define CONFIG "config.json"
#define LARGEST_CONFIG 1000000 /* bytes */
#define PRESET_DROPOUT 0.1
#define PUBLISHED_VOCAB 50257 /* its last token is the end of a text */

/* --- reading --- */

typedef struct config {
    const char *path;
    const json_t *root;
} config;

static cgp_status unexpected(const config *c, const char *key, const char *expected) {
    char got[80];
    const json_t *value = json_object_get(c->root, key);
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s", c->path, key, expected,
                    value ? cgp__json_show(value, got, sizeof got) : "none");
}

static cgp_status take_size(const config *c, const char *key, int64_t max, int64_t *out) {
    const json_t *value = json_object_get(c->root, key);
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from 1 to %lld", (long long)max);
    const json_int_t size = json_is_integer(value) ? json_integer_value(value) : 0;
    if (size < 1 || size > max) return unexpected(c, key, expected);
    *out = size;
    return CGP_OK;
}

static cgp_status take_flag(const config *c, const char *key, bool preset, bool *out) {
    const json_t *value = json_object_get(c->root, key);
    *out = value ? json_is_true(value) : preset;
    return !value || json_is_boolean(value) ? CGP_OK : unexpected(c, key, "true or false");
}

/* Check a flag of which one value is supported. */
static cgp_status need_flag(const config *c, const char *key, bool needed) {
    bool got = needed;
    CGP_TRY(take_flag(c, key, needed, &got));
    if (got == needed) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s (cgpipe does not compute that)",
                    c->path, key, needed ? "true" : "false", got ? "true" : "false");
}

static cgp_status take_sizes(const config *c, cgp_gpt2_options *o) {
    int64_t layers = 0;
    const bool old_name = !json_object_get(c->root, "n_positions");
    CGP_TRY(take_size(c, "n_layer", CGP__MAX_LAYERS, &layers));
    o->layers = (int)layers;
    CGP_TRY(take_size(c, "n_embd", CGP__MAX_WIDTH, &o->width));
    CGP_TRY(take_size(c, "n_head", CGP__MAX_WIDTH, &o->heads));
    CGP_TRY(take_size(c, "vocab_size", CGP__MAX_COUNT, &o->vocab));
    CGP_TRY(take_size(c,
                      old_name && json_object_get(c->root, "n_ctx") ? "n_ctx" : "n_positions",
                      CGP__MAX_COUNT, &o->sequence));
    const json_t *inner = json_object_get(c->root, "n_inner");
    o->inner = 0;
    if (!inner || json_is_null(inner)) return CGP_OK;
    return take_size(c, "n_inner", 4 * CGP__MAX_WIDTH, &o->inner);
}

static cgp_status take_activation(const config *c, cgp_gpt2_options *o) {
    enum { BY_TANH = 3 }; /* the first ones; the others by erf */
    static const char *const names[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", "gelu",
                                        "gelu_python"};
    const json_t *value = json_object_get(c->root, "activation_function");
    const char *name = value ? json_string_value(value) : names[0];
    for (int i = 0; name && i < 5; i++) {
        o->gelu = i < BY_TANH ? CGP_GPT2_GELU_TANH : CGP_GPT2_GELU_ERF;
        if (strcmp(name, names[i]) == 0) return CGP_OK;
    }
    return unexpected(c, "activation_function",
                      "gelu_new, gelu_pytorch_tanh, gelu_fast or gelu");
}

static cgp_status take_eps(const config *c, cgp_gpt2_options *o) {
    const json_t *value = json_object_get(c->root, "layer_norm_epsilon");
    o->eps = 0;
    if (!value) return CGP_OK;
    o->eps = json_number_value(value);
    if (json_is_number(value) && o->eps > 0 && o->eps <= 1) return CGP_OK;
    return unexpected(c, "layer_norm_epsilon", "a number above 0 and at most 1");
}

/* Read the three probabilities; a model has one. */
static cgp_status take_dropout(const config *c, cgp_gpt2_options *o) {
    static const char *const keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
    double dropouts[3];
    for (int i = 0; i < 3; i++) {
        const json_t *value = json_object_get(c->root, keys[i]);
        dropouts[i] = value ? json_number_value(value) : PRESET_DROPOUT;
        if (value && (!json_is_number(value) || !(dropouts[i] >= 0 && dropouts[i] < 1)))
            return unexpected(c, keys[i], "a number from 0 on and below 1");
    }
    o->dropout = dropouts[0] == dropouts[1] && dropouts[0] == dropouts[2] ? dropouts[0] : 0;
    return CGP_OK;
}

static cgp_status take_all(const config *c, cgp_gpt2_options *o) {
    const char *kind = json_string_value(json_object_get(c->root, "model_type"));
    if (!kind || strcmp(kind, "gpt2") != 0) return unexpected(c, "model_type", "\"gpt2\"");
    CGP_TRY(take_sizes(c, o));
    CGP_TRY(take_activation(c, o));
    CGP_TRY(take_eps(c, o));
    CGP_TRY(take_dropout(c, o));
    CGP_TRY(take_flag(c, "tie_word_embeddings", true, &o->tied));
    CGP_TRY(need_flag(c, "scale_attn_weights", true));
    CGP_TRY(need_flag(c, "scale_attn_by_inverse_layer_idx", false));
    CGP_TRY(need_flag(c, "add_cross_attention", false));
    if (cgp__keys_resolve(&cgp__gpt2_keys, o) == CGP_OK) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s", c->path, cgp_message());
}

cgp_status cgp_huggingface_read(cgp_gpt2_options *options, const char *directory) {
    CGP__NEED(options);
    CGP__NEED(directory);
    json_t *root = NULL;
    CGP_TRY(cgp__keys_check_size(&cgp__gpt2_keys, options));
    cgp_gpt2_options o = *options;
    char *path = cgp__path_in(directory, CONFIG);
    if (!path) return cgp__short_of_memory(directory);
    cgp_status status = cgp__json_open(&root, path, LARGEST_CONFIG);
    if (status == CGP_OK) status = take_all(&(config){path, root}, &o);
    if (status == CGP_OK) *options = o;
    json_decref(root);
    free(path);
    return status;
}

/* --- writing --- */

/* The end of a text is a token of the published vocabulary only. */
static json_t *end_of_text(const cgp_gpt2_options *o) {
    return o->vocab == PUBLISHED_VOCAB ? json_integer(PUBLISHED_VOCAB - 1) : json_null();
}

static json_t *make_config(const cgp_gpt2_options *o) {
    json_t *inner = o->inner > 0 ? json_integer(o->inner) : json_null();
    return json_pack("{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:o, s:f, s:b, s:f, s:f, "
                     "s:f, s:o, s:o, "
                     "s:s}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2",
                     "activation_function", o->gelu == CGP_GPT2_GELU_TANH ? "gelu_new" : "gelu",
                     "n_layer", o->layers, "n_embd", (json_int_t)o->width, "n_head",
                     (json_int_t)o->heads, "vocab_size", (json_int_t)o->vocab, "n_positions",
                     (json_int_t)o->sequence, "n_ctx", (json_int_t)o->sequence, "n_inner",
                     inner, "layer_norm_epsilon", o->eps > 0 ? o->eps : 1e-5,
                     "tie_word_embeddings", (int)o->tied, "resid_pdrop", o->dropout,
                     "embd_pdrop", o->dropout, "attn_pdrop", o->dropout, "bos_token_id",
                     end_of_text(o), "eos_token_id", end_of_text(o), "torch_dtype", "float32");
}

static cgp_status write_config(const cgp_gpt2_options *o, const char *path) {
    json_t *root = make_config(o);
    /* 15 digits, so that 1e-5 stays 1e-5. */
    char *text = root ? cgp__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    const cgp_status status =
        text ? cgp_file_replace(path, text, strlen(text)) : cgp__short_of_memory(path);
    free(text);
    json_decref(root);
    return status;
}

cgp_status cgp_huggingface_write(const cgp_gpt2_options *options, cgp_pipeline *pipeline,
                                 const cgp_model *model, const char *directory) {
    CGP__NEED(options);
    CGP__NEED(pipeline);
    CGP__NEED(model);
    CGP__NEED(directory);
    cgp_gpt2_options resolved = *options;
    CGP_TRY(cgp__keys_resolve(&cgp__gpt2_keys, &resolved));
    char *weights = cgp__path_in(directory, "model.safetensors");
    char *path = cgp__path_in(directory, CONFIG);
    cgp_status status = weights && path ? CGP_OK : cgp__short_of_memory(directory);
    if (status == CGP_OK) status = cgp_weights_save(pipeline, model, weights);
    if (status == CGP_OK) status = write_config(&resolved, path);
    free(path);
    free(weights);
    return status;
}
