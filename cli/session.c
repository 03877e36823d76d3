/* SPDX-License-Identifier: Apache-2.0 */
/* session.c -- see session.h. */
#include "session.h"

#include "common.h"
#include "recipe.h"
#include "costs.h"
#include "schedule_files.h"
#include "stop.h"
#include "trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_DROPOUT 0.1 /* of the seed experiment */

/* --- model --- */

cgp_status cli_model_parse(cgp_model_spec *spec, const char *text, int64_t vocab) {
    *spec = cgp_model_spec_default();
    if (vocab > 0) spec->gpt2.vocab = vocab;
    return cgp_model_spec_parse(spec, text);
}

/* The field of the model's options, NULL if it has no dropout. */
static double *dropout_of(cgp_model_spec *spec) {
    if (spec->kind == CGP_MODEL_GPT2) return &spec->gpt2.dropout;
    return spec->kind == CGP_MODEL_UNET ? &spec->unet.dropout : NULL;
}

cgp_status cli_model_resolve(cgp_model_spec *spec, cli_run_options *s) {
    double *dropout = dropout_of(spec);
    if (!dropout && s->dropout > 0)
        return cgp_fail(CGP_EINVAL, "--dropout %g: %s has none (leave it out)", s->dropout,
                        cgp_model_kind_name(spec->kind));
    if (isnan(s->dropout) && dropout)
        s->dropout =
            s->command == CLI_BENCH && spec->kind == CGP_MODEL_GPT2 ? BENCH_DROPOUT : *dropout;
    if (isnan(s->dropout)) s->dropout = 0;
    if (dropout) *dropout = s->dropout;
    return CGP_OK;
}

cgp_status cli_model_expect_gpt2(const cgp_model_spec *spec, const char *what) {
    if (spec->kind == CGP_MODEL_GPT2) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "%s: expected a gpt2, got %s", what,
                    cgp_model_kind_name(spec->kind));
}

/* --- plan --- */

static double or_zero(double value) {
    return isnan(value) ? 0 : value;
}

/* What the optimizer or the schedule does not have is NaN in the settings. */
static cgp_status make_optim(const cli_run_options *s, cgp_optim *optim) {
    *optim = (cgp_optim){.lr = s->lr,
                         .weight_decay = s->weight_decay,
                         .momentum = or_zero(s->momentum),
                         .nesterov = s->nesterov,
                         .beta1 = or_zero(s->beta1),
                         .beta2 = or_zero(s->beta2),
                         .eps = or_zero(s->eps),
                         .alpha = or_zero(s->alpha),
                         .clip_norm = s->clip,
                         .decay_all = s->decay_all,
                         .schedule = {.warmup = s->warmup,
                                      .steps = s->steps,
                                      .min_ratio = or_zero(s->min_lr_ratio),
                                      .step_size = s->lr_step_size,
                                      .gamma = or_zero(s->lr_gamma)}};
    CGP_TRY(cgp_optim_kind_parse(&optim->kind, s->optimizer));
    CGP_TRY(cgp_lr_kind_parse(&optim->schedule.kind, s->lr_schedule));
    cli_recipe_lr(s, &optim->schedule);
    return cgp_optim_check(optim);
}

/* One name a device, from one for all or one each. The caller frees it; NULL: the default. */
static cgp_status expand_devices(const cli_run_options *s, const char ***out) {
    *out = NULL;
    const int devices = (int)s->stages;
    if (s->devices.count == 0) return CGP_OK;
    if (s->devices.count != 1 && s->devices.count != devices)
        return cgp_fail(CGP_EINVAL,
                        "--devices: expected one name for all, or one for each of "
                        "the %d, got %d",
                        devices, s->devices.count);
    const char *first = s->devices.values[0];
    if (!first[strspn(first, "0123456789")])
        return cgp_fail(CGP_EINVAL,
                        "--devices %s: expected cpu or ref, got a number (--stages %s for so "
                        "many)",
                        first, first);
    *out = cli_calloc((size_t)devices, sizeof **out);
    for (int d = 0; d < devices; d++)
        (*out)[d] = s->devices.values[s->devices.count == 1 ? 0 : d];
    return CGP_OK;
}

