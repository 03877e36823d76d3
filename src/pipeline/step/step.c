/* SPDX-License-Identifier: Apache-2.0 */
/* step.c -- runs the action lists of training steps, evaluations and predictions, and updates
 * losses and counters. */
#include "pipeline/step/step.h"

#include "model/model.h"
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/jobs.h"
#include "pipeline/run/ranks.h"
#include "pipeline/step/evidence.h"
#include "pipeline/step/finite.h"
#include "pipeline/step/inputs.h"
#include "pipeline/step/reduce.h"
#include "pipeline/step/states.h"
#include "pipeline/step/tied.h"
#include "plan/memory/step_memory.h"
#include "plan/setup.h"
#include "schedule/gradient_groups.h"
#include "transport/transport.h"

#include <math.h>
#include <stdlib.h>

cgp_status cgp__step_init(cgp__step *step, const cgp_plan *plan, uint64_t seed) {
    const cgp__setup *setup = cgp__plan_setup(plan);
    const cgp_model *model = setup->model;
    step->seed = seed;
    step->shared = &step->own;
    step->own = (cgp__shared){.scale = 1, .norm = NAN};
    CGP_TRY(CGP__NEW(step->lr, 1 + setup->groups.n, "pipeline"));
    CGP_TRY(CGP__NEW(step->update_values, 1 + setup->groups.n, "pipeline"));
    for (int g = 0; g <= setup->groups.n; g++)
        step->lr[g] = NAN;
    CGP_TRY(CGP__NEW(step->parts,
                     (size_t)(setup->ranks * setup->replicas) * cgp__inputs_part_bytes(setup),
                     "pipeline"));
    CGP_TRY(CGP__NEW(step->packed, model->n_params, "pipeline"));
    CGP_TRY(CGP__NEW(step->loss_counts, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->loss_divisors, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->accumulation.targets, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->loss_sums, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->step_sums, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->loss_scales, model->n_losses, "pipeline"));
    CGP_TRY(CGP__NEW(step->squares, model->n_params, "pipeline"));
    CGP_TRY(CGP__NEW(step->nonfinite, cgp_plan_devices(plan), "pipeline"));
    CGP_TRY(CGP__NEW(step->external_inputs, model->n_inputs, "pipeline"));
    CGP_TRY(CGP__NEW(step->external_list, model->n_inputs, "pipeline"));
    CGP_TRY(CGP__NEW(step->input_gradients, model->n_inputs, "pipeline"));
    CGP_TRY(CGP__NEW(step->input_gradient_list, model->n_inputs, "pipeline"));
    return CGP__NEW(step->no_inputs, model->n_inputs, "pipeline");
}

void cgp__step_deinit(cgp__step *step) {
    cgp__digests_destroy(step->digests);
    free(step->no_inputs);
    free(step->input_gradient_list);
    free(step->input_gradients);
    free(step->external_list);
    free(step->external_inputs);
    free(step->nonfinite);
    free(step->squares);
    free(step->loss_scales);
    free(step->step_sums);
    free(step->loss_sums);
    free(step->accumulation.targets);
    free(step->loss_divisors);
    free(step->loss_counts);
    free(step->packed);
    free(step->parts);
    free(step->update_values);
    free(step->lr);
}

/* Gather the loss sums of all replicas' micro-batches on all ranks. `rank` is the plan's rank of
 * the last stage. */
static cgp_status gather_losses(const cgp_pipeline *pipeline, const cgp__minibatch *m, int rank) {
    const cgp__setup *setup = pipeline->setup;
    const size_t row = (size_t)pipeline->model->n_losses * sizeof(double);
    double *losses = pipeline->executor->losses;
    size_t *bytes = cgp__ranks_sizes(pipeline->ranks);
    for (int r = 0; r < pipeline->n_ranks; r++) {
        const int replica = r / setup->ranks,
                  first = cgp__replica_first(replica, m->of_chunks, setup->replicas),
                  next = cgp__replica_first(replica + 1, m->of_chunks, setup->replicas);
        bytes[r] = r % setup->ranks == rank ? (size_t)(next - first) * row : 0;
    }
    return cgp__ranks_share_blocks(pipeline->ranks,
                                   losses + (int64_t)m->first * pipeline->model->n_losses, losses);
}

/* Share the loss sums with all ranks. */
static cgp_status share_losses(const cgp_pipeline *pipeline, const cgp__minibatch *m) {
    const cgp_plan *plan = pipeline->plan;
    const int last = cgp_plan_stage_at(plan, cgp_plan_stages(plan) - 1)->device,
              rank = cgp_plan_device_at(plan, last)->rank;
    const size_t sums = (size_t)m->chunks * (size_t)pipeline->model->n_losses;
    if (m->of_chunks > 0) return gather_losses(pipeline, m, rank);
    return cgp__ranks_broadcast(pipeline->ranks, rank, pipeline->executor->losses,
                                sums * sizeof(double));
}

