/* parameters.c -- updates, and parameters to and from the host. */
#include "pipeline/pipeline.h"

#include <stdlib.h>

#include "optim/optim.h"

/* A parameter's device and offset inside a section. */
static cgp__worker *owner(const cgp_pipeline *pipeline, int parameter) {
    const cgp_plan *plan = pipeline->plan;
    const int stage = plan->node_stage[plan->model->params[parameter].node];
    return &pipeline->workers[plan->stages[stage].info.device];
}

static cgp_status update_device(cgp__worker *worker, void *constants) {
    const cgp_plan *plan = worker->pipeline->plan;
    const cgp__device_plan *device = &plan->devices[worker->index];
    cgp__update update = *(const cgp__update *)constants;
    for (int p = 0; p < plan->model->n_params; p++) {
        if (owner(worker->pipeline, p) != worker ||
            !plan->model->nodes[plan->model->params[p].node].on_loss)
            continue; /* of another device; or without a gradient, as only the output depends on
                         it */
        char *memory = worker->memory + plan->param_offset[p];
        update.n = cgp_shape_count(&plan->model->params[p].shape);
        update.param = (float *)(void *)(memory + device->parameters);
        update.grad = (const float *)(void *)(memory + device->gradients);
        for (int s = 0; s < cgp_optim_states(&plan->optim); s++)
            update.state[s] = (float *)(void *)(memory + device->optimizer +
                                                s * device->info.parameter_bytes);
        device->backend->update(worker->device, &update);
    }
    return CGP_OK;
}

cgp_status cgp_optim_step(cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->has_gradients)
        return cgp_fail(CGP_ESTATE,
                        "optimizer: has no new gradients (cgp_pipeline_step is due)");
    cgp__update constants = {.state = {NULL, NULL}};
    cgp__optim_constants(&pipeline->plan->optim, ++pipeline->updates, &constants);
    pipeline->has_gradients = false;
    return cgp__workers_all(pipeline, update_device, &constants);
}

static cgp_status check_parameter(const cgp_pipeline *pipeline, int parameter,
                                  const float *data) {
    if (parameter < 0 || parameter >= pipeline->plan->model->n_params)
        return cgp_fail(CGP_EINVAL, "parameter: expected 0 to %d, got %d",
                        pipeline->plan->model->n_params - 1, parameter);
    return data ? CGP_OK
                : cgp_fail(CGP_EINVAL, "parameter %d: its data are missing", parameter);
}

/* Copy between the host and a section of the device that has the parameter; the workers are
 * idle. */
static void copy(const cgp_pipeline *pipeline, int parameter, int64_t section, void *to,
                 const void *from) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__worker *worker = owner(pipeline, parameter);
    char *memory = worker->memory + section + plan->param_offset[parameter];
    const size_t bytes = 4 * (size_t)cgp_shape_count(&plan->model->params[parameter].shape);
    plan->devices[worker->index].backend->copy(worker->device, to ? to : memory,
                                               from ? from : memory, bytes);
}

cgp_status cgp_pipeline_get_parameter(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP_TRY(check_parameter(pipeline, parameter, data));
    copy(pipeline, parameter,
         pipeline->plan->devices[owner(pipeline, parameter)->index].parameters, data, NULL);
    return CGP_OK;
}

cgp_status cgp_pipeline_set_parameter(cgp_pipeline *pipeline, int parameter,
                                      const float *data) {
    CGP_TRY(check_parameter(pipeline, parameter, data));
    copy(pipeline, parameter,
         pipeline->plan->devices[owner(pipeline, parameter)->index].parameters, NULL, data);
    return CGP_OK;
}

cgp_status cgp_pipeline_get_gradient(cgp_pipeline *pipeline, int parameter, float *data) {
    CGP_TRY(check_parameter(pipeline, parameter, data));
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (pipeline->plan->inference || pipeline->step == 0)
        return cgp_fail(CGP_ESTATE, "gradient: there is none yet (cgp_pipeline_step is due)");
    copy(pipeline, parameter,
         pipeline->plan->devices[owner(pipeline, parameter)->index].gradients, data, NULL);
    return CGP_OK;
}

cgp_status cgp_pipeline_weights_sha256(cgp_pipeline *pipeline, char hex[65]) {
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