static cgp_status check_balance(const cli_session *e, const cgp_plan_options *options) {
    const int count = e->options->balance.layers.count;
    const int stages = cgp_plan_options_stages(options);
    if (count == 0) return CGP_OK;
    if (count != stages)
        return cgp_fail(CGP_EINVAL, "--balance: expected %d numbers, one a stage, got %d",
                        stages, count);
    return cgp_balance_check(e->model, count, e->options->balance.layers.values);
}

cgp_status cli_session_make_plan(cli_session *e) {
    const cli_run_options *s = e->options;
    if (s->stages > cgp_model_layers(e->model))
        return cgp_fail(CGP_EINVAL, "--stages %" PRId64 ": the model has %d layers (%s)",
                        s->stages, cgp_model_layers(e->model), e->model_spec);
    cgp_plan_options options = cgp_plan_options_default();
    CGP_TRY(cgp_recompute_parse(&options.recompute, s->recompute));
    CGP_TRY(cgp_precision_parse(&options.precision, s->precision));
    CGP_TRY(make_optim(s, &e->optim));
    const char **devices = NULL;
    CGP_TRY(expand_devices(s, &devices));
    options.stages = (int)s->stages;
    options.batch = s->batch;
    options.chunks = (int)s->chunks;
    options.virtual_stages = (int)s->virtual_stages;
    options.group = (int)s->group;
    options.optim = e->optim;
    options.devices = devices;
    options.threads_per_device = (int)s->threads_per_device;
    options.memory_limit = s->memory_limit;
    options.deferred_batch_norm = s->deferred_batch_norm;
    int *balance = NULL;
    cgp_schedule *table = NULL;
    cgp_status status = CGP_OK;
    if (cli_schedule_is_file(s->schedule))
        status = cli_schedule_read(&table, s->schedule);
    else
        options.schedule = s->schedule;
    options.table = table;
    if (status == CGP_OK) status = check_balance(e, &options);
    if (status == CGP_OK) status = cli_balance_find(e, &options, &balance);
    options.balance = balance ? balance : s->balance.layers.values;
    if (status == CGP_OK) status = cgp_plan_create(&e->plan, e->model, &options);
    cgp_schedule_destroy(table);
    free(balance);
    free(devices);
    return status;
}

cgp_status cli_session_model(cli_session *e, const cli_run_options *run_options,
                             const cgp_model_spec *spec) {
    *e = (cli_session){.options = run_options, .spec = *spec};
    CGP_TRY(cgp_model_spec_text(spec, e->model_spec, sizeof e->model_spec));
    return cgp_model_spec_create(&e->model, &e->spec);
}

cgp_status cli_session_plan(cli_session *e, const cli_run_options *run_options,
                            const cgp_model_spec *spec) {
    CGP_TRY(cli_session_model(e, run_options, spec));
    return cli_session_make_plan(e);
}

/* --- run --- */

static size_t input_bytes(const cgp_model *model, int input) {
    const cgp_shape shape = cgp_model_input_shape(model, input);
    return (size_t)cgp_shape_count(&shape) *
           cgp_dtype_bytes(cgp_model_input_dtype(model, input));
}

