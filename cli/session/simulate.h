/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.h -- a plan's step in time, with measured costs of layers. */
#ifndef CGPIPE_CLI_SIMULATE_H
#define CGPIPE_CLI_SIMULATE_H

#include "session/costs.h"

/* The time of a step of a full mini-batch in seconds, from costs of layers, scaled to the plan's
 * micro-batch; messages take their bytes over costs->bandwidth and keep nobody busy. The
 * optimizer's update is not in it. `bubble` may be NULL. */
CGP_MUST_CHECK cgp_status cli_simulate(const cgp_plan *plan, cgp_recompute recompute,
                                       const cli_costs *costs, double *seconds, double *bubble);

#endif
