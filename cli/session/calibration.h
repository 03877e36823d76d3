/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.h -- --calibrate RUN: the factor by which layer times must be multiplied so that the
 * simulated step of a run takes as long as its measured steps. */
#ifndef CGPIPE_CLI_CALIBRATION_H
#define CGPIPE_CLI_CALIBRATION_H

#include <cgpipe/base.h>

#include <jansson.h>
#include <stdio.h>

typedef struct cli_run_options cli_run_options;

/* The result of --calibrate. Times of steps are in seconds and include the update. */
typedef struct cli_calibration {
    int64_t steps;            /* number of measured steps; 0: there is no calibration */
    double measured_seconds;  /* median time of the measured steps */
    double simulated_seconds; /* time of the simulated step with unscaled layer times */
    /* With layer times multiplied by `factor`, the simulated step takes measured_seconds. */
    double factor;
} cli_calibration;

/* With --calibrate, simulate a step of the run with the costs of this command. Set the options'
 * time_factor to the step time that the run measured, divided by the simulated time. Fails with
 * CGP_EIO, CGP_EFORMAT or CGP_EINVAL. */
CGP_MUST_CHECK cgp_status cli_calibration_find(cli_calibration *calibration,
                                               cli_run_options *options);

/* Print a line about the calibration, and add an object about it to `o`, the JSON of a plan. Do
 * nothing without a calibration. */
void cli_calibration_report(FILE *out, json_t *o, const cli_calibration *calibration,
                            const cli_run_options *options);

#endif
