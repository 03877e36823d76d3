/* SPDX-License-Identifier: Apache-2.0 */
/* huggingface.c -- reads a directory with damaged config.json, index and safetensors files. Either
 * the directory is refused, or a GPT-2, Llama or ViT is built from it. The weights are then loaded
 * or refused. Each refusal states the path of a file.
 *
 * An input is config.json and the files model.safetensors, model.safetensors.index.json,
 * model-1.safetensors and model-2.safetensors; an empty part is a missing file. */
#include "fuzz.h"

#include <cgpipe/models/weights.h>

enum { PARTS = 5 };

static const char *const names[PARTS] = {"config.json", "model.safetensors",
                                         "model.safetensors.index.json", "model-1.safetensors",
                                         "model-2.safetensors"};

static bool is_small(const cgp_model_spec *spec) {
    const cgp_gpt2_options *g = &spec->gpt2;
    const cgp_llama_options *l = &spec->llama;
    const cgp_vit_options *v = &spec->vit;
    if (spec->kind == CGP_MODEL_VIT)
        return v->layers <= 2 && v->width <= 8 && v->inner <= 64 && v->image <= 16 &&
               v->classes <= 64;
    return spec->kind == CGP_MODEL_GPT2
               ? g->layers <= 2 && g->width <= 8 && g->vocab <= 64 && g->sequence <= 64 &&
                     g->inner <= 64
               : l->layers <= 2 && l->width <= 8 && l->vocab <= 64 && l->sequence <= 64 &&
                     l->inner <= 64 && l->heads <= 8 && l->head_width <= 8;
}

/* Check that the message begins with the path of an entry in the directory. */
static void check_refusal(cgp_status status) {
    REQUIRE(status == CGP_EFORMAT || status == CGP_EIO || status == CGP_EINVAL);
    REQUIRE(strncmp(cgp_message(), fuzz_directory, strlen(fuzz_directory)) == 0);
}

static cgp_status load(const cgp_model *model) {
    cgp_weights *weights = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    cgp_status status = cgp_weights_open(&weights, model, fuzz_directory);
    if (status != CGP_OK) {
        REQUIRE(!weights);
        return status;
    }
    options.inference = true;
    REQUIRE(cgp_plan_create(&plan, model, &options) == CGP_OK);
    REQUIRE(cgp_pipeline_create(&pipeline, plan, 0) == CGP_OK);
    status = cgp_weights_load(weights, pipeline);
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_weights_close(weights);
    return status;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    fuzz_part parts[PARTS] = {{0}};
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    fuzz_cut(bytes, size, parts, PARTS);
    for (int i = 0; i < PARTS; i++) {
        if (parts[i].size > 0) fuzz_write(names[i], parts[i].bytes, parts[i].size);
    }
    cgp_status status = cgp_huggingface_read(&spec, fuzz_directory);
    if (status != CGP_OK) check_refusal(status);
    if (status != CGP_OK || !is_small(&spec)) return false;
    spec.gpt2.loss = spec.llama.loss = spec.vit.loss = false;
    REQUIRE(cgp_model_spec_create(&model, &spec) == CGP_OK);
    status = load(model);
    if (status != CGP_OK) check_refusal(status);
    cgp_model_destroy(model);
    return status == CGP_OK;
}

const fuzz_reader fuzz_huggingface = {
    .take = try_input,
    .words = FUZZ_WORDS(
        FUZZ_JSON, FUZZ_BETWEEN, "0", "1", "2", "9223372036854775808",
        "\"n_layer\":", "\"n_embd\":", "\"model_type\":\"gpt2\"", "\"model_type\":\"llama\"",
        "\"model_type\":\"qwen2\"", "\"model_type\":\"vit\"",
        "\"image_size\":", "\"patch_size\":", "\"id2label\":{", "vit.embeddings.cls_token",
        "\"num_key_value_heads\":", "\"head_dim\":", "\"rope_scaling\":{\"rope_type\":\"llama3\"",
        "\"factor\":", "\"weight_map\":{", "\"data_offsets\":[", "\"F16\"", "\"BF16\"", "\"F32\"",
        "\"I32\"", "model-1.safetensors", "../model-1.safetensors", "/dev/zero", "transformer.",
        "h.0.", ".attn.bias", "lm_head.weight", "{\"a\":"),
    .mutations = 4000,
    .corpus = 2,
};
