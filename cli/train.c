/* SPDX-License-Identifier: Apache-2.0 */
/* train.c -- cgpipe train, in this order: options and plan; data, pipeline, checkpoint; the run
 * in its folder, where nothing changes before everything else is in place; steps; results.
 *
 * Signals (stop.h) are looked at between these parts, after every step, and inside of the
 * long ones at the end. */
#include "train.h"

#include "commands.h"
#include "common.h"
#include "recipe.h"
#include "record.h"
#include "report.h"
#include "sampler.h"
#include "stop.h"
#include "trace.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- before it starts --- */

/* --data takes all that follows it, MODEL too: where that is missing, a last value that reads as a model is it. A run that
 * goes on has its own, so there a path of such a name is a path. */
static void find_model(cli_settings *s) {
    cgp_named_model named;
    if (s->operand || s->data.count == 0) return;
    const char *last = s->data.values[s->data.count - 1];
    if (s->resume && access(last, F_OK) == 0) return;
    char kind[32]; /* "gpt2:layrs=2" is a model, too, with a message of its own */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(last, ":"), last);
    if (cli_model_parse(&named, kind, 0) != CGP_OK) return;
    s->operand = last;
    s->data.count--;
    if (s->data.count == 0) s->given[CLI_OPTION_DATA] = false;
}

static cgp_status check_words(const cli_settings *s) {
    if (!s->operand)
        return cgp_fail(CGP_EINVAL,
                        "train: MODEL is missing "
                        "(cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data FILE)");
    if (s->data.count == 0)
        return cgp_fail(CGP_EINVAL,
                        "train: --data is missing (--data FILE, or --data random or shapes)");
    return CGP_OK;
}

/* What can be said of the command line alone, and of the run.json that it goes on with. */
static cgp_status prepare(training *t) {
    const cli_settings *s = &t->settings;
    cgp_named_model named;
    find_model(&t->settings);
    CGP_TRY(cli_resume_settings(t));
    CGP_TRY(check_words(s));
    CGP_TRY(cli_data_kind_of(s, &t->kind));
    const bool text = t->kind == CLI_DATA_TEXT;
    CGP_TRY(cli_model_parse(&named, s->operand, text ? 256 : 0));
    CGP_TRY(cli_model_settle(&named, &t->settings));
    if (text && named.kind == CGP_MODEL_GPT2 && named.gpt2.vocabulary < 256)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: vocab: expected at least 256 for bytes, got %" PRId64,
                        named.gpt2.vocabulary);
    if (s->sample > 0) CGP_TRY(cli_model_expect_gpt2(&named, "--sample"));
    if (s->sample > 0)
        CGP_TRY(cli_sampling_check(&(cli_sampling){.prompt = s->prompt}, &named.gpt2, NULL));
    CGP_TRY(cli_experiment_model(&t->experiment, s, &named));
    if (cli_recipe_counts_epochs(s)) {
        CGP_TRY(cli_data_open(&t->data, s, t->experiment.model));
        CGP_TRY(cli_recipe_count(&t->settings, cgp_data_samples(t->data, CGP_SPLIT_TRAIN)));
    }
    CGP_TRY(cli_experiment_make_plan(&t->experiment));
    CGP_TRY(cgp_pipeline_check_memory(t->experiment.plan, NULL));
    t->words = cli_data_words_of(t->experiment.model);
    return cli_resume_check_model(t);
}

static cgp_status check_free(const training *t) {
    if (t->settings.resume || t->settings.overwrite || !cli_folder_has_run(&t->folder))
        return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "run folder %s: has a run already (--resume goes on with it, --overwrite "
                    "deletes it; or another --run)",
                    t->folder.path);
}

/* Before the folder was locked another process may have begun a run in it, or gone on with the one that was read. */
static cgp_status check_meanwhile(const training *t) {
    json_t *now = NULL;
    CGP_TRY(check_free(t));
    if (!t->before) return CGP_OK;
    CGP_TRY(cli_record_read(&t->folder, &now));
    const bool same = json_equal(now, t->before);
    json_decref(now);
    if (same) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: another cgpipe train has changed it meanwhile (start again)",
                    t->folder.record);
}

/* What depends on files. The folder is made last, when nothing else is in the way, and goes
 * again if nothing comes into it. */
static cgp_status check_files(training *t) {
    const cli_settings *s = &t->settings;
    CGP_TRY(cli_folder_check(&t->folder));
    CGP_TRY(check_free(t));
    CGP_TRY(cli_json_check(s));
    CGP_TRY(cli_trace_check_folders(s));
    if (!t->data) CGP_TRY(cli_data_open(&t->data, s, t->experiment.model));
    CGP_TRY(cgp_data_identity(t->data, t->identity));
    CGP_TRY(cli_folder_make(&t->folder));
    return check_meanwhile(t);
}

