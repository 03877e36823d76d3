/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface.c -- reads and writes Hugging Face directories. It handles all kinds of models that
 * config.json may name. See huggingface.h. */
#include "huggingface.h"

#include <cgpipe/models/weights.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "zoo.h"

#define CONFIG "config.json"
#define LARGEST_CONFIG 1000000 /* largest size of the file, in bytes */

/* --- keys --- */

cgp_status cgp__config_unexpected(const cgp__config *c, const char *key, const char *expected) {
    char got[80];
    const json_t *value = json_object_get(c->root, key);
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s", c->path, key, expected,
                    value ? cgp__json_show(value, got, sizeof got) : "none");
}

cgp_status cgp__config_size(const cgp__config *c, const char *key, int64_t max, int64_t *out) {
    const json_t *value = json_object_get(c->root, key);
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from 1 to %lld", (long long)max);
    const json_int_t size = json_is_integer(value) ? json_integer_value(value) : 0;
    if (size < 1 || size > max) return cgp__config_unexpected(c, key, expected);
    *out = size;
    return CGP_OK;
}

cgp_status cgp__config_flag(const cgp__config *c, const char *key, bool preset, bool *out) {
    const json_t *value = json_object_get(c->root, key);
    *out = value ? json_is_true(value) : preset;
    return !value || json_is_boolean(value) ? CGP_OK
                                            : cgp__config_unexpected(c, key, "true or false");
}

/* Check that a flag is `needed`, the only supported value. */
cgp_status cgp__config_need(const cgp__config *c, const char *key, bool needed) {
    bool got = needed;
    CGP_TRY(cgp__config_flag(c, key, needed, &got));
    if (got == needed) return CGP_OK;
    return cgp_fail(CGP_EFORMAT, "%s: %s: expected %s, got %s (cgpipe does not compute that)",
                    c->path, key, needed ? "true" : "false", got ? "true" : "false");
}

cgp_status cgp__config_real(const cgp__config *c, const char *key, double min, double max,
                            double preset, double *out) {
    const json_t *value = json_object_get(c->root, key);
    char expected[64];
    *out = value ? json_number_value(value) : preset;
    if (!value || (json_is_number(value) && *out >= min && *out <= max)) return CGP_OK;
    snprintf(expected, sizeof expected, "a number from %g to %g", min, max);
    return cgp__config_unexpected(c, key, expected);
}

/* --- reading --- */

static const struct {
    const char *type; /* the value of model_type */
    cgp_model_kind kind;
} types[] = {{"gpt2", CGP_MODEL_GPT2},   {"llama", CGP_MODEL_LLAMA}, {"mistral", CGP_MODEL_LLAMA},
             {"qwen2", CGP_MODEL_LLAMA}, {"qwen3", CGP_MODEL_LLAMA}, {"vit", CGP_MODEL_VIT}};

static cgp_status take_kind(const cgp__config *c, cgp_model_kind *kind) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    for (size_t i = 0; type && i < sizeof types / sizeof *types; i++) {
        *kind = types[i].kind;
        if (strcmp(type, types[i].type) == 0) return CGP_OK;
    }
    return cgp__config_unexpected(c, "model_type",
                                  "\"gpt2\", \"llama\", \"mistral\", \"qwen2\", \"qwen3\" or "
                                  "\"vit\"");
}

/* Keys of other models, or of other versions of the supported models, which change the results. A
 * value of null, false or `neutral` does not. */
static const struct {
    const char *key;
    double neutral;
} unsupported[] = {{"quantization_config", 0},
                   {"attn_logit_softcapping", 0},
                   {"final_logit_softcapping", 0},
                   {"logit_scale", 1},
                   {"logits_scaling", 1},
                   {"embedding_multiplier", 1},
                   {"residual_multiplier", 1},
                   {"partial_rotary_factor", 1},
                   {"clip_qkv", 0},
                   {"num_experts", 0},
                   {"num_local_experts", 0},
                   {"no_rope_layers", 0},
                   {"use_bidirectional_attention", 0},
                   {"is_encoder_decoder", 0}};

cgp_status cgp__config_refuse_unsupported(const cgp__config *c) {
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++) {
        const json_t *value = json_object_get(c->root, unsupported[i].key);
        const bool neutral =
            !value || json_is_null(value) || json_is_false(value) ||
            (json_is_number(value) && json_number_value(value) == unsupported[i].neutral);
        if (!neutral)
            return cgp__config_unexpected(c, unsupported[i].key,
                                          "no such key (cgpipe does not compute that)");
    }
    return CGP_OK;
}

