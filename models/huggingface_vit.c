/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface_vit.c -- converts the config.json of a ViT to options of the model and back.
 *
 * The keys are those of ViTConfig of Hugging Face's transformers. The sizes are required; other
 * keys default to the values of that class. The number of classes is the number of entries of
 * id2label, or num_labels; class names are not kept. Keys that do not change the results of an
 * image classifier are ignored (initializer_range, encoder_stride, pooler_...). */
#include <string.h>

#include "huggingface.h"
#include "zoo.h"

#define PRESET_EPS 1e-12

/* --- reading --- */

static cgp_status take_sizes(const cgp__config *c, cgp_vit_options *o) {
    int64_t layers = 0, channels = 3;
    CGP_TRY(cgp__config_size(c, "num_hidden_layers", CGP__MAX_LAYERS, &layers));
    o->layers = (int)layers;
    CGP_TRY(cgp__config_size(c, "hidden_size", CGP__MAX_WIDTH, &o->width));
    CGP_TRY(cgp__config_size(c, "num_attention_heads", CGP__MAX_WIDTH, &o->heads));
    CGP_TRY(cgp__config_size(c, "intermediate_size", 4 * CGP__MAX_WIDTH, &o->inner));
    CGP_TRY(cgp__config_size(c, "image_size", CGP__MAX_SIDE, &o->image));
    CGP_TRY(cgp__config_size(c, "patch_size", CGP__MAX_SIDE, &o->patch));
    if (json_object_get(c->root, "num_channels"))
        CGP_TRY(cgp__config_size(c, "num_channels", CGP__MAX_WIDTH, &channels));
    return channels == 3 ? CGP_OK : cgp__config_unexpected(c, "num_channels", "3");
}

static cgp_status take_classes(const cgp__config *c, cgp_vit_options *o) {
    const json_t *labels = json_object_get(c->root, "id2label");
    const bool named = labels && !json_is_null(labels);
    o->classes = named ? (int64_t)json_object_size(labels) : 2;
    if (named)
        return o->classes > 0 && o->classes <= CGP__MAX_COUNT
                   ? CGP_OK
                   : cgp__config_unexpected(c, "id2label", "an object of the classes' names");
    if (!json_object_get(c->root, "num_labels")) return CGP_OK;
    return cgp__config_size(c, "num_labels", CGP__MAX_COUNT, &o->classes);
}

static cgp_status take_activation(const cgp__config *c) {
    const json_t *value = json_object_get(c->root, "hidden_act");
    const char *name = value ? json_string_value(value) : "gelu";
    if (name && strcmp(name, "gelu") == 0) return CGP_OK;
    return cgp__config_unexpected(c, "hidden_act", "\"gelu\"");
}

/* Read the two dropout probabilities. A model has one value for both. */
static cgp_status take_dropout(const cgp__config *c, cgp_vit_options *o) {
    static const char *const keys[] = {"hidden_dropout_prob", "attention_probs_dropout_prob"};
    double dropouts[2];
    for (int i = 0; i < 2; i++) {
        CGP_TRY(cgp__config_real(c, keys[i], 0, 1, 0, &dropouts[i]));
        if (dropouts[i] == 1)
            return cgp__config_unexpected(c, keys[i], "a number from 0 on and below 1");
    }
    o->dropout = dropouts[0] == dropouts[1] ? dropouts[0] : 0;
    return CGP_OK;
}

cgp_status cgp__vit_from_config(const cgp__config *c, cgp_vit_options *o) {
    CGP_TRY(take_sizes(c, o));
    CGP_TRY(take_classes(c, o));
    CGP_TRY(take_activation(c));
    CGP_TRY(take_dropout(c, o));
    CGP_TRY(cgp__config_real(c, "layer_norm_eps", 1e-30, 1, PRESET_EPS, &o->eps));
    return cgp__config_need(c, "qkv_bias", true);
}

/* --- writing --- */

json_t *cgp__vit_to_config(const cgp_vit_options *o) {
    return json_pack(
        "{s:[s], s:s, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:f, s:f, s:f, s:b, s:s}",
        "architectures", "ViTForImageClassification", "model_type", "vit", "hidden_act", "gelu",
        "num_hidden_layers", o->layers, "hidden_size", (json_int_t)o->width, "num_attention_heads",
        (json_int_t)o->heads, "intermediate_size",
        (json_int_t)(o->inner > 0 ? o->inner : 4 * o->width), "image_size", (json_int_t)o->image,
        "patch_size", (json_int_t)o->patch, "num_channels", 3, "num_labels", (json_int_t)o->classes,
        "layer_norm_eps", o->eps > 0 ? o->eps : PRESET_EPS, "hidden_dropout_prob", o->dropout,
        "attention_probs_dropout_prob", o->dropout, "qkv_bias", 1, "torch_dtype", "float32");
}
