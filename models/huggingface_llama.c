/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface_llama.c -- converts the config.json of a Llama, a Mistral, a Qwen2 or a Qwen3 to
 * cgp_llama_options and back.
 *
 * The keys are those of LlamaConfig, MistralConfig, Qwen2Config and Qwen3Config of Hugging Face's
 * transformers. The sizes are required; other keys default to the values of the model's class. The
 * parameters of the rotary embedding are in rope_theta and rope_scaling, as in published files, or
 * in rope_parameters, as in files of transformers 5. Keys that do not change the results are
 * ignored. */
#include <string.h>

#include "huggingface.h"
#include "zoo.h"

#define PRESET_EPS 1e-6
#define PRESET_THETA 10000.0
#define PRESET_WINDOW 4096
#define PRESET_QWEN3_HEAD 128
#define PRESET_WINDOW_LAYERS 28
#define MAX_THETA 1e12
#define MAX_FACTOR 1e6

/* --- reading --- */

typedef enum family { LLAMA, MISTRAL, QWEN2, QWEN3 } family;

static const char *const type_names[] = {"llama", "mistral", "qwen2", "qwen3"};

static family family_of(const cgp__config *c) {
    const char *type = json_string_value(json_object_get(c->root, "model_type"));
    family f = QWEN3;
    while (f > LLAMA && strcmp(type, type_names[f]) != 0)
        f--;
    return f;
}

static bool is_given(const cgp__config *c, const char *key) {
    const json_t *value = json_object_get(c->root, key);
    return value && !json_is_null(value);
}

static cgp_status take_sizes(const cgp__config *c, family f, cgp_llama_options *o) {
    static const int64_t kv_heads[] = {[LLAMA] = 0, [MISTRAL] = 8, [QWEN2] = 32, [QWEN3] = 32};
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
    o->head_width = f == QWEN3 ? PRESET_QWEN3_HEAD : 0;
    if (!is_given(c, "head_dim")) return CGP_OK;
    return cgp__config_size(c, "head_dim", CGP__MAX_WIDTH, &o->head_width);
}

/* Read layer_types: whether layer `i` has a window, for each of the layers. */
static cgp_status read_layer_types(const cgp__config *c, int layers, bool *windows) {
    const json_t *types = json_object_get(c->root, "layer_types"), *item;
    size_t i;
    json_array_foreach(types, i, item) {
        const char *type = json_is_string(item) ? json_string_value(item) : "";
        const bool sliding = strcmp(type, "sliding_attention") == 0;
        if (i >= (size_t)layers || (!sliding && strcmp(type, "full_attention") != 0)) break;
        windows[i] = sliding;
    }
    if (json_is_array(types) && i == (size_t)layers && json_array_size(types) == i) return CGP_OK;
    return cgp__config_unexpected(c, "layer_types",
                                  "\"full_attention\" or \"sliding_attention\" for each layer");
}

/* Find window_from or full_every, with which the layers `windows` have a window. Return false if
 * there are none. If no layer has a window, window_from is the number of layers. */
static bool find_pattern(cgp_llama_options *o, const bool *windows) {
    int first_window = 0, first_full = 0;
    while (first_window < o->layers && !windows[first_window])
        first_window++;
    while (first_full < o->layers && windows[first_full])
        first_full++;
    bool tail = true, regular = first_full < o->layers;
    for (int i = 0; i < o->layers; i++) {
        tail = tail && windows[i] == (i >= first_window);
        regular = regular && windows[i] == ((i + 1) % (first_full + 1) != 0);
    }
    if (tail) o->window_from = first_window;
    if (!tail && regular) o->full_every = first_full + 1;
    return tail || regular;
}

/* Find the layers that have the window. layer_types lists them. Without this list, they are all
 * layers or, in Qwen2 and Qwen3, layer max_window_layers and all later layers. */
