/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- the optimizer's update, on the stages' workers.
 *
 *     square    with clip_norm: each worker sums the squares of the gradients whose parameters'
 *               first copies are its device's; the caller's thread adds them, in the order of
 *               the parameters, so that the norm is the same for every balance
 *     update    each worker updates all copies of its device */
#include "pipeline/pipeline.h"

#include "optim/optim.h"

#include <math.h>

static const float *gradient_of(const cgp__worker *worker, const cgp__copy *copy) {
    const cgp_plan *plan = worker->pipeline->plan;
    return (const float *)(const void *)(worker->memory +
                                         plan->devices[worker->index].gradients +
                                         copy->gradient);
}

static cgp_status square_device(cgp__worker *worker, void *unused) {
    (void)unused;
    cgp_pipeline *pipeline = worker->pipeline;
    if (cgp__is_stopped(pipeline)) return CGP_OK; /* timed out: the plan may be gone */
    const cgp_plan *plan = pipeline->plan;
    for (int p = 0; p < plan->model->n_params; p++) {
        const cgp__parameter *param = &plan->model->params[p];
        const cgp__copy *owner = &plan->copies[plan->first_copy[p]];
        if (!param->on_loss || owner->device != worker->index) continue;
        pipeline->squares[p] = plan->devices[worker->index].backend->sum_squares(
            worker->device, gradient_of(worker, owner), cgp_shape_count(&param->shape));
        if (cgp__is_stopped(pipeline)) return CGP_OK;
    }
    return CGP_OK;
}

/* The norm, and the scale of all gradients that clips them to `clip_norm`, as PyTorch's
 * clip_grad_norm_. */
static cgp_status measure_gradients(cgp_pipeline *pipeline, double *scale) {
    const cgp_model *model = pipeline->plan->model;
    CGP_TRY(cgp__workers_all(pipeline, square_device, NULL));
    double sum = 0;
    int bad = -1;
    for (int p = 0; p < model->n_params; p++) {
        sum += pipeline->squares[p];
        if (bad < 0 && !isfinite(pipeline->squares[p])) bad = p;
    }
    pipeline->gradient_norm = sqrt(sum);
    if (bad >= 0)
        return cgp_fail(CGP_ESTATE,
                        "gradients: the norm is not finite, got %g (%s is the first; nothing "
                        "was updated, another %s is due)",
                        pipeline->gradient_norm, model->params[bad].name,
                        cgp__pipeline_due(pipeline));
    *scale = fmin(1, pipeline->plan->optim.clip_norm / (pipeline->gradient_norm + 1e-6));
    return CGP_OK;
}

static cgp_status update_device(cgp__worker *worker, void *constants) {
    cgp__update update = *(const cgp__update *)constants;
    if (cgp__is_stopped(worker->pipeline)) return CGP_OK;
    const cgp_plan *plan = worker->pipeline->plan;
    const cgp__device_plan *device = &plan->devices[worker->index];
    const double decay = update.weight_decay;
    for (int c = 0; c < plan->n_copies; c++) {
        const cgp__copy *copy = &plan->copies[c];
        const cgp__parameter *param = &plan->model->params[copy->parameter];
        if (copy->device != worker->index || !param->on_loss) continue;
        const bool decays = param->decays || plan->optim.decay_all;
        update.weight_decay = decays ? decay : 0;
        update.n = cgp_shape_count(&param->shape);
        update.param = (float *)(void *)(worker->memory + device->parameters + copy->offset);
        update.grad = gradient_of(worker, copy);
        for (int s = 0; s < cgp_optim_states(&plan->optim); s++)
            update.state[s] =
                (float *)(void *)(worker->memory + device->optimizer +
                                  s * device->info.parameter_bytes + copy->offset);
        device->backend->update(worker->device, &update);
        if (cgp__is_stopped(worker->pipeline)) return CGP_OK;
    }
    return CGP_OK;
}

cgp_status cgp_optim_step(cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->has_gradients)
        return cgp_fail(CGP_ESTATE, "optimizer: has no new gradients (%s is due)",
                        cgp__pipeline_due(pipeline));
    pipeline->constants = (cgp__update){.gradient_scale = 1};
    pipeline->has_gradients = false;
    if (pipeline->plan->optim.clip_norm > 0)
        CGP_TRY(measure_gradients(pipeline, &pipeline->constants.gradient_scale));
    cgp__optim_constants(&pipeline->plan->optim, ++pipeline->updates, &pipeline->constants);
    return cgp__workers_all(pipeline, update_device, &pipeline->constants);
}

double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline) {
    return pipeline->gradient_norm;
}

int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline) {
    return pipeline->updates;
}
