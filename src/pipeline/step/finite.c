/* SPDX-License-Identifier: Apache-2.0 */
/* finite.c -- the check that a step's numbers are finite, once for all devices, after the last backward.
 *
 *     check     each worker: accumulators of its device's norms; with clip_norm, the squares of the gradients whose
 *               parameters' first copies are on its device
 *     decide    the caller's thread: the loss, then the states in their order, then the norm of all gradients (summed in
 *               the order of the parameters, so that it is the same for every balance)
 *
 * A step refused here commits no state, and cgp_optim_step() returns the reason. The norm is computed before the states
 * change, so an update that is refused for it leaves them as they were before the step. */
#include "pipeline/pipeline.h"

#include <math.h>

static void sum_squares(cgp__worker *worker, double *squares) {
    const cgp_plan *plan = worker->executor->plan;
    for (int p = 0; p < plan->model->n_params; p++) {
        const cgp__parameter *param = &plan->model->params[p];
        const cgp__copy *owner = cgp__owner_of(plan, p);
        if (!param->requires_grad || owner->device != worker->index) continue;
        const float *gradient = cgp__copy_data(worker, owner, CGP__GRADIENT);
        squares[p] = cgp__backend_of(worker)->sum_squares(worker->device, gradient,
                                                          cgp_shape_count(&param->shape));
        if (cgp__is_stopped(worker)) return; /* timed out: the plan may be gone */
    }
}

static cgp_status check_device(cgp__worker *worker, void *argument) {
    cgp__step *step = argument;
    if (cgp__is_stopped(worker)) return CGP_OK; /* as above */
    const bool clips = worker->executor->plan->optim.clip_norm > 0;
    step->nonfinite[worker->index].tensor = cgp__states_find_nonfinite(worker);
    if (clips && !cgp__is_stopped(worker)) sum_squares(worker, step->squares);
    return CGP_OK;
}

static void refuse(cgp_pipeline *pipeline, cgp__refusal refusal, int by) {
    if (pipeline->step.refusal != CGP__ACCEPTED) return; /* the first reason stays */
    pipeline->step.refusal = refusal;
    pipeline->step.refused_by = by;
}

static void decide_states(cgp_pipeline *pipeline) {
    int first = -1;
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const int state = pipeline->step.nonfinite[d].tensor;
        if (state >= 0 && (first < 0 || state < first)) first = state;
    }
    if (first >= 0) refuse(pipeline, CGP__REFUSED_STATE, first);
}

static void decide_norm(cgp_pipeline *pipeline) {
    double sum = 0;
    for (int p = 0; p < pipeline->plan->model->n_params; p++) {
        sum += pipeline->step.squares[p];
        if (!isfinite(pipeline->step.squares[p])) refuse(pipeline, CGP__REFUSED_NORM, p);
    }
    pipeline->step.norm = sqrt(sum);
}

cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss) {
    const cgp_plan *plan = pipeline->plan;
    const bool clips = plan->optim.clip_norm > 0;
    pipeline->step.refusal = CGP__ACCEPTED;
    pipeline->step.loss = loss;
    pipeline->step.norm = NAN;
    if (!isfinite(loss)) refuse(pipeline, CGP__REFUSED_LOSS, 0);
    if (plan->model->n_states == 0 && !clips) return CGP_OK;
    CGP_TRY(cgp__team_run(&pipeline->team, check_device, &pipeline->step));
    decide_states(pipeline);
    if (clips) decide_norm(pipeline);
    return CGP_OK;
}

/* Drop the sign of a NaN, which printf() would show. */
static double plain(double value) {
    return isnan(value) ? fabs(value) : value;
}

cgp_status cgp__finite_refuse(const cgp_pipeline *pipeline) {
    const cgp_model *model = pipeline->plan->model;
    const char *due = cgp__step_due(pipeline);
    switch (pipeline->step.refusal) {
    case CGP__ACCEPTED:
        return CGP_OK;
    case CGP__REFUSED_LOSS:
        return cgp_fail(CGP_ESTATE,
                        "loss: is not finite, got %g (nothing was updated, no state changed; "
                        "another %s is due)",
                        plain(pipeline->step.loss), due);
    case CGP__REFUSED_STATE:
        return cgp_fail(
            CGP_ESTATE,
            "state %s: the last step accumulated a value that is not finite (nothing was "
            "updated, no state changed; another %s is due, after "
            "cgp_pipeline_set_state if the state was so before)",
            model->states[pipeline->step.refused_by].name, due);
    case CGP__REFUSED_NORM:
        break;
    }
    return cgp_fail(CGP_ESTATE,
                    "gradients: the norm is not finite, got %g (%s is the first; nothing was "
                    "updated, no state changed; another %s is due)",
                    plain(pipeline->step.norm), model->params[pipeline->step.refused_by].name,
                    due);
}
