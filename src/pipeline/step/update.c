/* SPDX-License-Identifier: Apache-2.0 */
/* update.c -- the optimizer's update: each worker updates all copies on its device. The end of the step has checked the
 * numbers and computed the norm to clip by (finite.c). */
#include "pipeline/pipeline.h"

#include "optim/optim.h"

#include <math.h>

static cgp_status update_device(cgp__worker *worker, void *constants) {
    cgp__update update = *(const cgp__update *)constants;
    if (cgp__is_stopped(worker)) return CGP_OK;
    const cgp_plan *plan = worker->executor->plan;
    const double decay = update.weight_decay;
    for (int c = 0; c < plan->n_copies; c++) {
        const cgp__copy *copy = &plan->copies[c];
        const cgp__parameter *param = &plan->model->params[copy->parameter];
        if (copy->device != worker->index || !param->requires_grad) continue;
        update.weight_decay = param->decays || plan->optim.decay_all ? decay : 0;
        update.n = cgp_shape_count(&param->shape);
        update.param = cgp__copy_data(worker, copy, CGP__VALUES);
        update.grad = cgp__copy_data(worker, copy, CGP__GRADIENT);
        for (int s = 0; s < cgp_optim_states(&plan->optim); s++)
            update.state[s] = cgp__copy_data(worker, copy, s);
        cgp__backend_of(worker)->update(worker->device, &update);
        if (cgp__is_stopped(worker)) return CGP_OK;
    }
    return CGP_OK;
}

cgp_status cgp_optim_step(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->step.update_due)
        return cgp_fail(CGP_ESTATE, "optimizer: has no new gradients (%s is due)",
                        cgp__step_due(&pipeline->step));
    pipeline->step.update_due = false;
    pipeline->step.gradient_norm = pipeline->step.norm;
    if (pipeline->step.refusal[0]) return cgp_fail(CGP_ESTATE, "%s", pipeline->step.refusal);
    const cgp_optim *optim = &pipeline->plan->optim;
    cgp__update *update = &pipeline->step.update;
    *update = (cgp__update){.gradient_scale = 1};
    if (optim->clip_norm > 0) /* as PyTorch's clip_grad_norm_ */
        update->gradient_scale =
            fmin(1, optim->clip_norm / (pipeline->step.gradient_norm + 1e-6));
    cgp__optim_constants(optim, ++pipeline->step.updates, update);
    return cgp__team_run(&pipeline->team, update_device, update);
}

double cgp_pipeline_gradient_norm(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NAN);
    return pipeline->step.gradient_norm;
}

int64_t cgp_pipeline_updates(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, 0);
    return pipeline->step.updates;
}
