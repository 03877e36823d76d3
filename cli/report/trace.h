/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h -- --trace FILE,..: the measured timeline of the last training step, each file in the format of its ending: .json for
 * trace viewers and --compare, .svg, .txt. */
#ifndef CGPIPE_CLI_TRACE_H
#define CGPIPE_CLI_TRACE_H

#include "session/session.h"

/* Fail early if a directory of the files cannot be written. */
CGP_MUST_CHECK cgp_status cli_trace_check_directories(const cli_run_options *options);

/* Write the files, each whole or not at all, and print a line. */
CGP_MUST_CHECK cgp_status cli_trace_write(FILE *out, const cli_session *session);

#endif
