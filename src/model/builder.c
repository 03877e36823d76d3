/* SPDX-License-Identifier: Apache-2.0 */
/* builder.c -- adds values, nodes and layers to a graph. The model keeps the first error (see
 * cgpipe/model.h). */
#include "model/builder.h"

#include "base/json.h"
#include "base/utf8.h"
#include "op/op.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

cgp_status cgp_model_create(cgp_model **out, const char *name) {
    CGP__NEED(out);
    CGP__NEED(name);
    if (!cgp__is_name(name))
        return cgp_fail(CGP_EINVAL,
                        "model: expected a name in UTF-8 without control characters, got "
                        "\"%s\"",
                        name);
    struct {
        cgp_model model;
        cgp__model_build build;
    } *both = cgp__calloc(1, sizeof *both);
    if (!both) return cgp__no_memory("model", sizeof *both);
    cgp_model *model = &both->model;
    model->build = &both->build;
    model->name = cgp__strdup(name);
    if (!model->name) {
        cgp_model_destroy(model);
        return cgp__no_memory("model", strlen(name));
    }
    *out = model;
    return CGP_OK;
}

void cgp__builder_forget_names(cgp_model *model) {
    for (int kind = 0; kind < CGP__NAMES; kind++)
        cgp__index_release(&model->build->names[kind]);
    cgp__index_release(&model->build->stash_names);
}

void cgp_model_destroy(cgp_model *model) {
    if (!model) return;
    for (int i = 0; i < model->n_params; i++)
        free(model->params[i].name);
    for (int i = 0; i < model->n_states; i++)
        free(model->states[i].name);
    free(model->states);
    for (int i = 0; i < model->n_layers; i++)
        free(model->layers[i]);
    for (int i = 0; i < model->n_inputs; i++)
        free(model->inputs[i]);
    for (int i = 0; i < model->build->n_attributes; i++)
        free(model->build->attributes[i]);
    free(model->build->attributes);
    for (int i = 0; i < model->build->n_ties; i++)
        free(model->build->ties[i].name);
    free(model->build->ties);
    cgp__stash_release(model);
    cgp__builder_forget_names(model);
    free(model->uses);
    free(model->params);
    free(model->layers);
    free(model->inputs);
    free(model->input_values);
    free(model->outputs);
    free(model->values);
    free(model->nodes);
    free(model->error);
    free(model->name);
    free(model);
}

void cgp__builder_stick(cgp_model *model, cgp_status status, const char *op, const char *format,
                        ...) {
    if (model->status != CGP_OK) return;
    char text[512];
    va_list args;
    va_start(args, format);
    cgp__vprint(text, sizeof text, format, args);
    va_end(args);
    model->status = status;
    if (model->n_layers > 0)
        model->error =
            cgp__format("layer %s, %s: %s", model->layers[model->n_layers - 1], op, text);
    else
        model->error = cgp__format("%s: %s", op, text);
}

void cgp__builder_stick_missing(cgp_model *model, const char *function, const char *argument) {
    if (cgp__builder_open(model, function))
        cgp__builder_stick(model, CGP_EINVAL, function, "%s: expected a pointer, got NULL",
                           argument);
}

bool cgp__builder_open(cgp_model *model, const char *op) {
    if (model->finished && model->status == CGP_OK)
        (void)cgp_fail(CGP_ESTATE, "%s: the model is finished and takes no more ops", op);
    return model->status == CGP_OK && !model->finished;
}

bool cgp__builder_takes_name(cgp_model *model, const char *op, const char *name) {
    if (!name || cgp__is_name(name)) return true;
    cgp__builder_stick(model, CGP_EINVAL, op,
                       "expected a name in UTF-8 without control characters, got \"%s\"", name);
    return false;
}

