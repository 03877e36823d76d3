/* SPDX-License-Identifier: Apache-2.0 */
/* train.h -- what the parts of cgpipe train share: train.c has their order. */
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

    /* Of the progress line: the last step shown, seconds of steps since then, when a line was drawn and when the steps began
     * (cli_seconds()). */
    int64_t steps_shown;
    double seconds_since;
    double drawn, steps_started;
    cli_eval_metrics validation; /* the last one */
} training;

/* --- train_steps.c --- */

/* Train until the last step, the time or a signal, with progress, metrics and checkpoints. */
CGP_MUST_CHECK cgp_status cli_train_steps(training *t);

/* Set `validation`; of 0 samples if there is nothing to validate on, or a signal came. */
CGP_MUST_CHECK cgp_status cli_train_validate(training *t);

/* --- train_end.c --- */

/* Validate, tell, sample, as far as no signal comes; write the JSON. */
CGP_MUST_CHECK cgp_status cli_train_end(training *t);

/* Tell why the run ended before its last step, and how to go on. Returns the exit code. */
int cli_train_stopped(const training *t);

#endif
