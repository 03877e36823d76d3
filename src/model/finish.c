/* SPDX-License-Identifier: Apache-2.0 */
/* finish.c -- closes a graph: removes unneeded nodes, moves the losses to the end, lists the uses
 * of each parameter, and marks values with a gradient. */
#include "model/backward.h"
#include "model/builder.h"
#include "op/op.h"

#include <stdlib.h>
#include <string.h>

/* Mark the ancestors of needed nodes. Nodes are in order, so one pass from the end is enough. If
 * `gradient` is set, follow only inputs to which the node passes a gradient. */
static void mark_needed(const cgp_model *model, bool *needed, bool gradient) {
    for (int i = model->n_nodes - 1; i >= 0; i--) {
        const cgp__node *node = &model->nodes[i];
        for (int k = 0; needed[i] && k < node->n_inputs; k++) {
            if (gradient && !cgp__node_passes(node, k)) continue;
            const cgp__value_info *value = &model->values[node->inputs[k]];
            if (value->node >= 0 && (!gradient || value->type.dtype == CGP_F32))
                needed[value->node] = true;
        }
    }
}

/* Move the losses to the end, because they run last. `moved`: [nodes] scratch. */
static void move_losses_to_end(cgp_model *model, cgp__node *moved) {
    int n = 0;
    for (int last = 0; last < 2; last++) {
        for (int i = 0; i < model->n_nodes; i++) {
            if (model->nodes[i].use.op->is_loss == (last == 1)) moved[n++] = model->nodes[i];
        }
    }
    memcpy(model->nodes, moved, (size_t)n * sizeof *moved);
    for (int i = 0; i < n; i++) {
        if (moved[i].use.op->is_loss)
            model->nodes[i].layer = model->n_layers - 1;
        else
            model->values[moved[i].output].node = i;
    }
}

/* Keep the needed nodes and renumber them. Values keep their numbers; values of removed nodes have
 * no producer. */
static void keep_nodes(cgp_model *model, const bool *needed) {
    int nodes = 0;
    for (int i = 0; i < model->n_nodes; i++) {
        if (!needed[i]) {
            model->values[model->nodes[i].output].node = -1; /* the node is not a loss, because all
                                                              * losses are needed */
            continue;
        }
        model->nodes[nodes] = model->nodes[i];
        if (model->nodes[nodes].output >= 0) model->values[model->nodes[nodes].output].node = nodes;
        nodes++;
    }
    model->n_nodes = nodes;
}

/* Count the uses of each parameter, and remove the parameters without uses. `number`: [params]
 * scratch. */
static void keep_parameters(cgp_model *model, int *number) {
    for (int i = 0; i < model->n_nodes; i++) {
        for (int k = 0; k < model->nodes[i].use.shapes.n_parameters; k++)
            model->params[model->nodes[i].params[k]].n_uses++;
    }
    int params = 0;
    for (int p = 0; p < model->n_params; p++) {
        number[p] = params;
        if (model->params[p].n_uses > 0)
            model->params[params++] = model->params[p];
        else
            free(model->params[p].name);
    }
    model->n_params = params;
    for (int i = 0; i < model->n_nodes; i++) {
        for (int k = 0; k < model->nodes[i].use.shapes.n_parameters; k++)
            model->nodes[i].params[k] = number[model->nodes[i].params[k]];
    }
}

/* Keep the states of the remaining nodes. */
static void keep_states(cgp_model *model) {
    int states = 0, next = 0;
    for (int i = 0; i < model->n_nodes; i++) {
        cgp__node *node = &model->nodes[i];
        for (; node->use.shapes.n_state > 0 && next < node->first_state; next++)
            free(model->states[next].name);
        for (int k = 0; k < node->use.shapes.n_state; k++, next++) {
            model->states[states + k] = model->states[next];
            model->states[states + k].node = i;
            model->states[states + k].k = k;
        }
        node->first_state = states;
        states += node->use.shapes.n_state;
    }
    for (; next < model->n_states; next++)
        free(model->states[next].name);
    model->n_states = states;
}

/* List the uses by parameter, in order of the nodes. */
static bool list_uses(cgp_model *model) {
    for (int p = 0; p < model->n_params; p++) {
        model->params[p].first_use = model->n_uses;
        model->n_uses += model->params[p].n_uses;
        model->params[p].n_uses = 0;
    }
    model->uses = cgp__calloc((size_t)model->n_uses, sizeof *model->uses);
    for (int i = 0; model->uses && i < model->n_nodes; i++) {
        for (int k = 0; k < model->nodes[i].use.shapes.n_parameters; k++) {
            const int p = model->nodes[i].params[k];
            cgp__parameter *param = &model->params[p];
            model->nodes[i].uses[k] = param->first_use + param->n_uses;
            model->uses[param->first_use + param->n_uses++] = (cgp__use){p, i, k};
        }
    }
    return model->uses != NULL;
}

/* Set has_grad of an input if the caller wants its gradient and a node computes a part of the
 * gradient. Without such a node the gradient is zero. */
static void mark_inputs(cgp_model *model) {
    for (int k = 0; k < model->n_inputs; k++)
        model->values[model->input_values[k]].has_grad = false;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp__node *node = &model->nodes[i];
        for (int k = 0; node->requires_grad && k < node->n_inputs; k++) {
            cgp__value_info *value = &model->values[node->inputs[k]];
            value->has_grad |= value->wants_grad && cgp__node_passes(node, k);
        }
    }
}