bool cgp__builder_takes_inits(cgp_model *model, const char *op, const cgp_init *inits, int n) {
    for (int i = 0; i < n; i++) {
        const int kind = (int)inits[i].kind;
        if (kind < 0 || kind > CGP_INIT_KAIMING_NORMAL)
            cgp__builder_stick(model, CGP_EINVAL, op,
                               "init: expected a cgp_init_kind, got number %d", kind);
        else if (!(inits[i].scale >= 0 && isfinite((float)inits[i].scale)))
            cgp__builder_stick(model, CGP_EINVAL, op,
                               "init: expected a scale of 0 or more that is finite as f32, got %g",
                               inits[i].scale);
        else
            continue;
        return false;
    }
    return true;
}

static bool grow_or_stick(cgp_model *model, void *array, int *capacity, int need, size_t bytes) {
    if (cgp__grow(array, capacity, need, bytes)) return true;
    cgp__builder_stick(model, CGP_ENOMEM, "model", "out of memory (%d entries of %zu bytes)", need,
                       bytes);
    return false;
}

static const char *name_of(const cgp_model *model, cgp__names kind, int i) {
    switch (kind) {
    case CGP__NAMES_INPUT:
        return model->inputs[i];
    case CGP__NAMES_PARAMETER:
        return model->params[i].name;
    case CGP__NAMES_STATE:
        return model->states[i].name;
    default:
        return model->build->ties[i].name;
    }
}

/* Return the index of a name within its kind; -1 if there is no such name. */
static int find_name(const cgp_model *model, cgp__names kind, const char *name) {
    const uint64_t hash = cgp__hash(name, strlen(name));
    uint32_t tried = 0;
    int i;
    while ((i = cgp__index_next(&model->build->names[kind], hash, &tried)) >= 0) {
        if (strcmp(name_of(model, kind, i), name) == 0) return i;
    }
    return -1;
}

static bool add_name(cgp_model *model, cgp__names kind, int i, const char *name) {
    if (cgp__index_add(&model->build->names[kind], cgp__hash(name, strlen(name)), i)) return true;
    cgp__builder_stick(model, CGP_ENOMEM, "model", "out of memory (a name)");
    return false;
}

static char *strdup_or_stick(cgp_model *model, const char *text) {
    char *copy = cgp__strdup(text);
    if (!copy)
        cgp__builder_stick(model, CGP_ENOMEM, "model", "out of memory (%zu bytes)", strlen(text));
    return copy;
}

void cgp_model_layer(cgp_model *model, const char *name) {
    CGP__NEED_OR(model, );
    CGP__NEED_STUCK(model, name, );
    if (!cgp__builder_open(model, "layer") || !cgp__builder_takes_name(model, "layer", name))
        return;
    const int n = model->n_layers;
    if (!grow_or_stick(model, &model->layers, &model->build->layers_capacity, n + 1,
                       sizeof *model->layers))
        return;
    model->layers[n] = strdup_or_stick(model, name);
    if (model->layers[n]) model->n_layers = n + 1;
}

static cgp_value new_value(cgp_model *model, const cgp_op_type *type, int node, int input) {
    const int n = model->n_values;
    if (!grow_or_stick(model, &model->values, &model->build->values_capacity, n + 1,
                       sizeof *model->values))
        return cgp__no_value;
    model->values[n] = (cgp__value_info){.type = *type, .node = node, .input = input, .output = -1};
    model->n_values = n + 1;
    return (cgp_value){n};
}

