/* SPDX-License-Identifier: Apache-2.0 */
/* not_a_run.h -- the failure for a path that is not the directory of a run, and what to type
 * instead. */
#ifndef CGPIPE_CLI_NOT_A_RUN_H
#define CGPIPE_CLI_NOT_A_RUN_H

#include <cgpipe/base.h>

typedef struct cli_run_directory cli_run_directory;

/* Return CGP_EIO if the path is inside a run, as RUN/latest is, or has published weights. The
 * message suggests what to type. Else, or if the path has run.json, return CGP_OK. */
CGP_MUST_CHECK cgp_status cli_suggest_run(const cli_run_directory *directory);

/* Return CGP_EIO, with the message of cli_suggest_run() or, without a suggestion, of a run.json
 * that cannot be opened; `reason` is its errno. */
cgp_status cli_not_a_run(const cli_run_directory *directory, int reason);

#endif
