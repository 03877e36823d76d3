/* SPDX-License-Identifier: Apache-2.0 */
/* query.c -- implements the public getters of a finished model. */
#include "model/model.h"

const char *cgp_model_name(const cgp_model *model) {
    CGP__NEED_OR(model, NULL);
    return model->name;
}

int cgp_model_layers(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_layers;
}

const char *cgp_model_layer_name(const cgp_model *model, int layer) {
    CGP__NEED_OR(model, NULL);
    return layer >= 0 && layer < model->n_layers ? model->layers[layer] : NULL;
}

int cgp_model_parameters(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_params;
}

const char *cgp_model_parameter_name(const cgp_model *model, int parameter) {
    CGP__NEED_OR(model, NULL);
    return parameter >= 0 && parameter < model->n_params ? model->params[parameter].name : NULL;
}

const cgp_shape *cgp_model_parameter_shape(const cgp_model *model, int parameter) {
    CGP__NEED_OR(model, NULL);
    return parameter >= 0 && parameter < model->n_params ? &model->params[parameter].shape : NULL;
}

int64_t cgp_model_parameter_count(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    int64_t count = 0;
    for (int i = 0; i < model->n_params; i++)
        count += cgp_shape_count(&model->params[i].shape);
    return count;
}

int cgp_model_states(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_states;
}

const char *cgp_model_state_name(const cgp_model *model, int state) {
    CGP__NEED_OR(model, NULL);
    return state >= 0 && state < model->n_states ? model->states[state].name : NULL;
}

const cgp_shape *cgp_model_state_shape(const cgp_model *model, int state) {
    CGP__NEED_OR(model, NULL);
    return state >= 0 && state < model->n_states ? &model->states[state].info.shape : NULL;
}

cgp_dtype cgp_model_state_dtype(const cgp_model *model, int state) {
    CGP__NEED_OR(model, CGP_F32);
    return state >= 0 && state < model->n_states ? model->states[state].info.dtype : CGP_F32;
}

int cgp_model_inputs(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_inputs;
}

const char *cgp_model_input_name(const cgp_model *model, int input) {
    CGP__NEED_OR(model, NULL);
    return input >= 0 && input < model->n_inputs ? model->inputs[input] : NULL;
}

int cgp_model_outputs(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_outputs;
}

cgp_dtype cgp_model_output_dtype(const cgp_model *model, int output) {
    CGP__NEED_OR(model, CGP_F32);
    if (output < 0 || output >= model->n_outputs) return CGP_F32;
    return model->values[model->outputs[output]].type.dtype;
}

cgp_shape cgp_model_output_shape(const cgp_model *model, int output) {
    CGP__NEED_OR(model, (cgp_shape){.rank = -1});
    if (output < 0 || output >= model->n_outputs) return (cgp_shape){.rank = -1};
    return model->values[model->outputs[output]].type.shape;
}

cgp_shape cgp_model_input_shape(const cgp_model *model, int input) {
    CGP__NEED_OR(model, (cgp_shape){.rank = -1});
    if (input < 0 || input >= model->n_inputs) return (cgp_shape){.rank = -1};
    return model->values[model->input_values[input]].type.shape;
}

bool cgp_model_input_has_gradient(const cgp_model *model, int input) {
    CGP__NEED_OR(model, false);
    return input >= 0 && input < model->n_inputs &&
           model->values[model->input_values[input]].wants_grad;
}

int64_t cgp_model_input_bound(const cgp_model *model, int input) {
    CGP__NEED_OR(model, 0);
    int64_t bound = 0;
    if (input < 0 || input >= model->n_inputs) return 0;
    for (int i = 0; i < model->n_nodes; i++) {
        const cgp_op_node *use = &model->nodes[i].use;
        for (int k = 0; use->op->upper_bound && k < model->nodes[i].n_inputs; k++) {
            const bool reads = model->nodes[i].inputs[k] == model->input_values[input];
            const int64_t of_op = reads ? use->op->upper_bound(use, k) : 0;
            if (of_op > 0 && (bound == 0 || of_op < bound)) bound = of_op;
        }
    }
    return bound;
}

int cgp_model_losses(const cgp_model *model) {
    CGP__NEED_OR(model, 0);
    return model->n_losses;
}

cgp_model_loss cgp_model_loss_at(const cgp_model *model, int loss) {
    CGP__NEED_OR(model, ((cgp_model_loss){-1, -1, 0}));
    if (loss < 0 || loss >= model->n_losses) return (cgp_model_loss){-1, -1, 0};
    const cgp__node *node = &model->nodes[cgp__model_loss(model, loss)];
    return (cgp_model_loss){.output = model->values[node->inputs[0]].output,
                            .target =
                                node->n_inputs > 1 ? model->values[node->inputs[1]].input : -1,
                            .weight = node->loss_weight};
}

cgp_dtype cgp_model_input_dtype(const cgp_model *model, int input) {
    CGP__NEED_OR(model, CGP_F32);
    if (input < 0 || input >= model->n_inputs) return CGP_F32;
    return model->values[model->input_values[input]].type.dtype;
}
