/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.h -- the files that ranks leave in RUN/diagnosis, for `cgpipe diagnose`: rank-0.json,
 *rank-1.json .. Each rank writes its own,
 *
 *     when a rank was lost or a step timed out,
 *     when a signal comes: a launcher sends SIGTERM where one of its processes ended, and SIGKILL a second later,
 *     when a wait has taken half of --timeout, while the run goes on
 *
 * The last two by a thread that sleeps until then. With one rank there are none. As all files of a
 * run they are reached through the descriptor of its directory, and no link is followed. */
#ifndef CGPIPE_CLI_SESSION_DIAGNOSIS_H
#define CGPIPE_CLI_SESSION_DIAGNOSIS_H

#include "session/run_directory.h"

#define CLI_DIAGNOSIS "diagnosis"

/* Delete the files of an earlier start, then write files of this pipeline from here on. Both are
 * borrowed until cli_diagnosis_end(). Collective. */
CGP_MUST_CHECK cgp_status cli_diagnosis_begin(cgp_pipeline *pipeline, cli_run_directory *run,
                                              double timeout);

/* Write this rank's file now. One that cannot be written is a warning. Keeps cgp_message(). */
void cli_diagnosis_write(const char *reason);

/* Delete the files of an earlier start, whatever they are: of a link, the link. */
void cli_diagnosis_clear(const cli_run_directory *run);

/* End the thread, before the pipeline is destroyed. The file of a signal is deleted: the run ended
 * by itself. */
void cli_diagnosis_end(void);

#endif
