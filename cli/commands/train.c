/* SPDX-License-Identifier: Apache-2.0 */
/* train.c -- cgpipe train, in this order: options and plan; data, pipeline, checkpoint; the run's
 * directory; steps; results. Nothing in the directory changes until everything before it has
 * succeeded.
 *
 * It checks for signals (stop.h) between these parts, after every step, and inside the long parts
 * at the end. */
#include "commands/train.h"

#include <cgpipe/data.h>

#include "commands/commands.h"
#include "common.h"
#include "options/epochs.h"
#include "ranks.h"
#include "report/output.h"
#include "report/report.h"
#include "session/diagnosis.h"
#include "session/record.h"
#include "session/sampler.h"
#include "stop.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- before it starts --- */

static cgp_status check_arguments(const cli_run_options *options) {
    if (!options->operand)
        return cgp_fail(CGP_EINVAL,
                        "train: MODEL is missing "
                        "(cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data FILE)");
    if (options->data.count == 0)
        return cgp_fail(CGP_EINVAL,
                        "train: --data is missing (--data FILE, or --data random or shapes)");
    return CGP_OK;
}

static cgp_status open_data(training *t) {
    return cli_data_open(&t->data, &t->run.options, t->run.session.model, &t->run.session.of);
}

/* Count epochs on rank 0. The plan needs the number of samples and how many the run has seen, but
 * only the plan determines which ranks read data. */
static cgp_status count_epochs(training *t) {
    int64_t samples = 0;
    cgp_status status = CGP_OK;
    if (cli_rank() == 0) status = open_data(t);
    if (cli_rank() == 0 && status == CGP_OK) status = cli_resume_progress(&t->run);
    CGP_TRY(cli_ranks_agree(status));
    if (t->data) samples = cgp_data_samples(t->data, CGP_SPLIT_TRAIN);
    CGP_TRY(cli_ranks_broadcast(0, &samples, sizeof samples));
    CGP_TRY(cli_ranks_broadcast(0, &t->run.done, sizeof t->run.done));
    return cli_epochs_count(&t->run.options, samples, t->run.done);
}

/* Refuse text if the model's tokens are not bytes: it would train on them without a warning. A
 * resumed run may keep its data. */
static cgp_status expect_bytes(const cli_run_options *options, const cgp_model *model,
                               int64_t vocab) {
    const char *path = options->data.values[0];
    if (vocab < 256)
        return cgp_fail(CGP_EINVAL, "%s: vocab: expected at least 256 for bytes, got %" PRId64,
                        cgp_model_name(model), vocab);
    if (vocab == 256 || (options->resume && !cli_option_given(options, CLI_OPTION_DATA)))
        return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "--data %s: is text, whose vocabulary is 256 bytes, expected tokens for %s, "
                    "vocab=%" PRId64 " (cgpipe tokenize --tokenizer PATH --out tokens.bin %s, then "
                    "--data tokens.bin; or vocab=256 in MODEL)",
                    path, cgp_model_name(model), vocab, path);
}

/* Check that the model fits a text of bytes, and --sample. */
static cgp_status check_text(const training *t) {
    const cli_run_options *options = &t->run.options;
    const cgp_model *model = t->run.session.model;
    const bool text = t->kind == CLI_DATA_TEXT;
    cli_text_sizes sizes;
    const cgp_status status = cli_model_expect_text(&sizes, model, "--sample");
    if (options->sample > 0) CGP_TRY(status);
    if (status != CGP_OK) return CGP_OK;
    if (text) CGP_TRY(expect_bytes(options, model, sizes.vocab));
    if (options->sample > 0 && t->kind == CLI_DATA_TOKENS)
        return cgp_fail(CGP_EINVAL,
                        "--sample: prints bytes, and --data %s are tokens (leave it out, then "
                        "cgpipe sample RUN --tokenizer PATH)",
                        options->data.values[0]);
    return options->sample > 0 ? cli_prompt_check(options->prompt, sizes, NULL) : CGP_OK;
}

/* Resolve the command line and run.json, and plan. */
static cgp_status prepare(training *t) {
    const cli_run_options *options = &t->run.options;
    cli_model model;
    CGP_TRY(cli_ranks_open(options->transport, options->timeout, options->verify_messages));
    CGP_TRY(cli_resume_options(&t->run));
    CGP_TRY(cli_ranks_watch(options->timeout, options->verify_messages));
    CGP_TRY(check_arguments(options));
    CGP_TRY(cli_data_kind_of(options, &t->kind));
    const bool text = t->kind == CLI_DATA_TEXT;
    CGP_TRY(cli_model_parse(&model, options->operand, text ? 256 : 0, options->operand_source,
                            options->plugin));
    CGP_TRY(cli_model_agree(&model));
    CGP_TRY(cli_model_resolve(&model, &t->run.options));
    CGP_TRY(cli_session_model(&t->run.session, options, &model));
    CGP_TRY(check_text(t));
    if (cli_epochs_option(options)) CGP_TRY(count_epochs(t));
    CGP_TRY(cli_session_make_plan(&t->run.session));
    CGP_TRY(cgp_pipeline_check_memory(t->run.session.plan, NULL));
    t->units = cli_data_units_of(t->run.session.model);
    return cli_resume_check_model(&t->run);
}

