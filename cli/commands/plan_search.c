/* SPDX-License-Identifier: Apache-2.0 */
/* plan_search.c -- cgpipe plan --search: print the fastest plans that fit, and the command that
 * trains with the best one. */
#include "commands/commands.h"
#include "commands/plan_explain.h"

#include "errors.h"
#include "files.h"
#include "json_value.h"
#include "options/json.h"
#include "report/output.h"
#include "session/calibration.h"
#include "session/prediction.h"
#include "session/saved_plan.h"
#include "session/search_replicas.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- the search --- */

/* Refuse a balance that the search cannot keep. */
static cgp_status check(const cli_run_options *options) {
    if (options->balance.by)
        return cgp_fail(CGP_EINVAL,
                        "--balance %s: cannot be with --search, which finds the balance (leave it "
                        "out, or give numbers)",
                        options->balance.by);
    if (options->balance.layers.count > 0 && !options->given[CLI_OPTION_SCHEDULE])
        return cgp_fail(CGP_EINVAL, "--balance: --search needs its --schedule too, whose stages "
                                    "the numbers are for");
    if (options->search_chunks && options->given[CLI_OPTION_CHUNKS])
        return cgp_fail(CGP_EINVAL, "--search-chunks: cannot be with --chunks (leave out one)");
    if (options->search_precision &&
        (options->given[CLI_OPTION_PRECISION] || cli_prediction_has(options)))
        return cgp_fail(CGP_EINVAL, "--search-precision: cannot be with --%s (leave out one)",
                        options->given[CLI_OPTION_PRECISION] ? "precision"
                        : options->costs                     ? "costs"
                        : options->cluster                   ? "cluster"
                                                             : "tflops");
    if (options->plan)
        return cgp_fail(CGP_EINVAL, "--plan: cannot be with --search, as the file has all that is "
                                    "searched (leave out one)");
    return CGP_OK;
}

/* Search for plans. The search also varies the number of micro-batches if --search-chunks is given,
 * or if the model has no states (batch norms) and there are no replicas. With replicas, the number
 * of micro-batches determines the gradient groups, and so the bits. */
static cgp_status find(cli_session *session, cli_search_parts *found) {
    const cli_run_options *options = session->options;
    const bool chunks =
        options->search_chunks || (cgp_model_states(session->model) == 0 && options->replicas == 1);
    cgp_search_options search = cli_search_options(session, chunks);
    search.precisions = options->search_precision;
    CGP_TRY(check(options));
    return cli_search_replicas(session, &search, found);
}

/* --- the report --- */

static bool searches_replicas(const cli_run_options *options) {
    return options->replicas == CLI_AUTO;
}

static void print_choice(FILE *out, const cli_run_options *options, const cli_search_row *row,
                         double best, int number) {
    const cgp_search_choice *choice = row->choice;
    const double step = cli_search_step(choice);
    const bool timed = cli_prediction_has(options), searched = searches_replicas(options);
    char bytes[32], schedule[CLI_SCHEDULE_TEXT];
    fprintf(out, "%2d", number);
    if (timed)
        fprintf(out, "  %9.4f s", step);
    else
        fprintf(out, "  %6.3f", step / best);
    if (timed && !searched) fprintf(out, "  %9.1f", (double)options->batch / step);
    if (searched)
        fprintf(out, "  %4" PRId64 " x %-3" PRId64, row->part->options.replicas,
                row->part->options.stages);
    fprintf(out, "  %5.1f %%  %10s  %-14s  %7d  %6d  %-21s  %8.1f %%", 100 * choice->bubble,
            cgp_bytes_text(choice->bytes, bytes, sizeof bytes),
            cli_search_schedule(choice, schedule), choice->virtual_stages, choice->chunks,
            cgp_recompute_name(choice->recompute), 100 * choice->recomputed);
    if (options->search_precision) fprintf(out, "  %s", cgp_precision_name(choice->precision));
    fputc('\n', out);
}

