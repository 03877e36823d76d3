/* SPDX-License-Identifier: Apache-2.0 */
/* train.h -- the state of cgpipe train, and its phases in the order of train.c. All functions are
 * collective, except the functions of log.c, cli_train_open_data(), cli_train_print_tokens(),
 * cli_train_keep_published(), cli_train_release_tokens() and cli_train_stopped(). */
#ifndef CGPIPE_CLI_TRAIN_H
#define CGPIPE_CLI_TRAIN_H

#include "report/digests.h"
#include "report/measured.h"
#include "report/metrics.h"

#include "session/data.h"
#include "session/eval_metrics.h"
#include "session/resume.h"
#include "session/tokens.h"

/* The training data; resolve.c and open.c fill it in. */
typedef struct training_data {
    cgp_data *source; /* NULL: this rank reads no data */
    cli_data_facts facts;
    cli_data_kind kind;
    cli_data_units units;
    /* If the data is text for a tokenizer (tokenize.c). Rank 0 alone has the tokenizer and its path
     * (NULL: none). */
    char *tokenizer_path;
    cgp_tokenizer *tokenizer;
    int64_t vocab;  /* number of tokens of the tokenizer; 0: none, or the data is tokens */
    bool tokenized; /* text is converted to tokens */
    cli_tokens tokens;
} training_data;

/* The state of the progress line (log.c). Times are values of cli_seconds(). */
typedef struct training_line {
    int64_t shown;  /* step of the last line that was due */
    double seconds; /* seconds of the steps after that line */
    double drawn;   /* time at which the line was last drawn */
    double started; /* time of the first step */
} training_line;

typedef struct training {
    cli_run run;
    double started; /* cli_seconds() when the program started */
    training_data data;
    cli_metrics metrics;
    cli_digests digests;
    cli_recorder recorder;       /* has no directory on ranks above 0 */
    cli_eval_metrics validation; /* results of the last validation; written by validate.c */
    training_line line;
    /* A signal's name or "stop request" (stop.h), or "time"; NULL: the run was not stopped. */
    const char *stopped;
    bool published;     /* the weights are those of MODEL, a directory */
    const char *fitted; /* text about the plan that the search found; NULL: the default plan fits */
} training;

/* resolve.c: take the options of a run, check them, and make model and plan. */
CGP_MUST_CHECK cgp_status cli_train_resolve(training *t);

/* fit.c: make the plan. If the plan with default options does not fit into memory, search for one
 * that fits. */
CGP_MUST_CHECK cgp_status cli_train_plan(training *t);

/* tokenize.c: find the tokenizer of the data, and set `tokenizer_path`, `vocab` and `tokenized`.
 * `directory` is that of MODEL; "": MODEL is no directory, or is not known yet. */
CGP_MUST_CHECK cgp_status cli_train_find_tokenizer(training *t, const char *directory);

/* Fail if the tokenizer has more tokens than the vocabulary of the model. */
CGP_MUST_CHECK cgp_status cli_train_check_tokenizer(const training *t, int64_t vocab);

/* Convert the text of the data to tokens, unless that is done already. */
CGP_MUST_CHECK cgp_status cli_train_tokenize(training *t);

void cli_train_print_tokens(const training *t);

/* Keep the small files of MODEL and of the tokenizer in the run. Only rank 0 calls this
 * function. */
CGP_MUST_CHECK cgp_status cli_train_keep_published(training *t);

/* Delete the tokens if there is no run, and free what tokenize.c has made. */
void cli_train_release_tokens(training *t);

/* open.c: open data and run directory, and print what will be trained. */
CGP_MUST_CHECK cgp_status cli_train_open(training *t);

/* Open the data on this rank. */
CGP_MUST_CHECK cgp_status cli_train_open_data(training *t);

/* Make the pipeline and load the checkpoint; then write run.json and open the metrics. */
CGP_MUST_CHECK cgp_status cli_train_make(training *t);
CGP_MUST_CHECK cgp_status cli_train_begin(training *t);

/* step.c: train until the last step, the time limit, a signal or a stop request. */
CGP_MUST_CHECK cgp_status cli_train_steps(training *t);

/* Set `stopped` to the same value on all ranks (cli_ranks_stop()), and return whether there is a
 * reason to stop. Reads and deletes a request of cgpipe stop. */
bool cli_train_stop(training *t, bool time_is_up);

/* log.c: the first function writes the metrics of step `i`, counted from 1 over all starts of the
 * run. The second function adds the metrics of the last validation. */
CGP_MUST_CHECK cgp_status cli_train_log(training *t, int64_t i, double loss);
CGP_MUST_CHECK cgp_status cli_train_log_validation(training *t);

/* The progress line: begin it, print it for step `i` if it is due, end it. If the terminal is
 * narrow, the least important fields are dropped. On a terminal, the line replaces the previous
 * line; cli_train_progress_end() then breaks the line, so that no message overwrites it. */
void cli_train_progress_begin(training *t);
void cli_train_progress(training *t, int64_t i, double loss);
void cli_train_progress_end(const training *t);

/* save.c: the first function saves a checkpoint at once, the second only if one is due after step
 * `i`. */
CGP_MUST_CHECK cgp_status cli_train_save(training *t);
CGP_MUST_CHECK cgp_status cli_train_save_due(training *t, int64_t i);

/* Return the failure of a phase. If a sample caused the failure, first save the steps before it,
 * unless they are saved already, and say so in the message. If saving fails, return the failure to
 * save. */
CGP_MUST_CHECK cgp_status cli_train_keep(training *t, cgp_status status);

/* validate.c: validate, and set `validation`. It has 0 samples if the validation split is empty or
 * a signal came. If validation is due after step `i`, cli_train_validate_due() does the same and
 * logs the result. */
CGP_MUST_CHECK cgp_status cli_train_validate(training *t);
CGP_MUST_CHECK cgp_status cli_train_validate_due(training *t, int64_t i);

/* end.c: validate, print the results, write the JSON, and print the sample. If the training was
 * stopped, leave out the validation and the sample. */
CGP_MUST_CHECK cgp_status cli_train_end(training *t);

/* Print why the run ended before its last step, and the command that resumes it. Return the exit
 * code. */
int cli_train_stopped(const training *t);

/* The first function returns steps / parts, at least 1. The second tells whether `step` is a
 * multiple of `every`; it returns false if `every` is 0. */
static inline int64_t cli_train_part(int64_t steps, int64_t parts) {
    return steps > parts ? steps / parts : 1;
}

static inline bool cli_train_due(int64_t step, int64_t every) {
    return every > 0 && step % every == 0;
}

#endif
