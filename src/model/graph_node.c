/* SPDX-License-Identifier: Apache-2.0 */
/* graph_node.c -- reads the nodes and losses of a graph file. The builder checks shapes and
 * attributes; if it fails, the reader refuses the file with the builder's message. */
#include "model/graph_reader.h"

#include "op/custom/custom.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STATES = CGP_OP_MAX_STATE };

/* A node or loss that is being read. */
typedef struct entry {
    const json_t *object;
    cgp_op_kind kind;
    const cgp_op *op;
    int n_inputs;
    cgp_value inputs[CGP_OP_MAX_INPUTS];
    int params[CGP_OP_MAX_PARAMETERS];
    const char *states[MAX_STATES];
    cgp__given given;
    cgp__attributes attributes;
    unsigned char *bytes; /* attributes of a custom op; owned */
} entry;

static cgp_status find_custom(const cgp__reader *r, entry *e, const char *name) {
    for (int i = 0; i < r->n_ops; i++) {
        if (strcmp(r->ops[i]->name, name) != 0) continue;
        e->op = r->ops[i];
        e->kind = CGP_OP_CUSTOM;
        return CGP_OK;
    }
    return cgp__reader_refuse(
        r,
        "custom: unknown custom op %.80s (a graph file has no code: give the plug-in "
        "that has it, --plugin ./NAME.so)",
        name);
}

static cgp_status unknown_op(const cgp__reader *r, const char *name) {
    const char *all[CGP_OP_KINDS];
    for (int kind = 0; kind < CGP_OP_KINDS; kind++)
        all[kind] = cgp_op_name((cgp_op_kind)kind);
    const char *near = cgp_nearest(name, all, CGP_OP_KINDS);
    return cgp__reader_refuse(r, "op: unknown op %.80s%s%s%s", name, near ? " (did you mean " : "",
                              near ? near : "", near ? "?)" : "");
}

static cgp_status find_op(const cgp__reader *r, entry *e, bool loss) {
    const json_t *custom = json_object_get(e->object, "custom");
    const char *name = NULL;
    CGP_TRY(cgp__reader_take_text(r, e->object, custom ? "custom" : "op", &name));
    if (custom && json_object_get(e->object, "op"))
        return cgp__reader_refuse(r, "expected op or custom, got both");
    if (custom) {
        CGP_TRY(find_custom(r, e, name));
    } else {
        e->kind = cgp__graph_kind(name);
        if (e->kind == CGP_OP_KINDS) return unknown_op(r, name);
        e->op = &cgp__op_find(e->kind)->op;
    }
    if (e->op->is_loss == loss) return CGP_OK;
    return cgp__reader_refuse(r, "%s: %s a loss, so it stands in %s", name, loss ? "is not" : "is",
                              loss ? "nodes" : "losses");
}

static cgp_status take_inputs(const cgp__reader *r, entry *e) {
    const json_t *list = json_object_get(e->object, "inputs");
    const cgp__field *count = NULL;
    for (int i = 0; (count = cgp__graph_field(i)); i++) {
        if (strcmp(count->name, "n_inputs") == 0) break;
    }
    const bool any = e->kind != CGP_OP_CUSTOM && cgp__graph_has(e->kind, count, NULL);
    /* attention may have one input for q, k and v; rotary may have no positions, and losses may
     * have no weights */
    const bool fewer = any && e->kind != CGP_OP_CONCAT;
    const int min = !fewer ? e->op->n_inputs : e->op->is_loss ? 2 : 1;
    const int max = fewer ? e->op->n_inputs : any ? CGP_OP_MAX_INPUTS : min;
    const size_t n = json_array_size(list);
    if (!json_is_array(list) || n < (size_t)min || n > (size_t)max) {
        char expected[64];
        snprintf(expected, sizeof expected, any ? "a list of %d to %d values" : "a list of %d", min,
                 max);
        return cgp__reader_unexpected(r, "inputs", expected, list);
    }
    for (size_t k = 0; k < n; k++) {
        int64_t value = 0;
        CGP_TRY(cgp__reader_take_index(r, json_array_get(list, k), "inputs", r->model->n_values,
                                       &value));
        const cgp__value_info *info = &r->model->values[value];
        if (info->node < 0 && info->input < 0)
            return cgp__reader_refuse(
                r, "inputs: value %" PRId64 " is made by no node and no input", value);
        e->inputs[k].id = (int)value;
    }
    e->n_inputs = (int)n;
    if (any) e->attributes.n_inputs = (int)n;
    return CGP_OK;
}

static cgp_status take_parameters(const cgp__reader *r, entry *e) {
    const json_t *list = json_object_get(e->object, "parameters");
    const json_t *states = json_object_get(e->object, "states");
    const size_t n = json_array_size(list), n_states = json_array_size(states);
    if ((list && !json_is_array(list)) || n > CGP_OP_MAX_PARAMETERS)
        return cgp__reader_unexpected(r, "parameters", "a list of at most 4", list);
    if ((states && !json_is_array(states)) || n_states > MAX_STATES)
        return cgp__reader_unexpected(r, "states", "a list of at most 4 names", states);
    for (size_t k = 0; k < n; k++) {
        int64_t param = 0;
        CGP_TRY(cgp__reader_take_index(r, json_array_get(list, k), "parameters", r->model->n_params,
                                       &param));
        e->params[k] = (int)param;
    }
    for (size_t k = 0; k < n_states; k++) {
        e->states[k] = json_string_value(json_array_get(states, k));
        if (!e->states[k])
            return cgp__reader_unexpected(r, "states", "names", json_array_get(states, k));
    }
    e->given = (cgp__given){
        .params = e->params, .n_params = (int)n, .states = e->states, .n_states = (int)n_states};
    return CGP_OK;
}

