/* SPDX-License-Identifier: Apache-2.0 */
/* plan_file.h -- plan files (docs/reference/plan-files.md): the model of a plan, its devices, and
 * every option that the plan depends on. `cgpipe plan --plan-out` writes them, --plan reads them.
 *
 * Options on the command line override options of the plan file, and those override options of the
 * run file. */
#ifndef CGPIPE_CLI_PLAN_FILE_H
#define CGPIPE_CLI_PLAN_FILE_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_run_options cli_run_options;
typedef struct cli_planned cli_planned;

/* Read --plan. Take MODEL unless the command line names one. Take every option that the command has
 * and that is not given. Set `planned` to the model and the devices that the plan is for. Fails
 * with CGP_EIO or CGP_EFORMAT, or with CGP_EINVAL for a file of another version; the message begins
 * with the path. */
CGP_MUST_CHECK cgp_status cli_plan_file_read(cli_run_options *options);

/* Return the JSON of a plan file: `planned`, and the values of the options that the plan depends
 * on. Owned by the caller. */
json_t *cli_plan_file_json(const cli_run_options *options, const cli_planned *planned);

#endif
