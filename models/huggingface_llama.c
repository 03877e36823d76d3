/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface_llama.c -- converts the config.json of a Llama, a Mistral or a Qwen2 to
 * cgp_llama_options and back.
 *
 * The keys are those of LlamaConfig, MistralConfig and Qwen2Config of Hugging Face's transformers.
 * The sizes are required; other keys default to the values of the model's class. The parameters of
 * the rotary embedding are in rope_theta and rope_scaling, as in published files, or in
 * rope_parameters, as in files of transformers 5. Keys that do not change the results are
 * ignored. */
#include <string.h>

#include "huggingface.h"
#include "zoo.h"

#define PRESET_EPS 1e-6
#define PRESET_THETA 10000.0
#define PRESET_WINDOW 4096
#define PRESET_WINDOW_LAYERS 28
#define MAX_THETA 1e12
#define MAX_FACTOR 1e6

/* --- reading --- */

typedef enum family { LLAMA, MISTRAL, QWEN2 } family;

static family family_of(const cgp__config *c) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    return strcmp(type, "mistral") == 0 ? MISTRAL : strcmp(type, "qwen2") == 0 ? QWEN2 : LLAMA;
}

static bool is_given(const cgp__config *c, const char *key) {
    const json_t *value = json_object_get(c->root, key);
    return value && !json_is_null(value);
}

static cgp_status take_sizes(const cgp__config *c, family f, cgp_llama_options *o) {
    static const int64_t kv_heads[] = {[LLAMA] = 0, [MISTRAL] = 8, [QWEN2] = 32};
    int64_t layers = 0;
    CGP_TRY(cgp__config_size(c, "num_hidden_layers", CGP__MAX_LAYERS, &layers));
    o->layers = (int)layers;
    CGP_TRY(cgp__config_size(c, "hidden_size", CGP__MAX_WIDTH, &o->width));
    CGP_TRY(cgp__config_size(c, "num_attention_heads", CGP__MAX_WIDTH, &o->heads));
    CGP_TRY(cgp__config_size(c, "intermediate_size", 4 * CGP__MAX_WIDTH, &o->inner));
    CGP_TRY(cgp__config_size(c, "vocab_size", CGP__MAX_COUNT, &o->vocab));
    CGP_TRY(cgp__config_size(c, "max_position_embeddings", CGP__MAX_COUNT, &o->sequence));
    o->kv_heads = json_object_get(c->root, "num_key_value_heads") ? 0 : kv_heads[f];
    if (is_given(c, "num_key_value_heads"))
        CGP_TRY(cgp__config_size(c, "num_key_value_heads", CGP__MAX_WIDTH, &o->kv_heads));
    o->head_width = 0;
    if (!is_given(c, "head_dim")) return CGP_OK;
    return cgp__config_size(c, "head_dim", CGP__MAX_WIDTH, &o->head_width);
}

/* Count the layers of layer_types that have a window. */
static cgp_status count_windows(const cgp__config *c, int layers, int64_t *windows) {
    const json_t *types = json_object_get(c->root, "layer_types"), *item;
    size_t i;
    *windows = 0;
    json_array_foreach(types, i, item) {
        const char *type = json_is_string(item) ? json_string_value(item) : "";
        if (strcmp(type, "sliding_attention") == 0)
            ++*windows;
        else if (strcmp(type, "full_attention") != 0)
            break;
    }
    if (json_is_array(types) && i == (size_t)layers && json_array_size(types) == i) return CGP_OK;
    return cgp__config_unexpected(c, "layer_types",
                                  "\"full_attention\" or \"sliding_attention\" for each layer");
}

/* Find out whether Qwen2's layers use the window. layer_types lists the layers that use it. Without
 * this list, layer max_window_layers and all later layers use it. */
