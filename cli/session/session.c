/* SPDX-License-Identifier: Apache-2.0 */
/* session.c -- see session.h. */
#include "session/session.h"

#include <cgpipe/replay.h>

#include "machine.h"
#include "options/options.h"
#include "ranks.h"
#include "session/data.h"
#include "session/eval_metrics.h"
#include "session/inputs.h"
#include "session/plan_options.h"
#include "session/saved_plan.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- plan --- */

cgp_status cli_session_make_plan(cli_session *session) {
    cli_plan_options options;
    cgp_status status = cli_plan_options_make(&options, session);
    if (status == CGP_OK) status = cli_plan_options_balance(&options, session);
    if (status == CGP_OK) status = cgp_plan_create(&session->plan, session->model, &options.plan);
    cli_plan_options_release(&options);
    return status == CGP_OK ? cli_saved_plan_check_devices(session) : status;
}

/* Freeze parameters. The library's message of a failure begins with "freeze: "; put "--" in front
 * of it. */
static cgp_status freeze(cgp_model *model, const char *pattern) {
    const cgp_status status = cgp_model_freeze(model, pattern);
    if (status == CGP_OK) return CGP_OK;
    char *message = cli_text("%s", cgp_message());
    (void)cgp_fail(status, "--%s", message);
    free(message);
    return status;
}

cgp_status cli_session_model(cli_session *session, const cli_run_options *run_options,
                             const cli_model *model) {
    *session = (cli_session){.options = run_options, .of = *model};
    CGP_TRY(cli_model_text(model, session->model_spec));
    CGP_TRY(cli_model_create(&session->model, &session->of));
    for (int i = 0; i < run_options->freeze.count; i++)
        CGP_TRY(freeze(session->model, run_options->freeze.values[i]));
    return cli_saved_plan_check_model(session);
}

cgp_status cli_session_plan(cli_session *session, const cli_run_options *run_options,
                            const cli_model *model) {
    CGP_TRY(cli_session_model(session, run_options, model));
    return cli_session_make_plan(session);
}

/* --- run --- */

static size_t input_bytes(const cgp_model *model, int input) {
    const cgp_shape shape = cgp_model_input_shape(model, input);
    return (size_t)cgp_shape_count(&shape) * cgp_dtype_bytes(cgp_model_input_dtype(model, input));
}

/* Return the number of measured values per step. */
static int measures_of(const cli_session *session) {
    return CLI_BUSY + cgp_plan_devices(session->plan);
}

static bool measures_kernels(const cli_session *session) {
    return session->options->costs_out || session->options->ops;
}

cgp_status cli_session_create(cli_session *session) {
    const bool alone = cli_runs_alone(session->options);
    return cgp_pipeline_create_on(
        &session->pipeline, session->plan, (uint64_t)session->options->seed,
        alone ? NULL : cli_ranks_transport(), alone ? NULL : cli_ranks_communicator());
}

cgp_status cli_session_start(cli_session *session) {
    const cgp_shape output =
        cgp_model_output_shape(session->model, cli_model_logits(session->model));
    cli_measures *m = &session->measures;
    m->values = cli_calloc((size_t)session->options->steps,
                           (size_t)measures_of(session) * sizeof *m->values);
    m->loss_first = m->loss_last = NAN;
    session->inputs = cli_calloc((size_t)session->options->batch, input_bytes(session->model, 0));
    session->targets = cli_calloc((size_t)session->options->batch, input_bytes(session->model, 1));
    if (cli_has_eval_metrics(session->model))
        session->output = cli_calloc((size_t)(session->options->batch * cgp_shape_count(&output)),
                                     sizeof *session->output);
    cgp_escape(getenv("CGP_FAULT") ? getenv("CGP_FAULT") : "", session->fault,
               sizeof session->fault);
    CGP_TRY(cli_ranks_first_text(session->fault, sizeof session->fault));
    cli_reset_peak_resident();
    session->resident_before = cli_peak_resident_bytes();
    CGP_TRY(cli_session_create(session));
    return measures_kernels(session) ? cgp_pipeline_measure_layers(session->pipeline, true)
                                     : CGP_OK;
}

/* Return the rank of a stage. */
static int rank_of(const cgp_plan *plan, int stage) {
    return cgp_plan_device_at(plan, cgp_plan_stage_at(plan, stage)->device)->rank;
}

