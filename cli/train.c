/* SPDX-License-Identifier: Apache-2.0 */
/* train.c -- cgpipe train, in this order: options and plan; data, pipeline, checkpoint; the run
 * in its directory, where nothing changes before everything else is in place; steps; results.
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
static void find_model(cli_run_options *s) {
    cgp_model_spec spec;
    if (s->operand || s->data.count == 0) return;
    const char *last = s->data.values[s->data.count - 1];
    if (s->resume && access(last, F_OK) == 0) return;
    char kind[32]; /* "gpt2:layrs=2" is a model, too, with a message of its own */
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(last, ":"), last);
    if (cli_model_parse(&spec, kind, 0) != CGP_OK) return;
    s->operand = last;
    s->data.count--;
    if (s->data.count == 0) s->given[CLI_OPTION_DATA] = false;
}

static cgp_status check_words(const cli_run_options *s) {
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
    const cli_run_options *s = &t->options;
    cgp_model_spec spec;
    find_model(&t->options);
    CGP_TRY(cli_resume_options(t));
    CGP_TRY(check_words(s));
    CGP_TRY(cli_data_kind_of(s, &t->kind));
    const bool text = t->kind == CLI_DATA_TEXT;
    CGP_TRY(cli_model_parse(&spec, s->operand, text ? 256 : 0));
    CGP_TRY(cli_model_resolve(&spec, &t->options));
    if (text && spec.kind == CGP_MODEL_GPT2 && spec.gpt2.vocab < 256)
        return cgp_fail(CGP_EINVAL,
                        "gpt2: vocab: expected at least 256 for bytes, got %" PRId64,
                        spec.gpt2.vocab);
    if (s->sample > 0) CGP_TRY(cli_model_expect_gpt2(&spec, "--sample"));
    if (s->sample > 0)
        CGP_TRY(cli_sampling_check(&(cli_sampling){.prompt = s->prompt}, &spec.gpt2, NULL));
    CGP_TRY(cli_session_model(&t->session, s, &spec));
    if (cli_recipe_counts_epochs(s)) {
        CGP_TRY(cli_data_open(&t->data, s, t->session.model));
        CGP_TRY(cli_recipe_count(&t->options, cgp_data_samples(t->data, CGP_SPLIT_TRAIN)));
    }
    CGP_TRY(cli_session_make_plan(&t->session));
    CGP_TRY(cgp_pipeline_check_memory(t->session.plan, NULL));
    t->words = cli_data_words_of(t->session.model);
    return cli_resume_check_model(t);
}

static cgp_status check_free(const training *t) {
    if (t->options.resume || t->options.overwrite || !cli_directory_has_run(&t->directory))
        return CGP_OK;
    return cgp_fail(
        CGP_EIO,
        "run directory %s: has a run already (--resume goes on with it, --overwrite "
        "deletes it; or another --run)",
        t->directory.path);
}

/* Before the directory was locked another process may have begun a run in it, or gone on with the one that was read. */
static cgp_status check_meanwhile(const training *t) {
    json_t *now = NULL;
    CGP_TRY(check_free(t));
    if (!t->before) return CGP_OK;
    CGP_TRY(cli_record_read(&t->directory, &now));
    const bool same = json_equal(now, t->before);
    json_decref(now);
    if (same) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: another cgpipe train has changed it meanwhile (start again)",
                    t->directory.record);
}

/* What depends on files. The directory is made last, when nothing else is in the way, and goes
 * again if nothing comes into it. */
static cgp_status check_files(training *t) {
    const cli_run_options *s = &t->options;
    CGP_TRY(cli_directory_check(&t->directory));
    CGP_TRY(check_free(t));
    CGP_TRY(cli_json_check(s));
    CGP_TRY(cli_trace_check_directories(s));
    if (!t->data) CGP_TRY(cli_data_open(&t->data, s, t->session.model));
    CGP_TRY(cgp_data_identity(t->data, t->identity));
    CGP_TRY(cli_directory_make(&t->directory));
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
    const bool verbose = t->options.verbose, brief = goes_on(t) && !verbose;
    if (!brief) print_data(t);
    fprintf(t->out, "run          %s\n", cli_shown(t->directory.path));
    if (verbose)
        CGP_TRY(cli_print_plan(t->out, &t->session));
    else
        cli_print_summary(t->out, &t->session, brief);
    if (!brief) fputc('\n', t->out);
    fflush(t->out);
    return CGP_OK;
}

static cgp_status make_pipeline(training *t) {
    CGP_TRY(cli_session_start(&t->session));
    CGP_TRY(cgp_pipeline_set_timeout(t->session.pipeline, t->options.timeout));
    CGP_TRY(cli_resume_load(t));
    fflush(t->out);
    return CGP_OK;
}

/* From here on the directory has this run. */
static cgp_status open_run(training *t) {
    cli_directory_clean(&t->directory);
    if (t->options.overwrite) CGP_TRY(cli_directory_clear(&t->directory));
    CGP_TRY(cli_record_write(&t->directory, t->before, &t->session, t->resumed, &t->record));
    if (t->options.from_step >= 0)
        CGP_TRY(cli_directory_drop_after(&t->directory, t->options.from_step));
    CGP_TRY(cli_metrics_open(&t->metrics, &t->directory, t->resumed));
    if (t->metrics.last < t->resumed)
        fprintf(t->out, "warning      %s: no lines after step %" PRId64 "\n",
                cli_shown(t->directory.metrics), t->metrics.last);
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
    const cgp_pipeline *pipeline = t->session.pipeline;
    fflush(t->out);
    if (pipeline) fputs(cgp_pipeline_report(pipeline), stderr);
}

/* A start that failed before its first checkpoint leaves no run behind, if it began one. */
static void undo(const training *t) {
    if (t->record && !t->before && t->saved == 0 &&
        cli_directory_newest(&t->directory) == CLI_NO_STEP)
        cli_directory_undo(&t->directory);
}

int cli_train(const cli_run_options *options) {
    training t = {.options = *options, .out = cli_text(options), .started = cli_seconds()};
    t.options.n_owned = 0; /* what was owned so far is the caller's to free */
    t.validation = cli_no_eval_metrics;
    cli_directory_name(&t.directory, options->run);
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
    cli_session_release(&t.session);
    cli_metrics_close(&t.metrics);
    cli_directory_close(&t.directory);
    cli_run_options_release(&t.options);
    json_decref(t.before);
    json_decref(t.record);
    return code;
}
