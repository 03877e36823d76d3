/* SPDX-License-Identifier: Apache-2.0 */
/* plan_search.c -- cgpipe plan --search: print the fastest plans that fit, and the command that
 * trains with the best one. */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "options/json.h"
#include "options/table.h"
#include "report/output.h"
#include "session/plan_options.h"
#include "session/prediction.h"
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
    return CGP_OK;
}

/* Let the search change what is not given. */
static cgp_search_options what_to_search(const cli_session *session) {
    const cli_run_options *options = session->options;
    cgp_search_options search = cgp_search_options_default();
    search.balances = options->balance.layers.count == 0;
    search.schedules = !options->given[CLI_OPTION_SCHEDULE];
    search.virtual_stages = !options->given[CLI_OPTION_VIRTUAL] && search.balances;
    search.recomputes = !options->given[CLI_OPTION_RECOMPUTE];
    search.chunks = !options->given[CLI_OPTION_CHUNKS] && !session->of.layers &&
                    (options->search_chunks || cgp_model_states(session->model) == 0);
    return search;
}

static cgp_status search_with_costs(const cli_session *session, const cgp_plan_options *options,
                                    cgp_search_options *search, cgp_search_result *found) {
    cli_prediction prediction;
    cgp_status status = cli_prediction_read(&prediction, session);
    search->costs = prediction.costs.rows;
    search->samples = prediction.costs.samples;
    search->sizes = prediction.costs.sizes;
    search->messages = &prediction.messages;
    if (status == CGP_OK) status = cgp_plan_search(session->model, options, search, found);
    cli_prediction_release(&prediction);
    return status;
}

static cgp_status find(cli_session *session, cgp_search_result *found) {
    cli_plan_options options;
    cgp_search_options search = what_to_search(session);
    CGP_TRY(check(session->options));
    cgp_status status = cli_plan_options_make(&options, session);
    if (status == CGP_OK && !search.balances) status = cli_plan_options_balance(&options, session);
    if (status == CGP_OK && session->options->costs)
        status = search_with_costs(session, &options.plan, &search, found);
    else if (status == CGP_OK)
        status = cgp_plan_search(session->model, &options.plan, &search, found);
    cli_plan_options_release(&options);
    return status;
}

/* --- the command --- */

/* Return "2,2,3". Freed by the caller. */
static char *balance_text(const cgp_search_choice *choice) {
    char *text = cli_text("%d", choice->balance[0]);
    for (int j = 1; j < choice->stages; j++) {
        char *longer = cli_text("%s,%d", text, choice->balance[j]);
        free(text);
        text = longer;
    }
    return text;
}

/* Append an option to the text, which is replaced. */
static char *append(char *text, const char *name, const char *value) {
    char *word = value ? cli_shell_word(value) : NULL;
    char *longer = cli_text("%s --%s%s%s", text, name, word ? " " : "", word ? word : "");
    free(word);
    free(text);
    return longer;
}

/* Return a value of cli_options_json() as the option's argument; NULL: a flag. Freed by the
 * caller. */
static char *argument_text(const json_t *value) {
    char *text = NULL;
    size_t i;
    json_t *item;
    if (json_is_boolean(value)) return NULL;
    if (json_is_string(value)) return cli_text("%s", json_string_value(value));
    if (!json_is_array(value)) return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    json_array_foreach(value, i, item) {
        char *one = argument_text(item);
        char *longer = cli_text("%s%s%s", text ? text : "", text ? "," : "", one ? one : "");
        free(one);
        free(text);
        text = longer;
    }
    return text;
}

/* Tell whether the command gets an option from the choice, or does not have it. */
static bool is_chosen(int id) {
    return id == CLI_OPTION_SCHEDULE || id == CLI_OPTION_VIRTUAL || id == CLI_OPTION_CHUNKS ||
           id == CLI_OPTION_RECOMPUTE || id == CLI_OPTION_BALANCE ||
           id == CLI_OPTION_MEMORY_LIMIT || id == CLI_OPTION_COSTS ||
           !cli_option_taken(id, CLI_TRAIN) || (cli_options[id].flags & CLI_ONCE) != 0;
}

/* Return the command that trains with a choice within a limit; 0: none. Freed by the caller. */
static char *command_of(const cli_session *session, const cgp_search_choice *choice,
                        int64_t limit) {
    const cli_run_options *options = session->options;
    char *operand = cli_shell_word(options->operand ? options->operand : "");
    char *text = cli_text("cgpipe %s %s", session->of.layers ? "plan" : "train", operand);
    char *numbers[4];
    free(operand);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (!options->given[id] || is_chosen(id)) continue;
        json_t *value = cli_option_json(options, id);
        char *argument = argument_text(value);
        text = append(text, cli_options[id].name, argument);
        free(argument);
        json_decref(value);
    }
    numbers[0] = cli_text("%d", choice->virtual_stages);
    numbers[1] = cli_text("%d", choice->chunks);
    numbers[2] = balance_text(choice);
    numbers[3] = cli_text("%" PRId64, limit);
    const cgp_schedule_info *info =
        choice->schedule ? cgp_schedule_info_find(choice->schedule) : NULL;
    text = append(text, "schedule", choice->schedule ? choice->schedule : options->schedule);
    if (info && info->any_virtual) text = append(text, "virtual", numbers[0]);
    text = append(text, "chunks", numbers[1]);
    text = append(text, "recompute", cgp_recompute_name(choice->recompute));
    text = append(text, "balance", numbers[2]);
    if (limit > 0) text = append(text, "memory-limit", numbers[3]);
    for (int k = 0; k < 4; k++)
        free(numbers[k]);
    return text;
}

