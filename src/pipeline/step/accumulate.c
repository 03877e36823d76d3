/* SPDX-License-Identifier: Apache-2.0 */
/* accumulate.c -- adds up the gradients of several steps before an update (gradient accumulation),
 * and clips the norm of gradients.
 *
 *     step      accumulation off: overwrite gradients, add up tied gradients, compute the norm
 *               accumulation on: overwrite gradients after an update, otherwise add to them; leave
 *               the gradients open
 *     close     before an update or a read: add up tied gradients, compute the norm
 *
 * While gradients are open, each use of a tied parameter has its own sum over all micro-batches. So
 * the sums are bit-identical to the sums of a single step with the same micro-batches. Pipelines
 * that share gradient buffers also share the state of these buffers (cgp__shared), so any of these
 * pipelines may run the next call. */
#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/ranks.h"
#include "pipeline/step/finite.h"
#include "pipeline/step/reduce.h"
#include "pipeline/step/step.h"
#include "pipeline/step/tied.h"
#include "plan/setup.h"

#include <math.h>
#include <stdio.h>

static bool adds(const cgp__step *step) {
    return step->accumulation.on && step->shared->update_due;
}

cgp_status cgp__accumulate_check(const cgp_pipeline *pipeline) {
    if (!adds(pipeline->step) || !pipeline->step->shared->clipped) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "gradients: are clipped, so no step can add to them "
                                "(cgp_optim_step or cgp_pipeline_zero_grad is due)");
}

cgp_status cgp__accumulate_find(cgp_pipeline *pipeline, int64_t samples, const cgp__run **out) {
    CGP_TRY(cgp__accumulate_check(pipeline));
    cgp__minibatch minibatch = cgp__plan_share(pipeline->plan, samples, pipeline->ranks->replica);
    minibatch.adds = adds(pipeline->step);
    return cgp__run_find(pipeline->executor, minibatch, out);
}

cgp_status cgp__accumulate_agree(const cgp_pipeline *pipeline, cgp_status status) {
    const char *text = adds(pipeline->step) ? "adds to gradients" : "overwrites gradients";
    return cgp__ranks_agree_on(pipeline->ranks, status, "backward", text,
                               "call cgp_pipeline_set_accumulation on all");
}

/* Exchange the parts of gradients, if replicas have only parts. */
static cgp_status complete_parts(const cgp_pipeline *pipeline) {
    cgp__shared *shared = pipeline->step->shared;
    if (!shared->partial) return CGP_OK;
    shared->partial = false;
    return cgp__reduce_complete(pipeline->executor);
}

cgp_status cgp__accumulate_begin(cgp_pipeline *pipeline) {
    cgp__shared *shared = pipeline->step->shared;
    if (adds(pipeline->step)) {
        CGP_TRY(complete_parts(pipeline));
        return shared->open ? CGP_OK : cgp__tied_separate(pipeline->executor);
    }
    shared->refusal[0] = '\0';
    shared->clipped = false;
    shared->scale = 1;
    return CGP_OK;
}

cgp_status cgp__accumulate_close(cgp_pipeline *pipeline) {
    cgp__shared *shared = pipeline->step->shared;
    if (shared->open) {
        shared->open = false;
        CGP_TRY(cgp__tied_sum(pipeline->executor, false));
    }
    const bool needs_norm = pipeline->setup->optim.clip_norm > 0 && !shared->has_norm;
    return needs_norm ? cgp__finite_norm(pipeline) : CGP_OK;
}

cgp_status cgp__accumulate_complete(cgp_pipeline *pipeline) {
    CGP_TRY(complete_parts(pipeline));
    return cgp__accumulate_close(pipeline);
}

cgp_status cgp_pipeline_set_accumulation(cgp_pipeline *pipeline, bool accumulate) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_ACCUMULATION, .at = accumulate);
    CGP_TRY(cgp__step_check_training(pipeline));
    pipeline->step->accumulation.on = accumulate;
    return CGP_OK;
}

static cgp_status check_targets(const cgp_pipeline *pipeline, const int64_t *targets, int n) {
    if (!targets && n == 0) return CGP_OK;
    if (!targets) return cgp__missing("cgp_pipeline_set_targets", "targets");
    if (n != pipeline->model->n_losses)
        return cgp_fail(CGP_EINVAL, "targets: a number for each of %d losses is expected, got %d",
                        pipeline->model->n_losses, n);
    for (int l = 0; l < n; l++)
        if (targets[l] < 1)
            return cgp_fail(CGP_EINVAL,
                            "targets: a number above 0 is expected for loss %d, got %lld", l,
                            (long long)targets[l]);
    return CGP_OK;
}

cgp_status cgp_pipeline_set_targets(cgp_pipeline *pipeline, const int64_t *targets, int n) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_TARGETS, .in = targets, .of = n);
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_targets(pipeline, targets, n)));
    for (int l = 0; l < pipeline->model->n_losses; l++)
        pipeline->step->accumulation.targets[l] = targets ? targets[l] : 0;
    return CGP_OK;
}

cgp_status cgp_pipeline_zero_grad(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_ZERO_GRAD);
    CGP_TRY(cgp__step_check_training(pipeline));
    pipeline->step->shared->update_due = pipeline->step->shared->has_gradients = false;
    return CGP_OK;
}

cgp_status cgp_pipeline_complete_gradients(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_COMPLETE_GRADIENTS);
    CGP_TRY(cgp__step_check_training(pipeline));
    if (cgp__step_has_gradients(pipeline->step)) return cgp__accumulate_complete(pipeline);
    return cgp_fail(CGP_ESTATE, "gradients: there are none yet (%s is due)",
                    cgp__step_due(pipeline));
}

static cgp_status check_clip(const cgp_pipeline *pipeline, double max_norm) {
    if (!(max_norm >= 0))
        return cgp_fail(CGP_EINVAL, "max_norm: a number of 0 or more is expected, got %g",
                        max_norm);
    if (pipeline->step->shared->update_due && !pipeline->step->external_run) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "gradients: there are none to clip (%s is due)",
                    cgp__step_due(pipeline));
}

cgp_status cgp_pipeline_clip_grad_norm(cgp_pipeline *pipeline, double max_norm, double *norm) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_CLIP_GRAD_NORM, .number = max_norm,
                         .out = norm);
    cgp__shared *shared = pipeline->step->shared;
    char text[32];
    CGP_TRY(cgp__step_check_training(pipeline));
    snprintf(text, sizeof text, "%.15g", max_norm);
    CGP_TRY(cgp__ranks_agree_on(pipeline->ranks, check_clip(pipeline, max_norm), "max_norm", text,
                                "pass the same on all"));
    CGP_TRY(cgp__accumulate_complete(pipeline));
    CGP_TRY(cgp__finite_norm(pipeline));
    const double clipped = shared->scale * shared->norm;
    shared->scale *= fmin(1, max_norm / (clipped + 1e-6));
    shared->clipped = true;
    if (norm) *norm = clipped;
    return CGP_OK;
}
