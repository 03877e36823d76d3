/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c -- create, destroy, and the calls that run lists. */
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

cgp_status cgp_pipeline_check_memory(const cgp_plan *plan, int64_t *available) {
    CGP__NEED(plan);
    char needed[32], left[32];
    int64_t planned = 0;
    for (int d = 0; d < plan->n_devices; d++)
        planned += plan->devices[d].info.planned_bytes;
    const int64_t now = cgp__memory_available();
    if (available) *available = now;
    if (planned <= now) return CGP_OK;
    return cgp_fail(CGP_ELIMIT,
                    "memory: the plan needs %s but the machine has %s available (%s)",
                    cgp_bytes_text(planned, needed, sizeof needed),
                    cgp_bytes_text(now, left, sizeof left), cgp__plan_advice(plan));
}

/* Where every device has cores of its own, who waits keeps its core so long before it sleeps: a
 * thread that sleeps is woken up in some 50 us or more, often longer than it had to wait. */
#define SPIN_NS 20000000

static cgp_status create_channels(cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const int64_t spin_ns = cgp__devices_have_cores(plan) ? SPIN_NS : 0;
    for (int e = 0; e < plan->n_edges; e++) {
        const cgp__edge_plan *edge = &plan->edges[e];
        char *memory =
            pipeline->workers[plan->stages[edge->edge.from].info.device].memory + edge->offset;
        CGP_TRY(cgp__channel_create(&pipeline->channels[e], memory, edge->bytes, edge->capacity,
                                    spin_ns));
    }
    return CGP_OK;
}

static cgp_status allocate_losses(cgp_pipeline *pipeline) {
    const cgp_model *model = pipeline->plan->model;
    const size_t losses = (size_t)model->n_losses, inputs = (size_t)model->n_inputs;
    pipeline->loss_counts = cgp__calloc(losses, sizeof *pipeline->loss_counts);
    pipeline->loss_sums = cgp__calloc(losses, sizeof *pipeline->loss_sums);
    pipeline->loss_scales = cgp__calloc(losses, sizeof *pipeline->loss_scales);
    pipeline->squares = cgp__calloc((size_t)model->n_params, sizeof *pipeline->squares);
    pipeline->external_inputs = cgp__calloc(inputs, sizeof *pipeline->external_inputs);
    pipeline->external_list = cgp__calloc(inputs, sizeof(cgp_tensor *));
    if (pipeline->loss_counts && pipeline->loss_sums && pipeline->loss_scales &&
        pipeline->squares && pipeline->external_inputs && pipeline->external_list)
        return CGP_OK;
    return cgp__no_memory("pipeline", inputs * sizeof *pipeline->external_inputs);
}

static cgp_status build(cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__run *run = NULL;
    pipeline->workers = cgp__calloc((size_t)plan->n_devices, sizeof *pipeline->workers);
    pipeline->channels = cgp__calloc((size_t)plan->n_edges, sizeof *pipeline->channels);
    if (!pipeline->workers || !pipeline->channels)
        return cgp__no_memory("pipeline", (size_t)plan->n_devices * sizeof *pipeline->workers);
    CGP_TRY(cgp__faults_read(pipeline));
    CGP_TRY(allocate_losses(pipeline));
    CGP_TRY(cgp_pipeline_check_memory(plan, NULL));
    CGP_TRY(cgp__workers_start(pipeline));
    CGP_TRY(cgp__workers_all(pipeline, cgp__job_create_device, NULL));
    CGP_TRY(create_channels(pipeline));
    return cgp__run_find(pipeline, plan->batch, plan->inference, &run);
}

cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function) {
    if (pipeline->process == getpid()) return CGP_OK;
    return cgp_fail(
        CGP_ESTATE,
        "%s: pipeline: expected a call of process %ld, which made it, got one of %ld "
        "(after a fork make another one)",
        function, (long)pipeline->process, (long)getpid());
}

cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    CGP__NEED(out);
    CGP__NEED(plan);
    cgp_pipeline *pipeline = cgp__calloc(1, sizeof *pipeline);
    if (!pipeline) return cgp__no_memory("pipeline", sizeof *pipeline);
    pipeline->process = getpid();
    pipeline->plan = plan;
    pipeline->seed = seed;
    pipeline->gradient_norm = pipeline->step_norm = NAN;
    cgp__workers_init(pipeline);
    const cgp_status status = build(pipeline);
    if (status != CGP_OK) {
        cgp_pipeline_destroy(pipeline);
        return status;
    }
    *out = pipeline;
    return CGP_OK;
}

