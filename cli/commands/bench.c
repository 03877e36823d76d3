/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c -- cgpipe bench MODEL: measure the memory and speed of any model. If the operand is
 * `gpt2` alone, run the published GPT-2 benchmark with 16 layers, and print the published figures
 * beside the measured figures. --grid prints a row for each number of devices, number of
 * micro-batches and recomputation mode. `bench transport` is in bench_transport.c. */
#include "commands/commands.h"

#include "errors.h"
#include "files.h"
#include "json_value.h"
#include "options/json.h"
#include "options/schedule_file.h"
#include "ranks.h"
#include "report/costs_out.h"
#include "report/output.h"
#include "report/report.h"
#include "session/inputs.h"
#include "session/model.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define BENCH_MODEL "gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128"
#define BENCH_BATCH 64

/* --- the benchmark --- */

/* Published peak activation memory in GiB: [recomputation never, except_last][K = 1, 2, 4
 * devices][M = 1, 2, 4 .. 64 micro-batches]. Two implementations have published figures; each entry
 * is the better figure (bench/README.md). */
static const double figures[2][3][7] = {
    {{6.44, 6.06, 5.88, 6.08, 5.89, 6.92, 6.07},
     {6.83, 6.31, 6.14, 6.42, 6.53, 7.06, 6.25},
     {7.28, 6.79, 6.58, 6.80, 7.19, 7.28, 6.43}},
    {{6.05, 4.12, 3.55, 3.13, 2.72, 2.84, 2.36},
     {6.42, 3.65, 2.16, 1.65, 1.63, 1.12, 0.94},
     {7.19, 4.20, 2.69, 2.21, 2.49, 1.45, 1.36}},
};

static int power_of_two(int64_t value, int max) {
    for (int i = 0; i <= max; i++) {
        if (value == (int64_t)1 << i) return i;
    }
    return -1;
}

/* Return the published peak activation memory of all devices in GiB, or NaN if no figure is
 * published for these options. All published figures are for one model at batch 64. */
static double published_gib(const cli_session *session) {
    const cli_run_options *options = session->options;
    const int k = power_of_two(options->stages, 2), m = power_of_two(options->chunks, 6);
    const bool never = strcmp(options->recompute, "never") == 0;
    if (k < 0 || m < 0 || (!never && strcmp(options->recompute, "except_last") != 0)) return NAN;
    if (strcmp(options->precision, "f32") != 0) return NAN;
    if (options->batch != BENCH_BATCH || strcmp(session->model_spec, BENCH_MODEL) != 0) return NAN;
    return figures[never ? 0 : 1][k][m];
}

static double gib(int64_t bytes) {
    return (double)bytes / 0x1p30;
}

/* Find the model. If the operand is `gpt2` alone, use the model that --model gives or, by default,
 * the benchmark's model. Otherwise use the model that the operand names. Then resolve --dropout. */
static cgp_status find_model(cli_run_options *options, cli_model *model) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL, "bench: MODEL is missing (cgpipe bench gpt2)");
    const bool benchmark = strcmp(options->operand, "gpt2") == 0;
    if (options->model && !benchmark)
        return cgp_fail(CGP_EINVAL, "--model: expected bench gpt2, got bench %s (leave it out)",
                        options->operand);
    const char *text = benchmark ? BENCH_MODEL : options->operand;
    CGP_TRY(options->model
                ? cli_model_parse(model, options->model, 0, NULL, options->plugin)
                : cli_model_parse(model, text, 0, options->operand_source, options->plugin));
    CGP_TRY(cli_model_expect_kernels(model));
    CGP_TRY(cli_model_agree(model));
    return cli_model_resolve(model, options);
}