/* The devices of a rank are a contiguous block, and the last device is on the last rank. */
int cli_plan_rank(const cgp_plan *plan) {
    return cli_rank() % (cgp_plan_device_at(plan, cgp_plan_devices(plan) - 1)->rank + 1);
}

int cli_output_rank(const cgp_plan *plan, int output) {
    return rank_of(plan, cgp_plan_output_stage(plan, output));
}

static int loss_rank(const cgp_plan *plan) {
    return rank_of(plan, cgp_plan_stages(plan) - 1);
}

cgp_status cli_predict_one(cgp_pipeline *pipeline, const cgp_model *model,
                           const cgp_tensor *const *inputs, int n_inputs, int output,
                           const cgp_tensor *tensor) {
    const int count = cgp_model_outputs(model);
    const cgp_tensor **outputs = cli_calloc((size_t)count, sizeof(cgp_tensor *));
    outputs[output] = tensor;
    const cgp_status status = cgp_pipeline_predict(pipeline, inputs, n_inputs, outputs, count);
    free(outputs);
    return status;
}

/* The first stage of a model with two inputs reads the first input. The last stage, which has the
 * loss, reads the targets. */
bool cli_session_reads(const cli_session *session) {
    const bool follow = cli_ranks() > 1 && cli_data_targets_follow(session->options);
    const int rank = cli_plan_rank(session->plan);
    return rank == rank_of(session->plan, 0) || (!follow && rank == loss_rank(session->plan));
}

/* Record that a call failed because of its samples. All ranks call this function. */
static cgp_status sample_failure(cli_session *session, cgp_split split, cgp_status status) {
    session->sample_failed = true;
    if (split == CGP_SPLIT_VALIDATION) return cgp_fail(status, "validation: %s", cgp_message());
    return cgp_fail(status, "step %" PRId64 ": %s", cli_session_steps(session) + 1, cgp_message());
}

/* Read the parts of samples that this rank's stages use. If it fails on one rank, it fails on all
 * ranks with the same status. Labels may depend on decoding, because another image may replace a
 * broken one. The rank that decodes then broadcasts the labels. */
static cgp_status read_samples(cli_session *session, cgp_data *data, cgp_split split, int64_t first,
                               int64_t count) {
    const bool follow = cli_ranks() > 1 && cli_data_targets_follow(session->options);
    const bool input = cgp_pipeline_reads(session->pipeline, 0);
    const bool target = follow ? input : cgp_pipeline_reads(session->pipeline, 1);
    cgp_status status = CGP_OK;
    if (input || target)
        status = cgp_data_read(data, split, first, count, input ? session->inputs : NULL,
                               target ? session->targets : NULL);
    status = cli_ranks_agree_alike(status);
    if (status != CGP_OK && cli_ranks_failure() == CGP_OK)
        return sample_failure(session, split, status);
    if (status != CGP_OK || !follow) return status;
    return cli_ranks_broadcast(rank_of(session->plan, 0), session->targets,
                               (size_t)count * input_bytes(session->model, 1));
}

/* The model's two inputs: samples and targets. */
typedef struct two_inputs {
    cgp_tensor tensors[2];
    const cgp_tensor *pointers[2];
} two_inputs;

/* Make the inputs from the first `count` samples of the buffers. The pointer to an input that this
 * rank does not read is NULL. */
static void make_inputs(const cli_session *session, int64_t count, two_inputs *inputs) {
    for (int i = 0; i < 2; i++) {
        const bool read = cgp_pipeline_reads(session->pipeline, i);
        inputs->tensors[i] =
            (cgp_tensor){cgp_model_input_dtype(session->model, i),
                         cli_batch_shape(cgp_model_input_shape(session->model, i), count),
                         i == 0 ? session->inputs : session->targets};
        inputs->pointers[i] = read ? &inputs->tensors[i] : NULL;
    }
}

/* Record the measurements of a step that ends now. `stepped` is the time at which its update
 * began. */
