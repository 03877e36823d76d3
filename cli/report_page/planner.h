/* SPDX-License-Identifier: Apache-2.0 */
/* planner.h -- simulations of steps with the costs of the measured step, and with the speeds of its
 * devices and links. */
#ifndef CGPIPE_CLI_PAGE_PLANNER_H
#define CGPIPE_CLI_PAGE_PLANNER_H

#include <cgpipe/planner.h>

#include "session/plan_options.h"

typedef struct cli_page_run cli_page_run;

typedef struct cli_page_costs {
    int devices, layers;
    double *slowness;     /* [devices] time of equal layers, relative to the fastest device, >= 1 */
    cgp_layer_cost *even; /* [layers] costs on the fastest device */
    cgp_layer_cost *rows; /* [devices][layers] costs on each device */
    int *row_of;          /* [devices] d */
    double *latency;      /* [devices][devices] seconds of a message that was waited for */
    double *bandwidth;    /* [devices][devices] bytes per second: no limit */
    cgp_message_costs messages;
} cli_page_costs;

/* Find the costs of the run's measured step. Release *costs in any case. */
void cli_page_costs_find(cli_page_costs *costs, const cli_page_run *run);
/* Scale the layers of each stage to the median times of the stage's actions. The measured step has
 * the lists of the plan. */
void cli_page_costs_scale(cli_page_run *run);

void cli_page_costs_release(cli_page_costs *costs);

/* Return the simulated seconds of a step of a plan, without the update; NaN: it cannot be
 * simulated. `bubble` may be NULL. */
double cli_page_simulate(const cgp_plan *plan, const cli_page_costs *costs, double *bubble);

#endif
