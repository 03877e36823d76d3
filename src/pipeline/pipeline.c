/* pipeline.c -- create, destroy, and the calls that run lists. */
#include "pipeline/pipeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* CGP_FAULT=fail:1F3 makes that action fail, for tests. */
static void read_fault(cgp_pipeline *pipeline) {
    static const char letters[] = "FBIWR"; /* in the order of cgp_action_kind */
    const char *text = getenv("CGP_FAULT");
    char letter;
    pipeline->fault_kind = -1;
    if (!text) return;
    if (sscanf(text, "fail:%d%c%d", &pipeline->fault_stage, &letter,
               &pipeline->fault_microbatch) == 3 &&
        letter && strchr(letters, letter))
        pipeline->fault_kind = (int)(strchr(letters, letter) - letters);
    cgp__log(CGP_LOG_WARN, "pipeline", "CGP_FAULT=%s: %s", text,
             pipeline->fault_kind < 0 ? "is not understood (expected fail:1F3) and does nothing"
                                      : "this action will fail");
}

static cgp_status check_available(const cgp_plan *plan) {
    int64_t planned = 0;
    for (int d = 0; d < plan->n_devices; d++)
        planned += plan->devices[d].info.planned_bytes;
    const int64_t available = cgp__memory_available();
    if (planned <= available) return CGP_OK;
    const double mib = 1024.0 * 1024.0;
    return cgp_fail(CGP_ELIMIT,
                    "plan: needs %.0f MiB but the machine has %.0f MiB available (%s)",
                    (double)planned / mib, (double)available / mib, cgp__plan_advice(plan));
}

static cgp_status create_channels(cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    for (int e = 0; e < plan->n_edges; e++) {
        const cgp__edge_plan *edge = &plan->edges[e];
        char *memory =
            pipeline->workers[plan->stages[edge->edge.from].info.device].memory + edge->offset;
        CGP_TRY(
            cgp__channel_create(&pipeline->channels[e], memory, edge->bytes, edge->capacity));
    }
    return CGP_OK;
}

static cgp_status build(cgp_pipeline *pipeline) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__run *run = NULL;
    pipeline->workers = cgp__calloc((size_t)plan->n_devices, sizeof *pipeline->workers);
    pipeline->channels = cgp__calloc((size_t)plan->n_edges, sizeof *pipeline->channels);
    if (!pipeline->workers || !pipeline->channels)
        return cgp__no_memory("pipeline", (size_t)plan->n_devices * sizeof *pipeline->workers);
    CGP_TRY(check_available(plan));
    CGP_TRY(cgp__workers_start(pipeline));
    CGP_TRY(cgp__workers_all(pipeline, cgp__job_create_device, NULL));
    CGP_TRY(create_channels(pipeline));
    return cgp__run_find(pipeline, plan->batch, plan->inference, &run);
}

cgp_status cgp_pipeline_create(cgp_pipeline **out, const cgp_plan *plan, uint64_t seed) {
    cgp_pipeline *pipeline = cgp__calloc(1, sizeof *pipeline);
    if (!pipeline) return cgp__no_memory("pipeline", sizeof *pipeline);
    pipeline->plan = plan;
    pipeline->seed = seed;
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->work, NULL);
    pthread_cond_init(&pipeline->done, NULL);
    read_fault(pipeline);
    const cgp_status status = build(pipeline);
    if (status != CGP_OK) {
        cgp_pipeline_destroy(pipeline);
        return status;
    }
    *out = pipeline;
    return CGP_OK;
}