static cgp_status check_free(const training *t) {
    if (t->run.options.resume || t->run.options.overwrite ||
        !cli_run_directory_has_run(&t->run.directory))
        return CGP_OK;
    return cgp_fail(CGP_EIO,
                    "run directory %s: has a run already (--resume continues it, --overwrite "
                    "deletes it; or another --run)",
                    t->run.directory.path);
}

/* Refuse a directory in which another process began or resumed a run before it was locked. */
static cgp_status check_meanwhile(const training *t) {
    json_t *now = NULL;
    CGP_TRY(check_free(t));
    if (!t->run.before) return CGP_OK;
    CGP_TRY(cli_record_read(&t->run.directory, &now));
    const bool same = json_equal(now, t->run.before);
    json_decref(now);
    if (same) return CGP_OK;
    return cgp_fail(CGP_EIO, "%s: another cgpipe train has changed it meanwhile (start again)",
                    t->run.directory.record);
}

/* Open and check files. The directory is made last, when nothing else can fail, and removed if it
 * stays empty. */
static cgp_status check_files(training *t) {
    const cli_run_options *options = &t->run.options;
    const bool writes = cli_rank() == 0;
    if (writes) CGP_TRY(cli_run_directory_check(&t->run.directory));
    if (writes) CGP_TRY(check_free(t));
    CGP_TRY(cli_json_check(options));
    CGP_TRY(cli_trace_check(options));
    if (!t->data && (writes || cli_session_reads(&t->run.session))) CGP_TRY(open_data(t));
    if (t->data) CGP_TRY(cli_data_facts_of(t->data, &t->facts));
    if (!writes) return CGP_OK;
    CGP_TRY(cli_run_directory_make(&t->run.directory));
    return check_meanwhile(t);
}

/* Take rank 0's facts. Ranks may have disks of their own: check that their data is the same. */
static cgp_status share_facts(training *t) {
    char own[65];
    memcpy(own, t->facts.identity, sizeof own);
    CGP_TRY(cli_ranks_broadcast(0, &t->facts, sizeof t->facts));
    memcpy(t->run.identity, t->facts.identity, sizeof t->run.identity);
    const bool same = !t->data || strcmp(own, t->facts.identity) == 0;
    return cli_ranks_agree(
        same ? CGP_OK
             : cgp_fail(CGP_EINVAL,
                        "data: identity is %.8s, on rank 0 %.8s (use the same files on all ranks)",
                        own, t->facts.identity));
}

/* Tell whether this start resumes a run; then only changes are printed. */
static bool continues(const training *t) {
    return t->run.before && cli_record_starts(t->run.before) > 0;
}

static void print_data(const training *t) {
    char train[CLI_NUMBER], validation[CLI_NUMBER];
    cli_grouped(t->facts.samples[CGP_SPLIT_TRAIN], train);
    cli_grouped(t->facts.samples[CGP_SPLIT_VALIDATION], validation);
    if (t->kind == CLI_DATA_RANDOM)
        fprintf(t->run.out, "data         random tokens, without end\n");
    else if (t->kind == CLI_DATA_SHAPES)
        fprintf(t->run.out, "data         drawn shapes, without end, %s for validation\n",
                validation);
    else if (t->kind == CLI_DATA_PLUGIN && t->facts.samples[CGP_SPLIT_TRAIN] == INT64_MAX)
        fprintf(t->run.out, "data         %s of the plug-in, without end, %s for validation\n",
                t->units.sample, validation);
    else if (t->kind == CLI_DATA_PLUGIN)
        fprintf(t->run.out, "data         %s %s of the plug-in, %s for validation\n", train,
                t->units.sample, validation);
    else if (t->kind > CLI_DATA_SHAPES)
        fprintf(t->run.out, "data         %s images, %s for validation\n", train, validation);
    else
        fprintf(t->run.out, "data         %s sequences of %" PRId64 " %s, %s for validation\n",
                train, t->facts.sequence, t->kind == CLI_DATA_TEXT ? "bytes" : "tokens",
                validation);
}

/* Print at most 12 lines before the first step, including cli_resume_load()'s, unless --verbose. */
static cgp_status print_start(const training *t) {
    const bool verbose = t->run.options.verbose, brief = continues(t) && !verbose;
    if (!brief) print_data(t);
    fprintf(t->run.out, "run          %s\n", cli_shown(t->run.directory.path));
    if (verbose)
        CGP_TRY(cli_print_plan(t->run.out, &t->run.session));
    else
        cli_print_summary(t->run.out, &t->run.session, brief);
    if (!brief) fputc('\n', t->run.out);
    cli_output_flush(t->run.out);
    return CGP_OK;
}

