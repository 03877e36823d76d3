/* SPDX-License-Identifier: Apache-2.0 */
/* prediction.h -- the costs with which plans are simulated: layer times and links. Layer times are
 * from --costs, or are estimates for the devices that --tflops or --cluster describe. Links are
 * from --cluster. */
#ifndef CGPIPE_CLI_PREDICTION_H
#define CGPIPE_CLI_PREDICTION_H

#include <cgpipe/planner.h>

#include "session/cluster.h"
#include "session/costs.h"

typedef struct cli_session cli_session;
typedef struct cli_run_options cli_run_options;

typedef struct cli_prediction {
    cli_costs costs;
    cli_cluster cluster;
    /* [2][devices][devices] latencies in seconds, then bytes per second; NULL: no --cluster. */
    double *links;
    cgp_message_costs messages;
    /* [2][levels][replicas][devices] of messages between replicas, likewise; NULL: there is one
     * replica, or no bandwidth is known. */
    double *exchange_links;
    cgp_exchange_costs exchange;
} cli_prediction;

/* Tell whether the options give costs, either measured costs from a file or estimates for described
 * devices. */
bool cli_prediction_has(const cli_run_options *options);

/* Tell whether these costs are estimates for described devices. */
bool cli_prediction_is_estimate(const cli_run_options *options);

/* Return where the costs are from, for messages: a path, or "--tflops". */
const char *cli_prediction_source(const cli_run_options *options);

/* Find the balance with the shortest simulated step for a plan with these options. The caller frees
 * *balance. */
CGP_MUST_CHECK cgp_status cli_prediction_balance(int **balance, const cli_session *session,
                                                 const cgp_plan_options *options);

/* Read the files of --costs and --cluster, or estimate costs of the described devices. Layer times
 * are multiplied by the options' time_factor. Release the prediction in any case. */
CGP_MUST_CHECK cgp_status cli_prediction_read(cli_prediction *prediction,
                                              const cli_session *session);
void cli_prediction_release(cli_prediction *prediction);

/* Simulate the session's plan with its --costs and --cluster on rank 0. Return the seconds of a
 * step without the update. NaN: there are no costs, or they cannot be used. In the latter case, a
 * warning gives the reason. */
double cli_prediction_of_run(const cli_session *session);

/* Simulate the exchange between the replicas of the session's plan. With --cluster, device d of
 * replica r is device rK + d of the file. Otherwise, messages are copies with the bandwidth of
 * --costs; if it is not known, both times are NaN. */
CGP_MUST_CHECK cgp_status cli_prediction_exchange(const cli_prediction *prediction,
                                                  const cli_session *session,
                                                  const cgp_schedule_timeline *timeline,
                                                  cgp_plan_exchange *exchange);

/* Simulate a step of a full mini-batch. *update: see cgp_plan_simulate(). */
CGP_MUST_CHECK cgp_status cli_prediction_simulate(const cli_prediction *prediction,
                                                  const cgp_plan *plan,
                                                  cgp_schedule_timeline *timeline, double *update);

#endif
