/* SPDX-License-Identifier: Apache-2.0 */
/* graph_write.c -- writes a finished model as JSON, one entry per line, so that two files can be
 * compared. */
#include "model/graph.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct writer {
    const cgp_model *model;
    char *text;
    int used, capacity;
    bool listed; /* the current list already has an entry */
} writer;

static cgp_status short_of_memory(const writer *w) {
    return cgp_fail(CGP_ENOMEM, "model %s: out of memory for %d bytes of JSON", w->model->name,
                    w->used);
}

static cgp_status put(writer *w, const char *text) {
    const size_t bytes = strlen(text);
    if (bytes > (size_t)(INT32_MAX - 1 - w->used) ||
        !cgp__grow(&w->text, &w->capacity, w->used + (int)bytes + 1, 1))
        return short_of_memory(w);
    memcpy(w->text + w->used, text, bytes + 1);
    w->used += (int)bytes;
    return CGP_OK;
}

/* Return the number of digits, 15 to 17, with which all numbers of an entry can be read back
 * exactly. Entries are lists and objects of at most three levels. */
static int digits_of(json_t *value) {
    const char *key;
    json_t *item;
    size_t i;
    int digits = 15;
    char text[40];
    if (json_is_real(value)) {
        const double real = json_real_value(value);
        for (; digits < 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, real);
            if (strtod(text, NULL) == real) break;
        }
        return digits;
    }
    json_array_foreach(value, i, item) digits = cgp__max(digits, digits_of(item));
    json_object_foreach(value, key, item) {
        (void)key;
        digits = cgp__max(digits, digits_of(item));
    }
    return digits;
}

/* Write a value. @param value Owned by the callee. NULL: the caller ran out of memory. */
static cgp_status put_json(writer *w, json_t *value) {
    const size_t style = JSON_COMPACT | JSON_ENCODE_ANY;
    char *text =
        value ? cgp__json_text(value, style | JSON_REAL_PRECISION((size_t)digits_of(value))) : NULL;
    const cgp_status status = text ? put(w, text) : short_of_memory(w);
    free(text);
    json_decref(value);
    return status;
}

static cgp_status open_list(writer *w, const char *name) {
    w->listed = false;
    CGP_TRY(put(w, ",\n  \""));
    CGP_TRY(put(w, name));
    return put(w, "\": [");
}

static cgp_status put_entry(writer *w, json_t *value) {
    const cgp_status status = put(w, w->listed ? ",\n    " : "\n    ");
    w->listed = true;
    if (status == CGP_OK) return put_json(w, value);
    json_decref(value);
    return status;
}

static cgp_status close_list(writer *w) {
    return put(w, w->listed ? "\n  ]" : "]");
}

/* --- values, layers, parameters --- */

/* Return the JSON list of a shape. This function and the functions below return NULL if memory is
 * short. */
