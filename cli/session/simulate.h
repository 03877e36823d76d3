/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.h -- the predicted time of a plan's step, from measured layer costs. */
#ifndef CGPIPE_CLI_SIMULATE_H
#define CGPIPE_CLI_SIMULATE_H

#include "session/costs.h"

/* Predict the seconds of a step of a full mini-batch from layer costs, scaled to the plan's micro-batch; messages take their
 * bytes / costs->bandwidth and keep no device busy. The optimizer's update is not counted. `bubble` may be NULL. */
CGP_MUST_CHECK cgp_status cli_simulate(const cgp_plan *plan, cgp_recompute recompute,
                                       const cli_costs *costs, double *seconds, double *bubble);

#endif
