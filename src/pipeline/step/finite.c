/* SPDX-License-Identifier: Apache-2.0 */
/* finite.c -- checks that a step's numbers are finite. One check covers all devices, after the last
 * backward.
 *
 *     check     each worker checks the accumulators of its device's states; with clip_norm, it also
 *               sums up the squares of the gradients of parameters that its device owns
 *     decide    the caller's thread checks the loss, the states in order, and the norm of all
 *               gradients. It adds the squares in parameter order, so the norm is the same for
 *               every balance.
 *
 * If a number is not finite, the step commits no state, and cgp_optim_step() fails with the reason.
 * The norm is computed before the states change, so the states keep their values if the norm is not
 * finite. If the caller skips the backward after a forward, only the states are checked, because
 * the gradients belong to other steps. */
#include "pipeline/step/finite.h"

#include "model/model.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/captured_graphs.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/worker.h"
#include "pipeline/step/parameters.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/memory/parameters.h"
#include "plan/owners.h"
#include "plan/setup.h"

#include <math.h>

bool cgp__finite_checks(const cgp_plan *plan) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    return setup->model->n_states > 0 || setup->optim.clip_norm > 0;
}

/* Return true if the worker's device owns the gradient of parameter `p`. */
static bool owns_gradient(const cgp__worker *worker, int p) {
    return worker->model->params[p].requires_grad &&
           cgp__owner_of(worker->plan, p)->device == worker->index;
}

/* Compute the sums of squares of the gradients. Store them in the worker's result words, starting
 * at word *what. */
static cgp_status launch_squares(cgp__worker *worker, const void *what, bool captures) {
    int n = *(const int *)what;
    (void)captures;
    for (int p = 0; p < worker->model->n_params; p++) {
        if (!owns_gradient(worker, p)) continue;
        const float *gradient =
            cgp__copy_data(worker, cgp__owner_of(worker->plan, p), CGP__GRADIENT);
        CGP_TRY(worker->backend->kernels.sum_squares(
            worker->device, gradient, cgp_shape_count(&worker->model->params[p].shape),
            &worker->words[n++]));
        if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    }
    return CGP_OK;
}

static cgp_status check_device(cgp__worker *worker, void *argument) {
    cgp__step *step = argument;
    int n = 0;
    if (cgp__is_stopped(worker)) return CGP_OK; /* after a timeout, the plan may be freed */
    const bool squared = step->squared;
    const int n_params = worker->model->n_params;
    CGP_TRY(cgp__states_check(worker, &n));
    const int squares = n;
    if (cgp__is_stopped(worker)) return CGP_OK;
    if (squared)
        CGP_TRY(cgp__run_captured(worker, cgp__captured_job(worker, CGP__CAPTURED_SQUARES), 0,
                                  launch_squares, &squares));
    if (cgp__is_stopped(worker)) return CGP_OK;
    for (int p = 0; squared && p < n_params; p++)
        n += owns_gradient(worker, p);
    CGP_TRY(cgp__worker_fetch_words(worker, n));
    if (cgp__is_stopped(worker)) return CGP_OK;
    step->nonfinite[worker->index].tensor = cgp__states_first_nonfinite(worker);
    n = squares;
    for (int p = 0; squared && p < n_params; p++)
        if (owns_gradient(worker, p)) step->squares[p] = worker->fetched[n++];
    return CGP_OK;
}

/* Gather the sums of squares from the owners in replica 0 on all ranks. */
static cgp_status share_squares(const cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__step *step = pipeline->step;
    int n = 0, first = 0;
    size_t *bytes = cgp__ranks_sizes(pipeline->ranks);
    if (pipeline->n_ranks == 1) return CGP_OK;
    for (int r = 0; r < pipeline->n_ranks; r++)
        bytes[r] = 0;
    for (int r = 0; r < pipeline->setup->ranks; r++) {
        if (r == pipeline->rank) first = n;
        const int before = n;
        for (int p = 0; p < pipeline->model->n_params; p++)
            if (cgp__plan_is_on(plan, cgp__owner_of(plan, p)->device, r))
                step->packed[n++] = step->squares[p];
        bytes[r] = (size_t)(n - before) * sizeof(double);
    }
    CGP_TRY(cgp__ranks_share_blocks(pipeline->ranks, step->packed + first, step->packed));
    n = 0;
    for (int r = 0; r < pipeline->setup->ranks; r++)
        for (int p = 0; p < pipeline->model->n_params; p++)
            if (cgp__plan_is_on(plan, cgp__owner_of(plan, p)->device, r))
                step->squares[p] = step->packed[n++];
    return CGP_OK;
}