cgp_status cli_session_start(cli_session *e) {
    const size_t capacity = (size_t)e->options->steps;
    const cgp_shape output = cgp_model_output_shape(e->model);
    cli_measures *m = &e->measures;
    m->capacity = e->options->steps;
    m->step = cli_calloc(capacity, sizeof *m->step);
    m->forward = cli_calloc(capacity, sizeof *m->forward);
    m->backward = cli_calloc(capacity, sizeof *m->backward);
    m->bubble = cli_calloc(capacity, sizeof *m->bubble);
    m->run = cli_calloc(capacity, sizeof *m->run);
    m->gap = cli_calloc(capacity, sizeof *m->gap);
    m->wakeup = cli_calloc(capacity, sizeof *m->wakeup);
    m->busy = cli_calloc(capacity * (size_t)cgp_plan_devices(e->plan), sizeof *m->busy);
    m->loss_first = m->loss_last = NAN;
    e->inputs = cli_calloc((size_t)e->options->batch, input_bytes(e->model, 0));
    e->targets = cli_calloc((size_t)e->options->batch, input_bytes(e->model, 1));
    if (cli_scored(e->model))
        e->output = cli_calloc((size_t)(e->options->batch * cgp_shape_count(&output)),
                               sizeof *e->output);
    cli_forget_peak_resident();
    e->resident_before = cli_peak_resident_bytes();
    CGP_TRY(cgp_pipeline_create(&e->pipeline, e->plan, (uint64_t)e->options->seed));
    return e->options->costs_out ? cgp_pipeline_measure_layers(e->pipeline, true) : CGP_OK;
}

/* N rows of a shape for one sample. */
static cgp_shape batch_shape(cgp_shape sample, int64_t count) {
    int64_t dims[CGP_MAX_RANK] = {count};
    memcpy(dims + 1, sample.dims, (CGP_MAX_RANK - 1) * sizeof dims[0]);
    return cgp_shape_make(sample.rank + 1, dims);
}

/* The first `count` samples of the buffers as the model's two inputs. */
static void make_inputs(const cli_session *e, int64_t count, cgp_tensor inputs[2]) {
    for (int i = 0; i < 2; i++)
        inputs[i] = (cgp_tensor){cgp_model_input_dtype(e->model, i),
                                 batch_shape(cgp_model_input_shape(e->model, i), count),
                                 i == 0 ? e->inputs : e->targets};
}

static void measure(cli_session *e, double seconds, double loss) {
    cli_measures *m = &e->measures;
    const int devices = cgp_plan_devices(e->plan);
    double *busy = cli_calloc((size_t)devices, sizeof *busy);
    const cgp_pipeline_times times = cgp_pipeline_last_times(e->pipeline, busy);
    const int64_t i = m->steps++;
    m->step[i] = seconds;
    m->forward[i] = times.forward_seconds;
    m->backward[i] = times.backward_seconds;
    m->bubble[i] = times.bubble;
    m->run[i] = times.seconds;
    m->gap[i] = times.gap_seconds;
    m->wakeup[i] = times.wakeup_seconds;
    for (int d = 0; d < devices; d++)
        m->busy[d * m->capacity + i] = busy[d];
    if (i == 0) m->loss_first = loss;
    m->loss_last = loss;
    e->resident_growth = cli_peak_resident_bytes() - e->resident_before;
    free(busy);
}

/* The library's reason not to update, without the calls that it says are due. */
static cgp_status tell_refusal(const cli_session *e) {
    const char *reason = cgp_message(), *calls = NULL;
    for (const char *at = reason; (at = strstr(at, " ("));
         at++) /* the last one: a name may have some */
        calls = at;
    return cgp_fail(CGP_ESTATE, "step %" PRId64 ": %.*s (a smaller --lr or --clip may help)",
                    cli_session_steps(e) + 1,
                    calls ? (int)(calls - reason) : (int)strlen(reason), reason);
}

cgp_status cli_session_step_on(cli_session *e, const cgp_tensor *const *inputs, int n_inputs,
                               double *loss) {
    double value = NAN;
    const double start = cli_seconds();
    CGP_TRY(cgp_pipeline_step(e->pipeline, inputs, n_inputs, &value));
    const cgp_status updated = cgp_optim_step(e->pipeline);
    if (updated == CGP_ESTATE) return tell_refusal(e);
    CGP_TRY(updated);
    measure(e, cli_seconds() - start, value);
    if (e->options->costs_out && e->measures.steps == 2 && e->measures.capacity > 2)
        CGP_TRY(cgp_pipeline_measure_layers(e->pipeline, true));
    CGP_TRY(cli_trace_keep(e));
    e->position += e->options->batch;
    if (loss) *loss = value;
    return CGP_OK;
}

