/* SPDX-License-Identifier: Apache-2.0 */
/* external_loss.c -- runs a step in two calls. Between the calls, the caller computes the loss.
 *
 *     cgp_pipeline_forward    runs the action lists up to the last forward; slots stay full
 *     caller                  computes the loss and the gradients of the outputs
 *     cgp_pipeline_backward   runs the rest; each B or I first copies its gradient rows to the
 *                             workspace
 *
 * Instead of cgp_pipeline_backward(), the caller may call cgp_pipeline_skip_backward(), which
 * discards the contents of the slots. The next forward fills the slots again. */
#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/executor.h"
#include "pipeline/step/finite.h"
#include "pipeline/step/inputs.h"
#include "pipeline/step/states.h"
#include "pipeline/step/step.h"
#include "plan/setup.h"

static cgp_status check_plan(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (pipeline->setup->external_loss) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "pipeline: is not planned with external_loss (cgp_pipeline_%s is due)",
                    pipeline->setup->inference ? "predict" : "step");
}

/* Store the descriptions of the input tensors, because backward reads the data of the inputs
 * again. */
static void keep_inputs(cgp_pipeline *pipeline, const cgp_tensor *const *inputs) {
    for (int k = 0; k < pipeline->model->n_inputs; k++) {
        cgp_tensor *kept = &pipeline->step->external_inputs[k];
        if (inputs[k]) *kept = *inputs[k];
        pipeline->step->external_list[k] = inputs[k] ? kept : NULL;
    }
}

cgp_status cgp_pipeline_forward(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                int n_inputs, const cgp_tensor *const *outputs, int n_outputs) {
    CGP__PIPELINE(pipeline);
    if (pipeline->n_ranks == 1) CGP__NEED(inputs);
    if (pipeline->n_ranks == 1) CGP__NEED(outputs);
    CGP_TRY(check_plan(pipeline));
    CGP_TRY(cgp__step_check_idle(pipeline));
    cgp__run_context context = {.part = CGP__FORWARD_PART,
                                .inputs = cgp__inputs_or_none(pipeline->step, inputs),
                                .outputs = outputs,
                                .n_outputs = n_outputs};
    CGP_TRY(cgp__step_train(pipeline, &context, n_inputs));
    keep_inputs(pipeline, context.inputs);
    pipeline->step->external_run = context.run;
    return CGP_OK;
}

cgp_status cgp_pipeline_backward(cgp_pipeline *pipeline, const cgp_tensor *const *gradients,
                                 int n_gradients) {
    CGP__PIPELINE(pipeline);
    if (pipeline->n_ranks == 1) CGP__NEED(gradients);
    CGP_TRY(check_plan(pipeline));
    if (!pipeline->step->external_run)
        return cgp_fail(CGP_ESTATE, "pipeline: no forward has run (cgp_pipeline_forward is due)");
    const cgp__run *run = NULL;
    int64_t samples = pipeline->step->external_run->minibatch.samples;
    cgp_status status = cgp__inputs_check_outputs(pipeline, CGP__OUTPUT_GRADIENTS, gradients,
                                                  n_gradients, &samples);
    if (status == CGP_OK) status = cgp__inputs_check_gradients(pipeline, samples);
    CGP_TRY(cgp__accumulate_agree(pipeline, status));
    CGP_TRY(cgp__accumulate_find(pipeline, samples, &run));
    CGP_TRY(cgp__accumulate_begin(pipeline));
    cgp__run_context context = {.run = run,
                                .part = CGP__BACKWARD_PART,
                                .inputs = pipeline->step->external_list,
                                .training = true,
                                .gradients = gradients,
                                .input_gradients = pipeline->step->input_gradient_list};
    pipeline->step->external_run = NULL;
    pipeline->step->shared->update_due = pipeline->step->shared->has_gradients = false;
    CGP_TRY(cgp__step_run(pipeline, &context));
    return cgp__step_end(pipeline, context.run, 0);
}

cgp_status cgp_pipeline_skip_backward(cgp_pipeline *pipeline) {
    CGP__PIPELINE(pipeline);
    CGP_TRY(check_plan(pipeline));
    if (!pipeline->step->external_run)
        return cgp_fail(CGP_ESTATE, "pipeline: no forward has run (cgp_pipeline_forward is due)");
    bool finite = true;
    pipeline->step->external_run = NULL;
    CGP_TRY(cgp__finite_states(pipeline, &finite));
    if (finite) CGP_TRY(cgp__states_commit(pipeline));
    pipeline->step->steps++;
    return CGP_OK;
}

cgp_status cgp_pipeline_set_seed(cgp_pipeline *pipeline, uint64_t seed) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_SET_SEED, .at = (int64_t)seed);
    CGP_TRY(cgp__step_check_idle(pipeline));
    pipeline->step->seed = seed;
    pipeline->step->steps = 0;
    return CGP_OK;
}