cgp_value cgp_model_input(cgp_model *model, const char *name, cgp_dtype dtype, int rank,
                          const int64_t *dims) {
    CGP__NEED_OR(model, cgp__no_value);
    CGP__NEED_STUCK(model, name, cgp__no_value);
    CGP__NEED_STUCK(model, dims, cgp__no_value);
    if (!cgp__builder_open(model, name) || !cgp__builder_takes_name(model, "input", name))
        return cgp__no_value;
    if (dtype != CGP_F32 && dtype != CGP_I32) {
        cgp__builder_stick(model, CGP_EINVAL, name, "an input is of f32 or i32, got %s",
                           dtype == CGP_BF16
                               ? "bf16 (a plan's precision says how devices keep values)"
                               : "no element type");
        return cgp__no_value;
    }
    if (rank < 1 || rank >= CGP_MAX_RANK) {
        cgp__builder_stick(model, CGP_EINVAL, name,
                           "an input has 1 to %d dimensions besides N, got %d", CGP_MAX_RANK - 1,
                           rank);
        return cgp__no_value;
    }
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        if (dims[i] < 1 || dims[i] > ((int64_t)1 << 40) / count) {
            cgp__builder_stick(model, CGP_EINVAL, name, "dimension %d is out of range: %lld", i,
                               (long long)dims[i]);
            return cgp__no_value;
        }
        count *= dims[i];
    }
    if (find_name(model, CGP__NAMES_INPUT, name) >= 0) {
        cgp__builder_stick(model, CGP_EINVAL, name, "there is an input of this name already");
        return cgp__no_value;
    }
    const int n = model->n_inputs;
    if (!grow_or_stick(model, &model->inputs, &model->build->inputs_capacity, n + 1,
                       sizeof *model->inputs) ||
        !grow_or_stick(model, &model->input_values, &model->build->input_values_capacity, n + 1,
                       sizeof *model->input_values))
        return cgp__no_value;
    const cgp_op_type type = {.dtype = dtype, .shape = cgp_shape_make(rank, dims)};
    model->inputs[n] = strdup_or_stick(model, name);
    if (!model->inputs[n]) return cgp__no_value;
    model->n_inputs = n + 1; /* the model frees the name */
    if (!add_name(model, CGP__NAMES_INPUT, n, name)) return cgp__no_value;
    const cgp_value value = new_value(model, &type, -1, n);
    model->input_values[n] = value.id;
    return value;
}

/* Use a tied parameter if it has the shape that the op needs. */
static bool tie_param(cgp_model *model, cgp__node *node, int k, const cgp_op_parameter *inferred,
                      cgp__tie *tie) {
    const cgp__parameter *param = &model->params[tie->parameter];
    char expected[128], got[128];
    node->params[k] = tie->parameter;
    if (!tie->used && cgp_shape_equal(&param->shape, &inferred->shape)) {
        tie->used = true;
        return true;
    }
    if (tie->used)
        cgp__builder_stick(model, CGP_EINVAL, node->use.op->name, "parameter %s exists already",
                           tie->name);
    else
        cgp__builder_stick(model, CGP_EINVAL, node->use.op->name,
                           "parameter %s: expected shape %s, got %s of %s, which it is tied to",
                           tie->name, cgp_shape_text(&inferred->shape, expected, sizeof expected),
                           cgp_shape_text(&param->shape, got, sizeof got), param->name);
    return false;
}

/* Make a parameter for the op named `op`. @param name Owned by the callee. */
static bool new_param(cgp_model *model, const char *op, const cgp_op_parameter *inferred,
                      char *name) {
    const int n = model->n_params;
    if (find_name(model, CGP__NAMES_PARAMETER, name) >= 0 ||
        find_name(model, CGP__NAMES_STATE, name) >= 0)
        cgp__builder_stick(model, CGP_EINVAL, op,
                           "parameter %s exists already (cgp_model_tie ties two)", name);
    else if (grow_or_stick(model, &model->params, &model->build->params_capacity, n + 1,
                           sizeof *model->params) &&
             add_name(model, CGP__NAMES_PARAMETER, n, name)) {
        model->params[n] = (cgp__parameter){.name = name,
                                            .shape = inferred->shape,
                                            .init = inferred->init,
                                            .decays = inferred->decays};
        model->n_params = n + 1;
        return true;
    }
    free(name);
    return false;
}

/* Find or make the parameters of a node. Their names are `<name>.<suffix>`, and unique in the
 * model. */
static bool add_params(cgp_model *model, cgp__node *node, const char *name) {
    for (int k = 0; k < node->use.shapes.n_parameters; k++) {
        const cgp_op_parameter *param = &node->use.shapes.parameters[k];
        char *full = cgp__format("%s.%s", name, param->suffix);
        if (!full) {
            cgp__builder_stick(model, CGP_ENOMEM, node->use.op->name, "out of memory (a name)");
            return false;
        }
        const int tie = find_name(model, CGP__NAMES_TIE, full);
        if (tie < 0) {
            if (!new_param(model, node->use.op->name, param, full)) return false;
            node->params[k] = model->n_params - 1;
            continue;
        }
        free(full);
        if (!tie_param(model, node, k, param, &model->build->ties[tie])) return false;
    }
    return true;
}

