/* SPDX-License-Identifier: Apache-2.0 */
/* output.h -- the output of a command: the streams for its text, its --json file, and the files of
 * --trace FILE,.. . The trace files show the measured timeline of the last training step. The
 * suffix of a trace file sets its format: .json (for trace viewers and --compare), .svg or .txt. */
#ifndef CGPIPE_CLI_OUTPUT_H
#define CGPIPE_CLI_OUTPUT_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_run_options cli_run_options;
typedef struct cli_session cli_session;

/* Return the stream for result text (a sample): standard output, or standard error if standard
 * output carries the JSON. */
FILE *cli_result_stream(const cli_run_options *options);

/* Return the stream for all text but results: the stream of cli_result_stream() or, with --quiet,
 * /dev/null. */
FILE *cli_info_stream(const cli_run_options *options);

/* Flush a stream of text. Print a warning at the first failure, unless the reader has closed the
 * pipe. The command continues, and main() returns CLI_FAILED. */
void cli_output_flush(FILE *out);

/* Tell whether cli_output_flush() has warned. */
bool cli_output_failed(void);

/* Fail early if the directory of the JSON file cannot be written. */
CGP_MUST_CHECK cgp_status cli_json_check(const cli_run_options *options);

/* Write `object` to --json FILE (atomically) or to standard output. Without --json, write nothing.
 * Takes ownership of `object`. */
CGP_MUST_CHECK cgp_status cli_json_write(const cli_run_options *options, json_t *object);

/* Fail early if a directory of the --trace files cannot be written. */
CGP_MUST_CHECK cgp_status cli_trace_check(const cli_run_options *options);

/* Write each --trace file atomically, and print a line about it. */
CGP_MUST_CHECK cgp_status cli_trace_write(FILE *out, const cli_session *session);

#endif