static void measure(cli_session *session, double start, double stepped, double loss) {
    const double now = cli_seconds();
    cli_measures *m = &session->measures;
    double *values = m->values + m->steps++ * measures_of(session);
    const cgp_pipeline_times times = cgp_pipeline_last_times(session->pipeline, values + CLI_BUSY);
    values[CLI_STEP_SECONDS] = now - start;
    values[CLI_UPDATE_SECONDS] = now - stepped;
    values[CLI_RUN_SECONDS] = times.seconds;
    values[CLI_FORWARD_SECONDS] = times.forward_seconds;
    values[CLI_BACKWARD_SECONDS] = times.backward_seconds;
    values[CLI_GAP_SECONDS] = times.gap_seconds;
    values[CLI_WAKEUP_SECONDS] = times.wakeup_seconds;
    values[CLI_BUBBLE] = times.bubble;
    if (m->steps == 1) m->loss_first = loss;
    m->loss_last = loss;
    session->resident_growth = cli_peak_resident_bytes() - session->resident_before;
}

/* Fail with the library's reason for refusing an update. Leave out the API calls that the library's
 * message suggests. */
static cgp_status explain_refusal(const cli_session *session) {
    const char *reason = cgp_message(), *calls = NULL;
    for (const char *at = reason; (at = strstr(at, " ("));
         at++) /* the last parenthesis holds the API calls; names may contain parentheses too */
        calls = at;
    return cgp_fail(CGP_ESTATE, "step %" PRId64 ": %.*s (a smaller --lr or --clip may help)",
                    cli_session_steps(session) + 1,
                    calls ? (int)(calls - reason) : (int)strlen(reason), reason);
}

cgp_status cli_session_step_on(cli_session *session, const cgp_tensor *const *inputs, int n_inputs,
                               double *loss) {
    double value = NAN;
    const double start = cli_seconds();
    cgp_status status = cgp_pipeline_step(session->pipeline, inputs, n_inputs, &value);
    if (status == CGP_EINVAL) return sample_failure(session, CGP_SPLIT_TRAIN, status);
    CGP_TRY(status);
    const double stepped = cli_seconds();
    status = cgp_optim_step(session->pipeline);
    if (status == CGP_ESTATE) return explain_refusal(session);
    CGP_TRY(status);
    measure(session, start, stepped, value);
    if (measures_kernels(session) && session->measures.steps == 2 &&
        session->options->steps - session->steps_before > 2)
        CGP_TRY(cgp_pipeline_measure_layers(session->pipeline, true));
    if (session->options->trace.count > 0) {
        cgp_schedule_timeline_release(&session->timeline);
        CGP_TRY(cgp_pipeline_last_timeline(session->pipeline, &session->timeline));
    }
    session->position += session->options->batch;
    session->samples += session->options->batch;
    if (loss) *loss = value;
    return CGP_OK;
}

cgp_status cli_session_step(cli_session *session, cgp_data *data, double *loss) {
    const int64_t batch = session->options->batch, first = session->position;
    two_inputs inputs;
    make_inputs(session, batch, &inputs);
    CGP_TRY(read_samples(session, data, CGP_SPLIT_TRAIN, first, batch));
    return cli_session_step_on(session, inputs.pointers, 2, loss);
}

cgp_status cli_session_keep(const cli_session *session) {
    return cgp_pipeline_keep_step(session->pipeline);
}

cgp_status cli_session_replay(const cli_session *session) {
    two_inputs inputs;
    make_inputs(session, session->options->batch, &inputs);
    return cgp_pipeline_replay_step(session->pipeline, inputs.pointers, 2, NULL);
}

int64_t cli_session_steps(const cli_session *session) {
    return session->steps_before + session->measures.steps;
}

/* Make the array that sums the losses over mini-batches: one part for each loss, then a part with
 * weight 0. The caller frees the array. */
static cgp_loss_part *make_parts(const cgp_pipeline *pipeline) {
    int n = 0;
    while (cgp_pipeline_last_loss(pipeline, n).weight > 0)
        n++;
    return cli_calloc((size_t)n + 1, sizeof(cgp_loss_part));
}

static void add_losses(const cgp_pipeline *pipeline, cgp_loss_part *parts) {
    for (int i = 0;; i++) {
        const cgp_loss_part part = cgp_pipeline_last_loss(pipeline, i);
        if (part.weight <= 0) return;
        parts[i].weight = part.weight;
        parts[i].sum += part.sum;
        parts[i].count += part.count;
        parts[i].divisor += part.divisor;
    }
}