static cgp_status uses_window(const cgp__config *c, int layers, bool *uses) {
    const json_t *from = json_object_get(c->root, "max_window_layers");
    int64_t windows = 0;
    const bool listed = is_given(c, "layer_types");
    if (listed)
        CGP_TRY(count_windows(c, layers, &windows));
    else if (from && !json_is_integer(from))
        return cgp__config_unexpected(c, "max_window_layers", "a whole number");
    else
        windows = layers - (from ? json_integer_value(from) : PRESET_WINDOW_LAYERS);
    *uses = windows >= layers;
    if (windows <= 0 || windows >= layers) return CGP_OK;
    return cgp__config_unexpected(c, listed ? "layer_types" : "max_window_layers",
                                  listed ? "the same for all layers (cgpipe has one window for "
                                           "all)"
                                         : "0, or at least the number of layers (cgpipe has one "
                                           "window for all layers)");
}

/* Read the window. Qwen2 has one only if use_sliding_window is true. */
static cgp_status take_window(const cgp__config *c, family f, cgp_llama_options *o) {
    bool used = f == MISTRAL, uses = true;
    int64_t window = 0;
    o->window = 0;
    if (f == QWEN2) CGP_TRY(cgp__config_flag(c, "use_sliding_window", false, &used));
    if (used && is_given(c, "sliding_window"))
        CGP_TRY(cgp__config_size(c, "sliding_window", CGP__MAX_COUNT, &window));
    else if (used && !json_object_get(c->root, "sliding_window"))
        window = PRESET_WINDOW;
    if (f == QWEN2 && (window > 0 || is_given(c, "layer_types")))
        CGP_TRY(uses_window(c, o->layers, &uses));
    if (uses && window > 0) o->window = window;
    if (f == QWEN2 && uses && window == 0 && is_given(c, "layer_types"))
        return cgp__config_unexpected(
            c, "layer_types", "\"full_attention\" for all layers, as there is no sliding_window");
    return CGP_OK;
}

/* Read the kind of scaling and its numbers from the object `c`. */
static cgp_status take_scaling(const cgp__config *c, cgp_llama_options *o) {
    static const char *const names[] = {"default", "linear", "llama3"};
    const char *key = json_object_get(c->root, "rope_type") ? "rope_type" : "type";
    const json_t *value = json_object_get(c->root, key);
    const char *name = value ? json_string_value(value) : names[0];
    int kind = 0;
    while (name && kind < 3 && strcmp(name, names[kind]) != 0)
        kind++;
    if (!name || kind == 3)
        return cgp__config_unexpected(c, key, "\"default\", \"linear\" or \"llama3\"");
    o->rope = (cgp_rotary_scaling)kind;
    if (o->rope == CGP_ROTARY_UNSCALED) return CGP_OK;
    CGP_TRY(cgp__config_real(c, "factor", 1, MAX_FACTOR, 0, &o->factor));
    if (o->rope == CGP_ROTARY_LINEAR) return CGP_OK;
    CGP_TRY(cgp__config_real(c, "low_freq_factor", 0, MAX_FACTOR, 0, &o->low_freq_factor));
    CGP_TRY(cgp__config_real(c, "high_freq_factor", 0, MAX_FACTOR, 0, &o->high_freq_factor));
    return cgp__config_size(c, "original_max_position_embeddings", 1 << 24,
                            &o->original_max_position);
}

