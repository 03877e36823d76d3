/* SPDX-License-Identifier: Apache-2.0 */
/* tfrecord.h -- TFRecord, the framing of TensorBoard's event files, and the few protobuf fields of
 * an event that cgpipe writes. docs/reference/metrics-files.md has the layout. */
#ifndef CGPIPE_CLI_TFRECORD_H
#define CGPIPE_CLI_TFRECORD_H

#include <cgpipe/base.h>

#include <stdio.h>

/* A record that is being made: room for the length and its checksum, then the event. */
typedef struct cli_event {
    unsigned char *bytes;
    size_t size, capacity;
} cli_event;

/* Begin an event of the current time. Release the event in any case. */
void cli_event_begin(cli_event *event, int64_t step);

/* Add the version of the format, which is the first event of a file. */
void cli_event_version(cli_event *event);

/* Add the mark of a start: TensorBoard drops events of this and later steps in earlier files. */
void cli_event_start(cli_event *event);

/* Add a scalar to the summary; the value is rounded to float. `tag` has at most 64 characters. */
void cli_event_scalar(cli_event *event, const char *tag, double value);

/* Complete the record, which is then `bytes` [size]. */
void cli_event_end(cli_event *event);

void cli_event_release(cli_event *event);

/* Read records up to the first that is damaged or cut off, or whose step is greater than `step`.
 * Return the offset of the end of the last record before it, in bytes. */
int64_t cli_events_kept(FILE *file, int64_t step);

#endif