void cgp_model_tie(cgp_model *model, const char *name, const char *existing) {
    CGP__NEED_OR(model, );
    CGP__NEED_STUCK(model, name, );
    CGP__NEED_STUCK(model, existing, );
    if (!cgp__builder_open(model, "tie") || !cgp__builder_takes_name(model, "tie", name)) return;
    const int through = find_name(model, CGP__NAMES_TIE, existing);
    const int parameter = through >= 0 && model->build->ties[through].used
                              ? model->build->ties[through].parameter
                              : find_name(model, CGP__NAMES_PARAMETER, existing);
    if (parameter < 0) {
        cgp__builder_stick(model, CGP_EINVAL, "tie", "%s: there is no parameter of this name yet",
                           existing);
        return;
    }
    if (find_name(model, CGP__NAMES_PARAMETER, name) >= 0 ||
        find_name(model, CGP__NAMES_TIE, name) >= 0) {
        cgp__builder_stick(model, CGP_EINVAL, "tie",
                           "%s: exists already (tie before the op that makes it)", name);
        return;
    }
    const int n = model->build->n_ties;
    if (!grow_or_stick(model, &model->build->ties, &model->build->ties_capacity, n + 1,
                       sizeof *model->build->ties))
        return;
    model->build->ties[n] =
        (cgp__tie){.name = strdup_or_stick(model, name), .parameter = parameter};
    if (!model->build->ties[n].name) return;
    model->build->n_ties = n + 1; /* the model frees the name */
    (void)add_name(model, CGP__NAMES_TIE, n, name);
}

/* Use the parameters that a graph file lists for the node. */
static bool take_params(cgp_model *model, cgp__node *node, const cgp__given *given) {
    const cgp_op_shapes *shapes = &node->use.shapes;
    const char *op = node->use.op->name;
    char expected[128], got[128];
    if (given->n_params != shapes->n_parameters || given->n_states != shapes->n_state) {
        cgp__builder_stick(model, CGP_EINVAL, op,
                           "expected %d parameters and %d states, got %d and %d",
                           shapes->n_parameters, shapes->n_state, given->n_params, given->n_states);
        return false;
    }
    for (int k = 0; k < given->n_params; k++) {
        const cgp__parameter *param = &model->params[given->params[k]];
        node->params[k] = given->params[k];
        if (cgp_shape_equal(&param->shape, &shapes->parameters[k].shape)) continue;
        cgp__builder_stick(model, CGP_EINVAL, op, "parameter %s: expected shape %s, got %s",
                           param->name,
                           cgp_shape_text(&shapes->parameters[k].shape, expected, sizeof expected),
                           cgp_shape_text(&param->shape, got, sizeof got));
        return false;
    }
    return true;
}

bool cgp__builder_add_parameter(cgp_model *model, const char *name,
                                const cgp_op_parameter *parameter) {
    if (!cgp__builder_open(model, "parameter") ||
        !cgp__builder_takes_name(model, "parameter", name) ||
        !cgp__builder_takes_inits(model, name, &parameter->init, 1))
        return false;
    char *copy = strdup_or_stick(model, name);
    return copy && new_param(model, "parameter", parameter, copy);
}

void cgp__builder_add_unused(cgp_model *model, const cgp_op_type *type) {
    (void)new_value(model, type, -1, -1);
}

/* Add the states of a node to the model. Their names are `<name>.<suffix>` or, if `given` is set,
 * the names in it. */
