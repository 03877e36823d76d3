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

    cgp_data *data;
    cli_data_kind kind;
    cli_data_units units;
    /* A signal's name (stop.h) or "time"; NULL: the run was not stopped. */
    const char *stopped;

    /* The progress line: the last step shown, seconds of steps since then, time of the last line and of the first step
     * (cli_seconds()). */
    int64_t steps_shown;
    double seconds_since;
    double drawn, steps_started;
    cli_eval_metrics validation; /* the last one */
} training;

/* --- train_steps.c --- */

/* Train until the last step, the time or a signal, with progress, metrics and checkpoints. */
CGP_MUST_CHECK cgp_status cli_train_steps(training *t);

/* Set `validation`; of 0 samples if the validation split is empty, or a signal came. */
CGP_MUST_CHECK cgp_status cli_train_validate(training *t);

/* --- train_end.c --- */

/* Validate, print results, sample, until a signal comes; write the JSON. */
CGP_MUST_CHECK cgp_status cli_train_end(training *t);

/* Print why the run ended before its last step, and the command that resumes it. Return the exit code. */
int cli_train_stopped(const training *t);

#endif