/* Run the action lists. A replica without micro-batches runs no list, but takes part in the
 * agreement. */
static cgp_status run_lists(const cgp_pipeline *pipeline, cgp__run_context *context) {
    cgp__executor *executor = pipeline->executor;
    if (context->run->minibatch.chunks > 0) return cgp__executor_run(executor, context);
    cgp__executor_skip(executor);
    return cgp__executor_job(executor, cgp__job_exchange, context);
}

/* Run the action lists, then share the loss sums. */
cgp_status cgp__step_run(cgp_pipeline *pipeline, cgp__run_context *context) {
    cgp__executor *executor = pipeline->executor;
    const cgp__minibatch *m = &context->run->minibatch;
    context->seed = pipeline->step->seed;
    context->step = (uint64_t)pipeline->step->steps;
    CGP_TRY(run_lists(pipeline, context));
    if (!context->with_loss || pipeline->model->n_losses == 0) return CGP_OK;
    return cgp__executor_exchanged(executor, share_losses(pipeline, m));
}

/* For each loss, add up the sums of all micro-batches, in ascending order of micro-batches. */
static void add_losses(cgp_pipeline *pipeline, const cgp__run *run) {
    const int n = pipeline->model->n_losses;
    for (int i = 0; i < cgp__whole_chunks(&run->minibatch); i++) {
        for (int l = 0; l < n; l++)
            pipeline->step->loss_sums[l] += pipeline->executor->losses[i * n + l];
    }
}

static void reset_losses(cgp_pipeline *pipeline) {
    for (int l = 0; l < pipeline->model->n_losses; l++)
        pipeline->step->loss_sums[l] = 0;
}

/* Return the total loss, which is the sum of weight x sum / divisor over all losses. */
static double total_loss(const cgp_pipeline *pipeline) {
    const cgp_model *model = pipeline->model;
    double total = 0;
    for (int l = 0; l < model->n_losses; l++)
        total += model->nodes[cgp__model_loss(model, l)].loss_weight *
                 pipeline->step->loss_sums[l] / pipeline->step->loss_divisors[l];
    return total;
}

const char *cgp__step_due(const cgp_pipeline *pipeline) {
    if (!pipeline->setup->external_loss) return "cgp_pipeline_step";
    return pipeline->step->external_run ? "cgp_pipeline_backward" : "cgp_pipeline_forward";
}

cgp_status cgp__step_check_idle(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->step->external_run) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "pipeline: a forward has run (cgp_pipeline_backward is due)");
}

cgp_status cgp__step_check_training(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->setup->inference) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "pipeline: is planned for inference, so it has no gradients");
}

/* Return true if a step leaves complete gradients on every replica. */
static bool completes(const cgp_pipeline *pipeline) {
    return !pipeline->setup->shards || pipeline->setup->optim.clip_norm > 0 ||
           pipeline->step->accumulation.on;
}

cgp_status cgp__step_end(cgp_pipeline *pipeline, const cgp__run *run, double loss) {
    cgp__inputs_zero_gradients(pipeline);
    cgp__shared *shared = pipeline->step->shared;
    shared->partial = !completes(pipeline);
    CGP_TRY(cgp__reduce_statistics(pipeline->executor, &run->minibatch));
    shared->open = pipeline->step->accumulation.on;
    if (pipeline->step->evidence) CGP_TRY(cgp__evidence_add_uses(pipeline));
    if (!shared->open)
        CGP_TRY(cgp__tied_sum(pipeline->executor, cgp__finite_checks(pipeline->plan)));
    CGP_TRY(cgp__finite_decide(pipeline, loss));
    if (!shared->refusal[0]) CGP_TRY(cgp__states_commit(pipeline));
    pipeline->step->steps++;
    shared->update_due = shared->has_gradients = true;
    return CGP_OK;
}

cgp_status cgp__step_train(cgp_pipeline *pipeline, cgp__run_context *context, int n_inputs) {
    int64_t samples = 0;
    context->training = true;
    CGP_TRY(cgp__inputs_check(pipeline, context, n_inputs, &samples));
    const cgp__accumulation *accumulation = &pipeline->step->accumulation;
    const bool forward = context->part == CGP__FORWARD_PART;
    CGP_TRY(cgp__accumulate_check(pipeline));
    if (forward)
        CGP_TRY(
            cgp__run_find(pipeline->executor, (cgp__minibatch){.samples = samples}, &context->run));
    else
        CGP_TRY(cgp__accumulate_find(pipeline, samples, &context->run));
    context->offset = context->run->minibatch.first * pipeline->setup->microbatch;
    context->reduces = pipeline->setup->replicas > 1;
    context->completes = completes(pipeline);
    if (!forward) CGP_TRY(cgp__accumulate_begin(pipeline));
    if (!forward || !accumulation->on)
        pipeline->step->shared->update_due = pipeline->step->shared->has_gradients = false;
    return cgp__step_run(pipeline, context);
}

