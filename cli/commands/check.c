/* SPDX-License-Identifier: Apache-2.0 */
/* check.c -- cgpipe check: run the same batch in one stage and with the given options; compare loss, output, every gradient,
 * states and updated weights bit for bit. Of several ranks the first one runs the one stage, and compares.
 *
 * If the output differs, a kernel of forward does. If only gradients do, look at the one that backward computes first, of the
 * last parameter. */
#include "commands/commands.h"

#include "common.h"
#include "files.h"
#include "ranks.h"
#include "report/output.h"
#include "report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct outcome {
    double loss;
    float **gradients; /* [parameters] */
    float *output;     /* of the whole batch; NULL: it cannot be compared */
    int64_t numbers;   /* of the output */
    char weights[65], states[65];
} outcome;

static void release(outcome *o, const cgp_model *model) {
    for (int p = 0; o->gradients && p < cgp_model_parameters(model); p++)
        free(o->gradients[p]);
    free(o->gradients);
    free(o->output);
    *o = (outcome){0};
}

/* --- running --- */

static cgp_status predict(const cli_session *session, const cli_inputs *inputs, outcome *out) {
    const cgp_shape sample = cgp_model_output_shape(session->model, 0);
    if (sample.rank < 0 || cgp_model_output_dtype(session->model, 0) != CGP_F32) return CGP_OK;
    cgp_tensor output = {CGP_F32, cli_batch_shape(sample, session->options->batch), NULL};
    out->numbers = cgp_shape_count(&output.shape);
    output.data = out->output = cli_calloc((size_t)out->numbers, sizeof *out->output);
    CGP_TRY(cgp_pipeline_predict(session->pipeline, inputs->pointers, inputs->count,
                                 (const cgp_tensor *[]){&output}, 1));
    if (cli_runs_alone(session->options)) return CGP_OK;
    return cli_ranks_broadcast(cli_output_rank(session->plan), out->output,
                               (size_t)out->numbers * sizeof *out->output);
}

static cgp_status step(const cli_session *session, const cli_inputs *inputs, outcome *out) {
    const int parameters = cgp_model_parameters(session->model);
    CGP_TRY(predict(session, inputs, out));
    CGP_TRY(cgp_pipeline_step(session->pipeline, inputs->pointers, inputs->count, &out->loss));
    out->gradients = cli_calloc((size_t)parameters, sizeof *out->gradients);
    for (int p = 0; p < parameters; p++) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(session->model, p));
        if (cli_rank() == 0) out->gradients[p] = cli_calloc((size_t)count, sizeof(float));
        CGP_TRY(cgp_pipeline_get_gradient(session->pipeline, p, out->gradients[p]));
    }
    CGP_TRY(cgp_optim_step(session->pipeline));
    CGP_TRY(cgp_pipeline_weights_sha256(session->pipeline, out->weights));
    return cgp_pipeline_state_sha256(session->pipeline, out->states);
}

/* Run one batch with these options. */
static cgp_status run(cli_session *session, const cli_run_options *options,
                      const cli_model *model, outcome *out) {
    cli_inputs inputs = {0};
    CGP_TRY(cli_session_plan(session, options, model));
    CGP_TRY(cli_session_create(session));
    cli_inputs_draw(&inputs, session->model, options->batch, (uint64_t)options->seed);
    const cgp_status status = step(session, &inputs, out);
    cli_inputs_release(&inputs);
    return status;
}

/* Options without a cut and without recomputation, in the plainest order, in one process. */
static cli_run_options in_one_stage(const cli_run_options *options) {
    cli_run_options one = *options;
    one.stages = one.virtual_stages = 1;
    one.group = 0;
    one.transport = "inproc";
    one.schedule = "gpipe";
    one.recompute = "never";
    one.balance = (cli_balance){0};
    one.devices.count = options->devices.count > 0 ? 1 : 0;
    return one;
}

/* --- comparing --- */

/* Compare the numbers of `what` and `name` bit by bit; print how many differ, and the first of them, if `out` is not NULL. */
static bool equal(FILE *out, const char *what, const char *name, const float *a, const float *b,
                  int64_t count) {
    int64_t n = 0, first = 0;
    for (int64_t i = count - 1; i >= 0; i--) {
        if (memcmp(&a[i], &b[i], sizeof *a) == 0) continue;
        n++;
        first = i;
    }
    if (n > 0 && out)
        fprintf(out,
                "%s%s: %" PRId64 " of %" PRId64 " numbers differ; number %" PRId64
                " is %.9g in one stage, %.9g here\n",
                what, name, n, count, first, (double)a[first], (double)b[first]);
    return n == 0;
}

/* Compare in the order of backward. Return the number of parameters whose gradients differ; *first: the name of the first. */
static int compare_gradients(FILE *out, const cgp_model *model, const outcome *a,
                             const outcome *b, const char **first) {
    int different = 0;
    for (int p = cgp_model_parameters(model) - 1; p >= 0; p--) {
        const int64_t count = cgp_shape_count(cgp_model_parameter_shape(model, p));
        const char *name = cgp_model_parameter_name(model, p);
        if (equal(different == 0 ? out : NULL, "gradient of ", name, a->gradients[p],
                  b->gradients[p], count))
            continue;
        if (different++ == 0) *first = name;
    }
    if (different > 0)
        fprintf(out,
                "gradients: %d of %d parameters differ; the above is the first that backward "
                "computes\n",
                different, cgp_model_parameters(model));
    return different;
}

static bool compare(FILE *out, const cgp_model *model, const outcome *a, const outcome *b,
                    json_t *report) {
    const char *first = NULL;
    const bool loss = memcmp(&a->loss, &b->loss, sizeof a->loss) == 0;
    const bool output =
        !a->output || equal(out, "output", "", a->output, b->output, a->numbers);
    const bool states = strcmp(a->states, b->states) == 0;
    const bool weights = strcmp(a->weights, b->weights) == 0;
    if (!loss) fprintf(out, "loss: %.17g in one stage, %.17g here\n", a->loss, b->loss);
    const int gradients = compare_gradients(out, model, a, b, &first);
    if (!states) fprintf(out, "states after the step differ\n");
    if (!weights) fprintf(out, "weights after the update differ\n");
    const bool same = loss && output && gradients == 0 && states && weights;
    cli_json_add(report, "{s:b, s:b, s:b, s:i, s:s?, s:b, s:b, s:s}", "same", same,
                 "output_same", output, "loss_same", loss, "gradients_different", gradients,
                 "first_different", first, "states_same", states, "weights_same", weights,
                 "weights_sha256", b->weights);
    if (same)
        fprintf(out,
                "the same to the bit: loss %.9g, %s%d gradients, states, weights after the "
                "update\n",
                b->loss, a->output ? "output, " : "", cgp_model_parameters(model));
    return same;
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

/* Print and write what the comparison found, on rank 0, whose verdict is that of all. */
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
    for (int k = 0; k < 2 && session.model; k++)
        release(&o[k], session.model);
    cli_session_release(&session);
    cli_session_release(&one);
    return code;
}
