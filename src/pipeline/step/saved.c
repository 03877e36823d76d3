/* SPDX-License-Identifier: Apache-2.0 */
/* saved.c -- implements saved.h. */
#include "pipeline/step/saved.h"

#include "model/model.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/step.h"
#include "plan/memory/parameters.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdio.h>

static int n_states_of(const cgp_plan *plan) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    return setup->inference ? 0 : cgp_optim_states(&setup->optim);
}

int cgp__saved_kinds(const cgp_plan *plan) {
    return n_states_of(plan) > 0 ? CGP__SAVED_KINDS : 1;
}

cgp__saved_range cgp__saved_range_of(const cgp_plan *plan, int kind) {
    const cgp_model *model = cgp__plan_setup(plan)->model;
    const int n_params = model->n_params, weights = n_params + model->n_states;
    if (kind == CGP__SAVED_WEIGHTS) return (cgp__saved_range){0, weights};
    const int trained = cgp__plan_parameters(plan)->n_trained;
    return (cgp__saved_range){weights, weights + trained * n_states_of(plan)};
}

static const char *const *state_names(cgp_optim_kind kind) {
    static const char *const sgd[] = {"momentum"}, *const adam[] = {"exp_avg", "exp_avg_sq"},
                             *const rmsprop[] = {"square_avg", "momentum"};
    return kind == CGP_OPTIM_SGD ? sgd : kind == CGP_OPTIM_RMSPROP ? rmsprop : adam;
}

cgp__saved_tensor cgp__saved_at(const cgp_plan *plan, int i) {
    const cgp_model *model = cgp__plan_setup(plan)->model;
    const int s = i - model->n_params, o = s - model->n_states, n = n_states_of(plan);
    if (s >= 0 && o < 0) {
        const cgp__state *state = &model->states[s];
        return (cgp__saved_tensor){-1,
                                   -1,
                                   s,
                                   cgp__plan_device_of(plan, state->node),
                                   state->info.dtype,
                                   &state->info.shape};
    }
    const int p = s < 0 ? i : cgp__plan_parameters(plan)->trained[o / n];
    const int number = s < 0 ? CGP__VALUES : o % n;
    return (cgp__saved_tensor){
        p, number, -1, cgp__owner_of(plan, p)->device, CGP_F32, &model->params[p].shape};
}

size_t cgp__saved_bytes(const cgp__saved_tensor *tensor) {
    return (size_t)cgp_shape_count(tensor->shape) * cgp_dtype_bytes(tensor->type);
}

const char *cgp__saved_state_name(const cgp_plan *plan, int number) {
    return state_names(cgp__plan_setup(plan)->optim.kind)[number];
}

char *cgp__saved_name(const cgp_plan *plan, int i) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp__saved_tensor tensor = cgp__saved_at(plan, i);
    if (tensor.state >= 0) return cgp__strdup(setup->model->states[tensor.state].name);
    const char *parameter = setup->model->params[tensor.parameter].name;
    if (tensor.number == CGP__VALUES) return cgp__strdup(parameter);
    return cgp__format("%s.%s", parameter, cgp__saved_state_name(plan, tensor.number));
}

cgp__saved_file_name cgp__saved_file(int kind, int shard, int shards) {
    cgp__saved_file_name name;
    const bool weights = kind == CGP__SAVED_WEIGHTS;
    if (shards == 1)
        snprintf(name.text, sizeof name.text, "%s.safetensors", weights ? "weights" : "optimizer");
    else if (shard < 0)
        snprintf(name.text, sizeof name.text, "%s-*-of-%05d.safetensors",
                 weights ? "model" : "optimizer", shards);
    else
        snprintf(name.text, sizeof name.text, "%s-%05d-of-%05d.safetensors",
                 weights ? "model" : "optimizer", shard + 1, shards);
    return name;
}

cgp__checkpoint_info cgp__saved_info(const cgp_plan *plan, const cgp__step *step,
                                     const char *note) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    cgp__checkpoint_info info = {.seed = step->seed,
                                 .optimizer = CGP__SAVED_NO_OPTIMIZER,
                                 .n_states = n_states_of(plan),
                                 .note = note ? note : "",
                                 .shards = setup->ranks};
    if (!setup->inference) {
        info.step = step->shared->updates;
        info.dropout_step = step->steps;
        info.optimizer = cgp_optim_kind_name(setup->optim.kind);
    }
    for (int s = 0; s < info.n_states; s++)
        info.states[s] = state_names(setup->optim.kind)[s];
    return info;
}
