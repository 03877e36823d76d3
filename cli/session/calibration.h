/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h -- --calibrate RUN: the factor between the steps that a run measured and its
 * simulated step, for the layer times of other plans. */
#ifndef CGPIPE_CLI_CALIBRATION_H
#define CGPIPE_CLI_CALIBRATION_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_run_options cli_run_options;

/* Seconds include the update. */
typedef struct cli_calibration {
    int64_t steps;            /* steps that were measured; 0: there is no calibration */
    double measured_seconds;  /* median of the steps */
    double simulated_seconds; /* with layer times as they are */
    double factor;            /* layer times times it give the measured step */
} cli_calibration;

/* With --calibrate, compare the step that the run measured in its last start to this step simulated
 * with the costs of this command, and set the options' time_factor. Fails with CGP_EIO, CGP_EFORMAT
 * or CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_calibration_find(cli_calibration *calibration,
                                               cli_run_options *options);

/* Print a line, and add an object to the JSON of a plan; nothing without a calibration. */
void cli_calibration_report(FILE *out, json_t *o, const cli_calibration *calibration,
                            const cli_run_options *options);

#endif