/* Print what the table shows. */
static void print_title(FILE *out, const cli_session *session, const cli_search_parts *found) {
    const cli_run_options *options = session->options;
    const bool timed = cli_prediction_has(options);
    fprintf(out, "%s: the fastest of %" PRId64 " plans that fit, with costs %s%s",
            session->model_spec, found->plans, timed ? "of " : "in FLOPs",
            cli_shown(timed ? cli_prediction_source(options) : NULL));
    if (options->replicas > 1)
        fprintf(out, "\n%" PRId64 " replicas of %" PRId64 " device%s", options->replicas,
                options->stages, options->stages == 1 ? "" : "s");
    if (searches_replicas(options))
        fprintf(out, "\n%" PRId64 " device%s as R replicas of K", options->stages,
                options->stages == 1 ? "" : "s");
    if (options->gradient_groups > 1)
        fprintf(out, ", %" PRId64 " gradient groups", options->gradient_groups);
    fputs("\n\n", out);
}

/* Print the part of a row's step in which replicas add gradients. */
static void print_exchange(FILE *out, const cli_run_options *options, const cli_search_row *row) {
    const double seconds = row->choice->exchange;
    const int64_t replicas = row->part->options.replicas;
    if (replicas == 1) return;
    if (row->part->found.exchanged)
        fprintf(out,
                "row %" PRId64 ": %.1f %% of the step to add the gradients of %" PRId64
                " replicas\n\n",
                options->choice, 100 * seconds / cli_search_step(row->choice), replicas);
    else
        fprintf(out,
                "the time to add the gradients of replicas is not known (%s--cluster), and "
                "not counted\n\n",
                cli_prediction_has(options) ? "" : "--costs, ");
}

static void print_choices(FILE *out, const cli_session *session, const cli_search_parts *found,
                          const char *command) {
    const cli_run_options *options = session->options;
    const bool timed = cli_prediction_has(options), searched = searches_replicas(options);
    const cli_search_row *row = &found->rows[options->choice - 1];
    print_title(out, session, found);
    fprintf(out, timed ? "%2s  %11s" : "%2s  %6s", "", "step");
    if (searched) fprintf(out, "  %10s", "R x K   ");
    if (timed && !searched) fprintf(out, "  %9s", "samples/s");
    fprintf(out, "  %7s  %10s  %-14s  %7s  %6s  %-21s  %10s%s\n", "bubble", "fullest", "schedule",
            "virtual", "chunks", "recompute", "recomputed",
            options->search_precision ? "  precision" : "");
    for (int k = 0; k < found->n; k++)
        print_choice(out, options, &found->rows[k], cli_search_step(found->rows[0].choice), k + 1);
    fputc('\n', out);
    print_exchange(out, options, row);
    if (searched) cli_plan_explain_replicas(out, found, row);
    fprintf(out, "%s\n", command);
}

/* A choice without a balance describes one of the combinations that the search tried. The makespan
 * is 0 if no plan of this combination fits. */
static json_t *choice_json(const cli_search_part *part, const cgp_search_choice *choice) {
    const bool timed = cli_prediction_has(&part->options);
    json_t *balance = choice->balance ? cli_integers_json(choice->balance, choice->stages) : NULL;
    json_t *o = json_pack(
        "{s:s*, s:i, s:i, s:i, s:s, s:s, s:o*, s:o, s:o, s:o, s:o, s:I, s:i}", "schedule",
        choice->schedule, "virtual", choice->virtual_stages, "in_flight", choice->in_flight,
        "chunks", choice->chunks, "recompute", cgp_recompute_name(choice->recompute), "precision",
        cgp_precision_name(choice->precision), "balance", balance,
        timed ? "run_seconds_simulated" : "flops_simulated",
        cli_real_json(choice->makespan + choice->exchange), "step_seconds_simulated",
        cli_real_json(timed ? cli_search_step(choice) : NAN), "bubble_simulated",
        cli_real_json(choice->bubble), "recomputed", cli_real_json(choice->recomputed),
        "planned_bytes_fullest", (json_int_t)choice->bytes, "fullest_device", choice->device);
    cli_json_add(o, "{s:I, s:I, s:o}", "replicas", (json_int_t)part->options.replicas, "stages",
                 (json_int_t)part->options.stages, "exchange_added_seconds_simulated",
                 cli_real_json(timed && part->found.exchanged ? choice->exchange : NAN));
    return o;
}

static json_t *rows_json(const cli_search_parts *found) {
    json_t *list = json_array();
    for (int k = 0; k < found->n; k++)
        json_array_append_new(list, choice_json(found->rows[k].part, found->rows[k].choice));
    return list;
}

