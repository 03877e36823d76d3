/* finish.c -- closes a graph: leaves out what nothing needs, moves the loss to the end, marks
 * what carries a gradient. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

/* wanted[node], from a value backwards; nodes are in order, so one pass from the end is enough.
 */
static void mark_needed(const cgp_model *model, bool *wanted) {
    for (int i = model->n_nodes - 1; i >= 0; i--) {
        const cgp__node *node = &model->nodes[i];
        for (int k = 0; wanted[i] && k < node->op->n_inputs; k++) {
            const int maker = model->values[node->inputs[k]].node;
            if (maker >= 0) wanted[maker] = true;
        }
    }
}

/* The loss runs last, whatever was built after it. */
static void move_loss_to_end(cgp_model *model) {
    if (model->loss < 0) return;
    const cgp__node loss = model->nodes[model->loss];
    for (int i = model->loss; i + 1 < model->n_nodes; i++) {
        model->nodes[i] = model->nodes[i + 1];
        model->values[model->nodes[i].output].node = i;
        for (int k = 0; k < model->nodes[i].n_params; k++)
            model->params[model->nodes[i].params[k]].node = i;
    }
    model->loss = model->n_nodes - 1;
    model->nodes[model->loss] = loss;
    model->nodes[model->loss].layer = model->n_layers - 1;
}

/* Keep wanted nodes and their parameters; renumber both. Values keep their numbers. */
static void compact(cgp_model *model, const bool *wanted) {
    int nodes = 0, params = 0;
    for (int i = 0; i < model->n_params; i++) {
        cgp__parameter *param = &model->params[i];
        if (!wanted[param->node]) {
            free(param->name);
            continue;
        }
        cgp__node *node = &model->nodes[param->node];
        for (int k = 0; k < node->n_params; k++) {
            if (node->params[k] == i) node->params[k] = params;
        }
        model->params[params++] = *param;
    }
    model->n_params = params;
    for (int i = 0; i < model->n_nodes; i++) {
        if (!wanted[i]) continue;
        model->nodes[nodes] = model->nodes[i];
        if (model->nodes[nodes].output >= 0)
            model->values[model->nodes[nodes].output].node = nodes;
        for (int k = 0; k < model->nodes[nodes].n_params; k++)
            model->params[model->nodes[nodes].params[k]].node = nodes;
        if (model->loss == i) model->loss = nodes;
        nodes++;
    }
    model->n_nodes = nodes;
}

static void mark_gradients(cgp_model *model) {
    for (int i = 0; i < model->n_nodes; i++) {
        cgp__node *node = &model->nodes[i];
        bool depends = node->n_params > 0; /* on a parameter */
        for (int k = 0; k < node->op->n_inputs; k++)
            depends = depends || model->values[node->inputs[k]].has_grad;
        if (node->output >= 0)
            model->values[node->output].has_grad =
                depends && node->on_loss && model->values[node->output].type.dtype == CGP_F32;
    }
}

/* Mark the ancestors of a node; wanted[] is scratch of n_nodes. */
static void mark_on_loss(cgp_model *model, bool *wanted) {
    memset(wanted, 0, (size_t)model->n_nodes);
    if (model->loss >= 0) wanted[model->loss] = true;
    mark_needed(model, wanted);
    for (int i = 0; i < model->n_nodes; i++)
        model->nodes[i].on_loss = wanted[i];
}

static cgp_status check(const cgp_model *model) {
    if (model->n_layers == 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no layer", model->name);
    if (model->loss < 0 && model->output < 0)
        return cgp_fail(CGP_EINVAL, "model %s: has neither loss nor output", model->name);
    return CGP_OK;
}

cgp_status cgp_model_finish(cgp_model *model) {
    if (model->finished && model->status == CGP_OK)
        return cgp_fail(CGP_ESTATE, "model %s: is finished already", model->name);
    model->finished = true;
    if (model->status != CGP_OK)
        return cgp_fail(model->status, "%s",
                        model->error ? model->error : "model: out of memory");
    model->status = check(model);
    if (model->status != CGP_OK) {
        model->error = cgp__strdup(cgp_message());
        return model->status;
    }
    bool *wanted = cgp__calloc((size_t)model->n_nodes, sizeof *wanted);
    if (!wanted) {
        model->status = cgp__no_memory("model", (size_t)model->n_nodes);
        return model->status;
    }
    move_loss_to_end(model);
    if (model->loss >= 0) wanted[model->loss] = true;
    if (model->output >= 0) wanted[model->values[model->output].node] = true;
    mark_needed(model, wanted);
    compact(model, wanted);
    mark_on_loss(model, wanted);
    mark_gradients(model);
    free(wanted);
    return CGP_OK;
}

bool cgp__node_has_direction(const cgp_model *model, const cgp__node *node,
                             cgp__direction direction) {
    if (direction == CGP__FORWARD) return true;
    if (!node->on_loss) return false;
    if (direction == CGP__BACKWARD_WEIGHT)
        return node->n_params > 0 && !node->op->weight_in_input;
    if (node->op->weight_in_input && node->n_params > 0) return true;
    for (int k = 0; node->op->dx != CGP__DX_NONE && k < node->op->n_inputs; k++) {
        if (model->values[node->inputs[k]].has_grad) return true;
    }
    return false;
}

int64_t cgp__type_bytes(const cgp__type *type, int64_t n) {
    return n * cgp_shape_count(&type->shape) * (int64_t)cgp_dtype_bytes(type->dtype);
}
