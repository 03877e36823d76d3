/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- the files that ranks leave in RUN/diagnosis, for `cgpipe diagnose`: rank-0.json, rank-1.json .. Each rank writes its own,
 *
 *     when a rank was lost or a step timed out,
 *     when a signal comes: a launcher sends SIGTERM where one of its processes ended, and SIGKILL a second later,
 *     when a wait has taken half of --timeout, while the run goes on
 *
 * The last two by a thread that sleeps until then. With one rank there are none. */
#ifndef CGPIPE_CLI_SESSION_DIAGNOSIS_H
#define CGPIPE_CLI_SESSION_DIAGNOSIS_H

#include <cgpipe/pipeline.h>

#define CLI_DIAGNOSIS "diagnosis"

/* Write files of this pipeline from here on, below the run's directory `run`. Borrowed until cli_diagnosis_end(). */
CGP_MUST_CHECK cgp_status cli_diagnosis_begin(cgp_pipeline *pipeline, const char *run,
                                              double timeout);

/* Write this rank's file now. One that cannot be written is a warning. Keeps cgp_message(). */
void cli_diagnosis_write(const char *reason);

/* Delete the files of an earlier start. */
void cli_diagnosis_clear(const char *run);

/* End the thread, before the pipeline is destroyed. The file of a signal is deleted: the run ended by itself. */
void cli_diagnosis_end(void);

#endif
