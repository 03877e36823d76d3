/* SPDX-License-Identifier: Apache-2.0 */
/* schedule_file.h -- --schedule FILE: a schedule as CSV. */
#ifndef CGPIPE_CLI_SCHEDULE_FILE_H
#define CGPIPE_CLI_SCHEDULE_FILE_H

#include <cgpipe/schedule.h>

/* Tell whether a schedule's name names a file: a path, or *.csv. */
bool cli_schedule_is_file(const char *name);

/* Read a schedule from a file. The message of CGP_EFORMAT names row, column and cell. */
CGP_MUST_CHECK cgp_status cli_schedule_read(cgp_schedule **out, const char *path);

#endif
