/* SPDX-License-Identifier: Apache-2.0 */
/* output.h -- the streams of a command's text, its --json, and --trace FILE,..: the measured
 * timeline of the last training step, each file in the format of its ending: .json for trace
 * viewers and --compare, .svg, .txt. */
#ifndef CGPIPE_CLI_OUTPUT_H
#define CGPIPE_CLI_OUTPUT_H

#include "session/session.h"

/* Return the stream of text that is a result (a sample): standard error if standard output carries
 * the JSON. */
FILE *cli_result_stream(const cli_run_options *options);

/* Return the stream of other text for people: likewise, and /dev/null with --quiet. */
FILE *cli_info_stream(const cli_run_options *options);

/* Flush a stream of text for people. A failure stops nothing: the first one is a warning, unless
 * the reader has gone, and main() ends with CLI_FAILED. */
void cli_output_flush(FILE *out);

/* Tell whether there was such a warning. */
bool cli_output_failed(void);

/* Fail early if the directory of the JSON file cannot be written. */
CGP_MUST_CHECK cgp_status cli_json_check(const cli_run_options *options);

/* Write to --json FILE, whole or not at all, or to standard output; nothing without --json. Takes
 * `object` over. */
CGP_MUST_CHECK cgp_status cli_json_write(const cli_run_options *options, json_t *object);

/* Fail early if a directory of the --trace files cannot be written. */
CGP_MUST_CHECK cgp_status cli_trace_check(const cli_run_options *options);

/* Write them, each whole or not at all, and print a line. */
CGP_MUST_CHECK cgp_status cli_trace_write(FILE *out, const cli_session *session);

#endif