cgp_status cli_session_step(cli_session *e, cgp_data *data, double *loss) {
    const int64_t batch = e->options->batch, first = e->position;
    cgp_tensor inputs[2];
    make_inputs(e, batch, inputs);
    CGP_TRY(cgp_data_read(data, CGP_SPLIT_TRAIN, first, batch, e->inputs, e->targets));
    const cgp_tensor *const pointers[2] = {&inputs[0], &inputs[1]};
    return cli_session_step_on(e, pointers, 2, loss);
}

int64_t cli_session_steps(const cli_session *e) {
    return e->steps_before + e->measures.steps;
}

/* Add what is to be known of `count` samples from `first` on, at most a mini-batch of them. */
static cgp_status evaluate(cli_session *e, cgp_data *data, int64_t first, int64_t count,
                           cli_eval_sums *tally) {
    cgp_tensor inputs[2];
    double loss = 0;
    make_inputs(e, count, inputs);
    const cgp_tensor *const pointers[2] = {&inputs[0], &inputs[1]};
    CGP_TRY(cgp_data_read(data, CGP_SPLIT_VALIDATION, first, count, e->inputs, e->targets));
    CGP_TRY(cgp_pipeline_evaluate(e->pipeline, pointers, 2, &loss));
    tally->loss += loss * (double)count; /* each sample has as many targets */
    tally->samples += count;
    if (!e->output) return CGP_OK;
    const cgp_tensor output = {CGP_F32, batch_shape(cgp_model_output_shape(e->model), count),
                               e->output};
    CGP_TRY(cgp_pipeline_predict(e->pipeline, pointers, 2, &output));
    cli_eval_sums_add(tally, e->model, e->output, e->targets, count);
    return CGP_OK;
}

cgp_status cli_session_validate(cli_session *e, cgp_data *data, int64_t samples,
                                cli_eval_metrics *scores) {
    const int64_t batch = e->options->batch;
    cli_eval_sums tally = {0};
    *scores = cli_no_eval_metrics;
    for (int64_t first = 0; first < samples; first += batch) {
        const int64_t count = samples - first < batch ? samples - first : batch;
        if (cli_stop_signal()) return CGP_OK;
        CGP_TRY(evaluate(e, data, first, count, &tally));
    }
    *scores = cli_eval_sums_metrics(&tally);
    return CGP_OK;
}

void cli_session_release(cli_session *e) {
    cgp_schedule_timeline_release(&e->timeline);
    cgp_pipeline_destroy(e->pipeline);
    cgp_plan_destroy(e->plan);
    cgp_model_destroy(e->model);
    free(e->output);
    free(e->targets);
    free(e->inputs);
    free(e->measures.busy);
    free(e->measures.wakeup);
    free(e->measures.gap);
    free(e->measures.run);
    free(e->measures.bubble);
    free(e->measures.backward);
    free(e->measures.forward);
    free(e->measures.step);
    *e = (cli_session){0};
}

/* --- figures --- */

int64_t cli_planned_bytes(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        bytes += cgp_plan_device_at(plan, d)->planned_bytes;
    return bytes;
}

int64_t cli_activation_bytes(const cgp_plan *plan) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++)
        bytes += cgp_plan_device_at(plan, d)->activation_bytes;
    return bytes;
}

int64_t cli_allocated_bytes(const cli_session *e) {
    int64_t bytes = 0;
    for (int d = 0; d < cgp_plan_devices(e->plan); d++)
        bytes += cgp_pipeline_allocated_bytes(e->pipeline, d);
    return bytes;
}

double cli_measured(const cli_session *e, const double *values) {
    return cli_median(values, e->measures.steps, 2);
}

double cli_measured_busy(const cli_session *e, int device) {
    return cli_measured(e, e->measures.busy + device * e->measures.capacity);
}
