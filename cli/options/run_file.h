/* SPDX-License-Identifier: Apache-2.0 */
/* run_file.h -- run files: MODEL and the options of cgpipe train as YAML, a line each.
 *
 *     model: resnet20
 *     batch: 128
 *     nesterov: true                    # a flag
 *     lr-milestones: [82ep, 123ep]      # options with several values
 *
 * Values pass the checks of the command line, which wins. The YAML is plain: no anchors, aliases,
 * tags, maps in maps, nor several documents. */
#ifndef CGPIPE_CLI_RUN_FILE_H
#define CGPIPE_CLI_RUN_FILE_H

#include "options/options.h"

/* Read --config: MODEL, if the command line names none, and every option that is not given and that
 * the command takes. Fails with CGP_EIO, or with CGP_EINVAL, which names file, line and option. */
CGP_MUST_CHECK cgp_status cli_run_file_read(cli_run_options *options);

/* Write `options`, as made by cli_options_json() and "model" beside them, as a run file that reads
 * back the same. None is null. */
CGP_MUST_CHECK cgp_status cli_run_file_write(FILE *out, const json_t *options);

#endif
