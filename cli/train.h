/* SPDX-License-Identifier: Apache-2.0 */
/* train.h -- what the parts of cgpipe train share: train.c has their order. */
#ifndef CGPIPE_CLI_TRAIN_H
#define CGPIPE_CLI_TRAIN_H

#include "data.h"
#include "session.h"
#include "run_directory.h"
#include "metrics.h"

typedef struct training {
    cli_run_options options;
    FILE *out;
    double started; /* cli_seconds() */
    cli_directory directory;
    cli_metrics metrics;
    cli_session session;

    cgp_data *data;
    cli_data_kind kind;
    char identity[65]; /* of the data */

    json_t *before;      /* run.json as the start found it; NULL: a new run */
    json_t *record;      /* as this start wrote it; NULL: not yet */
    int64_t resumed;     /* step of the checkpoint; 0: none */
    int64_t saved;       /* step of the last checkpoint; 0: none */
    const char *stopped; /* a signal's name (stop.h) or "time"; NULL: it was not */

    int64_t steps_shown; /* of the progress: where its last line stood */
    double seconds_since;
    double drawn, steps_started; /* cli_seconds() */
    cli_eval_metrics validation; /* the last one */
    cli_data_words words;
} training;

/* --- resume.c --- */

/* With --resume: read run.json and take over what is not given anew. */
CGP_MUST_CHECK cgp_status cli_resume_options(training *t);

/* Refuse another model than the run's. */
CGP_MUST_CHECK cgp_status cli_resume_check_model(const training *t);

/* Load the checkpoint, if there is one, and say what is different from here on. */
CGP_MUST_CHECK cgp_status cli_resume_load(training *t);

/* Save a checkpoint of this step. */
CGP_MUST_CHECK cgp_status cli_resume_save(training *t);

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