static cgp_status take_rope(const cgp__config *c, cgp_llama_options *o) {
    const char *key = is_given(c, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const json_t *scaling = json_object_get(c->root, key);
    char path[512];
    snprintf(path, sizeof path, "%s: %s", c->path, key);
    const cgp__config inner = {path, scaling};
    const bool theta_inside = json_object_get(scaling, "rope_theta") != NULL;
    o->rope = CGP_ROTARY_UNSCALED;
    o->factor = o->low_freq_factor = o->high_freq_factor = 0;
    o->original_max_position = 0;
    CGP_TRY(cgp__config_real(theta_inside ? &inner : c, "rope_theta", 1, MAX_THETA, PRESET_THETA,
                             &o->theta));
    if (!is_given(c, key)) return CGP_OK;
    if (!json_is_object(scaling)) return cgp__config_unexpected(c, key, "an object or null");
    return take_scaling(&inner, o);
}

cgp_status cgp__llama_from_config(const cgp__config *c, cgp_llama_options *o) {
    const family f = family_of(c);
    const json_t *activation = json_object_get(c->root, "hidden_act");
    if (activation &&
        (!json_is_string(activation) || strcmp(json_string_value(activation), "silu") != 0))
        return cgp__config_unexpected(c, "hidden_act", "\"silu\"");
    CGP_TRY(take_sizes(c, f, o));
    CGP_TRY(take_window(c, f, o));
    CGP_TRY(take_rope(c, o));
    CGP_TRY(cgp__config_real(c, "rms_norm_eps", 1e-30, 1, PRESET_EPS, &o->eps));
    CGP_TRY(cgp__config_flag(c, "tie_word_embeddings", false, &o->tied));
    o->bias = f == QWEN2;
    if (f == LLAMA) CGP_TRY(cgp__config_need(c, "attention_bias", false));
    return f == LLAMA ? cgp__config_need(c, "mlp_bias", false) : CGP_OK;
}

/* --- writing --- */

/* Return the family that has these options; if there are several, return the family with the fewest
 * keys. */
static family family_for(const cgp_llama_options *o) {
    return o->bias ? QWEN2 : o->window > 0 ? MISTRAL : LLAMA;
}

static json_t *scaling_json(const cgp_llama_options *o) {
    if (o->rope == CGP_ROTARY_LINEAR)
        return json_pack("{s:s, s:f}", "rope_type", "linear", "factor", o->factor);
    if (o->rope == CGP_ROTARY_LLAMA3)
        return json_pack("{s:s, s:f, s:f, s:f, s:I}", "rope_type", "llama3", "factor", o->factor,
                         "low_freq_factor", o->low_freq_factor, "high_freq_factor",
                         o->high_freq_factor, "original_max_position_embeddings",
                         (json_int_t)o->original_max_position);
    return json_null();
}

/* Add the keys that only this family has. */
static int add_window(json_t *root, family f, const cgp_llama_options *o) {
    if (f == LLAMA) return 0;
    json_t *window = o->window > 0 ? json_integer(o->window) : json_null();
    int failed = json_object_set_new(root, "sliding_window", window);
    if (f == MISTRAL) return failed;
    failed |= json_object_set_new(root, "use_sliding_window", json_boolean(o->window > 0));
    return failed | json_object_set_new(root, "max_window_layers",
                                        json_integer(o->window > 0 ? 0 : o->layers));
}

json_t *cgp__llama_to_config(const cgp_llama_options *o) {
    static const char *const types[] = {"llama", "mistral", "qwen2"};
    static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM",
                                          "Qwen2ForCausalLM"};
    const family f = family_for(o);
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:b, s:n, "
        "s:n, s:s}",
        "architectures", classes[f], "model_type", types[f], "hidden_act", "silu",
        "num_hidden_layers", o->layers, "hidden_size", (json_int_t)o->width, "num_attention_heads",
        (json_int_t)o->heads, "num_key_value_heads",
        (json_int_t)(o->kv_heads > 0 ? o->kv_heads : o->heads), "head_dim",
        (json_int_t)(o->head_width > 0 ? o->head_width : o->width / o->heads), "intermediate_size",
        (json_int_t)o->inner, "vocab_size", (json_int_t)o->vocab, "max_position_embeddings",
        (json_int_t)o->sequence, "rms_norm_eps", o->eps > 0 ? o->eps : 1e-5, "rope_theta",
        o->theta > 0 ? o->theta : PRESET_THETA, "rope_scaling", scaling_json(o),
        "tie_word_embeddings", (int)o->tied, "bos_token_id", "eos_token_id", "torch_dtype",
        "float32");
    if (root && add_window(root, f, o) == 0) return root;
    json_decref(root);
    return NULL;
}
