/* SPDX-License-Identifier: Apache-2.0 */
/* train.c -- cgpipe train: a list of phases, and what follows if a phase fails or a signal stops
 * the training (stop.h). */
#include "train/train.h"

#include "commands/commands.h"
#include "errors.h"
#include "machine.h"
#include "ranks.h"
#include "report/output.h"
#include "session/diagnosis.h"
#include "session/entries.h"
#include "stop.h"
#include "text.h"

#include <stdlib.h>

/* The phases. The phases before cli_train_begin() do not change the record, metrics or checkpoints
 * of the run. */
static const struct {
    cgp_status (*run)(training *t);
    bool stops; /* a stop request ends the training after this phase */
} phases[] = {
    {cli_train_resolve, false}, /* options, model, plan */
    {cli_train_open, true},     /* open the data and the run's directory */
    {cli_train_make, true},     /* pipeline, checkpoint */
    {cli_train_begin, true},    /* run.json, metrics */
    {cli_train_steps, false},   /* step, log, save, validate */
    {cli_train_end, false},     /* results */
};

/* Run the phases. *usage: true if the first phase failed, which means that the command line is
 * wrong. */
static cgp_status run(training *t, bool *usage) {
    cgp_status status = CGP_OK;
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        if (i == 1)
            cli_stop_install(); /* until here, a signal ends the program, even in a search */
        status = phases[i].run(t);
        *usage = status != CGP_OK && i == 0;
        if (status != CGP_OK || (phases[i].stops && cli_train_stop(t, false))) break;
    }
    return cli_train_keep(t, status);
}

/* Write this rank's diagnosis if a step timed out on this rank, if another rank was lost, or if
 * another rank or the transport failed with CGP_EDEVICE. */
static void diagnose(const training *t) {
    const cgp_pipeline *pipeline = t->run.session.pipeline;
    const cgp_status other = cli_ranks_failure();
    if (other == CGP_EPEER || other == CGP_EDEVICE || (pipeline && *cgp_pipeline_report(pipeline)))
        cli_diagnosis_write(cgp_message());
}

/* Print a report, in addition to the one-line message, if the run hung. */
static void print_watchdog(const training *t) {
    const cgp_pipeline *pipeline = t->run.session.pipeline;
    cli_output_flush(t->run.out);
    if (pipeline && cli_rank() == 0) fputs(cgp_pipeline_report(pipeline), stderr);
}

/* Delete a new run that failed before its first checkpoint. Return false if the run stays. */
static bool undo(training *t) {
    const bool undone = t->run.directory.locked && t->run.record && !t->run.before &&
                        t->run.saved == 0 &&
                        cli_run_directory_newest(&t->run.directory) == CLI_NO_STEP;
    if (undone) cli_events_undo(&t->metrics.events);
    if (undone) cli_run_directory_undo(&t->run.directory);
    return undone;
}

/* Report the failure of any phase, and return the exit code. Before cli_train_make() there is no
 * pipeline to diagnose, and nothing to undo. `usage`: the command line is wrong. */
static int fail(training *t, cgp_status status, bool usage) {
    /* sample_failed has the same value on all ranks. */
    const bool sample_failed = t->run.session.sample_failed;
    if (cli_ranks_lost()) cli_ranks_leave_soon();
    diagnose(t);
    if (!sample_failed) cli_ranks_fail(status);
    if (!cli_ranks_lost()) cli_diagnosis_end();
    print_watchdog(t);
    const bool undone = undo(t);
    char *message = cli_text("%s", cgp_message());
    const int code = cli_report(status, usage);
    if (!undone) cli_recorder_end(&t->recorder, &t->run.session, "failed", message, NULL);
    free(message);
    return sample_failed && status != CGP_ENOMEM ? CLI_DATA : code;
}

int cli_train(const cli_run_options *options) {
    bool usage = false;
    training t = {.run = {.options = *options, .out = cli_info_stream(options)},
                  .started = cli_seconds(),
                  .validation = cli_no_eval_metrics};
    t.run.options.kept = NULL; /* the caller frees the options' memory */
    cli_run_directory_name(&t.run.directory, options->run);
    const cgp_status status = run(&t, &usage);
    int code = status == CGP_OK ? CLI_OK : fail(&t, status, usage);
    if (!cli_ranks_lost()) cli_diagnosis_end();
    if (code == CLI_OK && t.stopped) code = cli_train_stopped(&t);
    if (code != CLI_OK && cli_ranks_lost()) cli_ranks_abort(code);
    cli_diagnosis_end();
    cgp_data_destroy(t.data.source);
    cli_train_release_tokens(&t);
    cli_session_release(&t.run.session);
    cli_metrics_close(&t.metrics);
    cli_digests_close(&t.digests);
    cli_recorder_release(&t.recorder);
    cli_run_directory_close(&t.run.directory);
    cli_run_options_release(&t.run.options);
    json_decref(t.run.before);
    json_decref(t.run.record);
    return code;
}