static cgp_status make_pipeline(training *t) {
    CGP_TRY(cli_session_start(&t->run.session));
    cli_print_ranks(t->run.out, &t->run.session);
    if (cli_ranks() > 1) /* a single rank has checked its directory */
        CGP_TRY(cli_run_directory_check_ranks(&t->run.directory, t->run.session.pipeline));
    CGP_TRY(cgp_pipeline_set_timeout(t->run.session.pipeline, t->run.options.timeout));
    CGP_TRY(
        cli_diagnosis_begin(t->run.session.pipeline, &t->run.directory, t->run.options.timeout));
    CGP_TRY(cli_resume_load(&t->run));
    cli_output_flush(t->run.out);
    return CGP_OK;
}

/* Write run.json and open the metrics: from here on the directory has this run. */
static cgp_status open_run(training *t) {
    if (cli_rank() > 0) return CGP_OK;
    cli_run_directory_clean(&t->run.directory);
    if (cli_ranks() == 1) cli_diagnosis_clear(&t->run.directory);
    if (t->run.options.overwrite) CGP_TRY(cli_run_directory_clear(&t->run.directory));
    CGP_TRY(cli_record_write(&t->run.directory, t->run.before, &t->run.session, t->run.resumed,
                             &t->run.record));
    if (t->run.options.from_step >= 0)
        CGP_TRY(cli_run_directory_drop_after(&t->run.directory, t->run.options.from_step));
    CGP_TRY(cli_metrics_open(&t->metrics, &t->run.directory, t->run.resumed));
    if (t->metrics.last < t->run.resumed)
        fprintf(t->run.out, "warning      %s: no lines after step %" PRId64 "\n",
                cli_shown(t->run.directory.metrics), t->metrics.last);
    return CGP_OK;
}

/* --- the command --- */

static bool stopped(training *t) {
    t->stopped = cli_train_stop(t, false);
    return t->stopped;
}

static cgp_status train(training *t) {
    CGP_TRY(cli_ranks_agree(check_files(t)));
    CGP_TRY(share_facts(t));
    CGP_TRY(print_start(t));
    if (stopped(t)) return CGP_OK;
    CGP_TRY(make_pipeline(t));
    if (stopped(t)) return CGP_OK;
    CGP_TRY(cli_ranks_agree(open_run(t)));
    if (stopped(t)) return CGP_OK;
    cgp_status status = cli_train_steps(t);
    if (status == CGP_OK) status = cli_train_end(t);
    return cli_train_keep(t, status);
}

/* Write this rank's diagnosis if a step timed out here, another rank was lost, or its device
 * failed. */
static void diagnose(const training *t, cgp_status status) {
    const cgp_pipeline *pipeline = t->run.session.pipeline;
    const cgp_status other = cli_ranks_failure();
    if (status != CGP_OK && (other == CGP_EPEER || other == CGP_EDEVICE ||
                             (pipeline && *cgp_pipeline_report(pipeline))))
        cli_diagnosis_write(cgp_message());
}

/* Print a report, in addition to the one-line message, if the run hung. */
static void print_watchdog(const training *t) {
    const cgp_pipeline *pipeline = t->run.session.pipeline;
    cli_output_flush(t->run.out);
    if (pipeline && cli_rank() == 0) fputs(cgp_pipeline_report(pipeline), stderr);
}

/* Delete a new run that failed before its first checkpoint. */
static void undo(const training *t) {
    if (t->run.directory.locked && t->run.record && !t->run.before && t->run.saved == 0 &&
        cli_run_directory_newest(&t->run.directory) == CLI_NO_STEP)
        cli_run_directory_undo(&t->run.directory);
}

int cli_train(const cli_run_options *options) {
    training t = {.run = {.options = *options, .out = cli_info_stream(options)},
                  .started = cli_seconds()};
    t.run.options.n_owned = 0; /* the caller frees its memory */
    t.run.options.file = NULL;
    t.validation = cli_no_eval_metrics;
    cli_run_directory_name(&t.run.directory, options->run);
    cli_stop_install();
    cgp_status status = prepare(&t);
    cli_ranks_fail(status);
    int code = cli_report(status, true);
    if (code == CLI_OK) {
        status = train(&t);
        const bool sample_failed =
            status != CGP_OK && t.run.session.sample_failed; /* alike on all ranks */
        if (status != CGP_OK && cli_ranks_lost()) cli_ranks_leave_soon();
        diagnose(&t, status);
        if (!sample_failed) cli_ranks_fail(status);
        if (!cli_ranks_lost()) cli_diagnosis_end();
        if (status != CGP_OK) print_watchdog(&t);
        if (status != CGP_OK) undo(&t);
        code = cli_report(status, false);
        if (sample_failed && status != CGP_ENOMEM) code = CLI_DATA;
    }
    if (code == CLI_OK && t.stopped) code = cli_train_stopped(&t);
    if (code != CLI_OK && cli_ranks_lost()) cli_ranks_abort(code);
    cli_diagnosis_end();
    cgp_data_destroy(t.data);
    cli_session_release(&t.run.session);
    cli_metrics_close(&t.metrics);
    cli_run_directory_close(&t.run.directory);
    cli_run_options_release(&t.run.options);
    json_decref(t.run.before);
    json_decref(t.run.record);
    return code;
}
