/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h -- metrics.jsonl: one object a step, in order, also of a run that was killed and
 *resumed:
 *
 *     {"step":42,"loss":2.31,"lr":0.001,"gradient_norm":0.9,"seconds":0.2,
 *      "tokens_per_second":5120,"bubble":0.1,"validation_loss":2.4}
 *
 * gradient_norm with --clip; validation_loss on the steps of --evaluate-every, null where it is not
 * finite. Models of images have images_per_second, and beside validation_loss top1 and top5, or,
 * for masks, iou. cgpipe 0.1.0 wrote rate for lr. */
#ifndef CGPIPE_CLI_METRICS_H
#define CGPIPE_CLI_METRICS_H

#include <jansson.h>
#include <stdio.h>

#include "session/run_directory.h"

typedef struct cli_metrics {
    const char *path; /* Borrowed. */
    FILE *file;       /* NULL: not open */
    int64_t last;     /* step of the last line; 0: none */
} cli_metrics;

/* Open the file and cut off the lines after `step`, of which a checkpoint is resumed, and a
 * half-written one. 0: a new run. */
CGP_MUST_CHECK cgp_status cli_metrics_open(cli_metrics *metrics, const cli_run_directory *directory,
                                           int64_t step);

/* Write a line, of which `step` is the first member. Takes it over. */
CGP_MUST_CHECK cgp_status cli_metrics_log(cli_metrics *metrics, json_t *line);

/* Add members to the last line, in one write, so that a kill leaves a whole line. Takes them over.
 * After a failure the line is as before. */
CGP_MUST_CHECK cgp_status cli_metrics_add(cli_metrics *metrics, json_t *members);

/* Bring all lines to the disk, before the checkpoint of the last one. */
CGP_MUST_CHECK cgp_status cli_metrics_sync(cli_metrics *metrics);

void cli_metrics_close(cli_metrics *metrics);

#endif