void cgp_pipeline_destroy(cgp_pipeline *pipeline) {
    if (!pipeline) return;
    const cgp_plan *plan = pipeline->plan;
    bool all_started = pipeline->workers != NULL;
    for (int d = 0; pipeline->workers && d < plan->n_devices; d++)
        all_started = all_started && pipeline->workers[d].started;
    if (all_started) (void)cgp__workers_all(pipeline, cgp__job_destroy_device, NULL);
    if (pipeline->workers) cgp__workers_stop(pipeline);
    for (int e = 0; pipeline->channels && e < plan->n_edges; e++)
        cgp__channel_destroy(pipeline->channels[e]);
    for (int i = 0; i < pipeline->n_runs; i++)
        cgp__run_destroy(pipeline, pipeline->runs[i]);
    pthread_cond_destroy(&pipeline->done);
    pthread_cond_destroy(&pipeline->work);
    pthread_mutex_destroy(&pipeline->lock);
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

/* Run lists on all workers; a failure is remembered. */
static cgp_status execute(cgp_pipeline *pipeline, cgp__run_context *context) {
    pipeline->first_status = CGP_OK;
    cgp_status status = cgp__workers_all(pipeline, cgp__job_run, context);
    if (pipeline->first_status != CGP_OK)
        status = cgp_fail(pipeline->first_status, "%s", pipeline->first_message);
    if (status != CGP_OK) {
        pipeline->failed = true;
        snprintf(pipeline->failure, sizeof pipeline->failure, "%s", cgp_message());
    }
    return status;
}

/* Add the micro-batches' sums in ascending order. */
static void add_losses(const cgp_pipeline *pipeline, const cgp__run *run, double *sum) {
    for (int i = 0; i < run->chunks; i++)
        *sum += pipeline->losses[i];
}

/* Forward over any number of samples, in pieces, so that lists stay short. Adds the
 * micro-batches' losses to *sum. */
static cgp_status forward_only(cgp_pipeline *pipeline, cgp__run_context *context,
                               int64_t samples, double *sum) {
    const int64_t piece = 256 * pipeline->plan->microbatch;
    for (context->offset = 0; context->offset < samples; context->offset += piece) {
        const int64_t n = samples - context->offset < piece ? samples - context->offset : piece;
        CGP_TRY(cgp__run_find(pipeline, n, true, &context->run));
        CGP_TRY(execute(pipeline, context));
        if (context->with_loss) add_losses(pipeline, context->run, sum);
    }
    return CGP_OK;
}

cgp_status cgp_pipeline_step(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                             int n_inputs, double *loss) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (pipeline->plan->inference)
        return cgp_fail(
            CGP_ESTATE,
            "pipeline: is planned for inference (cgp_pipeline_evaluate or _predict is due)");
    int64_t samples = 0, count = 0;
    CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, true, &samples));
    if (samples > pipeline->plan->batch)
        return cgp_fail(CGP_EINVAL, "mini-batch: planned for at most %lld samples, got %lld",
                        (long long)pipeline->plan->batch, (long long)samples);
    CGP_TRY(cgp__inputs_loss_count(pipeline, inputs, samples, &count));
    cgp__run_context context = {.inputs = inputs,
                                .training = true,
                                .with_loss = true,
                                .loss_scale = (float)(1.0 / (double)count)};
    CGP_TRY(cgp__run_find(pipeline, samples, false, &context.run));
    pipeline->has_gradients = false;
    CGP_TRY(execute(pipeline, &context));
    pipeline->step++;
    pipeline->has_gradients = true;
    double sum = 0;
    add_losses(pipeline, context.run, &sum);
    if (loss) *loss = sum / (double)count;
    return CGP_OK;
}

cgp_status cgp_pipeline_evaluate(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                 int n_inputs, double *loss) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    if (pipeline->plan->model->loss < 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no loss to evaluate",
                        pipeline->plan->model->name);
    int64_t samples = 0, count = 0;
    CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, true, &samples));
    CGP_TRY(cgp__inputs_loss_count(pipeline, inputs, samples, &count));
    cgp__run_context context = {.inputs = inputs, .with_loss = true};
    double sum = 0;
    CGP_TRY(forward_only(pipeline, &context, samples, &sum));
    if (loss) *loss = sum / (double)count;
    return CGP_OK;
}

cgp_status cgp_pipeline_predict(cgp_pipeline *pipeline, const cgp_tensor *const *inputs,
                                int n_inputs, const cgp_tensor *output) {
    CGP_TRY(cgp__pipeline_check_alive(pipeline));
    const cgp_shape wanted = cgp_model_output_shape(pipeline->plan->model);
    if (wanted.rank < 0)
        return cgp_fail(CGP_EINVAL, "model %s: has no output (call cgp_model_output)",
                        pipeline->plan->model->name);
    int64_t samples = 0;
    CGP_TRY(cgp__inputs_check(pipeline, inputs, n_inputs, false, &samples));
    if (!output || !output->data) return cgp_fail(CGP_EINVAL, "output: is missing");
    bool fits = output->dtype == CGP_F32 && output->shape.rank == wanted.rank + 1 &&
                output->shape.dims[0] == samples;
    for (int i = 0; fits && i < wanted.rank; i++)
        fits = output->shape.dims[i + 1] == wanted.dims[i];
    if (!fits) {
        char expected[128], got[128];
        return cgp_fail(CGP_EINVAL, "output: expected f32 of shape [%lld] x %s, got %s %s",
                        (long long)samples, cgp_shape_text(&wanted, expected, sizeof expected),
                        cgp_dtype_name(output->dtype),
                        cgp_shape_text(&output->shape, got, sizeof got));
    }
    cgp__run_context context = {.inputs = inputs, .output = output};
    return forward_only(pipeline, &context, samples, NULL);
}