static cgp_status take_all(const cgp__config *c, cgp_model_spec *spec) {
    char text[1];
    CGP_TRY(take_kind(c, &spec->kind));
    CGP_TRY(cgp__config_refuse_unsupported(c));
    if (spec->kind == CGP_MODEL_GPT2)
        CGP_TRY(cgp__gpt2_from_config(c, &spec->gpt2));
    else if (spec->kind == CGP_MODEL_LLAMA)
        CGP_TRY(cgp__llama_from_config(c, &spec->llama));
    else
        CGP_TRY(cgp__vit_from_config(c, &spec->vit));
    if (cgp_model_spec_text(spec, text, sizeof text) == CGP_OK) return CGP_OK; /* valid */
    return cgp_fail(CGP_EFORMAT, "%s: %s", c->path, cgp_message());
}

/* Check struct_size of the spec and of its options. */
static cgp_status check_spec(const cgp_model_spec *spec) {
    char text[1];
    cgp_model_spec any = *spec;
    any.kind = CGP_MODEL_GPT2;
    CGP_TRY(cgp_model_spec_text(&any, text, sizeof text));
    any.kind = CGP_MODEL_LLAMA;
    CGP_TRY(cgp_model_spec_text(&any, text, sizeof text));
    any.kind = CGP_MODEL_VIT;
    return cgp_model_spec_text(&any, text, sizeof text);
}

cgp_status cgp_huggingface_read(cgp_model_spec *spec, const char *directory) {
    CGP__NEED(spec);
    CGP__NEED(directory);
    json_t *root = NULL;
    CGP_TRY(check_spec(spec));
    cgp_model_spec found = *spec;
    char *path = cgp__path_in(directory, CONFIG);
    if (!path) return cgp__short_of_memory(directory);
    cgp_status status = cgp__json_open(&root, path, LARGEST_CONFIG);
    if (status == CGP_OK) status = take_all(&(cgp__config){path, root}, &found);
    if (status == CGP_OK) *spec = found;
    json_decref(root);
    free(path);
    return status;
}

/* --- writing --- */

static json_t *config_of(const cgp_model_spec *spec) {
    if (spec->kind == CGP_MODEL_VIT) return cgp__vit_to_config(&spec->vit);
    return spec->kind == CGP_MODEL_GPT2 ? cgp__gpt2_to_config(&spec->gpt2)
                                        : cgp__llama_to_config(&spec->llama);
}

static cgp_status write_config(const cgp_model_spec *spec, const char *path) {
    json_t *root = config_of(spec);
    /* write numbers with 15 digits, so that 1e-5 is written as 1e-5 */
    char *text = root ? cgp__json_text(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    const cgp_status status =
        text ? cgp_file_replace(path, text, strlen(text)) : cgp__short_of_memory(path);
    free(text);
    json_decref(root);
    return status;
}

cgp_status cgp_huggingface_write(const cgp_model_spec *spec, cgp_pipeline *pipeline,
                                 const cgp_model *model, const char *directory) {
    CGP__NEED(spec);
    CGP__NEED(pipeline);
    CGP__NEED(model);
    CGP__NEED(directory);
    char text[1];
    CGP_TRY(cgp_model_spec_text(spec, text, sizeof text));
    if (spec->kind != CGP_MODEL_GPT2 && spec->kind != CGP_MODEL_LLAMA &&
        spec->kind != CGP_MODEL_VIT)
        return cgp_fail(CGP_EINVAL, "model: expected a gpt2, a llama or a vit, got %s",
                        cgp_model_kind_name(spec->kind));
    if (spec->kind == CGP_MODEL_GPT2 && spec->gpt2.residuals > 0)
        return cgp_fail(CGP_EINVAL,
                        "model: expected a gpt2 without residuals, got residuals=%" PRId64
                        " (no config.json says that)",
                        spec->gpt2.residuals);
    const cgp_llama_options *llama = &spec->llama;
    if (spec->kind == CGP_MODEL_LLAMA && (llama->window_from > 0 || llama->full_every > 0) &&
        !llama->bias && !llama->qk_norm)
        return cgp_fail(CGP_EINVAL,
                        "model: expected a window in all layers, or bias or qk_norm, got "
                        "window_from=%" PRId64 ", full_every=%" PRId64
                        " (no config.json says that)",
                        llama->window_from, llama->full_every);
    char *weights = cgp__path_in(directory, "model.safetensors");
    char *path = cgp__path_in(directory, CONFIG);
    cgp_status status = weights && path ? CGP_OK : cgp__short_of_memory(directory);
    if (status == CGP_OK) status = cgp_weights_save(pipeline, model, weights);
    if (status == CGP_OK) status = write_config(spec, path);
    free(path);
    free(weights);
    return status;
}
