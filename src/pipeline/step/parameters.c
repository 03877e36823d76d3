/* SPDX-License-Identifier: Apache-2.0 */
/* parameters.c -- initial values, and copies of parameters, gradients and optimizer state to and from the host, while the
 * workers are idle. */
#include "pipeline/pipeline.h"

#include <stdlib.h>

cgp_status cgp__job_initialize(cgp__worker *worker, void *seed) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp__device_plan *device = &plan->devices[worker->index];
    float chunk[4096];
    cgp__states_initialize(worker);
    for (int c = 0; c < plan->n_copies; c++) {
        const int p = plan->copies[c].parameter;
        const cgp__parameter *param = &plan->model->params[p];
        if (plan->copies[c].device != worker->index) continue;
        char *memory = worker->memory + device->parameters + plan->copies[c].offset;
        const int64_t count = cgp_shape_count(&param->shape);
        for (int64_t first = 0; first < count; first += 4096) {
            const int64_t n = count - first < 4096 ? count - first : 4096;
            cgp__init_fill(&param->init, *(const uint64_t *)seed, p, first, n, chunk);
            device->backend->copy(worker->device, memory + 4 * first, chunk, 4 * (size_t)n);
        }
    }
    return CGP_OK;
}

static cgp_status check_parameter(const cgp_pipeline *pipeline, int parameter) {
    if (parameter >= 0 && parameter < pipeline->plan->model->n_params) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "parameter: expected 0 to %d, got %d",
                    pipeline->plan->model->n_params - 1, parameter);
}

/* Copy a parameter's bytes between the host and a device: to `to`, or from `from`. */
static void copy(const cgp_pipeline *pipeline, const cgp__copy *at, int64_t offset, void *to,
                 const void *from) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__worker *worker = &pipeline->executor.workers[at->device];
    char *memory = worker->memory + offset;
    const size_t bytes = 4 * (size_t)cgp_shape_count(&plan->model->params[at->parameter].shape);
    plan->devices[at->device].backend->copy(worker->device, to ? to : memory,
                                            from ? from : memory, bytes);
}

cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(data);
    const cgp_plan *plan = pipeline->plan;
    CGP_TRY(check_parameter(pipeline, parameter));
    const cgp__copy *owner = &plan->copies[plan->first_copy[parameter]];
    copy(pipeline, owner, plan->devices[owner->device].parameters + owner->offset, data, NULL);
    return CGP_OK;
}

cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline, int parameter,
                                      const float *data) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(data);
    const cgp_plan *plan = pipeline->plan;
    CGP_TRY(check_parameter(pipeline, parameter));
    if (pipeline->step.external_run && !pipeline->team.failed)
        return cgp_fail(
            CGP_ESTATE,
            "parameter %d: a forward has run with it (cgp_pipeline_backward is due)",
            parameter);
    for (int c = plan->first_copy[parameter]; c < plan->first_copy[parameter + 1]; c++)
        copy(pipeline, &plan->copies[c],
             plan->devices[plan->copies[c].device].parameters + plan->copies[c].offset, NULL,
             data);
    return CGP_OK;
}

cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(data);
    const cgp_plan *plan = pipeline->plan;
    CGP_TRY(check_parameter(pipeline, parameter));
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->step.has_gradients)
        return cgp_fail(CGP_ESTATE, "gradient: there is none yet (%s is due)",
                        cgp__step_due(pipeline));
    const cgp__copy *owner = &plan->copies[plan->first_copy[parameter]];
    copy(pipeline, owner, plan->devices[owner->device].gradients + owner->gradient, data, NULL);
    return CGP_OK;
}

static cgp_status check_state(const cgp_pipeline *pipeline, int parameter, int state) {
    const int states = pipeline->plan->inference ? 0 : cgp_optim_states(&pipeline->plan->optim);
    CGP_TRY(check_parameter(pipeline, parameter));
    if (state >= 0 && state < states) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "optimizer state: the optimizer has %d, got number %d", states,
                    state);
}

/* Offset of a copy's optimizer state in the memory of its device. */
static int64_t state_offset(const cgp_plan *plan, const cgp__copy *at, int state) {
    const cgp__device_plan *device = &plan->devices[at->device];
    return device->optimizer + state * device->info.parameter_bytes + at->offset;
}

const float *cgp__parameter_data(const cgp__worker *worker, int parameter, int number) {
    const cgp_plan *plan = worker->executor->plan;
    const cgp__copy *owner = &plan->copies[plan->first_copy[parameter]];
    if (owner->device != worker->index) return NULL;
    const int64_t offset = number < 0 ? plan->devices[owner->device].parameters + owner->offset
                                      : state_offset(plan, owner, number);
    return (const float *)(const void *)(worker->memory + offset);
}

cgp_status cgp_pipeline_get_optimizer_state(cgp_pipeline *pipeline, int parameter, int state,
                                            float *data) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(data);
    const cgp_plan *plan = pipeline->plan;
    CGP_TRY(check_state(pipeline, parameter, state));
    const cgp__copy *owner = &plan->copies[plan->first_copy[parameter]];
    copy(pipeline, owner, state_offset(plan, owner, state), data, NULL);
    return CGP_OK;
}

cgp_status cgp_pipeline_set_optimizer_state(cgp_pipeline *pipeline, int parameter, int state,
                                            const float *data) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(data);
    const cgp_plan *plan = pipeline->plan;
    CGP_TRY(check_state(pipeline, parameter, state));
    for (int c = plan->first_copy[parameter]; c < plan->first_copy[parameter + 1]; c++)
        copy(pipeline, &plan->copies[c], state_offset(plan, &plan->copies[c], state), NULL,
             data);
    return CGP_OK;
}

cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline, char hex[65]) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(hex);
    const cgp_model *model = pipeline->plan->model;
    cgp__sha256 *hash = NULL;
    CGP_TRY(cgp__sha256_create(&hash));
    cgp_status status = CGP_OK;
    for (int p = 0; p < model->n_params && status == CGP_OK; p++) {
        const size_t bytes = 4 * (size_t)cgp_shape_count(&model->params[p].shape);
        float *data = cgp__calloc(bytes, 1);
        status = data ? cgp_pipeline_get_parameter(pipeline, p, data)
                      : cgp__no_memory("weights", bytes);
        if (status == CGP_OK) status = cgp__sha256_add(hash, data, bytes);
        free(data);
    }
    if (status == CGP_OK) status = cgp__sha256_finish(hash, hex);
    cgp__sha256_destroy(hash);
    return status;
}
