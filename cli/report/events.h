/* SPDX-License-Identifier: Apache-2.0 */
/* events.h -- event files for TensorBoard (--tensorboard DIR): the numbers of metrics.jsonl, one
 * event for each line. Each start of a run makes a file:
 *
 *     DIR/events.out.tfevents.TIME.HOST.PID.cgpipe
 *
 * The time ascends from file to file, because readers take the files of a directory by name. */
#ifndef CGPIPE_CLI_EVENTS_H
#define CGPIPE_CLI_EVENTS_H

#include <cgpipe/base.h>

#include <jansson.h>

typedef struct cli_run_options cli_run_options;

typedef struct cli_events {
    const char *directory; /* --tensorboard DIR, borrowed; NULL: no event files */
    char *path;            /* path of this start's file */
    int fd;                /* descriptor of this file */
    bool made;             /* this process made the directory */
} cli_events;

/* Fail early if the directory cannot have event files. `begins`: the run has no files in it yet, so
 * that a directory with event files of cgpipe is refused, unless --overwrite is given. Changes
 * nothing. */
CGP_MUST_CHECK cgp_status cli_events_check(const cli_run_options *options, bool begins);

/* Make the directory if it is missing, and this start's file. `step` is the step of the resumed
 * checkpoint: of earlier files, damaged records and all events of later steps are cut off. 0: a new
 * run, which deletes the files. Without --tensorboard, do nothing. Close in any case. */
CGP_MUST_CHECK cgp_status cli_events_open(cli_events *events, const cli_run_options *options,
                                          int64_t step);

/* Write the numbers of a line of metrics.jsonl, or of members added to that line, as one event. One
 * write makes the record, so that a kill leaves whole records. A failure leaves the file
 * unchanged. */
CGP_MUST_CHECK cgp_status cli_events_write(const cli_events *events, int64_t step,
                                           const json_t *numbers);

/* Sync the file to disk. */
CGP_MUST_CHECK cgp_status cli_events_sync(const cli_events *events);

/* Delete this start's file, and the directory if this process made it. Keeps the message of an
 * earlier failure. */
void cli_events_undo(cli_events *events);

void cli_events_close(cli_events *events);

#endif