static bool add_states(cgp_model *model, cgp__node *node, const char *name,
                       const cgp__given *given) {
    const cgp_op_shapes *shapes = &node->use.shapes;
    node->first_state = model->n_states;
    for (int k = 0; k < shapes->n_state; k++) {
        if (!grow_or_stick(model, &model->states, &model->build->states_capacity,
                           model->n_states + 1, sizeof *model->states))
            return false;
        cgp__state *state = &model->states[model->n_states];
        state->info = shapes->state[k];
        state->name = given ? cgp__strdup(given->states[k])
                            : cgp__format("%s.%s", name, shapes->state[k].suffix);
        if (!state->name) {
            cgp__builder_stick(model, CGP_ENOMEM, node->use.op->name, "out of memory (a name)");
            return false;
        }
        model->n_states++; /* the model frees the name */
        if (find_name(model, CGP__NAMES_PARAMETER, state->name) >= 0 ||
            find_name(model, CGP__NAMES_TIE, state->name) >= 0 ||
            find_name(model, CGP__NAMES_STATE, state->name) >= 0) {
            cgp__builder_stick(model, CGP_EINVAL, node->use.op->name, "state %s exists already",
                               state->name);
            return false;
        }
        if (!add_name(model, CGP__NAMES_STATE, model->n_states - 1, state->name)) return false;
    }
    return true;
}

/* Set the inputs of a node and their types. Return false if an input is not a value of this
 * model. */
static bool take_inputs(cgp_model *model, cgp__node *node, const cgp_value *x) {
    for (int k = 0; k < node->n_inputs; k++) {
        if (x[k].id < 0 || x[k].id >= model->n_values) {
            cgp__builder_stick(model, CGP_EINVAL, node->use.op->name,
                               "input %d is not a value of this model", k);
            return false;
        }
        node->inputs[k] = x[k].id;
        node->use.inputs[k] = model->values[x[k].id].type;
    }
    return true;
}

/* Give a node its own copy of its attributes. */
static bool take_attributes(cgp_model *model, cgp__node *node, const void *attributes,
                            size_t bytes) {
    if (bytes == 0) return true;
    if (!grow_or_stick(model, &model->build->attributes, &model->build->attributes_capacity,
                       model->build->n_attributes + 1, sizeof *model->build->attributes))
        return false;
    void *copy = cgp__calloc(1, bytes);
    if (!copy) {
        cgp__builder_stick(model, CGP_ENOMEM, node->use.op->name,
                           "out of memory (%zu bytes of attributes)", bytes);
        return false;
    }
    node->use.attributes = memcpy(copy, attributes, bytes);
    model->build->attributes[model->build->n_attributes++] = copy;
    return true;
}

/* Apply the shape rule of a node. Return true if its results are valid for the model. */
static bool infer(cgp_model *model, cgp__node *node, const char *name) {
    const char *op = node->use.op->name;
    const cgp_op_shapes *shapes = &node->use.shapes;
    const cgp_status status = cgp__op_infer(node->kind, &node->use, &node->sizes);
    if (status != CGP_OK) {
        cgp__builder_stick(model, status, op, "%s", cgp_message());
        return false;
    }
    if (!name && shapes->n_parameters + shapes->n_state > 0) {
        cgp__builder_stick(model, CGP_EINVAL, op,
                           "has parameters or state, expected a name for them");
        return false;
    }
    for (int k = 0; k < shapes->n_parameters; k++) {
        if (!cgp__builder_takes_inits(model, op, &shapes->parameters[k].init, 1)) return false;
    }
    return cgp__builder_takes_name(model, op, name);
}

cgp_value cgp__builder_add(cgp_model *model, const cgp_value *x, const char *name,
                           const cgp__attributes *attributes) {
    const cgp_op *op = &cgp__op_find(attributes->kind)->op;
    const int n = attributes->n_inputs ? attributes->n_inputs : op->n_inputs;
    return cgp__builder_add_op(model, attributes->kind, op, x, n, name, attributes,
                               sizeof *attributes);
}

/* Add a node. `given` has its parameters and states; NULL: parameters and states are named after
 * `name`. */
