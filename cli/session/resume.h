/* SPDX-License-Identifier: Apache-2.0 */
/* resume.h -- a run in its directory: take options from run.json, load and save checkpoints. */
#ifndef CGPIPE_CLI_RESUME_H
#define CGPIPE_CLI_RESUME_H

#include <jansson.h>

#include "options/epochs.h"
#include "session/run_directory.h"
#include "session/session.h"

typedef struct cli_run {
    cli_run_options options;
    FILE *out;
    cli_run_directory directory;
    cli_session session;
    char identity[65]; /* SHA-256 that identifies the data */
    json_t *before;    /* run.json as the start found it; NULL: a new run */
    json_t *record;    /* run.json as this start wrote it; NULL: not written yet */
    bool loaded;       /* a checkpoint was loaded */
    cli_progress done; /* progress at the checkpoint, set if options count in epochs */
    int64_t resumed;   /* step of the checkpoint; 0: none */
    int64_t saved;     /* step of the last checkpoint; 0: none */
} cli_run;

/* With --resume, read run.json, take every option that the command line does not give, and resolve
 * the options. */
CGP_MUST_CHECK cgp_status cli_resume_options(cli_run *run);

/* Fail if the directory has a run that this start neither resumes nor overwrites. */
CGP_MUST_CHECK cgp_status cli_resume_check_free(const cli_run *run);

/* Fail if MODEL on the command line is not the run's model. */
CGP_MUST_CHECK cgp_status cli_resume_check_model(const cli_run *run);

/* Set `done` from the checkpoint. Call this function before the plan is made, because epochs are
 * counted from `done`. Only rank 0 calls it, because it reads files. */
CGP_MUST_CHECK cgp_status cli_resume_progress(cli_run *run);

/* Load the checkpoint, if there is one, and print the differences from the run so far. */
CGP_MUST_CHECK cgp_status cli_resume_load(cli_run *run);

/* Save a checkpoint of this step. The metrics up to this step must be on disk. */
CGP_MUST_CHECK cgp_status cli_resume_save(cli_run *run);

#endif