static json_t *tried_json(const cli_search_parts *found) {
    json_t *list = json_array();
    for (int k = 0; k < found->n_parts; k++) {
        const cgp_search_result *own = &found->parts[k].found;
        for (int i = 0; i < own->n_tried; i++)
            json_array_append_new(list, choice_json(&found->parts[k], &own->tried[i]));
    }
    return list;
}

/* Return the numbers of replicas for which there is no plan, with the reasons. */
static json_t *refused_json(const cli_search_parts *found) {
    json_t *list = json_array();
    for (int k = 0; k < found->n_parts; k++) {
        const cli_search_part *part = &found->parts[k];
        if (part->reason)
            json_array_append_new(list, json_pack("{s:I, s:I, s:s}", "replicas",
                                                  (json_int_t)part->options.replicas, "stages",
                                                  (json_int_t)part->options.stages, "reason",
                                                  part->reason));
    }
    return list;
}

static json_t *result_json(const cli_session *session, const cli_search_parts *found,
                           const char *command) {
    const cli_run_options *options = session->options;
    const bool searched = searches_replicas(options);
    json_t *choices = rows_json(found), *o = json_object();
    if (options->explain) json_object_set_new(o, "tried", tried_json(found));
    if (searched) json_object_set_new(o, "refused", refused_json(found));
    cli_options_json(o, searched ? options : &found->parts[0].options, CLI_LIST_GIVEN);
    json_object_set_new(o, "gradient_groups", json_integer(options->gradient_groups));
    cli_json_add(o, "{s:s, s:I, s:s, s:o}", "model", session->model_spec, "plans",
                 (json_int_t)found->plans, "command", command, "choices", choices);
    return o;
}

/* Make the plan of a row, and write it to --plan-out. */
static cgp_status write_plan(cli_session *session, const cli_search_row *row) {
    const cli_run_options *own = session->options;
    cli_run_options options = row->part->options;
    if (!options.plan_out) return CGP_OK;
    options.kept = NULL;
    session->options = &options;
    cli_search_take(&options, row->choice);
    cgp_status status = cli_session_make_plan(session);
    if (status == CGP_OK) status = cli_saved_plan_write(session);
    session->options = own;
    cli_run_options_release(&options);
    return status;
}

/* Return the command that trains with a row's plan. Freed by the caller. */
static char *command_of(cli_session *session, const cli_search_row *row) {
    const cli_run_options *own = session->options, *options = &row->part->options;
    session->options = options;
    char *command = cli_search_command(session, row->choice, options->memory_limit);
    session->options = own;
    return command;
}

/* Report the choices, and write the plan of --choice. */
static cgp_status report(cli_session *session, const cli_search_parts *found,
                         const cli_calibration *calibration) {
    const cli_run_options *options = session->options;
    FILE *out = cli_info_stream(options);
    if (options->choice > found->n)
        return cgp_fail(CGP_EINVAL, "--choice %" PRId64 ": %d plan%s (a number up to %d)",
                        options->choice, found->n, found->n == 1 ? " fits" : "s fit", found->n);
    const cli_search_row *row = &found->rows[options->choice - 1];
    char *command = command_of(session, row);
    print_choices(out, session, found, command);
    if (options->explain) cli_plan_explain(out, &row->part->found, row->choice);
    json_t *result = result_json(session, found, command);
    cli_calibration_report(out, result, calibration, options);
    const cgp_status status = cli_json_write(options, result);
    free(command);
    return status == CGP_OK ? write_plan(session, row) : status;
}

static cgp_status run(cli_session *session, cli_run_options *options) {
    cli_model model;
    cli_calibration calibration;
    cli_search_parts found = {0};
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_calibration_find(&calibration, options));
    if (options->plan_out) CGP_TRY(cli_file_check(options->plan_out));
    CGP_TRY(cli_model_find(&model, options, "plan gpt2 --search"));
    CGP_TRY(cli_session_model(session, options, &model));
    cgp_status status = find(session, &found);
    session->options = options;
    if (status == CGP_OK) status = report(session, &found, &calibration);
    cli_search_parts_release(&found);
    return status;
}

int cli_plan_search(const cli_run_options *options) {
    cli_run_options resolved = *options;
    cli_session session = {0};
    resolved.kept = NULL; /* the caller frees the options' memory */
    const int code = cli_report(run(&session, &resolved), true);
    cli_session_release(&session);
    cli_run_options_release(&resolved);
    return code;
}
