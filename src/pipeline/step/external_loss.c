/* SPDX-License-Identifier: Apache-2.0 */
/* external_loss.c -- a step in two calls; in between the caller computes the loss.
 *
 *     cgp_pipeline_forward    the forward part of gpipe's lists; slots stay full
 *     caller                  loss of the output, and its gradient
 *     cgp_pipeline_backward   the backward part; each B begins with a copy of its rows of the gradient into the workspace */
#include "pipeline/pipeline.h"

static cgp_status check_plan(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (pipeline->plan->external_loss) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "pipeline: is not planned with external_loss (cgp_pipeline_%s is due)",
                    pipeline->plan->inference ? "predict" : "step");
}

/* Keep the inputs' tensors: backward reads their data again. */
static void keep_inputs(cgp_pipeline *pipeline, const cgp_tensor *const *inputs) {
    for (int k = 0; k < pipeline->plan->model->n_inputs; k++) {
        cgp_tensor *kept = &pipeline->step.external_inputs[k];
        if (inputs[k]) *kept = *inputs[k];
        pipeline->step.external_list[k] = inputs[k] ? kept : NULL;
    }
}

cgp_status cgp_pipeline_forward(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                int n_inputs, const cgp_tensor *output) {
    CGP__PIPELINE(pipeline);
    if (pipeline->executor.ranks.n == 1) CGP__NEED(inputs);
    if (pipeline->executor.ranks.n == 1) CGP__NEED(output);
    CGP_TRY(check_plan(pipeline));
    CGP_TRY(cgp__step_check_idle(pipeline));
    cgp__run_context context = {.part = CGP__FORWARD_PART,
                                .inputs = cgp__inputs_or_none(&pipeline->step, inputs),
                                .output = output};
    CGP_TRY(cgp__step_train(pipeline, &context, n_inputs));
    keep_inputs(pipeline, context.inputs);
    pipeline->step.external_run = context.run;
    return CGP_OK;
}

cgp_status cgp_pipeline_backward(cgp_pipeline *pipeline, const cgp_tensor *gradient) {
    CGP__PIPELINE(pipeline);
    if (pipeline->executor.ranks.n == 1) CGP__NEED(gradient);
    CGP_TRY(check_plan(pipeline));
    if (!pipeline->step.external_run)
        return cgp_fail(CGP_ESTATE,
                        "pipeline: no forward has run (cgp_pipeline_forward is due)");
    const cgp__run *run = pipeline->step.external_run;
    cgp_status status = CGP_OK;
    if (cgp__inputs_has_output(&pipeline->executor))
        status = cgp__inputs_check_output(pipeline->plan->model, "gradient", gradient,
                                          run->minibatch.samples);
    CGP_TRY(cgp__ranks_agree(&pipeline->executor.ranks, status));
    cgp__run_context context = {.run = run,
                                .part = CGP__BACKWARD_PART,
                                .inputs = pipeline->step.external_list,
                                .training = true,
                                .gradient = gradient};
    pipeline->step.external_run = NULL;
    CGP_TRY(cgp__step_run(pipeline, &context));
    return cgp__step_end(pipeline, 0);
}
