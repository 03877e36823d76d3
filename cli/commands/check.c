/* SPDX-License-Identifier: Apache-2.0 */
/* check.c -- cgpipe check: run the same batch twice, once in one stage and once with the given
 * options. Compare the loss, all outputs, every gradient, the states and the updated weights bit
 * for bit. With several ranks, rank 0 runs the single stage and compares.
 *
 * If an output differs, look for a wrong forward kernel. If only gradients differ, start with the
 * gradient of the last parameter, which backward computes first. */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "ranks.h"
#include "report/output.h"
#include "report/report.h"
#include "session/inputs.h"
#include "session/model.h"
#include "session/plan_options.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    double loss;
    int n_gradients, n_outputs;
    float **gradients;   /* [n_gradients] one per parameter; NULL for a frozen parameter */
    cgp_tensor *outputs; /* [n_outputs] f32 or i32, for the whole batch */
    char weights[65], states[65];
} outcome;

static void release(outcome *o) {
    for (int p = 0; p < o->n_gradients; p++)
        free(o->gradients[p]);
    for (int k = 0; k < o->n_outputs; k++)
        free(o->outputs[k].data);
    free(o->gradients);
    free(o->outputs);
    *o = (outcome){0};
}

/* --- running --- */

static cgp_status predict(const cli_session *session, const cli_inputs *inputs, outcome *out) {
    const int n = cgp_model_outputs(session->model);
    if (n == 0) return CGP_OK;
    const cgp_tensor **pointers = cli_calloc((size_t)n, sizeof(cgp_tensor *));
    out->outputs = cli_calloc((size_t)n, sizeof *out->outputs);
    for (out->n_outputs = 0; out->n_outputs < n; out->n_outputs++) {
        const int k = out->n_outputs;
        cgp_tensor *output = &out->outputs[k];
        output->dtype = cgp_model_output_dtype(session->model, k);
        output->shape =
            cli_batch_shape(cgp_model_output_shape(session->model, k), session->options->batch);
        output->data =
            cli_calloc((size_t)cgp_shape_count(&output->shape), cgp_dtype_bytes(output->dtype));
        pointers[k] = output;
    }
    cgp_status status =
        cgp_pipeline_predict(session->pipeline, inputs->pointers, inputs->count, pointers, n);
    free(pointers);
    for (int k = 0; k < n && status == CGP_OK && !cli_runs_alone(session->options); k++)
        status = cli_ranks_broadcast(cli_output_rank(session->plan, k), out->outputs[k].data,
                                     (size_t)cgp_shape_count(&out->outputs[k].shape) *
                                         cgp_dtype_bytes(out->outputs[k].dtype));
    return status;
}

static cgp_status step(const cli_session *session, const cli_inputs *inputs, outcome *out) {
    const int parameters = cgp_model_parameters(session->model);
    CGP_TRY(predict(session, inputs, out));
    CGP_TRY(cgp_pipeline_step(session->pipeline, inputs->pointers, inputs->count, &out->loss));
    out->gradients = cli_calloc((size_t)parameters, sizeof *out->gradients);
    out->n_gradients = parameters;
    for (int p = 0; p < parameters; p++) {
        if (cgp_model_parameter_frozen(session->model, p)) continue;
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(session->model, p));
        if (cli_rank() == 0) out->gradients[p] = cli_calloc((size_t)count, sizeof(float));
        CGP_TRY(cgp_pipeline_get_gradient(session->pipeline, p, out->gradients[p]));
    }
    CGP_TRY(cgp_optim_step(session->pipeline));
    CGP_TRY(cgp_pipeline_weights_sha256(session->pipeline, out->weights));
    return cgp_pipeline_state_sha256(session->pipeline, out->states);
}

/* Run one batch with these options. */
static cgp_status run(cli_session *session, const cli_run_options *options, const cli_model *model,
                      outcome *out) {
    cli_inputs inputs = {0};
    CGP_TRY(cli_session_plan(session, options, model));
    CGP_TRY(cli_session_create(session));
    cli_inputs_draw(&inputs, session->model, options->batch, (uint64_t)options->seed);
    const cgp_status status = step(session, &inputs, out);
    cli_inputs_release(&inputs);
    return status;
}

/* Return the options for one stage without recomputation, in one process, with the simplest
 * schedule. These options contain no memory limit and no plan file, because both belong to the
 * devices of the given layout. */
static cli_run_options in_one_stage(const cli_run_options *options) {
    cli_run_options one = *options;
    one.stages = one.virtual_stages = 1;
    one.group = one.in_flight = 0;
    one.memory_limit = 0;
    one.planned = (cli_planned){0};
    one.transport = "inproc";
    one.schedule = "gpipe";
    one.recompute = "never";
    one.balance = (cli_balance){0};
    one.devices.count = options->devices.count > 0 ? 1 : 0;
    return one;
}

/* --- comparing --- */

/* Return the number at index `i` of f32 or i32 data, for display. */
static double number(cgp_dtype type, const void *data, int64_t i) {
    return type == CGP_I32 ? (double)((const int32_t *)data)[i] : (double)((const float *)data)[i];
}

/* Compare arrays of 4-byte numbers bit by bit, and return whether they are equal. If they differ
 * and `out` is not NULL, print a line that begins with `what` and `name`: how many differ, and the
 * first pair. */
