/* SPDX-License-Identifier: Apache-2.0 */
/* collect.c -- collects the facts of a report from a run's directory:
 *
 *     metrics.jsonl   curves
 *     run.json        options ──► model and plan (made again) ──► memory, balance
 *     measured.json   timeline, times of layers ──► simulator ──► what would help
 *
 * Files are read as cli_run_directory_open() reads them: regular files only, no links. */
#include "report_page/page.h"

#include "report_page/planner.h"
#include "report_page/run.h"

#include "json_value.h"
#include "options/inherit.h"
#include "options/options.h"
#include "options/parse.h"
#include "options/resolve.h"
#include "report/measured.h"
#include "session/costs.h"
#include "session/record.h"
#include "session/run_directory.h"
#include "session/session.h"
#include "text.h"

#include <cgpipe/checkpoint.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { FORMAT = 1 };

/* A training searches for better plans this long at its end. */
#define SEARCH_SECONDS 2.0

/* --- the measured step --- */

static cgp_status read_timeline(cli_page_run *run, const char *path) {
    const json_t *step = json_object_get(run->measured, "cgpipe");
    json_t *root = json_pack("{s:O}", "cgpipe", step);
    char *text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17));
    json_decref(root);
    if (!text) return cgp_fail(CGP_ENOMEM, "%s: out of memory", path);
    cgp_schedule *schedule = NULL;
    cgp_status status =
        cgp_schedule_from_trace(&schedule, &run->timeline, path, text, strlen(text));
    free(text);
    if (status != CGP_OK) return status;
    status = cgp_schedule_compare(schedule, &run->timeline, &run->comparison);
    if (status == CGP_OK)
        run->schedule = schedule;
    else
        cgp_schedule_destroy(schedule);
    return status;
}

/* Take the measured times of layers, if they are of the session's model and micro-batch. */
static cgp_status read_costs(cli_page_run *run, const char *path) {
    const cli_session *session = run->session;
    cli_run_options options = *session->options;
    cli_costs costs = {0};
    options.costs = path;
    cgp_status status = cli_costs_parse(&costs, json_object_get(run->measured, "costs"), &options,
                                        session->model, session->model_spec);
    if (status == CGP_OK)
        status = cli_costs_at(&costs, cgp_plan_microbatch(session->plan), &run->costs);
    if (status != CGP_OK) {
        free(run->costs);
        run->costs = NULL;
    }
    cli_costs_release(&costs);
    return status;
}

/* Read the measured step, if the last start measured one. */
static void take_measured(cli_page_run *run) {
    char *path = cli_text("%s/" CLI_MEASURED, run->directory->path);
    const json_t *costs = json_object_get(run->measured, "costs");
    const json_t *update = json_object_get(run->measured, "update_seconds");
    if (!run->measured)
        cli_page_missing(run, "timeline",
                         "there is no " CLI_MEASURED
                         ", which a training writes in its second step");
    else if (!cli_page_is_current(run->record, run->measured))
        cli_page_missing(run, "timeline",
                         "the last start changed options, and has not measured a step");
    else {
        run->update_seconds = json_is_number(update) ? json_number_value(update) : 0;
        if (!json_object_get(run->measured, "cgpipe"))
            cli_page_missing(run, "timeline",
                             "no step has ended, or it has more actions than " CLI_MEASURED
                             " stores, or replicas with unequal "
                             "numbers of micro-batches");
        else if (read_timeline(run, path) != CGP_OK)
            cli_page_missing(run, "timeline", "%s", cgp_message());
        if (run->session && costs && read_costs(run, path) != CGP_OK)
            cli_page_missing(run, "costs", "%s", cgp_message());
    }
    if (run->costs && cli_page_same_lists(run)) cli_page_costs_scale(run);
    if (run->schedule && run->session && !cli_page_same_lists(run))
        cli_page_missing(run, "plan",
                         "the plan of this cgpipe has other lists than the measured "
                         "step");
    free(path);
}

/* --- all --- */

static void collect(cli_page_run *run) {
    run->data = json_pack("{s:i}", "cgpipe_report", FORMAT);
    cli_page_curves(run);
    cli_page_facts(run);
    take_measured(run);
    cli_page_timeline(run);
    cli_page_memory(run);
    cli_page_balance(run);
    cli_page_planner(run);
    cli_page_verdict(run);
    json_object_set(run->data, "missing", run->missing);
}

/* Collect the facts. `run` has the first four members and `missing`. Returns the data, owned by the
 * caller. */