static void mark_gradients(cgp_model *model) {
    mark_inputs(model);
    for (int i = 0; i < model->n_nodes; i++) {
        cgp__node *node = &model->nodes[i];
        /* true: the node's value depends on a trainable parameter, or on an input with a
         * gradient */
        bool depends = cgp__node_trainable(model, node) != 0;
        for (int k = 0; k < node->n_inputs; k++)
            depends =
                depends || (cgp__node_passes(node, k) && model->values[node->inputs[k]].has_grad);
        if (node->output >= 0)
            model->values[node->output].has_grad =
                depends && node->requires_grad && model->values[node->output].type.dtype == CGP_F32;
    }
}

/* Mark the losses and their ancestors. In a model without losses, mark the producers of the outputs
 * and their ancestors. `needed`: [nodes] scratch. */
static void mark_requires_grad(cgp_model *model, bool *needed) {
    memset(needed, 0, (size_t)model->n_nodes);
    for (int i = cgp__model_loss(model, 0); i < model->n_nodes; i++)
        needed[i] = true;
    for (int k = 0; model->n_losses == 0 && k < model->n_outputs; k++)
        needed[cgp__model_output_node(model, k)] = true;
    mark_needed(model, needed, true);
    for (int p = 0; p < model->n_params; p++)
        model->params[p].requires_grad = false;
    for (int i = 0; i < model->n_nodes; i++) {
        cgp__node *node = &model->nodes[i];
        node->requires_grad = needed[i];
        for (int k = 0; k < node->use.shapes.n_parameters; k++) {
            cgp__parameter *param = &model->params[node->params[k]];
            param->requires_grad |= needed[i] && !param->frozen;
        }
    }
}

void cgp__model_mark(cgp_model *model, bool *needed) {
    mark_requires_grad(model, needed);
    mark_gradients(model);
}

static cgp_status check(const cgp_model *model) {
    if (model->n_layers == 0) return cgp_fail(CGP_EINVAL, "model %s: has no layer", model->name);
    if (model->n_losses == 0 && model->n_outputs == 0)
        return cgp_fail(CGP_EINVAL, "model %s: has neither loss nor output", model->name);
    for (int i = 0; i < model->build->n_ties; i++) {
        if (!model->build->ties[i].used)
            return cgp_fail(CGP_EINVAL,
                            "tie %s: no op made a parameter of this name (it is tied to %s; "
                            "tie before the op)",
                            model->build->ties[i].name,
                            model->params[model->build->ties[i].parameter].name);
    }
    return cgp__stash_check(model);
}

/* Refuse weights that the graph computes. The divisor of the loss is the sum of the weights, and
 * this sum is computed from the caller's memory. */
static cgp_status check_weights(const cgp_model *model, const cgp__node *loss) {
    const bool divides = loss->kind != CGP_OP_CUSTOM && cgp__op_find(loss->kind)->sum_weights;
    if (!divides || loss->n_inputs < 3 || model->values[loss->inputs[2]].input >= 0) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected weights that are an input, got computed ones",
                    loss->use.op->name);
}

/* Refuse a request for the gradient of a target, because this gradient would silently be zero. */
static cgp_status check_targets(const cgp_model *model) {
    for (int i = cgp__model_loss(model, 0); i < model->n_nodes; i++) {
        const cgp__node *loss = &model->nodes[i];
        CGP_TRY(check_weights(model, loss));
        for (int k = 1; k < loss->n_inputs; k++) {
            const cgp__value_info *target = &model->values[loss->inputs[k]];
            if (target->wants_grad && !cgp__node_passes(loss, k))
                return cgp_fail(CGP_EINVAL,
                                "input %s: expected no gradient of a target of %s, which takes "
                                "it as a constant",
                                model->inputs[target->input], loss->use.op->name);
        }
    }
    return CGP_OK;
}

/* Remove, renumber and mark the nodes of a model without errors. */
static cgp_status close(cgp_model *model, bool *needed, cgp__node *moved, int *number) {
    move_losses_to_end(model, moved);
    for (int i = cgp__model_loss(model, 0); i < model->n_nodes; i++)
        needed[i] = true;
    for (int k = 0; k < model->n_outputs; k++)
        needed[cgp__model_output_node(model, k)] = true;
    mark_needed(model, needed, false);
    keep_nodes(model, needed);
    keep_parameters(model, number);
    keep_states(model);
    if (!list_uses(model)) return cgp__no_memory("model", sizeof *model->uses);
    cgp__model_mark(model, needed);
    return check_targets(model);
}

cgp_status cgp_model_finish(cgp_model *model) {
    CGP__NEED(model);
    if (model->finished && model->status == CGP_OK)
        return cgp_fail(CGP_ESTATE, "model %s: is finished already", model->name);
    model->finished = true;
    cgp__builder_forget_names(model);
    if (model->status != CGP_OK)
        return cgp_fail(model->status, "%s", model->error ? model->error : "model: out of memory");
    model->status = check(model);
    if (model->status != CGP_OK) {
        model->error = cgp__strdup(cgp_message());
        return model->status;
    }
    bool *needed = cgp__calloc((size_t)model->n_nodes, sizeof *needed);
    cgp__node *moved = cgp__calloc((size_t)model->n_nodes, sizeof *moved);
    int *number = cgp__calloc((size_t)model->n_params, sizeof *number);
    if (needed && moved && number)
        model->status = close(model, needed, moved, number);
    else
        model->status = cgp__no_memory("model", (size_t)model->n_nodes * sizeof *moved);
    free(number);
    free(moved);
    free(needed);
    return model->status;
}

int64_t cgp__type_bytes(const cgp_op_type *type, int64_t n) {
    return (type->whole ? 1 : n) * cgp_shape_count(&type->shape) *
           (int64_t)cgp_dtype_bytes(type->dtype);
}