void cgp_pipeline_destroy(cgp_pipeline *pipeline) {
    if (!pipeline || pipeline->process != getpid())
        return; /* fork() leaves the workers behind */
    const cgp_plan *plan = pipeline->plan;
    bool all_started = pipeline->workers != NULL;
    for (int d = 0; pipeline->workers && d < plan->n_devices; d++)
        all_started = all_started && pipeline->workers[d].started;
    const bool all_back = cgp__workers_release(pipeline);
    if (all_started && (all_back || !pipeline->shares_stuck))
        (void)cgp__workers_all(pipeline, cgp__job_destroy_device, NULL);
    if (pipeline->workers) cgp__workers_stop(pipeline);
    if (!all_back) return; /* a worker hangs: what it may touch stays (workers.c) */
    for (int e = 0; pipeline->channels && e < plan->n_edges; e++)
        cgp__channel_destroy(pipeline->channels[e]);
    for (int i = 0; i < pipeline->n_runs; i++)
        cgp__run_destroy(pipeline, pipeline->runs[i]);
    cgp__workers_deinit(pipeline);
    free(pipeline->report);
    free(pipeline->faults);
    free(pipeline->external_list);
    free(pipeline->external_inputs);
    free(pipeline->squares);
    free(pipeline->loss_scales);
    free(pipeline->loss_sums);
    free(pipeline->loss_counts);
    free(pipeline->losses);
    free(pipeline->runs);
    free(pipeline->channels);
    free(pipeline->workers);
    free(pipeline);
}

cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline) {
    if (pipeline->failed)
        return cgp_fail(CGP_ESTATE, "pipeline: has failed and can only be destroyed (%s)",
                        pipeline->failure);
    return CGP_OK;
}

cgp_status cgp__pipeline_execute(cgp_pipeline *pipeline, const cgp__run_context *context) {
    pipeline->first_status = CGP_OK;
    pipeline->context = *context;
    cgp_status status = cgp__workers_all(pipeline, cgp__job_run, &pipeline->context);
    if (pipeline->first_status != CGP_OK)
        status = cgp_fail(pipeline->first_status, "%s", pipeline->first_message);
    if (status != CGP_OK) {
        pipeline->failed = true;
        snprintf(pipeline->failure, sizeof pipeline->failure, "%s", cgp_message());
    }
    return status;
}

/* Add the micro-batches' sums in ascending order, each loss for itself. */
static void add_losses(cgp_pipeline *pipeline, const cgp__run *run) {
    const int n = pipeline->plan->model->n_losses;
    for (int i = 0; i < run->chunks; i++) {
        for (int l = 0; l < n; l++)
            pipeline->loss_sums[l] += pipeline->losses[i * n + l];
    }
}

static void reset_losses(cgp_pipeline *pipeline) {
    for (int l = 0; l < pipeline->plan->model->n_losses; l++)
        pipeline->loss_sums[l] = 0;
}

/* The sum over the losses of weight x sum / count. */
static double total_loss(const cgp_pipeline *pipeline) {
    const cgp_model *model = pipeline->plan->model;
    double total = 0;
    for (int l = 0; l < model->n_losses; l++)
        total += model->nodes[cgp__model_loss(model, l)].loss_weight * pipeline->loss_sums[l] /
                 (double)pipeline->loss_counts[l];
    return total;
}

/* Forward over any number of samples, in pieces, so that lists stay short. */
static cgp_status forward_only(cgp_pipeline *pipeline, cgp__run_context *context,
                               int64_t samples) {
    const int64_t piece = 256 * pipeline->plan->microbatch;
    reset_losses(pipeline);
    for (context->offset = 0; context->offset < samples; context->offset += piece) {
        const int64_t n = samples - context->offset < piece ? samples - context->offset : piece;
        CGP_TRY(cgp__run_find(pipeline, n, true, &context->run));
        CGP_TRY(cgp__pipeline_execute(pipeline, context));
        if (context->with_loss) add_losses(pipeline, context->run);
    }
    return CGP_OK;
}

const char *cgp__pipeline_due(const cgp_pipeline *pipeline) {
    if (!pipeline->plan->external_loss) return "cgp_pipeline_step";
    return pipeline->external_run ? "cgp_pipeline_backward" : "cgp_pipeline_forward";
}

