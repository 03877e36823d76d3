/* schedule_files.h -- schedules as files: read from CSV, written as CSV, SVG and trace. */
#ifndef CGPIPE_CLI_SCHEDULE_FILES_H
#define CGPIPE_CLI_SCHEDULE_FILES_H

#include "options.h"

#include <cgpipe/schedule.h>

/* Whether a schedule is named by a file: a path, or *.csv. */
bool cli_schedule_is_file(const char *name);

/* Read a schedule from a file. CGP_EFORMAT names row, column and cell. */
CGP_MUST_CHECK cgp_status cli_schedule_read(cgp_schedule **out, const char *path);

/* At most one thing goes to standard output. */
CGP_MUST_CHECK cgp_status cli_schedule_check_outputs(const cli_settings *settings);

/* Print the CSV, if asked for; write the files of --svg and --trace-json. */
CGP_MUST_CHECK cgp_status cli_schedule_write(const cli_settings *settings,
                                             const cgp_schedule *schedule,
                                             const cgp_schedule_timeline *timeline);

#endif