static json_t *shape_json(const cgp_shape *shape) {
    json_t *list = json_array();
    for (int i = 0; i < shape->rank; i++) {
        if (json_array_append_new(list, json_integer(shape->dims[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *input_json(const cgp_model *model, int k) {
    const int value = model->input_values[k];
    if (model->values[value].wants_grad)
        return json_pack("{s:s, s:i, s:b}", "name", model->inputs[k], "value", value, "gradient",
                         1);
    return json_pack("{s:s, s:i}", "name", model->inputs[k], "value", value);
}

static cgp_status put_values(writer *w) {
    const cgp_model *model = w->model;
    CGP_TRY(open_list(w, "values"));
    for (int v = 0; v < model->n_values; v++) {
        const cgp_op_type *type = &model->values[v].type;
        CGP_TRY(put_entry(w, json_pack("{s:s, s:o}", "dtype", cgp_dtype_name(type->dtype), "shape",
                                       shape_json(&type->shape))));
    }
    CGP_TRY(close_list(w));
    CGP_TRY(open_list(w, "inputs"));
    for (int k = 0; k < model->n_inputs; k++)
        CGP_TRY(put_entry(w, input_json(model, k)));
    return close_list(w);
}

static cgp_status put_layers(writer *w) {
    CGP_TRY(open_list(w, "layers"));
    for (int l = 0; l < w->model->n_layers; l++)
        CGP_TRY(put_entry(w, json_string(w->model->layers[l])));
    return close_list(w);
}

/* Only frozen parameters have the key `frozen`. */
static json_t *parameter_json(const cgp__parameter *param, const char *init) {
    json_t *object = json_pack("{s:s, s:o, s:s, s:f, s:b}", "name", param->name, "shape",
                               shape_json(&param->shape), "init", init, "scale", param->init.scale,
                               "decays", (int)param->decays);
    if (!object || !param->frozen || json_object_set_new(object, "frozen", json_true()) == 0)
        return object;
    json_decref(object);
    return NULL;
}

static cgp_status put_parameters(writer *w) {
    CGP_TRY(open_list(w, "parameters"));
    for (int p = 0; p < w->model->n_params; p++) {
        const cgp__parameter *param = &w->model->params[p];
        const char *init = cgp__graph_init_name(param->init.kind);
        if (!init)
            return cgp_fail(CGP_EINVAL, "parameter %s: graph files have no initialization %d",
                            param->name, (int)param->init.kind);
        CGP_TRY(put_entry(w, parameter_json(param, init)));
    }
    return close_list(w);
}

/* --- nodes --- */

static json_t *indices_json(const int *indices, int n) {
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        if (json_array_append_new(list, json_integer(indices[i])) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *states_json(const cgp_model *model, const cgp__node *node) {
    json_t *list = json_array();
    for (int k = 0; k < node->use.shapes.n_state; k++) {
        const char *name = model->states[node->first_state + k].name;
        if (json_array_append_new(list, json_string(name)) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static json_t *bytes_json(const unsigned char *bytes, size_t n) {
    char *hex = cgp__calloc(2 * n + 1, 1);
    for (size_t i = 0; hex && i < n; i++)
        snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
    json_t *text = hex ? json_string(hex) : NULL;
    free(hex);
    return text;
}

static cgp_status add_attributes(json_t *object, const cgp__node *node, bool *good) {
    json_t *attributes = NULL;
    if (node->kind == CGP_OP_CUSTOM) {
        const size_t n = node->use.op->attribute_bytes;
        if (n > 0)
            *good = json_object_set_new(object, "bytes", bytes_json(node->use.attributes, n)) == 0;
        return CGP_OK;
    }
    CGP_TRY(cgp__graph_attributes_write(&attributes, node->use.attributes));
    if (json_object_size(attributes) > 0)
        *good = json_object_set_new(object, "attributes", attributes) == 0;
    else
        json_decref(attributes);
    return CGP_OK;
}

/* Make the entry of a node. Write the node's id only if it differs from `id`, the id that readers
 * assume if the file has none. */
static cgp_status node_json(json_t **out, const cgp_model *model, const cgp__node *node,
                            uint32_t id) {
    const bool custom = node->kind == CGP_OP_CUSTOM;
    const cgp_op_shapes *shapes = &node->use.shapes;
    json_t *object = json_object();
    bool good = object && json_object_set_new(object, custom ? "custom" : "op",
                                              json_string(custom ? node->use.op->name
                                                                 : cgp_op_name(node->kind))) == 0;
    const bool loss = node->output < 0;
    if (good && !loss) good = json_object_set_new(object, "layer", json_integer(node->layer)) == 0;
    if (good)
        good =
            json_object_set_new(object, "inputs", indices_json(node->inputs, node->n_inputs)) == 0;
    if (good)
        good = json_object_set_new(object, loss ? "weight" : "output",
                                   loss ? json_real(node->loss_weight)
                                        : json_integer(node->output)) == 0;
    if (good && shapes->n_parameters > 0)
        good = json_object_set_new(object, "parameters",
                                   indices_json(node->params, shapes->n_parameters)) == 0;
    if (good && shapes->n_state > 0)
        good = json_object_set_new(object, "states", states_json(model, node)) == 0;
    const cgp_status status = good ? add_attributes(object, node, &good) : CGP_OK;
    if (good && node->id != id)
        good = json_object_set_new(object, "id", json_integer(node->id)) == 0;
    if (status == CGP_OK && good) {
        *out = object;
        return CGP_OK;
    }
    json_decref(object);
    return status != CGP_OK ? status : cgp__no_memory("graph", sizeof *node);
}

static cgp_status put_nodes(writer *w, const char *list, int first, int end) {
    CGP_TRY(open_list(w, list));
    for (int i = first; i < end; i++) {
        json_t *entry = NULL;
        CGP_TRY(node_json(&entry, w->model, &w->model->nodes[i], (uint32_t)i));
        CGP_TRY(put_entry(w, entry));
    }
    return close_list(w);
}

/* --- the model --- */

/* Check that custom ops have different names, because a file has only the name of a custom op. */
static cgp_status check_names(const cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp_op *op = model->nodes[i].use.op;
        if (model->nodes[i].kind != CGP_OP_CUSTOM) continue;
        for (int k = 0; k < i; k++) {
            const cgp__node *other = &model->nodes[k];
            if (other->kind == CGP_OP_CUSTOM && other->use.op != op &&
                strcmp(other->use.op->name, op->name) == 0)
                return cgp_fail(CGP_EINVAL,
                                "model %s: two custom ops are named %s (give one another name)",
                                model->name, op->name);
        }
    }
    return CGP_OK;
}

static cgp_status write_all(writer *w) {
    const cgp_model *model = w->model;
    CGP_TRY(put(w, "{\n  \"format\": \"" CGP__GRAPH_FORMAT "\",\n  \"version\": 2,\n  \"name\": "));
    CGP_TRY(put_json(w, json_string(model->name)));
    CGP_TRY(put_values(w));
    CGP_TRY(put_layers(w));
    CGP_TRY(put_parameters(w));
    const int losses = cgp__model_loss(model, 0); /* losses come after all other nodes */
    CGP_TRY(put_nodes(w, "nodes", 0, losses));
    CGP_TRY(put_nodes(w, "losses", losses, model->n_nodes));
    CGP_TRY(put(w, ",\n  \"outputs\": "));
    CGP_TRY(put_json(w, indices_json(model->outputs, model->n_outputs)));
    return put(w, "\n}\n");
}

cgp_status cgp_model_to_json(char **out, const cgp_model *model) {
    CGP__NEED(out);
    CGP__NEED(model);
    if (!model->finished || model->status != CGP_OK)
        return cgp_fail(CGP_ESTATE, "model %s: is not finished (call cgp_model_finish)",
                        model->name);
    writer w = {.model = model};
    cgp_status status = check_names(model);
    if (status == CGP_OK) status = write_all(&w);
    if (status == CGP_OK)
        *out = w.text;
    else
        free(w.text);
    return status;
}