/* Read the id of an entry, which is the key of the op's random numbers. Ids ascend within a
 * list. */
static cgp_status take_id(cgp__reader *r, entry *e, int64_t otherwise) {
    const json_t *value = json_object_get(e->object, "id");
    int64_t id = otherwise;
    if (value) CGP_TRY(cgp__reader_take_index(r, value, "id", (int64_t)UINT32_MAX + 1, &id));
    if (id <= r->last_id)
        return cgp__reader_refuse(
            r, "id: expected one above %" PRId64 ", that of the entry before, got %" PRId64,
            r->last_id, id);
    r->last_id = id;
    e->given.id = (uint32_t)id;
    return CGP_OK;
}

static int digit(char c) {
    static const char digits[] = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

static cgp_status take_bytes(const cgp__reader *r, entry *e) {
    const json_t *value = json_object_get(e->object, "bytes");
    const char *text = json_string_value(value);
    const size_t n = e->op->attribute_bytes;
    if (n == 0 && !value) return CGP_OK;
    bool good = text && strlen(text) == 2 * n;
    e->bytes = cgp__calloc(n + 1, 1);
    if (!e->bytes) return cgp__no_memory(r->name, n);
    for (size_t i = 0; good && i < n; i++) {
        const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
        good = high >= 0 && low >= 0;
        e->bytes[i] = (unsigned char)(good ? 16 * high + low : 0);
    }
    char expected[64];
    snprintf(expected, sizeof expected, "%zu hexadecimal digits", 2 * n);
    return good ? CGP_OK : cgp__reader_unexpected(r, "bytes", expected, value);
}

static cgp_status take_attributes(const cgp__reader *r, entry *e) {
    const json_t *attributes = json_object_get(e->object, "attributes");
    const bool custom = e->kind == CGP_OP_CUSTOM;
    if (json_object_get(e->object, custom ? "attributes" : "bytes"))
        return cgp__reader_refuse(
            r, "%s: are of %s op (this one has %s)", custom ? "attributes" : "bytes",
            custom ? "a built-in" : "a custom", custom ? "bytes" : "attributes");
    if (custom) return take_bytes(r, e);
    const cgp_status status = cgp__graph_attributes_read(&e->attributes, e->kind, attributes);
    if (status == CGP_OK) return CGP_OK;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", cgp_message());
    return cgp__reader_refuse(r, "attributes: %s", reason);
}

/* Add the node. Return its value; for a loss, return the invalid value. */
static cgp_value build(const cgp__reader *r, const entry *e) {
    const bool custom = e->kind == CGP_OP_CUSTOM;
    const void *attributes = custom ? (const void *)e->bytes : &e->attributes;
    const size_t bytes = custom ? e->op->attribute_bytes : sizeof e->attributes;
    return cgp__builder_add_given(r->model, e->kind, e->op, e->inputs, e->n_inputs, attributes,
                                  bytes, &e->given);
}

static cgp_status read_entry(cgp__reader *r, entry *e, bool loss, int64_t id) {
    CGP_TRY(find_op(r, e, loss));
    CGP_TRY(take_attributes(r, e));
    CGP_TRY(take_inputs(r, e));
    CGP_TRY(take_parameters(r, e));
    CGP_TRY(take_id(r, e, id));
    if (e->kind != CGP_OP_CUSTOM) return CGP_OK;
    const cgp_status status = cgp__custom_check(e->op, e->bytes);
    if (status == CGP_OK) return CGP_OK;
    char reason[256];
    snprintf(reason, sizeof reason, "%s", cgp_message());
    return cgp__reader_refuse(r, "custom op %s: %s", e->op->name, reason);
}

cgp_status cgp__reader_add_node(cgp__reader *r, size_t i) {
    entry e = {.object = json_array_get(r->nodes, i)};
    const json_t *layer = json_object_get(e.object, "layer");
    int64_t number = 0;
    CGP_TRY(
        cgp__reader_take_index(r, layer, "layer", (int64_t)json_array_size(r->layers), &number));
    if (number < r->model->n_layers - 1)
        return cgp__reader_refuse(
            r, "layer: expected %d or more, that of the node before, got %" PRId64,
            r->model->n_layers - 1, number);
    CGP_TRY(cgp__reader_begin_layers(r, number));
    cgp__reader_set_place(r, "nodes", i);
    cgp_status status = read_entry(r, &e, false, (int64_t)i);
    if (status == CGP_OK) (void)build(r, &e);
    if (status == CGP_OK && r->model->status != CGP_OK) status = cgp__reader_refuse_stuck(r);
    free(e.bytes);
    return status;
}

cgp_status cgp__reader_add_loss(cgp__reader *r, size_t i) {
    entry e = {.object = json_array_get(r->losses, i)};
    const json_t *weight = json_object_get(e.object, "weight");
    const int before = r->model->n_nodes;
    cgp__reader_set_place(r, "losses", i);
    CGP_TRY(cgp__reader_check_keys(r, e.object, CGP__LOSS_KEYS));
    if (!json_is_number(weight)) return cgp__reader_unexpected(r, "weight", "a number", weight);
    const int64_t id = (int64_t)(json_array_size(r->nodes) + i);
    cgp_status status = read_entry(r, &e, true, id);
    if (status == CGP_OK &&
        cgp__builder_takes_weight(r->model, e.op->name, json_number_value(weight))) {
        (void)build(r, &e);
        cgp__builder_set_loss(r->model, before, json_number_value(weight));
    }
    if (status == CGP_OK && r->model->status != CGP_OK) status = cgp__reader_refuse_stuck(r);
    free(e.bytes);
    return status;
}