cgp_status cgp__pipeline_check_idle(const cgp_pipeline *pipeline) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (!pipeline->external_run) return CGP_OK;
    return cgp_fail(CGP_ESTATE, "pipeline: a forward has run (cgp_pipeline_backward is due)");
}

cgp_status cgp__pipeline_end_step(cgp_pipeline *pipeline, double loss) {
    CGP_TRY(cgp__pipeline_sum_tied(pipeline));
    CGP_TRY(cgp__finite_decide(pipeline, loss));
    if (pipeline->refusal == CGP__ACCEPTED) CGP_TRY(cgp__pipeline_commit_states(pipeline));
    pipeline->step++;
    pipeline->has_gradients = pipeline->left_gradients = true;
    return CGP_OK;
}

cgp_status cgp_pipeline_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                             int n_inputs, double *loss) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(inputs);
    CGP_TRY(cgp__pipeline_check_idle(pipeline));
    if (pipeline->plan->inference)
        return cgp_fail(
            CGP_ESTATE,
            "pipeline: is planned for inference (cgp_pipeline_evaluate or _predict is due)");
    if (pipeline->plan->external_loss)
        return cgp_fail(
            CGP_ESTATE,
            "pipeline: is planned with external_loss (cgp_pipeline_forward is due)");
    int64_t samples = 0;
    CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, true, &samples));
    CGP_TRY(cgp__inputs_check_batch(pipeline, samples));
    CGP_TRY(cgp__inputs_count_losses(pipeline, inputs, samples));
    cgp__run_context context = {.inputs = inputs,
                                .training = true,
                                .with_loss = true,
                                .loss_scales = pipeline->loss_scales};
    CGP_TRY(cgp__run_find(pipeline, samples, false, &context.run));
    pipeline->has_gradients = pipeline->left_gradients = false;
    CGP_TRY(cgp__pipeline_execute(pipeline, &context));
    reset_losses(pipeline);
    add_losses(pipeline, context.run);
    const double total = total_loss(pipeline);
    CGP_TRY(cgp__pipeline_end_step(pipeline, total));
    if (loss) *loss = total;
    return CGP_OK;
}

cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                 int n_inputs, double *loss) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(inputs);
    CGP_TRY(cgp__pipeline_check_idle(pipeline));
    if (pipeline->plan->model->n_losses == 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no loss to evaluate",
                        pipeline->plan->model->name);
    int64_t samples = 0;
    CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, true, &samples));
    CGP_TRY(cgp__inputs_count_losses(pipeline, inputs, samples));
    cgp__run_context context = {.inputs = inputs, .with_loss = true};
    CGP_TRY(forward_only(pipeline, &context, samples));
    if (loss) *loss = total_loss(pipeline);
    return CGP_OK;
}

cgp_status cgp__pipeline_check_output(const cgp_pipeline *pipeline, const char *name,
                                      const cgp_tensor *tensor, int64_t samples) {
    const cgp_model *model = pipeline->plan->model;
    const cgp_shape wanted = cgp_model_output_shape(model);
    const cgp_dtype type = cgp_model_output_dtype(model);
    if (wanted.rank < 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no output (call cgp_model_output)",
                        model->name);
    if (!tensor || !tensor->data) return cgp_fail(CGP_EINVAL, "%s: is missing", name);
    bool fits = tensor->dtype == type && tensor->shape.rank == wanted.rank + 1 &&
                tensor->shape.dims[0] == samples;
    for (int i = 0; fits && i < wanted.rank; i++)
        fits = tensor->shape.dims[i + 1] == wanted.dims[i];
    if (fits) return CGP_OK;
    char expected[128], got[128];
    return cgp_fail(CGP_EINVAL, "%s: expected %s of shape [%lld] x %s, got %s %s", name,
                    cgp_dtype_name(type), (long long)samples,
                    cgp_shape_text(&wanted, expected, sizeof expected),
                    cgp_dtype_name(tensor->dtype),
                    cgp_shape_text(&tensor->shape, got, sizeof got));
}

cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                int n_inputs, const cgp_tensor *output) {
    CGP__PIPELINE(pipeline);
    CGP__NEED(inputs);
    CGP__NEED(output);
    CGP_TRY(cgp__pipeline_check_idle(pipeline));
    int64_t samples = 0;
    if (pipeline->plan->model->output >= 0)
        CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, false, &samples));
    CGP_TRY(cgp__pipeline_check_output(pipeline, "output", output, samples));
    cgp__run_context context = {.inputs = inputs, .output = output};
    return forward_only(pipeline, &context, samples);
}
