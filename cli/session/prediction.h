/* SPDX-License-Identifier: Apache-2.0 */
/* prediction.h -- the costs with which plans are simulated: the layer times of --costs, and the
 * links of --cluster. */
#ifndef CGPIPE_CLI_PREDICTION_H
#define CGPIPE_CLI_PREDICTION_H

#include <cgpipe/planner.h>

#include "session/cluster.h"
#include "session/costs.h"

typedef struct cli_session cli_session;

typedef struct cli_prediction {
    cli_costs costs;
    cli_cluster cluster;
    double *links; /* [2][devices][devices] latency and bytes per second; NULL: no --cluster */
    cgp_message_costs messages;
} cli_prediction;

/* Read the files of --costs and --cluster. Release the prediction in any case. */
CGP_MUST_CHECK cgp_status cli_prediction_read(cli_prediction *prediction,
                                              const cli_session *session);
void cli_prediction_release(cli_prediction *prediction);

/* Simulate a step of a full mini-batch. *update: see cgp_plan_simulate(). */
CGP_MUST_CHECK cgp_status cli_prediction_simulate(const cli_prediction *prediction,
                                                  const cgp_plan *plan,
                                                  cgp_schedule_timeline *timeline, double *update);

#endif
