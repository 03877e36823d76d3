/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.h -- metrics.jsonl: one object per step, in order, even if the run was killed and
 * resumed. docs/reference/metrics-files.md has the keys:
 *
 *     {"step":42,"loss":2.31,"lr":0.001,"gradient_norm":0.9,"seconds":0.2,
 *      "tokens_per_second":5120,"bubble":0.1,"validation_loss":2.4}
 *
 * A line contains gradient_norm if --clip is given, and validation_loss if --evaluate-every is due.
 * A number that is not finite becomes null. If --digest-every is due, "digest" is the root of the
 * step's digest. Lines of image models contain images_per_second. With validation_loss, they also
 * contain top1 and top5, or iou for masks. cgpipe 0.1.0 wrote `rate` in place of `lr`. */
#ifndef CGPIPE_CLI_METRICS_H
#define CGPIPE_CLI_METRICS_H

#include "report/events.h"

#include <stdio.h>

typedef struct cli_run_directory cli_run_directory;

typedef struct cli_metrics {
    const char *path; /* path of the file, borrowed */
    FILE *file;       /* NULL: the file is not open */
    int64_t last;     /* step of the last line; 0: none */
    /* The same numbers as event files, which the caller opens, with --tensorboard. The functions
     * below write, sync and close them too. */
    cli_events events;
} cli_metrics;

/* Open the file, and cut off a half-written line and all lines after `step`. `step` is the step of
 * the resumed checkpoint; 0: a new run. */
CGP_MUST_CHECK cgp_status cli_metrics_open(cli_metrics *metrics, const cli_run_directory *directory,
                                           int64_t step);

/* Write a line, whose first member is `step`. Takes ownership of `line`. */
CGP_MUST_CHECK cgp_status cli_metrics_log(cli_metrics *metrics, json_t *line);

/* Add members to the last line in one write, so that a kill leaves a whole line. Takes ownership of
 * `members`. A failure leaves the line unchanged. */
CGP_MUST_CHECK cgp_status cli_metrics_add(cli_metrics *metrics, json_t *members);

/* Sync all lines to disk. Call before saving the checkpoint of the last line. */
CGP_MUST_CHECK cgp_status cli_metrics_sync(cli_metrics *metrics);

void cli_metrics_close(cli_metrics *metrics);

#endif