/* Of a run that goes on, what may be other than before. */
static bool goes_on(const training *t) {
    return t->before && cli_record_starts(t->before) > 0;
}

static void print_data(const training *t) {
    char train[CLI_NUMBER], validation[CLI_NUMBER];
    cli_grouped(cgp_data_samples(t->data, CGP_SPLIT_TRAIN), train);
    cli_grouped(cgp_data_samples(t->data, CGP_SPLIT_VALIDATION), validation);
    if (t->kind == CLI_DATA_RANDOM)
        fprintf(t->out, "data         random tokens, without end\n");
    else if (t->kind == CLI_DATA_SHAPES)
        fprintf(t->out, "data         drawn shapes, without end, %s for validation\n",
                validation);
    else if (t->kind > CLI_DATA_SHAPES)
        fprintf(t->out, "data         %s images, %s for validation\n", train, validation);
    else
        fprintf(t->out, "data         %s windows of %" PRId64 " %s, %s for validation\n", train,
                cgp_data_sequence(t->data), t->kind == CLI_DATA_TEXT ? "bytes" : "tokens",
                validation);
}

/* At most 12 lines before the first step, with those of cli_resume_load(), unless --verbose. */
static cgp_status print_start(const training *t) {
    const bool verbose = t->settings.verbose, brief = goes_on(t) && !verbose;
    if (!brief) print_data(t);
    fprintf(t->out, "run          %s\n", cli_shown(t->folder.path));
    if (verbose)
        CGP_TRY(cli_print_plan(t->out, &t->experiment));
    else
        cli_print_summary(t->out, &t->experiment, brief);
    if (!brief) fputc('\n', t->out);
    fflush(t->out);
    return CGP_OK;
}

static cgp_status make_pipeline(training *t) {
    CGP_TRY(cli_experiment_start(&t->experiment));
    CGP_TRY(cgp_pipeline_set_timeout(t->experiment.pipeline, t->settings.timeout));
    CGP_TRY(cli_resume_load(t));
    fflush(t->out);
    return CGP_OK;
}

/* From here on the folder has this run. */
static cgp_status open_run(training *t) {
    cli_folder_clean(&t->folder);
    if (t->settings.overwrite) CGP_TRY(cli_folder_clear(&t->folder));
    CGP_TRY(cli_record_write(&t->folder, t->before, &t->experiment, t->resumed, &t->record));
    if (t->settings.from_step >= 0)
        CGP_TRY(cli_folder_drop_after(&t->folder, t->settings.from_step));
    CGP_TRY(cli_metrics_open(&t->metrics, &t->folder, t->resumed));
    if (t->metrics.last < t->resumed)
        fprintf(t->out, "warning      %s: no lines after step %" PRId64 "\n",
                cli_shown(t->folder.metrics), t->metrics.last);
    return CGP_OK;
}

/* --- all of it --- */

static bool stopped(training *t) {
    t->stopped = cli_stop_signal();
    return t->stopped;
}

static cgp_status train(training *t) {
    CGP_TRY(check_files(t));
    CGP_TRY(print_start(t));
    if (stopped(t)) return CGP_OK;
    CGP_TRY(make_pipeline(t));
    if (stopped(t)) return CGP_OK;
    CGP_TRY(open_run(t));
    if (stopped(t)) return CGP_OK;
    CGP_TRY(cli_train_steps(t));
    return cli_train_end(t);
}

/* A run that hung has more to say than the one line of its failure. */
static void print_watchdog(const training *t) {
    const cgp_pipeline *pipeline = t->experiment.pipeline;
    fflush(t->out);
    if (pipeline) fputs(cgp_pipeline_report(pipeline), stderr);
}

/* A start that failed before its first checkpoint leaves no run behind, if it began one. */
static void undo(const training *t) {
    if (t->record && !t->before && t->saved == 0 &&
        cli_folder_newest(&t->folder) == CLI_NO_STEP)
        cli_folder_undo(&t->folder);
}

int cli_train(const cli_settings *settings) {
    training t = {.settings = *settings, .out = cli_text(settings), .started = cli_seconds()};
    t.settings.n_owned = 0; /* what was owned so far is the caller's to free */
    t.validation = cli_no_scores;
    cli_folder_name(&t.folder, settings->run);
    cli_stop_install();
    int code = cli_report(prepare(&t), true);
    if (code == CLI_OK) {
        const cgp_status status = train(&t);
        if (status != CGP_OK) print_watchdog(&t);
        if (status != CGP_OK) undo(&t);
        code = cli_report(status, false);
    }
    if (code == CLI_OK && t.stopped) code = cli_train_stopped(&t);
    cgp_data_destroy(t.data);
    cli_experiment_release(&t.experiment);
    cli_metrics_close(&t.metrics);
    cli_folder_close(&t.folder);
    cli_settings_release(&t.settings);
    json_decref(t.before);
    json_decref(t.record);
    return code;
}
