/* SPDX-License-Identifier: Apache-2.0 */
/* train.h -- the state of cgpipe train and its parts, in the order of train.c. */
#ifndef CGPIPE_CLI_TRAIN_H
#define CGPIPE_CLI_TRAIN_H

#include "report/metrics.h"

#include "session/data.h"
#include "session/resume.h"

typedef struct training {
    cli_run run;
    double started; /* cli_seconds() */
    cli_metrics metrics;

    cgp_data *data; /* NULL: this rank reads none */
    cli_data_facts facts;
    cli_data_kind kind;
    cli_data_units units;
    /* A signal's name or "stop request" (stop.h), or "time"; NULL: the run was not stopped. */
    const char *stopped;

    /* The progress line: the last step shown, seconds of steps since then, time of the last line
     * and of the first step (cli_seconds()). */
    int64_t steps_shown;
    double seconds_since;
    double drawn, steps_started;
    cli_eval_metrics validation; /* the last one */
} training;

/* --- train_steps.c --- */

/* Train until the last step, the time, a signal or a stop request, with progress, metrics and
 * checkpoints. */
CGP_MUST_CHECK cgp_status cli_train_steps(training *t);

/* Return the failure of the steps or of what follows them. If a sample caused it, first save the
 * steps before it, unless they are saved, and add this to the message. If saving fails, return that
 * failure. Collective. */
CGP_MUST_CHECK cgp_status cli_train_keep(training *t, cgp_status status);

/* Return the reason to stop here, the same on all ranks: see cli_ranks_stop(). Reads and deletes a
 * request of cgpipe stop. Collective. */
const char *cli_train_stop(const training *t, bool time_is_up);

/* Set `validation`; it has 0 samples if the validation split is empty or a signal came. */
CGP_MUST_CHECK cgp_status cli_train_validate(training *t);

/* Return steps / parts, at least 1. Tell whether `step` is a multiple of `every`; 0: never. */
static inline int64_t cli_train_part(int64_t steps, int64_t parts) {
    return steps > parts ? steps / parts : 1;
}

static inline bool cli_train_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

/* --- train_progress.c --- */

/* Print the line of step `i`, counted from 1 over all processes, if it is due. Drops the least
 * important fields if the terminal is too narrow. On a terminal the line replaces the previous
 * one. */
void cli_train_progress(training *t, int64_t i, double loss);

/* End the progress line, so that the message of a failure does not overwrite it. */
void cli_train_progress_end(const training *t);

/* --- train_end.c --- */

/* Validate, print results and sample, unless a signal comes; write the JSON. */
CGP_MUST_CHECK cgp_status cli_train_end(training *t);

/* Print why the run ended before its last step, and the command that resumes it. Return the exit
 * code. */
int cli_train_stopped(const training *t);

#endif
