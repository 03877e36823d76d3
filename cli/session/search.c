/* SPDX-License-Identifier: Apache-2.0 */
/* search.c -- see search.h. */
#include "session/search.h"

#include "options/json.h"
#include "options/options.h"
#include "options/table.h"
#include "ranks.h"
#include "session/plan_options.h"
#include "session/prediction.h"
#include "session/session.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- the search --- */

/* If --balance gives numbers, the schedule is not searched: the numbers are for the stages of one
 * schedule. */
cgp_search_options cli_search_options(const cli_session *session, bool chunks) {
    const cli_run_options *options = session->options;
    cgp_search_options search = cgp_search_options_default();
    search.balances = options->balance.layers.count == 0;
    search.schedules = !options->given[CLI_OPTION_SCHEDULE] && search.balances;
    search.virtual_stages = !options->given[CLI_OPTION_VIRTUAL] && search.balances;
    search.recomputes = !options->given[CLI_OPTION_RECOMPUTE];
    search.chunks = chunks && !options->given[CLI_OPTION_CHUNKS] && !session->of.layers;
    return search;
}

/* Tell whether all devices of a cluster have the same memory. */
static bool has_equal_memory(const cli_cluster *cluster, int devices) {
    for (int d = 1; d < devices; d++) {
        if (cluster->device[d].memory_bytes != cluster->device[0].memory_bytes) return false;
    }
    return true;
}

/* Append the memory of each device in the cluster to the device's name, as its limit. A device that
 * already has a limit keeps it. */
static void limit_devices(cli_run_options *options, const cli_cluster *cluster,
                          const cgp_plan_options *plan) {
    const char **names =
        cli_run_options_keep(options, cli_calloc((size_t)plan->stages, sizeof *names));
    for (int d = 0; d < plan->stages; d++) {
        const int64_t bytes = cluster->device[d].memory_bytes;
        const char *name = plan->devices ? plan->devices[d] : "cpu";
        names[d] = cli_run_options_keep(options, bytes > 0 && !strchr(name, '@')
                                                     ? cli_text("%s@%" PRId64, name, bytes)
                                                     : cli_text("%s", name));
    }
    options->devices.values = names;
    options->devices.count = plan->stages;
    options->given[CLI_OPTION_DEVICES] = true;
}

static void free_names(char **names, int n) {
    for (int d = 0; names && d < n; d++)
        free(names[d]);
    free(names);
}

cgp_status cli_search_limits(cli_session *session, cli_run_options *options) {
    cli_plan_options plan;
    cli_prediction prediction;
    if (!options->cluster || options->memory_limit > 0) return CGP_OK;
    CGP_TRY(cli_plan_options_make(&plan, session));
    const cgp_status status = cli_prediction_read(&prediction, session);
    const cli_cluster *cluster = &prediction.cluster;
    if (status == CGP_OK && has_equal_memory(cluster, plan.plan.stages))
        options->memory_limit = cluster->device[0].memory_bytes;
    else if (status == CGP_OK)
        limit_devices(options, cluster, &plan.plan);
    cli_prediction_release(&prediction);
    cli_plan_options_release(&plan);
    return status;
}

static cgp_status search_with_costs(const cli_session *session, const cgp_plan_options *options,
                                    cgp_search_options *search, cgp_search_result *found,
                                    bool *warned) {
    cli_prediction prediction;
    cgp_status status = cli_prediction_read(&prediction, session);
    if (status == CGP_OK && !*warned) cli_costs_warn(&prediction.costs, session->options);
    *warned = *warned || status == CGP_OK;
    search->costs = prediction.costs.rows;
    search->samples = prediction.costs.samples;
    search->sizes = prediction.costs.sizes;
    search->row_of = prediction.costs.row_of;
    search->messages = &prediction.messages;
    search->exchange = prediction.exchange_links ? &prediction.exchange : NULL;
    if (status == CGP_OK) status = cgp_plan_search(session->model, options, search, found);
    search->row_of = NULL;
    search->exchange = NULL;
    cli_prediction_release(&prediction);
    return status;
}

cgp_status cli_search(cli_session *session, cgp_search_options *search, cgp_search_result *found,
                      bool *warned) {
    cli_plan_options options;
    *found = (cgp_search_result){0};
    cgp_status status = cli_plan_options_make(&options, session);
    if (status == CGP_OK && !search->balances) status = cli_plan_options_balance(&options, session);
    if (status == CGP_OK && cli_prediction_has(session->options))
        status = search_with_costs(session, &options.plan, search, found, warned);
    else if (status == CGP_OK)
        status = cgp_plan_search(session->model, &options.plan, search, found);
    cli_plan_options_release(&options);
    return status;
}

void cli_search_take(cli_run_options *options, const cgp_search_choice *choice) {
    const size_t n = (size_t)choice->stages;
    int *balance = cli_run_options_keep(options, cli_calloc(n, sizeof *balance));
    memcpy(balance, choice->balance, n * sizeof *balance);
    options->balance = (cli_balance){.layers = {balance, choice->stages}};
    options->chunks = choice->chunks;
    options->recompute = cgp_recompute_name(choice->recompute);
    options->precision = cgp_precision_name(choice->precision);
    if (!choice->schedule) return;
    options->schedule = choice->schedule;
    options->virtual_stages = choice->virtual_stages;
    options->in_flight = choice->in_flight;
}

/* --- the command --- */

const char *cli_search_schedule(const cgp_search_choice *choice, char text[CLI_SCHEDULE_TEXT]) {
    const char *name = choice->schedule ? choice->schedule : "(file)";
    if (choice->in_flight == 0)
        snprintf(text, CLI_SCHEDULE_TEXT, "%s", name);
    else
        snprintf(text, CLI_SCHEDULE_TEXT, "%s %d", name, choice->in_flight);
    return text;
}

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

