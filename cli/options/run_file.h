/* SPDX-License-Identifier: Apache-2.0 */
/* run_file.h -- run files: MODEL and the options of cgpipe train as YAML, one per line.
 *
 *     model: resnet20
 *     batch: 128
 *     nesterov: true                    # a flag
 *     lr-milestones: [82ep, 123ep]      # options with several values
 *
 * Values pass the same checks as on the command line. Options on the command line override the
 * file. The YAML is restricted: no anchors, aliases, tags, nested maps or multiple documents. */
#ifndef CGPIPE_CLI_RUN_FILE_H
#define CGPIPE_CLI_RUN_FILE_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_run_options cli_run_options;

/* Read --config. Take MODEL unless the command line names one. Take every option that the command
 * has and that is not given. Fails with CGP_EIO or CGP_EINVAL. The message of CGP_EINVAL names the
 * file, the line and the option. */
CGP_MUST_CHECK cgp_status cli_run_file_read(cli_run_options *options);

/* Write a run file that gives the same options when it is read. `options` is made by
 * cli_options_json(), with "model" added; none of its values is null. */
CGP_MUST_CHECK cgp_status cli_run_file_write(FILE *out, const json_t *options);

#endif
