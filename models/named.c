/* SPDX-License-Identifier: Apache-2.0 */
/* named.c -- a model's text to the model: which kind, and then that kind's own functions. */
#include <cgpipe/models/named.h>

#include <stdio.h>
#include <string.h>

#include "shared.h"

static const cgp__keys *const kinds[CGP_MODEL_KINDS] = {
    [CGP_MODEL_GPT2] = &cgp__gpt2_keys,
    [CGP_MODEL_RESNET] = &cgp__resnet_keys,
    [CGP_MODEL_AMOEBANETD] = &cgp__amoebanetd_keys,
    [CGP_MODEL_UNET] = &cgp__unet_keys,
};

const char *cgp_model_kind_name(cgp_model_kind kind) {
    return (int)kind >= 0 && kind < CGP_MODEL_KINDS ? kinds[kind]->model : NULL;
}

static cgp_status check(const cgp_named_model *named) {
    if (named->struct_size != sizeof *named)
        return cgp_fail(CGP_EINVAL,
                        "model: expected struct_size %zu, got %zu (start from "
                        "cgp_named_model_default())",
                        sizeof *named, named->struct_size);
    if (cgp_model_kind_name(named->kind)) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "model: expected a kind from 0 to %d, got %d",
                    CGP_MODEL_KINDS - 1, (int)named->kind);
}

/* The options of a kind. */
static void *options_of(cgp_named_model *named, cgp_model_kind kind) {
    void *const options[CGP_MODEL_KINDS] = {
        [CGP_MODEL_GPT2] = &named->gpt2,
        [CGP_MODEL_RESNET] = &named->resnet,
        [CGP_MODEL_AMOEBANETD] = &named->amoebanetd,
        [CGP_MODEL_UNET] = &named->unet,
    };
    return options[kind];
}

static cgp_status unknown_model(const char *text) {
    const char *names[CGP_MODEL_KINDS];
    char name[32];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text, ":"), text);
    for (int k = 0; k < CGP_MODEL_KINDS; k++)
        names[k] = kinds[k]->model;
    const char *near = cgp_nearest(name, names, CGP_MODEL_KINDS);
    char kind[32]; /* "resnt101" is a resnet with its depth */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(name, "0123456789"), name);
    if (!near) near = cgp_nearest(kind, names, CGP_MODEL_KINDS);
    return cgp_fail(CGP_EINVAL, "%s: unknown model (%s%s%s)", name,
                    near ? "did you mean " : "models: gpt2 resnet amoebanetd unet",
                    near ? near : "", near ? "?" : "");
}

cgp_status cgp_named_model_parse(cgp_named_model *named, const char *text) {
    CGP__NEED(named);
    CGP__NEED(text);
    CGP_TRY(check(named));
    for (int k = 0; k < CGP_MODEL_KINDS; k++) {
        if (!cgp__keys_match(kinds[k], text)) continue;
        CGP_TRY(cgp__keys_parse(kinds[k], options_of(named, (cgp_model_kind)k), text));
        named->kind = (cgp_model_kind)k;
        return CGP_OK;
    }
    return unknown_model(text);
}

static cgp_status settle(cgp_named_model *named) {
    CGP_TRY(cgp__keys_check_size(kinds[named->kind], options_of(named, named->kind)));
    switch (named->kind) {
    case CGP_MODEL_RESNET:
        return cgp__resnet_settle(&named->resnet);
    case CGP_MODEL_AMOEBANETD:
        return cgp__amoebanetd_settle(&named->amoebanetd);
    case CGP_MODEL_UNET:
        return cgp__unet_settle(&named->unet);
    default:
        return cgp__gpt2_settle(&named->gpt2);
    }
}

cgp_status cgp_named_model_text(const cgp_named_model *named, char *text, size_t size) {
    CGP__NEED(named);
    if (size > 0) CGP__NEED(text);
    CGP_TRY(check(named));
    cgp_named_model settled = *named;
    CGP_TRY(settle(&settled));
    cgp__keys_text(kinds[named->kind], options_of(&settled, named->kind), text, size);
    return CGP_OK;
}

cgp_status cgp_named_model_create(cgp_model **out, const cgp_named_model *named) {
    CGP__NEED(out);
    CGP__NEED(named);
    CGP_TRY(check(named));
    switch (named->kind) {
    case CGP_MODEL_RESNET:
        return cgp_resnet_create(out, &named->resnet);
    case CGP_MODEL_AMOEBANETD:
        return cgp_amoebanetd_create(out, &named->amoebanetd);
    case CGP_MODEL_UNET:
        return cgp_unet_create(out, &named->unet);
    default:
        return cgp_gpt2_create(out, &named->gpt2);
    }
}
