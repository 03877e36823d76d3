/* SPDX-License-Identifier: Apache-2.0 */
/* models.c -- parses arbitrary texts of models. A model spec is refused, or it can be written as a
 * text that gives the same model. A model with few layers is built and planned, or refused. No size
 * overflows, even if the model is very wide.
 *
 * An input is two letters and a model spec. The letters give the numbers of stages and
 * micro-batches: `a` is 1, `b` is 2, and so on. */
#include "fuzz.h"

#include <cgpipe/models/spec.h>
#include <cgpipe/plan.h>

enum { TEXT = 320 };

/* Return true if the model has few layers, so that building it is fast. Only the numbers tested
 * here increase the number of layers. */
static bool has_few_layers(const cgp_model_spec *m) {
    switch (m->kind) {
    case CGP_MODEL_RESNET:
        return m->resnet.depth <= 20;
    case CGP_MODEL_AMOEBANETD:
        return m->amoebanetd.layers <= 3 && m->amoebanetd.layers > 0;
    case CGP_MODEL_UNET:
        return m->unet.depth <= 3 && m->unet.convs <= 2;
    case CGP_MODEL_LLAMA:
        return m->llama.layers <= 4;
    case CGP_MODEL_VIT:
        return m->vit.layers <= 4;
    default:
        return m->gpt2.layers <= 4;
    }
}

static void check_text(const cgp_model_spec *spec) {
    char text[TEXT], again[TEXT];
    cgp_model_spec back = cgp_model_spec_default();
    if (cgp_model_spec_text(spec, text, sizeof text) != CGP_OK) {
        REQUIRE(*cgp_message());
        return;
    }
    REQUIRE(strlen(text) < TEXT - 1);
    REQUIRE(cgp_model_spec_parse(&back, text) == CGP_OK && back.kind == spec->kind);
    REQUIRE(cgp_model_spec_text(&back, again, sizeof again) == CGP_OK);
    REQUIRE(strcmp(text, again) == 0);
}

/* Parse the text and build the model. */
static bool try_text(const char *text, int stages, int chunks) {
    cgp_model_spec spec = cgp_model_spec_default();
    const cgp_model_spec before = spec;
    cgp_plan_options options = cgp_plan_options_default();
    cgp_model *model = NULL;
    cgp_status status = cgp_model_spec_parse(&spec, text);
    if (status != CGP_OK) {
        REQUIRE(status == CGP_EINVAL && *cgp_message() && memcmp(&spec, &before, sizeof spec) == 0);
        return false;
    }
    check_text(&spec);
    if (!has_few_layers(&spec)) return true;
    status = cgp_model_spec_create(&model, &spec);
    REQUIRE(status == CGP_OK ? model != NULL : !model && *cgp_message());
    options.stages = stages;
    options.chunks = chunks;
    options.batch = 4 * chunks;
    if (model) fuzz_check_plan(model, &options);
    cgp_model_destroy(model);
    return status == CGP_OK;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    const int stages = size > 0 ? 1 + (bytes[0] & 3) : 1,
              chunks = size > 1 ? 1 + (bytes[1] & 7) : 1;
    const size_t skip = size < 2 ? size : 2;
    char *text = fuzz_text(bytes + skip, size - skip);
    const bool accepted = try_text(text, stages, chunks);
    free(text);
    return accepted;
}

const fuzz_reader fuzz_models = {
    .take = try_input,
    .words = FUZZ_WORDS("gpt2:", "resnet:", "resnet20", "amoebanetd:", "unet:", "llama:", "vit:",
                        "layers=", "width=", "heads=", "vocab=", "seq=", "tied=1", "gelu=tanh",
                        "eps=1e-5", "inner=", "residuals=", "depth=", "classes=", "image=",
                        "patch=", "kv_heads=", "window=", "L=", "D=", "maxpool=", "old=1",
                        "B=", "C=", ",", "=", ":", "0", "1", "2", "3", "7", "16", "1048576",
                        "2147483647", "2147483648", "9223372036854775807", "99999999999999999999",
                        "-1", "1e-5", "0x10", " ", "10000", "16384", "4194304"),
    .mutations = 4000,
    .corpus = 8,
};
