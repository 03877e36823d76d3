/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_files.h -- schedules as files: read from CSV, written as CSV, SVG and trace; and texts as
 * files. */
#ifndef CGPIPE_CLI_SCHEDULE_FILES_H
#define CGPIPE_CLI_SCHEDULE_FILES_H

#include "options.h"

#include <cgpipe/schedule.h>

/* Whether a schedule is named by a file: a path, or *.csv. */
bool cli_schedule_is_file(const char *name);

/* Read a schedule from a file. CGP_EFORMAT names row, column and cell. */
CGP_MUST_CHECK cgp_status cli_schedule_read(cgp_schedule **out, const char *path);

/* All bytes of a file, to be freed. CGP_EIO if it cannot be read or is larger than 256 MiB. */
CGP_MUST_CHECK cgp_status cli_file_read(const char *path, char **bytes, size_t *size);

/* Write a text to a file, whole or not at all; "-" is standard output. Takes `text` over. */
CGP_MUST_CHECK cgp_status cli_text_write(const char *path, char *text);

/* At most one thing goes to standard output. */
CGP_MUST_CHECK cgp_status cli_schedule_check_outputs(const cli_run_options *options);

/* Print the CSV, if asked for; write the files of --svg and --trace-json. */
CGP_MUST_CHECK cgp_status cli_schedule_write(const cli_run_options *options,
                                             const cgp_schedule *schedule,
                                             const cgp_schedule_timeline *timeline);

#endif
