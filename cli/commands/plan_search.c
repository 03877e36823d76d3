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
#include "session/search.h"
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

/* Search for plans. The search also varies the number of micro-batches if --search-chunks is given
 * or the model has no states (batch norms). */
static cgp_status find(cli_session *session, cgp_search_result *found) {
    const bool chunks = session->options->search_chunks || cgp_model_states(session->model) == 0;
    cgp_search_options search = cli_search_options(session, chunks);
    search.precisions = session->options->search_precision;
    CGP_TRY(check(session->options));
    return cli_search(session, &search, found);
}

/* --- the report --- */

static double step_of(const cgp_search_choice *choice) {
    return choice->makespan + choice->update;
}

static void print_choice(FILE *out, const cli_session *session, const cgp_search_choice *choice,
                         double best, int number) {
    const cli_run_options *options = session->options;
    char bytes[32], schedule[CLI_SCHEDULE_TEXT];
    fprintf(out, "%2d", number);
    if (cli_prediction_has(options))
        fprintf(out, "  %9.4f s  %9.1f", step_of(choice), (double)options->batch / step_of(choice));
    else
        fprintf(out, "  %6.3f", step_of(choice) / best);
    fprintf(out, "  %5.1f %%  %10s  %-14s  %7d  %6d  %-21s  %8.1f %%", 100 * choice->bubble,
            cgp_bytes_text(choice->bytes, bytes, sizeof bytes),
            cli_search_schedule(choice, schedule), choice->virtual_stages, choice->chunks,
            cgp_recompute_name(choice->recompute), 100 * choice->recomputed);
    if (options->search_precision) fprintf(out, "  %s", cgp_precision_name(choice->precision));
    fputc('\n', out);
}

static void print_choices(FILE *out, const cli_session *session, const cgp_search_result *found,
                          const char *command) {
    const cli_run_options *options = session->options;
    const bool timed = cli_prediction_has(options);
    fprintf(out, "%s: the fastest of %" PRId64 " plans that fit, with costs %s%s",
            session->model_spec, found->plans, timed ? "of " : "in FLOPs",
            cli_shown(timed ? cli_prediction_source(options) : NULL));
    if (options->gradient_groups > 1)
        fprintf(out, ", %" PRId64 " gradient groups", options->gradient_groups);
    fputs("\n\n", out);
    fprintf(out, timed ? "%2s  %11s  %9s" : "%2s  %6s%s", "", "step", timed ? "samples/s" : "");
    fprintf(out, "  %7s  %10s  %-14s  %7s  %6s  %-21s  %10s%s\n", "bubble", "fullest", "schedule",
            "virtual", "chunks", "recompute", "recomputed",
            options->search_precision ? "  precision" : "");
    for (int k = 0; k < found->n; k++)
        print_choice(out, session, &found->choices[k], step_of(&found->choices[0]), k + 1);
    fprintf(out, "\n%s\n", command);
}

/* A choice without a balance describes one of the combinations that the search tried. The makespan
 * is 0 if no plan of this combination fits. */
static json_t *choice_json(const cgp_search_choice *choice, bool timed) {
    json_t *balance = choice->balance ? cli_integers_json(choice->balance, choice->stages) : NULL;
    return json_pack(
        "{s:s*, s:i, s:i, s:i, s:s, s:s, s:o*, s:o, s:o, s:o, s:o, s:I, s:i}", "schedule",
        choice->schedule, "virtual", choice->virtual_stages, "in_flight", choice->in_flight,
        "chunks", choice->chunks, "recompute", cgp_recompute_name(choice->recompute), "precision",
        cgp_precision_name(choice->precision), "balance", balance,
        timed ? "run_seconds_simulated" : "flops_simulated", cli_real_json(choice->makespan),
        "step_seconds_simulated", cli_real_json(timed ? step_of(choice) : NAN), "bubble_simulated",
        cli_real_json(choice->bubble), "recomputed", cli_real_json(choice->recomputed),
        "planned_bytes_fullest", (json_int_t)choice->bytes, "fullest_device", choice->device);
}

static json_t *choices_json(const cgp_search_choice *choices, int n, bool timed) {
    json_t *list = json_array();
    for (int k = 0; k < n; k++)
        json_array_append_new(list, choice_json(&choices[k], timed));
    return list;
}

static json_t *result_json(const cli_session *session, const cgp_search_result *found,
                           const char *command) {
    const bool timed = cli_prediction_has(session->options);
    json_t *choices = choices_json(found->choices, found->n, timed), *o = json_object();
    if (session->options->explain)
        json_object_set_new(o, "tried", choices_json(found->tried, found->n_tried, timed));
    cli_options_json(o, session->options, CLI_LIST_GIVEN);
    cli_json_add(o, "{s:s, s:I, s:s, s:o}", "model", session->model_spec, "plans",
                 (json_int_t)found->plans, "command", command, "choices", choices);
    return o;
}

/* Make the plan of a choice, and write it to --plan-out. */
static cgp_status write_plan(cli_session *session, cli_run_options *options,
                             const cgp_search_choice *choice) {
    if (!options->plan_out) return CGP_OK;
    cli_search_take(options, choice);
    CGP_TRY(cli_session_make_plan(session));
    return cli_saved_plan_write(session);
}

/* Report the choices, and write the plan of --choice. */
static cgp_status report(cli_session *session, cli_run_options *options,
                         const cgp_search_result *found, const cli_calibration *calibration) {
    if (options->choice > found->n)
        return cgp_fail(CGP_EINVAL, "--choice %" PRId64 ": %d plan%s (a number up to %d)",
                        options->choice, found->n, found->n == 1 ? " fits" : "s fit", found->n);
    const cgp_search_choice *choice = &found->choices[options->choice - 1];
    char *command = cli_search_command(session, choice, options->memory_limit);
    print_choices(cli_info_stream(options), session, found, command);
    if (options->explain) cli_plan_explain(cli_info_stream(options), found, choice);
    json_t *result = result_json(session, found, command);
    cli_calibration_report(cli_info_stream(options), result, calibration, options);
    const cgp_status status = cli_json_write(options, result);
    free(command);
    return status == CGP_OK ? write_plan(session, options, choice) : status;
}

static cgp_status run(cli_session *session, cli_run_options *options) {
    cli_model model;
    cli_calibration calibration;
    cgp_search_result found = {0};
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_calibration_find(&calibration, options));
    if (options->plan_out) CGP_TRY(cli_file_check(options->plan_out));
    CGP_TRY(cli_model_find(&model, options, "plan gpt2 --search"));
    CGP_TRY(cli_session_model(session, options, &model));
    cgp_status status = cli_search_limits(session, options);
    if (status == CGP_OK) status = find(session, &found);
    if (status == CGP_OK)
        status = report(session, options, &found, &calibration);
    else if (status == CGP_ELIMIT && found.least.stages > 0)
        status = cli_search_add_least(session, &found);
    cgp_search_result_release(&found);
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
