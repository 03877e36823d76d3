/* SPDX-License-Identifier: Apache-2.0 */
/* spec.c -- implements model specs: finds the kind, then calls the functions of this kind. */
#include <cgpipe/models/spec.h>

#include <stdio.h>
#include <string.h>

#include "zoo.h"

/* Keys of each kind, and the offset of its options in a spec. */
static const struct {
    const cgp__keys *keys;
    size_t offset;
} kinds[CGP_MODEL_KINDS] = {
    [CGP_MODEL_GPT2] = {&cgp__gpt2_keys, offsetof(cgp_model_spec, gpt2)},
    [CGP_MODEL_RESNET] = {&cgp__resnet_keys, offsetof(cgp_model_spec, resnet)},
    [CGP_MODEL_AMOEBANETD] = {&cgp__amoebanetd_keys, offsetof(cgp_model_spec, amoebanetd)},
    [CGP_MODEL_UNET] = {&cgp__unet_keys, offsetof(cgp_model_spec, unet)},
    [CGP_MODEL_LLAMA] = {&cgp__llama_keys, offsetof(cgp_model_spec, llama)},
    [CGP_MODEL_VIT] = {&cgp__vit_keys, offsetof(cgp_model_spec, vit)},
};

const char *cgp_model_kind_name(cgp_model_kind kind) {
    return (int)kind >= 0 && kind < CGP_MODEL_KINDS ? kinds[kind].keys->model : NULL;
}

static cgp_status check(const cgp_model_spec *spec) {
    if (spec->struct_size != sizeof *spec)
        return cgp_fail(CGP_EINVAL,
                        "model: expected struct_size %zu, got %zu (start from "
                        "cgp_model_spec_default())",
                        sizeof *spec, spec->struct_size);
    if (cgp_model_kind_name(spec->kind)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "model: expected a kind from 0 to %d, got %d", CGP_MODEL_KINDS - 1,
                    (int)spec->kind);
}

static cgp_status unknown_model(const char *text) {
    const char *names[CGP_MODEL_KINDS];
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    for (int k = 0; k < CGP_MODEL_KINDS; k++)
        names[k] = kinds[k].keys->model;
    const char *near = cgp_nearest(name, names, CGP_MODEL_KINDS);
    char kind[32]; /* compare without digits, because a name such as "resnt101" ends in a depth */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(name, "0123456789"), name);
    if (!near) near = cgp_nearest(kind, names, CGP_MODEL_KINDS);
    return cgp_fail(CGP_EINVAL, "%s: unknown model (%s%s%s)", name,
                    near ? "did you mean " : "models: gpt2 resnet amoebanetd unet llama vit",
                    near ? near : "", near ? "?" : "");
}

cgp_status cgp_model_spec_parse(cgp_model_spec *spec, const char *text) {
    CGP__NEED(spec);
    CGP__NEED(text);
    CGP_TRY(check(spec));
    for (int k = 0; k < CGP_MODEL_KINDS; k++) {
        if (!cgp__keys_match(kinds[k].keys, text)) continue;
        CGP_TRY(cgp__keys_parse(__func__, kinds[k].keys, (char *)spec + kinds[k].offset, text));
        spec->kind = (cgp_model_kind)k;
        return CGP_OK;
    }
    return unknown_model(text);
}

cgp_status cgp_model_spec_text(const cgp_model_spec *spec, char *text, size_t size) {
    CGP__NEED(spec);
    if (size > 0) CGP__NEED(text);
    CGP_TRY(check(spec));
    cgp_model_spec resolved = *spec;
    void *options = (char *)&resolved + kinds[spec->kind].offset;
    CGP_TRY(cgp__keys_resolve(kinds[spec->kind].keys, options));
    cgp__keys_spec(kinds[spec->kind].keys, options, text, size);
    return CGP_OK;
}

cgp_status cgp_model_spec_create(cgp_model **out, const cgp_model_spec *spec) {
    CGP__NEED(out);
    CGP__NEED(spec);
    CGP_TRY(check(spec));
    const void *options = (const char *)spec + kinds[spec->kind].offset;
    return cgp__model_create(__func__, out, kinds[spec->kind].keys, options);
}
