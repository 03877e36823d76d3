/* SPDX-License-Identifier: Apache-2.0 */
/* tensors.c -- gives the caller views of the memory of parameters, gradients and states, and
 * records writes through these views. */
#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/memory/devices.h"
#include "plan/memory/parameters.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <stdlib.h>

/* A view of a tensor's memory. `on_host`: the memory must be host memory; otherwise it must be a
 * device's own memory. */
typedef struct view {
    bool on_host;
    int device; /* number of the tensor's device in the plan */
    cgp_tensor tensor;
} view;

/* Find the worker of the view's device. */
static cgp_status find_worker(const cgp_pipeline *pipeline, const char *name, const view *v,
                              const cgp__worker **out) {
    const cgp__device_plan *plan = cgp__plan_device(pipeline->plan, v->device);
    if (pipeline->crew)
        return cgp_fail(CGP_ESTATE,
                        "%s: each of %d replicas has its own (cgp_pipeline_get_... and _set_...)",
                        name, pipeline->setup->replicas);
    if (!cgp__plan_is_on(pipeline->plan, v->device, pipeline->rank))
        return cgp_fail(CGP_ESTATE, "%s: is on rank %d (cgp_pipeline_get_... brings it)", name,
                        cgp__ranks_with(pipeline->ranks, pipeline->plan, v->device));
    if (v->on_host && !plan->backend->host_addressable)
        return cgp_fail(CGP_ESTATE,
                        "%s: device %s has memory of its own (cgp_pipeline_get_... copies it)",
                        name, plan->info.name);
    if (!v->on_host && plan->backend->host_addressable)
        return cgp_fail(CGP_ESTATE,
                        "%s: device %s uses the host's memory (cgp_pipeline_..._tensor views it)",
                        name, plan->info.name);
    *out = cgp__executor_worker(pipeline->executor, v->device);
    return CGP_OK;
}

static cgp_status view_parameter(const cgp_pipeline *pipeline, int parameter, int tensor, view *v) {
    const int n = pipeline->model->n_params;
    const cgp__worker *worker = NULL;
    if (tensor == CGP__GRADIENT && pipeline->setup->inference)
        return cgp_fail(CGP_ESTATE, "gradient: the pipeline is planned for inference");
    if (parameter < 0 || parameter >= n)
        return cgp_fail(CGP_EINVAL, "parameter: expected 0 to %d, got %d", n - 1, parameter);
    const cgp__parameter *param = &pipeline->model->params[parameter];
    const cgp__copy *owner = cgp__owner_of(pipeline->plan, parameter);
    if (tensor != CGP__VALUES)
        CGP_TRY(cgp__parameter_check_trained(pipeline, parameter, "gradient"));
    v->device = owner->device;
    CGP_TRY(find_worker(pipeline, param->name, v, &worker));
    v->tensor = (cgp_tensor){CGP_F32, param->shape, cgp__copy_data(worker, owner, tensor)};
    return CGP_OK;
}

static cgp_status view_state(const cgp_pipeline *pipeline, int state, view *v) {
    const int n = pipeline->model->n_states;
    const cgp__worker *worker = NULL;
    if (state < 0 || state >= n)
        return cgp_fail(CGP_EINVAL, "state: the model has %d, got number %d", n, state);
    const cgp__state *s = &pipeline->model->states[state];
    v->device = cgp__plan_device_of(pipeline->plan, s->node);
    CGP_TRY(find_worker(pipeline, s->name, v, &worker));
    v->tensor = (cgp_tensor){s->info.dtype, s->info.shape, cgp__state_memory(worker, state)};
    return CGP_OK;
}

static cgp_status view_any(const cgp_pipeline *pipeline, cgp_tensor_kind kind, int index, view *v) {
    switch (kind) {
    case CGP_TENSOR_PARAMETER:
        return view_parameter(pipeline, index, CGP__VALUES, v);
    case CGP_TENSOR_GRADIENT:
        return view_parameter(pipeline, index, CGP__GRADIENT, v);
    case CGP_TENSOR_STATE:
        return view_state(pipeline, index, v);
    }
    return cgp_fail(CGP_EINVAL, "kind: expected a cgp_tensor_kind, got %d", (int)kind);
}

static cgp_status view_on_host(const cgp_pipeline *pipeline, cgp_tensor_kind kind, int index,
                               cgp_tensor *out) {
    view v = {.on_host = true};
    CGP_TRY(view_any(pipeline, kind, index, &v));
    *out = v.tensor;
    return CGP_OK;
}

cgp_status cgp_pipeline_parameter_tensor(cgp_pipeline *pipeline, int parameter, cgp_tensor *out) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(out);
    return view_on_host(pipeline, CGP_TENSOR_PARAMETER, parameter, out);
}

cgp_status cgp_pipeline_gradient_tensor(cgp_pipeline *pipeline, int parameter, cgp_tensor *out) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(out);
    return view_on_host(pipeline, CGP_TENSOR_GRADIENT, parameter, out);
}

cgp_status cgp_pipeline_state_tensor(cgp_pipeline *pipeline, int state, cgp_tensor *out) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(out);
    return view_on_host(pipeline, CGP_TENSOR_STATE, state, out);
}

cgp_status cgp_pipeline_device_tensor(cgp_pipeline *pipeline, cgp_tensor_kind kind, int index,
                                      int *device, cgp_tensor *out) {
    view v = {.on_host = false};
    CGP__PIPELINE(pipeline);
    CGP__NEED(device);
    CGP__NEED(out);
    CGP_TRY(view_any(pipeline, kind, index, &v));
    *device = v.device;
    *out = v.tensor;
    return CGP_OK;
}

/* Copy the owner's values of a parameter to the parameter's other copies, through the host. */
static cgp_status spread(const cgp_pipeline *pipeline, int parameter) {
    float *values = NULL;
    CGP_TRY(
        CGP__NEW(values, cgp_shape_count(&pipeline->model->params[parameter].shape), "parameter"));
    cgp_status status = cgp__parameter_bring(pipeline, parameter, CGP__VALUES, values);
    if (status == CGP_OK) status = cgp__parameter_write(pipeline, parameter, CGP__VALUES, values);
    free(values);
    return status;
}

cgp_status cgp_pipeline_parameters_changed(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_PARAMETERS_CHANGED);
    cgp_status status = cgp__pipeline_check_alive(pipeline);
    if (status == CGP_OK && pipeline->step->external_run)
        status = cgp_fail(CGP_ESTATE, "parameters: a forward has run with them "
                                      "(cgp_pipeline_backward is due)");
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, status));
    cgp__parameters_changed(pipeline);
    for (int p = 0; p < pipeline->model->n_params && status == CGP_OK; p++) {
        const int *first = &cgp__plan_parameters(pipeline->plan)->first_copy[p];
        if (first[1] - first[0] > 1) status = spread(pipeline, p);
    }
    if (status != CGP_OK) cgp__ranks_fail(pipeline->ranks, status);
    return status;
}