static cgp_value add_node(cgp_model *model, cgp_op_kind kind, const cgp_op *op, const cgp_value *x,
                          int n, const char *name, const void *attributes, size_t attribute_bytes,
                          const cgp__given *given) {
    if (!cgp__builder_open(model, op->name)) return cgp__no_value;
    if (model->n_layers == 0) {
        cgp__builder_stick(model, CGP_EINVAL, op->name,
                           "is outside of any layer (call cgp_model_layer first)");
        return cgp__no_value;
    }
    cgp__node node = {.use.op = op,
                      .kind = kind,
                      .layer = model->n_layers - 1,
                      .id = given ? given->id : (uint32_t)model->n_nodes,
                      .n_inputs = n,
                      .output = -1};
    if (!take_inputs(model, &node, x) ||
        !take_attributes(model, &node, attributes, attribute_bytes) || !infer(model, &node, name) ||
        !grow_or_stick(model, &model->nodes, &model->build->nodes_capacity, model->n_nodes + 1,
                       sizeof *model->nodes) ||
        !(given ? take_params(model, &node, given) : add_params(model, &node, name)) ||
        !add_states(model, &node, name, given))
        return cgp__no_value;
    cgp_value y = cgp__no_value;
    if (!op->is_loss) {
        y = new_value(model, &node.use.shapes.output, model->n_nodes, -1);
        node.output = y.id;
    }
    model->nodes[model->n_nodes++] = node;
    return y;
}

cgp_value cgp__builder_add_op(cgp_model *model, cgp_op_kind kind, const cgp_op *op,
                              const cgp_value *x, int n, const char *name, const void *attributes,
                              size_t attribute_bytes) {
    return add_node(model, kind, op, x, n, name, attributes, attribute_bytes, NULL);
}

cgp_value cgp__builder_add_given(cgp_model *model, cgp_op_kind kind, const cgp_op *op,
                                 const cgp_value *x, int n, const void *attributes,
                                 size_t attribute_bytes, const cgp__given *given) {
    return add_node(model, kind, op, x, n, "", attributes, attribute_bytes, given);
}

bool cgp__builder_takes_weight(cgp_model *model, const char *op, double weight) {
    if (!cgp__builder_open(model, op)) return false;
    if (isfinite(weight) && weight > 0) return true;
    cgp__builder_stick(model, CGP_EINVAL, op, "expects a weight above 0, got %g", weight);
    return false;
}

void cgp__builder_set_loss(cgp_model *model, int before, double weight) {
    if (model->n_nodes == before) return;
    model->nodes[before].loss_weight = weight;
    model->n_losses++;
}

void cgp_model_input_gradient(cgp_model *model, cgp_value input) {
    CGP__NEED_OR(model, );
    if (!cgp__builder_open(model, "input gradient")) return;
    if (input.id < 0 || input.id >= model->n_values || model->values[input.id].input < 0)
        cgp__builder_stick(model, CGP_EINVAL, "input gradient", "is not of an input");
    else if (model->values[input.id].type.dtype != CGP_F32)
        cgp__builder_stick(model, CGP_EINVAL, "input gradient",
                           "input %s: expected f32, got %s (integers have no gradient)",
                           model->inputs[model->values[input.id].input],
                           cgp_dtype_name(model->values[input.id].type.dtype));
    else
        model->values[input.id].wants_grad = true;
}

void cgp_model_output(cgp_model *model, cgp_value value) {
    CGP__NEED_OR(model, );
    if (!cgp__builder_open(model, "output")) return;
    if (value.id < 0 || value.id >= model->n_values)
        cgp__builder_stick(model, CGP_EINVAL, "output", "is not a value of this model");
    else if (model->values[value.id].node < 0)
        cgp__builder_stick(model, CGP_EINVAL, "output", "is an input of the model, not a result");
    else if (model->values[value.id].output >= 0)
        cgp__builder_stick(model, CGP_EINVAL, "output", "the value is an output already");
    else if (grow_or_stick(model, &model->outputs, &model->build->outputs_capacity,
                           model->n_outputs + 1, sizeof *model->outputs)) {
        model->values[value.id].output = model->n_outputs;
        model->outputs[model->n_outputs++] = value.id;
    }
}