/* Check all devices, and exchange the results. The exchange fails on all ranks if the check fails
 * on one rank. */
static cgp_status check_all(cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    cgp__step *step = pipeline->step;
    CGP_TRY(cgp__executor_run_all(pipeline->executor, check_device, step));
    cgp_status status =
        cgp__ranks_share_devices(pipeline->ranks, plan, step->nonfinite, sizeof *step->nonfinite);
    if (status == CGP_OK && step->squared) status = share_squares(pipeline);
    return cgp__executor_exchanged(pipeline->executor, status);
}

/* Return `value`. If it is NaN, clear its sign, because printf() would print the sign. */
static double plain(double value) {
    return isnan(value) ? fabs(value) : value;
}

const cgp__nonfinite *cgp__finite_first(const cgp_pipeline *pipeline) {
    const cgp__nonfinite *first = NULL;
    for (int d = 0; d < cgp_plan_devices(pipeline->plan); d++) {
        const cgp__nonfinite *found = &pipeline->step->nonfinite[d];
        if (found->tensor >= 0 && (!first || found->tensor < first->tensor)) first = found;
    }
    return first;
}

/* Set the norm of all gradients. If a gradient is not finite, set a refusal that names the first
 * such parameter. `unchanged` is a part of the refusal's text. It says that no state changed, or is
 * empty. */
static void sum_norm(const cgp_pipeline *pipeline, const char *unchanged) {
    cgp__step *step = pipeline->step;
    int first = -1;
    double sum = 0;
    for (int p = 0; p < pipeline->model->n_params; p++) {
        sum += step->squares[p];
        if (first < 0 && !isfinite(step->squares[p])) first = p;
    }
    step->shared->norm = sqrt(sum);
    step->shared->has_norm = true;
    if (first >= 0 && !step->shared->refusal[0])
        snprintf(step->shared->refusal, sizeof step->shared->refusal,
                 "gradients: the norm is not finite, got %g (%s is the first; nothing was "
                 "updated%s; another %s is due)",
                 plain(step->shared->norm), pipeline->model->params[first].name, unchanged,
                 cgp__step_due(pipeline));
}

cgp_status cgp__finite_norm(cgp_pipeline *pipeline) {
    pipeline->step->squared = true;
    CGP_TRY(check_all(pipeline));
    sum_norm(pipeline, "");
    return CGP_OK;
}

cgp_status cgp__finite_states(cgp_pipeline *pipeline, bool *finite) {
    *finite = true;
    if (pipeline->model->n_states == 0) return CGP_OK;
    pipeline->step->squared = false;
    CGP_TRY(check_all(pipeline));
    *finite = !cgp__finite_first(pipeline);
    return CGP_OK;
}

/* Keep only the first reason to refuse the update. If several steps accumulate gradients, it may
 * come from any of these steps. */
cgp_status cgp__finite_decide(cgp_pipeline *pipeline, double loss) {
    cgp__step *step = pipeline->step;
    const char *due = cgp__step_due(pipeline);
    char *why = step->shared->refusal;
    const size_t size = sizeof step->shared->refusal;
    step->shared->norm = NAN;
    step->shared->has_norm = false;
    step->squared = pipeline->setup->optim.clip_norm > 0 && !step->shared->open;
    if (!isfinite(loss) && !why[0])
        snprintf(why, size,
                 "loss: is not finite, got %g (nothing was updated, no state changed; another "
                 "%s is due)",
                 plain(loss), due);
    if (!cgp__finite_checks(pipeline->plan)) return CGP_OK;
    CGP_TRY(check_all(pipeline));
    const cgp__nonfinite *state = cgp__finite_first(pipeline);
    if (state && !why[0])
        snprintf(why, size,
                 "state %s: the last step accumulated a value that is not finite (nothing was "
                 "updated, no state changed; another %s is due, after cgp_pipeline_set_state "
                 "if the state was so before)",
                 pipeline->model->states[state->tensor].name, due);
    if (step->squared) sum_norm(pipeline, ", no state changed");
    return CGP_OK;
}