/* --- the report --- */

static double step_of(const cgp_search_choice *choice) {
    return choice->makespan + choice->update;
}

static void print_choice(FILE *out, const cli_session *session, const cgp_search_choice *choice,
                         double best, int number) {
    const cli_run_options *options = session->options;
    char bytes[32];
    fprintf(out, "%2d", number);
    if (options->costs)
        fprintf(out, "  %9.4f s  %9.1f", step_of(choice), (double)options->batch / step_of(choice));
    else
        fprintf(out, "  %6.3f", step_of(choice) / best);
    fprintf(out, "  %5.1f %%  %10s  %-14s  %7d  %6d  %-21s  %8.1f %%\n", 100 * choice->bubble,
            cgp_bytes_text(choice->bytes, bytes, sizeof bytes),
            choice->schedule ? choice->schedule : "(file)", choice->virtual_stages, choice->chunks,
            cgp_recompute_name(choice->recompute), 100 * choice->recomputed);
}

static void print_choices(FILE *out, const cli_session *session, const cgp_search_result *found) {
    const cli_run_options *options = session->options;
    fprintf(out, "%s: the fastest of %" PRId64 " plans that fit, with costs %s%s\n\n",
            session->model_spec, found->plans, options->costs ? "of " : "in FLOPs",
            cli_shown(options->costs));
    fprintf(out, options->costs ? "%2s  %11s  %9s" : "%2s  %6s%s", "", "step",
            options->costs ? "samples/s" : "");
    fprintf(out, "  %7s  %10s  %-14s  %7s  %6s  %-21s  %10s\n", "bubble", "fullest", "schedule",
            "virtual", "chunks", "recompute", "recomputed");
    for (int k = 0; k < found->n; k++)
        print_choice(out, session, &found->choices[k], step_of(&found->choices[0]), k + 1);
    char *command = command_of(session, &found->choices[0], options->memory_limit);
    fprintf(out, "\n%s\n", command);
    free(command);
}

static json_t *choice_json(const cgp_search_choice *choice, bool timed) {
    json_t *balance = json_array();
    for (int j = 0; j < choice->stages; j++)
        json_array_append_new(balance, json_integer(choice->balance[j]));
    return json_pack(
        "{s:s*, s:i, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:I, s:i}", "schedule", choice->schedule,
        "virtual", choice->virtual_stages, "chunks", choice->chunks, "recompute",
        cgp_recompute_name(choice->recompute), "balance", balance,
        timed ? "run_seconds_simulated" : "flops_simulated", cli_real_json(choice->makespan),
        "step_seconds_simulated", cli_real_json(timed ? step_of(choice) : NAN), "bubble_simulated",
        cli_real_json(choice->bubble), "recomputed", cli_real_json(choice->recomputed),
        "planned_bytes_fullest", (json_int_t)choice->bytes, "fullest_device", choice->device);
}

static json_t *result_json(const cli_session *session, const cgp_search_result *found) {
    json_t *choices = json_array(), *o = json_object();
    char *command = command_of(session, &found->choices[0], session->options->memory_limit);
    for (int k = 0; k < found->n; k++)
        json_array_append_new(choices,
                              choice_json(&found->choices[k], session->options->costs != NULL));
    cli_options_json(o, session->options, CLI_LIST_GIVEN);
    cli_json_add(o, "{s:s, s:I, s:s, s:o}", "model", session->model_spec, "plans",
                 (json_int_t)found->plans, "command", command, "choices", choices);
    free(command);
    return o;
}

/* Add the command that fits to the message about the least memory. */
static cgp_status add_least(const cli_session *session, const cgp_search_result *found) {
    char *message = cli_text("%s", cgp_message());
    char *command = command_of(session, &found->least, found->least.bytes);
    const cgp_status status = cgp_fail(CGP_ELIMIT, "%s; this fits: %s", message, command);
    free(command);
    free(message);
    return status;
}

static cgp_status run(cli_session *session, cli_run_options *options) {
    cli_model model;
    cgp_search_result found = {0};
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_model_find(&model, options, "plan gpt2 --search"));
    CGP_TRY(cli_session_model(session, options, &model));
    cgp_status status = find(session, &found);
    if (status == CGP_OK) {
        print_choices(cli_info_stream(options), session, &found);
        status = cli_json_write(options, result_json(session, &found));
    } else if (status == CGP_ELIMIT && found.least.stages > 0) {
        status = add_least(session, &found);
    }
    cgp_search_result_release(&found);
    return status;
}

int cli_plan_search(const cli_run_options *options) {
    cli_run_options resolved = *options;
    cli_session session = {0};
    const int code = cli_report(run(&session, &resolved), true);
    cli_session_release(&session);
    return code;
}