static bool equal(FILE *out, const char *what, const char *name, cgp_dtype type, const void *a,
                  const void *b, int64_t count) {
    const uint32_t *x = a, *y = b;
    int64_t n = 0, first = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (x[i] == y[i]) continue;
        n++;
        first = i;
    }
    if (n > 0 && out)
        fprintf(out,
                "%s%s: %" PRId64 " of %" PRId64 " numbers differ; number %" PRId64
                " is %.9g in one stage, %.9g here\n",
                what, name, n, count, first, number(type, a, first), number(type, b, first));
    return n == 0;
}

/* Compare all outputs of the model and return whether they are equal. Print the first output that
 * differs. */
static bool compare_outputs(FILE *out, const outcome *a, const outcome *b) {
    for (int k = 0; k < a->n_outputs; k++) {
        char name[CLI_NUMBER] = "";
        const cgp_tensor *x = &a->outputs[k];
        if (a->n_outputs > 1) snprintf(name, sizeof name, " %d", k);
        if (!equal(out, "output", name, x->dtype, x->data, b->outputs[k].data,
                   cgp_shape_count(&x->shape)))
            return false;
    }
    return true;
}

/* Return the number of parameters that are not frozen. */
static int count_gradients(const cgp_model *model) {
    int count = 0;
    for (int p = 0; p < cgp_model_parameters(model); p++)
        count += !cgp_model_parameter_frozen(model, p);
    return count;
}

/* Compare gradients in backward order. Return the number of parameters whose gradients differ.
 * Set *first to the name of the first such parameter. */
static int compare_gradients(FILE *out, const cgp_model *model, const outcome *a, const outcome *b,
                             const char **first) {
    int different = 0;
    for (int p = cgp_model_parameters(model) - 1; p >= 0; p--) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, p));
        const char *name = cgp_model_parameter_name(model, p);
        if (cgp_model_parameter_frozen(model, p)) continue;
        if (equal(different == 0 ? out : NULL, "gradient of ", name, CGP_F32, a->gradients[p],
                  b->gradients[p], count))
            continue;
        if (different++ == 0) *first = name;
    }
    if (different > 0)
        fprintf(out,
                "gradients: %d of %d parameters differ; the above is the first that backward "
                "computes\n",
                different, count_gradients(model));
    return different;
}

static bool compare(FILE *out, const cgp_model *model, const outcome *a, const outcome *b,
                    json_t *report) {
    const char *first = NULL;
    const bool loss = memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
    const bool output = compare_outputs(out, a, b);
    const bool states = strcmp(a->states, b->states) == 0;
    const bool weights = strcmp(a->weights, b->weights) == 0;
    if (!loss) fprintf(out, "loss: %.17g in one stage, %.17g here\n", a->loss, b->loss);
    const int gradients = compare_gradients(out, model, a, b, &first);
    if (!states) fprintf(out, "states after the step differ\n");
    if (!weights) fprintf(out, "weights after the update differ\n");
    const bool same = loss && output && gradients == 0 && states && weights;
    cli_json_add(report, "{s:b, s:b, s:b, s:i, s:s?, s:b, s:b, s:s}", "same", same, "output_same",
                 output, "loss_same", loss, "gradients_different", gradients, "first_different",
                 first, "states_same", states, "weights_same", weights, "weights_sha256",
                 b->weights);
    if (!same) return false;
    fprintf(out, "the same to the bit: loss %.9g, ", b->loss);
    if (a->n_outputs > 1) fprintf(out, "%d outputs, ", a->n_outputs);
    fprintf(out, "%s%d gradients, states, weights after the update\n",
            a->n_outputs == 1 ? "output, " : "", count_gradients(model));
    return true;
}

static cgp_status check(cli_session *one, cli_session *session, cli_run_options *options,
                        cli_run_options *single, outcome o[2]) {
    cli_model model;
    CGP_TRY(cli_ranks_open(options->transport, 0, false));
    CGP_TRY(cli_model_find(&model, options, "check gpt2:layers=2"));
    CGP_TRY(cli_json_check(options));
    *single = in_one_stage(options);
    CGP_TRY(cli_ranks_agree(cli_rank() == 0 ? run(one, single, &model, &o[0]) : CGP_OK));
    cgp_pipeline_destroy(one->pipeline);
    one->pipeline = NULL;
    return run(session, options, &model, &o[1]);
}

/* Print and write the result of the comparison on rank 0. Then set *same on all ranks. */
static cgp_status conclude(const cli_run_options *options, const cli_session *session,
                           const outcome o[2], bool *same) {
    FILE *out = cli_info_stream(options);
    cgp_status status = CGP_OK;
    if (cli_rank() == 0) {
        json_t *json = cli_plan_json(session);
        cli_print_configuration(out, session);
        *same = compare(out, session->model, &o[0], &o[1], json);
        status = cli_json_write(options, json);
    }
    CGP_TRY(cli_ranks_agree(status));
    return cli_ranks_broadcast(0, same, sizeof *same);
}

int cli_check(const cli_run_options *options) {
    cli_run_options resolved = *options, single;
    cli_session one = {0}, session = {0};
    outcome o[2] = {{0}};
    bool same = true;
    cgp_status status = check(&one, &session, &resolved, &single, o);
    const bool ran = status == CGP_OK;
    if (ran) status = conclude(options, &session, o, &same);
    cli_ranks_fail(status);
    int code = cli_report(status, !ran);
    if (code == CLI_OK && !same) code = CLI_FAILED;
    release(&o[0]);
    release(&o[1]);
    cli_session_release(&session);
    cli_session_release(&one);
    return code;
}
