/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- the files that ranks leave in RUN/diagnosis for `cgpipe diagnose`: rank-0.json,
 * rank-1.json .. Each rank writes its own file,
 *
 *     when a rank was lost or a step timed out,
 *     when a signal comes: if a process ends, a launcher sends SIGTERM and, 1 s later, SIGKILL,
 *     when a wait has taken half of --timeout; the run continues
 *
 * In the last two cases, a background thread writes the file. A run with one rank writes no files.
 * Like all files of a run, the files are opened relative to the descriptor of the run's directory,
 * without following links. */
#ifndef CGPIPE_CLI_SESSION_DIAGNOSIS_H
#define CGPIPE_CLI_SESSION_DIAGNOSIS_H

#include <cgpipe/pipeline.h>

typedef struct cli_run_directory cli_run_directory;

#define CLI_DIAGNOSIS "diagnosis"

/* Delete the files that an earlier start of the run left, and begin to write files for this
 * pipeline. `pipeline` and `run` are borrowed until cli_diagnosis_end(). Collective. */
CGP_MUST_CHECK cgp_status cli_diagnosis_begin(cgp_pipeline *pipeline, cli_run_directory *run,
                                              double timeout);

/* Write this rank's file. A failure is only a warning. Keeps cgp_message(). */
void cli_diagnosis_write(const char *reason);

/* Delete the files that an earlier start of the run left. If an entry is a link, the link is
 * deleted, not its target. */
void cli_diagnosis_clear(const cli_run_directory *run);

/* End the thread that writes the files. Call this before the pipeline is destroyed. If the file was
 * written after a signal, and the run then ended normally, delete the file. */
void cli_diagnosis_end(void);

#endif