cgp_status cgp_pipeline_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs, int n_inputs,
                             double *loss) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_STEP, .in = inputs, .of = n_inputs,
                         .out = loss);
    if (pipeline->n_ranks == 1) CGP__NEED(inputs);
    CGP_TRY(cgp__step_check_idle(pipeline));
    if (pipeline->setup->inference)
        return cgp_fail(
            CGP_ESTATE,
            "pipeline: is planned for inference (cgp_pipeline_evaluate or _predict is due)");
    if (pipeline->setup->external_loss)
        return cgp_fail(CGP_ESTATE,
                        "pipeline: is planned with external_loss (cgp_pipeline_forward is due)");
    cgp__run_context context = {.inputs = cgp__inputs_or_none(pipeline->step, inputs),
                                .with_loss = true,
                                .may_count_nothing = cgp__inputs_has_targets(pipeline),
                                .input_gradients = pipeline->step->input_gradient_list,
                                .loss_scales = pipeline->step->loss_scales};
    CGP_TRY(cgp__step_train(pipeline, &context, n_inputs));
    reset_losses(pipeline);
    add_losses(pipeline, context.run);
    for (int l = 0; l < pipeline->model->n_losses; l++)
        pipeline->step->step_sums[l] = pipeline->step->loss_sums[l];
    const double total = total_loss(pipeline);
    CGP_TRY(cgp__step_end(pipeline, context.run, total));
    if (loss) *loss = total;
    return CGP_OK;
}

/* Return true if each replica runs a share of the samples of an evaluation or prediction. Outputs
 * are complete on every rank, so replicas share a prediction only if they share the caller's
 * tensors. */
static bool divides(const cgp_pipeline *pipeline, const cgp__run_context *context) {
    const cgp__setup *setup = pipeline->setup;
    return setup->replicas > 1 &&
           (!context->outputs || pipeline->ranks->transport == &cgp__transport_threads);
}

/* Run forward over any number of samples. The samples run in pieces, so the action lists stay
 * short. */
static cgp_status forward_only(cgp_pipeline *pipeline, cgp__run_context *context, int n_inputs) {
    const cgp__setup *setup = pipeline->setup;
    const bool divided = divides(pipeline, context);
    const int64_t piece = CGP__PIECE * setup->microbatch * (divided ? setup->replicas : 1);
    int64_t samples = 0;
    CGP_TRY(cgp__inputs_check(pipeline, context, n_inputs, &samples));
    reset_losses(pipeline);
    for (int64_t at = 0; at < samples; at += piece) {
        const int64_t n = cgp__min(samples - at, piece);
        cgp__minibatch share = {.samples = n};
        if (divided) share = cgp__plan_share(pipeline->plan, n, pipeline->ranks->replica);
        share.forward_only = true;
        context->offset = at + share.first * setup->microbatch;
        CGP_TRY(cgp__run_find(pipeline->executor, share, &context->run));
        CGP_TRY(cgp__step_run(pipeline, context));
        if (context->with_loss) add_losses(pipeline, context->run);
    }
    return CGP_OK;
}

cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                 int n_inputs, double *loss) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_EVALUATE, .in = inputs, .of = n_inputs,
                         .out = loss);
    if (pipeline->n_ranks == 1) CGP__NEED(inputs);
    CGP_TRY(cgp__step_check_idle(pipeline));
    if (pipeline->model->n_losses == 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no loss to evaluate", pipeline->model->name);
    cgp__run_context context = {.inputs = cgp__inputs_or_none(pipeline->step, inputs),
                                .with_loss = true,
                                .may_count_nothing = !loss};
    CGP_TRY(forward_only(pipeline, &context, n_inputs));
    if (loss) *loss = total_loss(pipeline);
    return CGP_OK;
}

cgp_loss_part cgp_pipeline_last_loss(const cgp_pipeline *pipeline, int loss) {
    const cgp_loss_part none = {0, 0, 0, 0};
    CGP__PIPELINE_OR(pipeline, none);
    const cgp_model *model = pipeline->model;
    if (loss < 0 || loss >= model->n_losses) return none;
    return (cgp_loss_part){.weight = model->nodes[cgp__model_loss(model, loss)].loss_weight,
                           .sum = pipeline->step->loss_sums[loss],
                           .count = pipeline->step->loss_counts[loss],
                           .divisor = pipeline->step->loss_divisors[loss]};
}

cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                int n_inputs, const cgp_tensor *const *outputs, int n_outputs) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_PREDICT, .in = inputs, .of = n_inputs,
                         .out = (void *)outputs, .at = n_outputs);
    if (pipeline->n_ranks == 1) CGP__NEED(inputs);
    if (pipeline->n_ranks == 1) CGP__NEED(outputs);
    CGP_TRY(cgp__step_check_idle(pipeline));
    cgp__run_context context = {.inputs = cgp__inputs_or_none(pipeline->step, inputs),
                                .outputs = outputs,
                                .n_outputs = n_outputs};
    return forward_only(pipeline, &context, n_inputs);
}