static cgp_status take_windows(const cgp__config *c, family f, cgp_llama_options *o) {
    const json_t *from = json_object_get(c->root, "max_window_layers");
    bool windows[CGP__MAX_LAYERS];
    if (is_given(c, "layer_types")) {
        CGP_TRY(read_layer_types(c, o->layers, windows));
        if (find_pattern(o, windows)) return CGP_OK;
        return cgp__config_unexpected(c, "layer_types",
                                      "full attention in the first layers alone, or in every n-th "
                                      "layer");
    }
    if (f != QWEN2 && f != QWEN3) return CGP_OK;
    if (from && (!json_is_integer(from) || json_integer_value(from) < 0))
        return cgp__config_unexpected(c, "max_window_layers", "a whole number");
    const json_int_t first = from ? json_integer_value(from) : PRESET_WINDOW_LAYERS;
    o->window_from = first < o->layers ? first : o->layers;
    return CGP_OK;
}

/* Read the window. Qwen2 and Qwen3 have one only if use_sliding_window is true. */
static cgp_status take_window(const cgp__config *c, family f, cgp_llama_options *o) {
    const bool qwen = f == QWEN2 || f == QWEN3;
    bool used = f == MISTRAL;
    int64_t window = 0;
    o->window = o->window_from = o->full_every = 0;
    if (qwen) CGP_TRY(cgp__config_flag(c, "use_sliding_window", false, &used));
    if (used && is_given(c, "sliding_window"))
        CGP_TRY(cgp__config_size(c, "sliding_window", CGP__MAX_COUNT, &window));
    else if (used && !json_object_get(c->root, "sliding_window"))
        window = PRESET_WINDOW;
    CGP_TRY(take_windows(c, f, o));
    if (window == 0 && is_given(c, "layer_types") && o->window_from < o->layers)
        return cgp__config_unexpected(
            c, "layer_types", "\"full_attention\" for all layers, as there is no sliding_window");
    o->window = o->window_from < o->layers ? window : 0;
    if (o->window == 0) o->window_from = o->full_every = 0;
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
    CGP_TRY(cgp__config_refuse_unsupported(&inner));
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
    o->qk_norm = f == QWEN3;
    if (f == LLAMA || f == QWEN3) CGP_TRY(cgp__config_need(c, "attention_bias", false));
    return f == LLAMA ? cgp__config_need(c, "mlp_bias", false) : CGP_OK;
}

/* --- writing --- */

/* Return the family that has these options; if there are several, return the family with the fewest
 * keys. */
static family family_for(const cgp_llama_options *o) {
    return o->qk_norm ? QWEN3 : o->bias ? QWEN2 : o->window > 0 ? MISTRAL : LLAMA;
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

static json_t *layer_types(const cgp_llama_options *o) {
    json_t *list = json_array();
    for (int i = 0; i < o->layers; i++)
        json_array_append_new(
            list,
            json_string((i + 1) % o->full_every == 0 ? "full_attention" : "sliding_attention"));
    return list;
}

/* Add the keys that only this family has. */
static int add_window(json_t *root, family f, const cgp_llama_options *o) {
    if (f == LLAMA) return 0;
    json_t *window = o->window > 0 ? json_integer(o->window) : json_null();
    int failed = json_object_set_new(root, "sliding_window", window);
    if (f == MISTRAL) return failed;
    failed |= json_object_set_new(root, "use_sliding_window", json_boolean(o->window > 0));
    if (o->full_every > 0) failed |= json_object_set_new(root, "layer_types", layer_types(o));
    return failed | json_object_set_new(root, "max_window_layers",
                                        json_integer(o->window > 0 ? o->window_from : o->layers));
}

json_t *cgp__llama_to_config(const cgp_llama_options *o) {
    static const char *const classes[] = {"LlamaForCausalLM", "MistralForCausalLM",
                                          "Qwen2ForCausalLM", "Qwen3ForCausalLM"};
    const family f = family_for(o);
    json_t *root = json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:o, s:b, s:n, "
        "s:n, s:s}",
        "architectures", classes[f], "model_type", type_names[f], "hidden_act", "silu",
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