static json_t *make(cli_page_run run) {
    collect(&run);
    json_decref(run.missing);
    free(run.costs);
    cgp_schedule_comparison_release(&run.comparison);
    cgp_schedule_timeline_release(&run.timeline);
    cgp_schedule_destroy(run.schedule);
    return run.data;
}

/* Read measured.json. If it cannot be read, say so under "missing". */
static json_t *read_measured(const cli_run_directory *directory, json_t *missing) {
    json_t *measured = NULL;
    if (cli_measured_file_read(directory, &measured) != CGP_OK)
        json_array_append_new(missing, json_sprintf("measured step: %s", cli_shown(cgp_message())));
    return measured;
}

/* --- a run on the disk --- */

/* Take the balance of the measured step, because the balance of --balance time is not in
 * run.json. */
static void take_balance(cli_run_options *own, const json_t *measured) {
    const json_t *balance = json_object_get(measured, "balance");
    const size_t n = json_array_size(balance);
    if (n == 0 || n > INT_MAX) return;
    int *layers = cli_run_options_keep(own, cli_calloc(n, sizeof *layers));
    for (size_t j = 0; j < n; j++)
        layers[j] = (int)json_integer_value(json_array_get(balance, j));
    own->balance = (cli_balance){.layers = {layers, (int)n}};
}

/* Take the options of the run. A model plug-in needs its path from the command line. */
static cgp_status take_options(cli_run_options *own, const cli_run_options *options,
                               const cli_run_directory *directory, const json_t *record,
                               const json_t *measured) {
    *own = (cli_run_options){.command = CLI_PLAN};
    CGP_TRY(cli_run_options_preset(own));
    if (cli_run_options_inherit(own, json_object_get(record, "options")) != CGP_OK)
        return cgp_fail(CGP_EFORMAT, "%s: %s", directory->record, cgp_message());
    own->plugin = options->plugin;
    own->costs = own->cluster = NULL;
    own->run = directory->path;
    own->operand = cli_record_path(record);
    own->operand_source = directory->record;
    if (own->balance.by && strcmp(own->balance.by, "time") == 0) own->balance.by = NULL;
    if (cli_page_is_current(record, measured)) take_balance(own, measured);
    return cli_run_options_resolve(own);
}

static cgp_status make_session(cli_session *session, cli_run_options *own,
                               const cli_run_options *options, const cli_run_directory *directory,
                               const json_t *record, const json_t *measured) {
    cli_model model;
    CGP_TRY(take_options(own, options, directory, record, measured));
    CGP_TRY(cli_record_find_model(&model, directory, record, options->model, options->plugin));
    return cli_session_plan(session, own, &model);
}

cgp_status cli_page_data(json_t **data, const char *path, const cli_run_options *options) {
    cli_run_directory directory;
    cli_run_options own = {0};
    cli_session session = {0};
    json_t *record = NULL;
    cli_run_directory_name(&directory, path);
    cgp_status status = cli_record_read(&directory, &record);
    if (status == CGP_OK) {
        json_t *missing = json_array(), *measured = read_measured(&directory, missing);
        const bool planned =
            make_session(&session, &own, options, &directory, record, measured) == CGP_OK;
        if (!planned)
            json_array_append_new(missing, json_sprintf("plan: %s", cli_shown(cgp_message())));
        *data = make((cli_page_run){.directory = &directory,
                                    .record = record,
                                    .measured = measured,
                                    .session = planned ? &session : NULL,
                                    .missing = missing});
        json_decref(measured);
    }
    cli_session_release(&session);
    cli_run_options_release(&own);
    json_decref(record);
    cli_run_directory_close(&directory);
    return status;
}

cgp_status cli_page_of_training(cli_run_directory *directory, const cli_session *session,
                                const char *state, const char *text) {
    json_t *record = NULL, *data = NULL;
    CGP_TRY(cli_run_directory_keep_lock(directory));
    CGP_TRY(cli_record_read(directory, &record));
    json_t *missing = json_array(), *measured = read_measured(directory, missing);
    data = make((cli_page_run){.directory = directory,
                               .record = record,
                               .measured = measured,
                               .session = session,
                               .state = state,
                               .state_text = text,
                               .search_seconds = SEARCH_SECONDS,
                               .missing = missing});
    char *page = cli_page_html(&data, 1), *path = cli_text("%s/" CLI_REPORT, directory->path);
    const cgp_status status =
        page ? cgp_file_replace_at(directory->fd, CLI_REPORT, path, page, strlen(page))
             : CGP_ENOMEM;
    json_decref(measured);
    free(path);
    free(page);
    json_decref(data);
    json_decref(record);
    return status;
}
