/* SPDX-License-Identifier: Apache-2.0 */
/* stash.c -- passes values by name between layers that are written separately. A stash adds nothing
 * to the graph, because a pop returns the stashed value itself. So a skip connection by name gives
 * the same model as a skip connection by value: the value is sent directly to the stages that use
 * it. */
#include "model/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cgp__stash_release(cgp_model *model) {
    for (int i = 0; i < model->build->n_stashes; i++) {
        free(model->build->stashes[i].space);
        free(model->build->stashes[i].name);
    }
    free(model->build->stashes);
}

/* Format `"skip"`, or `"skip" of namespace "left"`. */
static const char *describe(char text[256], const char *space, const char *name) {
    if (*space)
        snprintf(text, 256, "\"%.80s\" of namespace \"%.80s\"", name, space);
    else
        snprintf(text, 256, "\"%.80s\"", name);
    return text;
}

/* Format the layer of a stash or pop. An input may be stashed before the first layer. */
static const char *describe_layer(const cgp_model *model, int layer, char text[128]) {
    if (layer < 0) return "front of all layers";
    snprintf(text, 128, "layer %.100s", model->layers[layer]);
    return text;
}

static uint64_t hash_of(const char *space, const char *name) {
    return cgp__hash(space, strlen(space)) * 31 + cgp__hash(name, strlen(name));
}

static cgp__stash *find(const cgp_model *model, const char *space, const char *name) {
    const uint64_t hash = hash_of(space, name);
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&model->build->stash_names, hash, &tried)) >= 0) {
        cgp__stash *stash = &model->build->stashes[i];
        if (strcmp(stash->name, name) == 0 && strcmp(stash->space, space) == 0) return stash;
    }
    return NULL;
}

static bool has_name(cgp_model *model, const char *op, const char *name) {
    if (*name) return cgp__builder_takes_name(model, op, name);
    cgp__builder_stick(model, CGP_EINVAL, op, "expects a name, got none");
    return false;
}

static void add(cgp_model *model, const char *space, const char *name, cgp_value value) {
    const int n = model->build->n_stashes;
    cgp__stash stash = {.value = value.id, .layer = model->n_layers - 1};
    if (cgp__grow(&model->build->stashes, &model->build->stashes_capacity, n + 1,
                  sizeof *model->build->stashes)) {
        stash.space = cgp__strdup(space);
        stash.name = cgp__strdup(name);
    }
    if (stash.space && stash.name &&
        cgp__index_add(&model->build->stash_names, hash_of(space, name), n)) {
        model->build->stashes[n] = stash;
        model->build->n_stashes = n + 1;
        return;
    }
    free(stash.name);
    free(stash.space);
    cgp__builder_stick(model, CGP_ENOMEM, "stash", "out of memory (a name)");
}

void cgp_model_stash(cgp_model *model, const char *space, const char *name, cgp_value value) {
    CGP__NEED_OR(model, );
    CGP__NEED_STUCK(model, name, );
    char text[256], layer[128];
    if (!cgp__builder_open(model, "stash") || !has_name(model, "stash", name)) return;
    if (!space) space = "";
    const cgp__stash *other = find(model, space, name);
    describe(text, space, name);
    if (value.id < 0 || value.id >= model->n_values)
        cgp__builder_stick(model, CGP_EINVAL, "stash", "%s: is not a value of this model", text);
    else if (other)
        cgp__builder_stick(model, CGP_EINVAL, "stash",
                           "%s: expected a name of its own, got that of a stash in %s (a "
                           "namespace keeps equal names apart)",
                           text, describe_layer(model, other->layer, layer));
    else
        add(model, space, name, value);
}

/* Return the nearest name that is stashed, and not popped, in this namespace; NULL if no name is
 * near. */
static const char *nearest(const cgp_model *model, const char *space, const char *name) {
    const char *best = NULL;
    for (int i = 0; i < model->build->n_stashes; i++) {
        const cgp__stash *stash = &model->build->stashes[i];
        if (stash->popped || strcmp(stash->space, space) != 0) continue;
        const char *const both[2] = {stash->name, best};
        best = cgp_nearest(name, both, best ? 2 : 1);
    }
    return best;
}

/* Report an unknown name. Suggest the same name in another namespace, or a similar name in the same
 * namespace. */
static void stick_unknown(cgp_model *model, const char *space, const char *name) {
    char text[256], hint[256] = "";
    const char *near = nearest(model, space, name);
    for (int i = 0; i < model->build->n_stashes && !*hint; i++) {
        const cgp__stash *stash = &model->build->stashes[i];
        if (stash->popped || strcmp(stash->name, name) != 0) continue;
        if (*stash->space)
            snprintf(hint, sizeof hint, " (namespace \"%.80s\" has one)", stash->space);
        else
            snprintf(hint, sizeof hint, " (there is one without a namespace)");
    }
    if (!*hint && near) snprintf(hint, sizeof hint, " (did you mean \"%.80s\"?)", near);
    cgp__builder_stick(model, CGP_EINVAL, "pop",
                       "%s: expected a name stashed before, got an unknown one%s",
                       describe(text, space, name), hint);
}

cgp_value cgp_model_pop(cgp_model *model, const char *space, const char *name) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    char text[256], layer[128];
    if (!cgp__builder_open(model, "pop") || !has_name(model, "pop", name)) return cgp__no_value;
    if (!space) space = "";
    cgp__stash *stash = find(model, space, name);
    if (!stash) {
        stick_unknown(model, space, name);
        return cgp__no_value;
    }
    if (stash->popped) {
        cgp__builder_stick(model, CGP_EINVAL, "pop",
                           "%s: expected one pop, got a second (the first is in %s; a value "
                           "itself may be used any number of times)",
                           describe(text, space, name),
                           describe_layer(model, stash->popped_in, layer));
        return cgp__no_value;
    }
    stash->popped = true;
    stash->popped_in = model->n_layers - 1;
    return (cgp_value){stash->value};
}

cgp_status cgp__stash_check(const cgp_model *model) {
    const cgp__stash *first = NULL;
    char text[256], layer[128], more[64] = "";
    int left = 0;
    for (int i = 0; i < model->build->n_stashes; i++) {
        const cgp__stash *stash = &model->build->stashes[i];
        if (stash->popped) continue;
        if (!first) first = stash;
        left++;
    }
    if (!first) return CGP_OK;
    if (left > 1) snprintf(more, sizeof more, ", likewise %d more", left - 1);
    return cgp_fail(CGP_EINVAL,
                    "stash in %s: expected a pop of %s further on, got none%s (cgp_model_pop, "
                    "or no stash)",
                    describe_layer(model, first->layer, layer),
                    describe(text, first->space, first->name), more);
}
