/* SPDX-License-Identifier: Apache-2.0 */
/* bench_grid.c -- cgpipe bench MODEL --grid: a row for each K, M and recomputation of the GPT-2 benchmark. */
#include "commands/bench.h"

#include "common.h"
#include "files.h"
#include "report/output.h"
#include "report/report.h"

#include <inttypes.h>
#include <math.h>

static void print_heading(FILE *out, const cli_run_options *options, const char *model) {
    fprintf(out, "model %s, batch %" PRId64 ", schedule %s, dropout %g, %s\n", model,
            options->batch, cli_shown(options->schedule), options->dropout, options->optimizer);
    fprintf(
        out,
        "activation: peak of all devices in GiB; published: that of the GPT-2 benchmark, batch "
        "%d; total: with parameters\n",
        BENCH_BATCH);
    if (!options->plan_only)
        fprintf(out,
                "seconds and bubbles are medians of %" PRId64 " steps without the first two\n",
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
    const double ours = cli_gib(cli_plan_total(session->plan).activation_bytes);
    const double published = bench_published_gib(session);
    fprintf(out, "%2" PRId64 " %3" PRId64 "  %-11s  %10.3f", options->stages, options->chunks,
            options->recompute, ours);
    print_number(out, "%*.2f", 11, published);
    print_number(out, "%*.3f", 8, ours / published);
    fprintf(out, " %8.3f", cli_gib(cli_plan_total(session->plan).planned_bytes));
    if (!options->plan_only) {
        fprintf(out, " %10.3f", cli_gib(cli_allocated_bytes(session)));
        print_number(out, "%*.3f", 11, cli_measured(session, CLI_FORWARD_SECONDS));
        print_number(out, "%*.3f", 12, cli_measured(session, CLI_BACKWARD_SECONDS));
        fprintf(out, " %10.2f %9.1f %12.1f",
                (double)options->batch / cli_measured(session, CLI_STEP_SECONDS),
                100 * cli_measured(session, CLI_BUBBLE),
                100 * cgp_plan_timeline(session->plan)->bubble_makespan);
    }
    fputc('\n', out);
    fflush(out);
}

/* A cell that no device can hold is a row of the table, not the end of it. */
static json_t *too_large(FILE *out, const cli_run_options *options) {
    json_t *cell = json_object();
    cli_options_json(cell, options, CLI_LIST_REPORTED);
    json_object_set_new(cell, "error", json_string(cgp_message()));
    fprintf(out, "%2" PRId64 " %3" PRId64 "  %-11s  does not fit: %s\n", options->stages,
            options->chunks, options->recompute, cgp_message());
    return cell;
}

static cgp_status run_cell(FILE *out, cli_session *session, json_t **cell) {
    if (session->options->plan_only) {
        *cell = cli_plan_json(session);
    } else {
        CGP_TRY(bench_run(session));
        CGP_TRY(cli_run_json(session, cell));
    }
    print_row(out, session);
    json_object_set_new(*cell, "log_activation_gib",
                        cli_real_json(bench_published_gib(session)));
    return CGP_OK;
}

static cgp_status one_cell(FILE *out, const cli_run_options *options,
                           const cgp_model_spec *spec, json_t *cells) {
    cli_run_options cell_options = *options;
    cli_session session;
    json_t *cell = NULL;
    bench_resolve(&cell_options, spec);
    cgp_status status = cli_session_plan(&session, &cell_options, spec);
    if (status == CGP_OK) status = run_cell(out, &session, &cell);
    if (status == CGP_ELIMIT) { /* planned over --memory-limit, or over the machine's memory */
        cell = too_large(out, &cell_options);
        status = CGP_OK;
    }
    if (cell) json_array_append_new(cells, cell);
    cli_session_release(&session);
    return status;
}

static cgp_status all_cells(FILE *out, const cli_run_options *options,
                            const cgp_model_spec *spec, json_t *cells) {
    static const char *const modes[] = {"never", "except_last"};
    cli_run_options cell = *options;
    for (cell.stages = 1; cell.stages <= 4; cell.stages *= 2) {
        for (cell.chunks = 1; cell.chunks <= 64; cell.chunks *= 2) {
            for (int mode = 0; mode < 2; mode++) {
                cell.recompute = modes[mode];
                CGP_TRY(one_cell(out, &cell, spec, cells));
            }
        }
    }
    return CGP_OK;
}

/* The options that the grid varies cannot be given. */
static cgp_status check(const cli_run_options *options) {
    static const cli_option_id varied[] = {CLI_OPTION_STAGES, CLI_OPTION_BALANCE,
                                           CLI_OPTION_CHUNKS, CLI_OPTION_RECOMPUTE};
    for (size_t i = 0; i < sizeof varied / sizeof varied[0]; i++) {
        const char *given = cli_option_given_as(options, varied[i]);
        if (given)
            return cgp_fail(CGP_EINVAL,
                            "--%s: goes through all its values with --grid "
                            "(leave out one of the two)",
                            given);
    }
    return cli_json_check(options);
}

int cli_bench_grid(const cli_run_options *options) {
    FILE *out = cli_info_stream(options);
    cli_run_options cell_options = *options;
    cgp_model_spec spec;
    char model[CLI_MODEL_SPEC];
    int code = cli_report(check(options), true);
    if (code == CLI_OK) code = cli_report(bench_model(&cell_options, &spec), true);
    if (code == CLI_OK)
        code = cli_report(cgp_model_spec_text(&spec, model, sizeof model), true);
    if (code != CLI_OK) return code;
    print_heading(out, &cell_options, model);
    /* M above the batch is a row like any other, without warnings between the rows. */
    cgp_log_set_level(CGP_LOG_ERROR);
    json_t *cells = json_array();
    json_t *report =
        json_pack("{s:s, s:s, s:s, s:b, s:o}", "benchmark", options->operand, "version",
                  CGP_VERSION, "model", model, "plan_only", options->plan_only, "cells", cells);
    const cgp_status status = all_cells(out, &cell_options, &spec, cells);
    if (status == CGP_OK) return cli_report(cli_json_write(options, report), false);
    json_decref(report);
    return cli_report(status, true);
}