/* Set the published balance of the benchmark's 16 layers, unless --balance is given. */
static void set_balance(cli_run_options *options, const cgp_model_spec *spec) {
    static const int one[] = {16}, two[] = {8, 8}, four[] = {5, 3, 3, 5};
    static const int *const published[] = {NULL, one, two, NULL, four};
    if (options->balance.layers.count > 0 || options->balance.by || options->stages > 4) return;
    if (options->virtual_stages > 1 || cli_schedule_is_file(options->schedule)) return;
    if (spec->kind != CGP_MODEL_GPT2 || spec->gpt2.layers != 12) return;
    if (published[options->stages])
        options->balance.layers = (cli_counts){published[options->stages], (int)options->stages};
}

/* Run all steps on random data. Models other than GPT-2 get the same mini-batch in every step, as
 * in torchgpipe's benchmarks. */
static cgp_status run_steps(cli_session *session) {
    const uint64_t seed = (uint64_t)session->options->seed;
    const cgp_gpt2_options *gpt2 =
        session->of.spec.kind == CGP_MODEL_GPT2 ? &session->of.spec.gpt2 : NULL;
    cli_inputs inputs = {0};
    cgp_data *data = NULL;
    if (!gpt2) cli_inputs_draw(&inputs, session->model, session->options->batch, seed);
    cgp_status status = cli_session_start(session);
    if (status == CGP_OK) cli_print_ranks(cli_info_stream(session->options), session);
    if (status == CGP_OK && gpt2)
        status = cgp_data_random(&data, gpt2->vocab, gpt2->sequence, seed);
    for (int64_t i = 0; i < session->options->steps && status == CGP_OK; i++)
        status = gpt2 ? cli_session_step(session, data, NULL)
                      : cli_session_step_on(session, inputs.pointers, inputs.count, NULL);
    cgp_data_destroy(data);
    cli_inputs_release(&inputs);
    return status;
}

/* --- report --- */

static void print_memory_row(FILE *out, const cgp_plan_device *d) {
    fprintf(out, "%-7s %18.3f %18.3f %12.3f\n", d->name,
            gib(d->parameter_bytes + d->gradient_bytes + d->optimizer_bytes),
            gib(d->activation_bytes), gib(d->planned_bytes));
}

/* Print the memory for parameters, the memory for activations, and their sum. Also print the ratio
 * of the activation memory to the published figure. */
static void print_memory(FILE *out, const cli_session *session) {
    static const char *const state_names[] = {"", ", momentum", ", two moments"};
    const int states = cgp_optim_states(&session->optim);
    const cgp_plan_device total = cli_plan_total(session->plan);
    const double ours = gib(total.activation_bytes), published = published_gib(session);
    fprintf(out, "GiB       parameter memory    peak activation        total\n");
    for (int d = 0; d < cgp_plan_devices(session->plan); d++)
        print_memory_row(out, cgp_plan_device_at(session->plan, d));
    print_memory_row(out, &total);
    fprintf(out, "parameter memory: %d bytes a parameter (weight, gradient%s)\n", 4 * (2 + states),
            state_names[states]);
    if (isnan(published))
        fprintf(out, "no figure is published for these options\n");
    else
        fprintf(out, "peak activation: %.3f GiB here, %.2f GiB published, ratio %.3f\n", ours,
                published, ours / published);
}

/* Run the steps unless --plan-only is given. Set *report to the JSON of the plan. If the steps ran,
 * the JSON describes the run too. */
static cgp_status measure(cli_session *session, json_t **report) {
    if (session->options->plan_only) {
        *report = cli_plan_json(session);
    } else {
        CGP_TRY(run_steps(session));
        CGP_TRY(cli_run_json(session, report));
    }
    json_object_set_new(*report, "log_activation_gib", cli_real_json(published_gib(session)));
    return CGP_OK;
}

static cgp_status print_measured(FILE *out, const cli_session *session, const json_t *report) {
    const json_t *simulated = json_object_get(report, "run_seconds_simulated");
    cli_print_result(out, session);
    if (simulated)
        cli_print_prediction(out, session, json_number_value(simulated), session->options->costs);
    if (session->options->costs_out) CGP_TRY(cli_costs_out_write(out, session));
    if (session->options->ops) CGP_TRY(cli_print_ops(out, session));
    fprintf(out, "weights_sha256 %s\n",
            json_string_value(json_object_get(report, "weights_sha256")));
    return cli_trace_write(out, session);
}

