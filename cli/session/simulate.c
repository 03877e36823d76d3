/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c -- see simulate.h. */
#include "session/simulate.h"

#include "common.h"

#include <math.h>
#include <stdlib.h>

/* Return the costs of F, I, W, R, [4][stages]. */
static double *stage_costs(const cgp_plan *plan, cgp_recompute recompute,
                           const cli_costs *costs) {
    const int n = cgp_plan_stages(plan);
    const double scale = (double)cgp_plan_microbatch(plan) / (double)costs->samples;
    double *times = cli_calloc(4 * (size_t)n, sizeof *times);
    for (int j = 0; j < n; j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        for (int i = stage->first_layer; i < stage->first_layer + stage->layers; i++) {
            const cgp_layer_cost *c = &costs->layer[i];
            const double selective =
                cgp_recompute_is_selective(recompute) ? c->selective_seconds : 0;
            times[j] += scale * c->forward_seconds;
            times[n + j] += scale * (c->input_seconds + selective);
            times[2 * n + j] += scale * c->weight_seconds;
            times[3 * n + j] += scale * c->recompute_seconds;
        }
    }
    return times;
}

cgp_status cli_simulate(const cgp_plan *plan, cgp_recompute recompute, const cli_costs *costs,
                        double *seconds, double *bubble) {
    const int n = cgp_plan_stages(plan), edges = cgp_plan_edges(plan);
    double *times = stage_costs(plan, recompute, costs);
    double *latency = cli_calloc((size_t)edges, sizeof *latency);
    for (int e = 0; e < edges && costs->bandwidth > 0; e++)
        latency[e] = (double)cgp_plan_edge_at(plan, e).bytes / costs->bandwidth;
    const cgp_schedule_costs stage = {.forward = times,
                                      .backward_input = times + n,
                                      .backward_weight = times + 2 * n,
                                      .recompute = times + 3 * n,
                                      .latency = latency};
    cgp_schedule_timeline timeline = {0};
    const cgp_status status = cgp_schedule_simulate(cgp_plan_schedule(plan), &stage, &timeline);
    if (status == CGP_OK) *seconds = timeline.makespan;
    if (status == CGP_OK && bubble) *bubble = timeline.bubble_makespan;
    cgp_schedule_timeline_release(&timeline);
    free(latency);
    free(times);
    return status;
}
