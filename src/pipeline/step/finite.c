/* SPDX-License-Identifier: Apache-2.0 */
/* finite.c -- whether a step's numbers are finite: decided once, when the last backward has run, for all devices.
 *
 *     check     each worker: what the norms of its device have collected; with clip_norm, the squares of the gradients
 *               whose parameters' first copies are its device's
 *     decide    the caller's thread: the loss, then the states in their order, then the norm of all gradients (added in the
 *               order of the parameters, so that it is the same for every balance)
 *
 * A step refused here commits no state, and cgp_optim_step() says why. The norm is known before the states change, so
 * an update that is refused for it leaves them as they were before the step. */
#include "pipeline/pipeline.h"

#include <math.h>

static void sum_squares(cgp__worker *worker) {
    cgp_pipeline *pipeline = worker->pipeline;
    const cgp_plan *plan = pipeline->plan;
    for (int p = 0; p < plan->model->n_params; p++) {
        const cgp__parameter *param = &plan->model->params[p];
        const cgp__copy *owner = &plan->copies[plan->first_copy[p]];
        if (!param->requires_grad || owner->device != worker->index) continue;
        pipeline->squares[p] = plan->devices[worker->index].backend->sum_squares(
            worker->device, cgp__gradient_of(worker, owner), cgp_shape_count(&param->shape));
        if (cgp__is_stopped(pipeline)) return; /* timed out: the plan may be gone */
    }
}

static cgp_status check_device(cgp__worker *worker, void *unused) {
    (void)unused;
    if (cgp__is_stopped(worker->pipeline)) return CGP_OK; /* as above */
    const bool clips = worker->pipeline->plan->optim.clip_norm > 0;
    worker->nonfinite = cgp__states_find_nonfinite(worker);
    if (clips && !cgp__is_stopped(worker->pipeline)) sum_squares(worker);
    return CGP_OK;
}

static void refuse(cgp_pipeline *pipeline, cgp__refusal refusal, int by) {
    if (pipeline->refusal != CGP__ACCEPTED) return; /* the first reason stays */
    pipeline->refusal = refusal;
    pipeline->refused_by = by;
}

static void decide_states(cgp_pipeline *pipeline) {
    int first = -1;
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const int state = pipeline->workers[d].nonfinite;
        if (state >= 0 && (first < 0 || state < first)) first = state;
    }
    if (first >= 0) refuse(pipeline, CGP__REFUSED_STATE, first);
}

static void decide_norm(cgp_pipeline *pipeline) {
    double sum = 0;
    for (int p = 0; p < pipeline->plan->model->n_params; p++) {
        sum += pipeline->squares[p];
        if (!isfinite(pipeline->squares[p])) refuse(pipeline, CGP__REFUSED_NORM, p);
    }
    pipeline->step_norm = sqrt(sum);
}

cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss) {
    const cgp_plan *plan = pipeline->plan;
    const bool clips = plan->optim.clip_norm > 0;
    pipeline->refusal = CGP__ACCEPTED;
    pipeline->step_loss = loss;
    pipeline->step_norm = NAN;
    if (!isfinite(loss)) refuse(pipeline, CGP__REFUSED_LOSS, 0);
    if (plan->model->n_states == 0 && !clips) return CGP_OK;
    CGP_TRY(cgp__workers_all(pipeline, check_device, NULL));
    decide_states(pipeline);
    if (clips) decide_norm(pipeline);
    return CGP_OK;
}

/* printf() would show the sign of a NaN, which says nothing. */
static double plain(double value) {
    return isnan(value) ? fabs(value) : value;
}

cgp_status cgp__finite_refuse(const cgp_pipeline *pipeline) {
    const cgp_model *model = pipeline->plan->model;
    const char *due = cgp__pipeline_due(pipeline);
    switch (pipeline->refusal) {
    case CGP__ACCEPTED:
        return CGP_OK;
    case CGP__REFUSED_LOSS:
        return cgp_fail(CGP_ESTATE,
                        "loss: is not finite, got %g (nothing was updated, no state changed; "
                        "another %s is due)",
                        plain(pipeline->step_loss), due);
    case CGP__REFUSED_STATE:
        return cgp_fail(CGP_ESTATE,
                        "state %s: what the last step collected is not finite (nothing was "
                        "updated, no state changed; another %s is due, after "
                        "cgp_pipeline_set_state if the state was so before)",
                        model->states[pipeline->refused_by].name, due);
    case CGP__REFUSED_NORM:
        break;
    }
    return cgp_fail(CGP_ESTATE,
                    "gradients: the norm is not finite, got %g (%s is the first; nothing was "
                    "updated, no state changed; another %s is due)",
                    plain(pipeline->step_norm), model->params[pipeline->refused_by].name, due);
}