static cgp_status bench(cli_session *session) {
    const cli_run_options *options = session->options;
    FILE *out = cli_info_stream(options);
    json_t *report = NULL;
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_trace_check(options));
    if (options->costs_out && cli_rank() == 0) CGP_TRY(cli_file_check(options->costs_out));
    CGP_TRY(cli_print_plan(out, session));
    fputc('\n', out);
    print_memory(out, session);
    fputc('\n', out);
    cli_output_flush(out);
    CGP_TRY(measure(session, &report));
    const cgp_status status =
        cli_ranks_agree(options->plan_only ? CGP_OK : print_measured(out, session, report));
    if (status == CGP_OK) return cli_ranks_agree(cli_json_write(options, report));
    json_decref(report);
    return status;
}

/* --- grid --- */

static void print_heading(FILE *out, const cli_run_options *options, const char *model) {
    fprintf(out, "model %s, batch %" PRId64 ", schedule %s, dropout %g, %s\n", model,
            options->batch, cli_shown(options->schedule), options->dropout, options->optimizer);
    fprintf(out,
            "activation: peak of all devices in GiB; published: that of the GPT-2 benchmark, batch "
            "%d; total: with parameters\n",
            BENCH_BATCH);
    if (!options->plan_only)
        fprintf(out, "seconds and bubbles are medians of %" PRId64 " steps without the first two\n",
                options->steps);
    fprintf(out, "\n K   M  recompute    activation  published   ratio    total");
    if (!options->plan_only)
        fprintf(out, "  allocated  forward s  backward s  samples/s  bubble %%  simulated %%");
    fputc('\n', out);
}

static void print_number(FILE *out, const char *format, int width, double value) {
    if (isnan(value))
        fprintf(out, "%*s", width, "-");
    else
        fprintf(out, format, width, value);
}

static void print_row(FILE *out, const cli_session *session) {
    const cli_run_options *options = session->options;
    const double ours = gib(cli_plan_total(session->plan).activation_bytes);
    const double published = published_gib(session);
    fprintf(out, "%2" PRId64 " %3" PRId64 "  %-11s  %10.3f", options->stages, options->chunks,
            options->recompute, ours);
    print_number(out, "%*.2f", 11, published);
    print_number(out, "%*.3f", 8, ours / published);
    fprintf(out, " %8.3f", gib(cli_plan_total(session->plan).planned_bytes));
    if (!options->plan_only) {
        fprintf(out, " %10.3f", gib(cli_allocated_bytes(session)));
        print_number(out, "%*.3f", 11, cli_measured(session, CLI_FORWARD_SECONDS));
        print_number(out, "%*.3f", 12, cli_measured(session, CLI_BACKWARD_SECONDS));
        fprintf(out, " %10.2f %9.1f %12.1f",
                (double)options->batch / cli_measured(session, CLI_STEP_SECONDS),
                100 * cli_measured(session, CLI_BUBBLE),
                100 * cgp_plan_timeline(session->plan)->bubble_makespan);
    }
    fputc('\n', out);
    cli_output_flush(out);
}

/* Print a row for a combination of options that does not fit into memory. The grid continues with
 * the next combination. */
static json_t *too_large(FILE *out, const cli_run_options *options) {
    json_t *cell = json_object();
    cli_options_json(cell, options, CLI_LIST_REPORTED);
    json_object_set_new(cell, "error", json_string(cgp_message()));
    fprintf(out, "%2" PRId64 " %3" PRId64 "  %-11s  does not fit: %s\n", options->stages,
            options->chunks, options->recompute, cgp_message());
    return cell;
}