/* Return `text` with an option appended. Frees `text`. */
static char *append(char *text, const char *name, const char *value) {
    char *word = value ? cli_shell_word(value) : NULL;
    char *longer = cli_text("%s --%s%s%s", text, name, word ? " " : "", word ? word : "");
    free(word);
    free(text);
    return longer;
}

static char *append_number(char *text, const char *name, int64_t number) {
    char value[CLI_NUMBER];
    snprintf(value, sizeof value, "%" PRId64, number);
    return append(text, name, value);
}

/* Append an option and its paths, each path as one word of a shell. */
static char *append_paths(char *text, const char *name, const cli_names *paths) {
    for (int i = 0; i < paths->count; i++) {
        char *word = cli_shell_word(paths->values[i]);
        char *longer =
            i == 0 ? cli_text("%s --%s %s", text, name, word) : cli_text("%s %s", text, word);
        free(word);
        free(text);
        text = longer;
    }
    return text;
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

/* Append an option of the session and its value. */
static char *append_option(char *text, const cli_run_options *options, int id) {
    if (cli_options[id].kind == CLI_PATHS)
        return append_paths(text, cli_options[id].name, cli_option_value(options, id));
    json_t *value = cli_option_json(options, id);
    char *argument = argument_text(value);
    text = append(text, cli_options[id].name, argument);
    free(argument);
    json_decref(value);
    return text;
}

/* Tell whether an option of the session must be left out of the suggested command, because the
 * choice sets the option or the command does not take it. */
static bool is_chosen(int id) {
    return id == CLI_OPTION_SCHEDULE || id == CLI_OPTION_VIRTUAL || id == CLI_OPTION_IN_FLIGHT ||
           id == CLI_OPTION_CHUNKS || id == CLI_OPTION_RECOMPUTE || id == CLI_OPTION_BALANCE ||
           id == CLI_OPTION_PRECISION || id == CLI_OPTION_MEMORY_LIMIT || id == CLI_OPTION_COSTS ||
           !cli_option_taken(id, CLI_TRAIN) ||
           ((cli_options[id].flags & CLI_ONCE) != 0 && id != CLI_OPTION_RUN);
}

char *cli_search_words(const cli_run_options *options, const cgp_search_choice *choice) {
    const cgp_schedule_info *info =
        choice->schedule ? cgp_schedule_info_find(choice->schedule) : NULL;
    char *balance = balance_text(choice), *text = cli_text("%s", "");
    text = append(text, "schedule", choice->schedule ? choice->schedule : options->schedule);
    if (info && info->any_virtual) text = append_number(text, "virtual", choice->virtual_stages);
    if (choice->in_flight) text = append_number(text, "in-flight", choice->in_flight);
    text = append_number(text, "chunks", choice->chunks);
    text = append(text, "recompute", cgp_recompute_name(choice->recompute));
    text = append(text, "balance", balance);
    if (choice->precision != CGP_PRECISION_F32)
        text = append(text, "precision", cgp_precision_name(choice->precision));
    free(balance);
    return text;
}

/* Return the number of processes for replicas: as many as this training has, or a process for each
 * replica, which devices of any kind can have. With --cluster the devices may be on several hosts,
 * so each device has a process. */
static int64_t processes_for(const cli_run_options *options) {
    if (options->command == CLI_TRAIN && cli_ranks() > 1) return cli_ranks();
    return options->replicas * (options->cluster ? options->stages : 1);
}

/* Return the first words of the suggested command. Freed by the caller. */
static char *command_start(const cli_session *session, const char *operand) {
    const cli_run_options *options = session->options;
    if (session->of.layers) return cli_text("cgpipe plan %s", operand);
    const bool alone = options->command == CLI_TRAIN && cli_ranks() <= 1;
    if (options->replicas == 1 || alone) return cli_text("cgpipe train %s", operand);
    return cli_text("mpirun -n %" PRId64 " cgpipe train %s", processes_for(options), operand);
}

char *cli_search_command(const cli_session *session, const cgp_search_choice *choice,
                         int64_t limit) {
    const cli_run_options *options = session->options;
    char *operand = cli_shell_word(options->operand ? options->operand : "");
    char *text = command_start(session, operand);
    char *words = cli_search_words(options, choice);
    free(operand);
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (options->given[id] && !is_chosen(id)) text = append_option(text, options, id);
    }
    if (options->gradient_groups > 1 && !options->given[CLI_OPTION_GRADIENT_GROUPS])
        text = append_number(text, "gradient-groups", options->gradient_groups);
    char *command = cli_text("%s%s", text, words);
    free(words);
    free(text);
    return limit > 0 ? append_number(command, "memory-limit", limit) : command;
}

/* Return the names of the devices without their limits. Free them with free_names(). */
static char **unlimited_names(const cli_names *devices) {
    char **names = cli_calloc((size_t)devices->count, sizeof *names);
    for (int d = 0; d < devices->count; d++) {
        const char *name = devices->values[d];
        names[d] = cli_text("%.*s", (int)strcspn(name, "@"), name);
    }
    return names;
}

/* The suggested command has one memory limit for all devices, so it leaves out the limits of single
 * devices. */
cgp_status cli_search_add_least(const cli_session *session, const cgp_search_result *found) {
    char *message = cli_text("%s", cgp_message());
    cli_run_options options = *session->options;
    cli_session plain = *session;
    char **names = unlimited_names(&options.devices);
    options.devices.values = (const char **)names;
    plain.options = &options;
    char *command = cli_search_command(&plain, &found->least, found->least.bytes);
    const cgp_status status = cgp_fail(CGP_ELIMIT, "%s; this fits: %s", message, command);
    free_names(names, options.devices.count);
    free(command);
    free(message);
    return status;
}