/* Evaluate `count` samples, at most a mini-batch, beginning with sample `first`. */
static cgp_status evaluate(cli_session *session, cgp_data *data, int64_t first, int64_t count,
                           cgp_loss_part *parts, cli_eval_sums *sums) {
    two_inputs inputs;
    make_inputs(session, count, &inputs);
    CGP_TRY(read_samples(session, data, CGP_SPLIT_VALIDATION, first, count));
    const cgp_status status = cgp_pipeline_evaluate(session->pipeline, inputs.pointers, 2, NULL);
    if (status == CGP_EINVAL) return sample_failure(session, CGP_SPLIT_VALIDATION, status);
    CGP_TRY(status);
    add_losses(session->pipeline, parts);
    sums->samples += count;
    if (!session->output) return CGP_OK;
    const int logits = cli_model_logits(session->model);
    const int from = cli_output_rank(session->plan, logits), to = loss_rank(session->plan);
    const cgp_tensor output = {
        CGP_F32, cli_batch_shape(cgp_model_output_shape(session->model, logits), count),
        session->output};
    CGP_TRY(
        cli_predict_one(session->pipeline, session->model, inputs.pointers, 2, logits, &output));
    if (from != to) /* only rank `to` has the targets */
        CGP_TRY(cli_ranks_broadcast(from, session->output,
                                    (size_t)cgp_shape_count(&output.shape) * sizeof(float)));
    if (cli_rank() == to)
        cli_eval_sums_add(sums, session->model, session->output, session->targets, count);
    return cli_ranks_broadcast(to, sums, sizeof *sums);
}

cgp_status cli_session_validate(cli_session *session, cgp_data *data, int64_t samples,
                                cli_eval_metrics *metrics) {
    const int64_t batch = session->options->batch;
    cgp_loss_part *parts = make_parts(session->pipeline);
    cli_eval_sums sums = {0};
    cgp_status status = CGP_OK;
    bool stopped = false;
    *metrics = cli_no_eval_metrics;
    for (int64_t first = 0; status == CGP_OK && first < samples && !stopped; first += batch) {
        const int64_t count = samples - first < batch ? samples - first : batch;
        stopped = cli_ranks_stop(false) != NULL;
        if (!stopped) status = evaluate(session, data, first, count, parts, &sums);
    }
    if (status == CGP_OK && !stopped) *metrics = cli_eval_metrics_of(&sums, parts);
    free(parts);
    return status;
}

void cli_session_release(cli_session *session) {
    cgp_schedule_timeline_release(&session->timeline);
    cgp_pipeline_destroy(session->pipeline);
    cgp_plan_destroy(session->plan);
    cgp_model_destroy(session->model);
    free(session->groups);
    free(session->output);
    free(session->targets);
    free(session->inputs);
    free(session->measures.values);
    *session = (cli_session){0};
}

/* --- figures --- */

cgp_plan_device cli_plan_total(const cgp_plan *plan) {
    cgp_plan_device total = {.name = "all"};
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        total.parameter_bytes += device->parameter_bytes;
        total.gradient_bytes += device->gradient_bytes;
        total.optimizer_bytes += device->optimizer_bytes;
        total.state_bytes += device->state_bytes;
        total.partial_gradient_bytes += device->partial_gradient_bytes;
        total.packed_bytes += device->packed_bytes;
        total.replay_bytes += device->replay_bytes;
        total.slot_bytes += device->slot_bytes;
        total.workspace_bytes += device->workspace_bytes;
        total.transfer_bytes += device->transfer_bytes;
        total.activation_bytes += device->activation_bytes;
        total.planned_bytes += device->planned_bytes;
        total.host_bytes += device->host_bytes;
    }
    return total;
}

int64_t cli_allocated_bytes(const cli_session *session) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(session->plan); d++)
        bytes += cgp_pipeline_allocated_bytes(session->pipeline, d);
    return bytes;
}

double cli_measured(const cli_session *session, int measure) {
    const cli_measures *m = &session->measures;
    return cli_median(m->values + measure, m->steps, measures_of(session), 2);
}

const double *cli_measured_last(const cli_session *session) {
    const cli_measures *m = &session->measures;
    return m->values + (m->steps - 1) * measures_of(session);
}