static cgp_status one_cell(FILE *out, const cli_run_options *options, const cli_model *model,
                           json_t *cells) {
    cli_run_options cell_options = *options;
    cli_session session;
    json_t *cell = NULL;
    set_balance(&cell_options, &model->spec);
    cgp_status status = cli_session_plan(&session, &cell_options, model);
    if (status == CGP_OK) status = measure(&session, &cell);
    if (status == CGP_OK) print_row(out, &session);
    if (status == CGP_ELIMIT) { /* the plan exceeds --memory-limit or the machine's memory */
        cell = too_large(out, &cell_options);
        status = CGP_OK;
    }
    if (cell) json_array_append_new(cells, cell);
    cli_session_release(&session);
    return status;
}

static cgp_status all_cells(FILE *out, const cli_run_options *options, const cli_model *model,
                            json_t *cells) {
    static const char *const modes[] = {"never", "except_last"};
    cli_run_options cell = *options;
    for (cell.stages = 1; cell.stages <= 4; cell.stages *= 2) {
        for (cell.chunks = 1; cell.chunks <= 64; cell.chunks *= 2) {
            for (int mode = 0; mode < 2; mode++) {
                cell.recompute = modes[mode];
                CGP_TRY(one_cell(out, &cell, model, cells));
            }
        }
    }
    return CGP_OK;
}

/* Refuse the options that the grid varies. */
static cgp_status check_grid(const cli_run_options *options) {
    static const cli_option_id varied[] = {CLI_OPTION_STAGES, CLI_OPTION_BALANCE, CLI_OPTION_CHUNKS,
                                           CLI_OPTION_RECOMPUTE};
    for (size_t i = 0; i < sizeof varied / sizeof varied[0]; i++) {
        const char *given = cli_option_given_as(options, varied[i]);
        if (given)
            return cgp_fail(CGP_EINVAL,
                            "--%s: cannot be with --grid, which varies it (leave out one)", given);
    }
    return cli_json_check(options);
}

static int bench_grid(const cli_run_options *options) {
    FILE *out = cli_info_stream(options);
    cli_run_options cell_options = *options;
    cli_model of;
    char model[CLI_MODEL_SPEC];
    int code = cli_report(check_grid(options), true);
    if (code == CLI_OK) code = cli_report(find_model(&cell_options, &of), true);
    if (code == CLI_OK) code = cli_report(cli_model_text(&of, model), true);
    if (code != CLI_OK) return code;
    print_heading(out, &cell_options, model);
    /* Silence the library's warnings: a row may have more micro-batches than samples, and a warning
     * would appear between the rows. */
    cgp_log_set_level(CGP_LOG_ERROR);
    json_t *cells = json_array();
    json_t *report =
        json_pack("{s:s, s:s, s:s, s:b, s:o}", "benchmark", options->operand, "version",
                  CGP_VERSION, "model", model, "plan_only", options->plan_only, "cells", cells);
    const cgp_status status = all_cells(out, &cell_options, &of, cells);
    if (status == CGP_OK) return cli_report(cli_json_write(options, report), false);
    json_decref(report);
    return cli_report(status, true);
}

/* --- the command --- */

static cgp_status prepare(cli_session *session, cli_run_options *options) {
    cli_model model;
    CGP_TRY(find_model(options, &model));
    set_balance(options, &model.spec);
    return cli_session_plan(session, options, &model);
}

int cli_bench(const cli_run_options *options) {
    if (options->operand && strcmp(options->operand, "transport") == 0)
        return cli_bench_transport(options);
    if (options->grid) return bench_grid(options);
    cli_run_options resolved = *options;
    cli_session session = {0};
    cgp_status status = cli_ranks_open(options->transport, 0, false);
    if (status == CGP_OK) status = prepare(&session, &resolved);
    int code = cli_report(status, true);
    if (status == CGP_OK) {
        status = bench(&session);
        code = cli_report(status, false);
    }
    cli_ranks_fail(status);
    cli_session_release(&session);
    return code;
}
