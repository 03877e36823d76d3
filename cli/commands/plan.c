/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- cgpipe plan: print memory and timeline before anything runs. */
#include "commands/commands.h"

#include "common.h"
#include "files.h"
#include "report/output.h"
#include "report/report.h"
#include "session/cluster.h"
#include "session/costs.h"

#include <stdlib.h>

static cgp_status make(cli_session *session, cli_run_options *options) {
    cli_model model;
    CGP_TRY(cli_model_find(&model, options, "plan gpt2"));
    return cli_session_plan(session, options, &model);
}

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

/* Set the times of messages, [edges]: between devices of a cluster as its file says, elsewhere their bytes / costs->bandwidth. */
static cgp_status message_times(const cgp_plan *plan, const cli_costs *costs,
                                const cli_cluster *cluster, double *latency, double *transfer) {
    for (int e = 0; e < cgp_plan_edges(plan); e++) {
        const cgp_plan_edge edge = cgp_plan_edge_at(plan, e);
        const int from = cgp_plan_stage_at(plan, edge.from)->device;
        const int to = cgp_plan_stage_at(plan, edge.to)->device;
        cli_message_cost cost;
        if (cluster->path && from != to) {
            CGP_TRY(cli_cluster_message(cluster, from, to, &cost));
            latency[e] = cost.latency_seconds;
            transfer[e] = (double)edge.bytes / cost.bytes_per_second;
        } else if (costs->bandwidth > 0) {
            latency[e] = (double)edge.bytes / costs->bandwidth;
        }
    }
    return CGP_OK;
}

/* Predict a step of a full mini-batch from layer costs, scaled to the plan's micro-batch; messages keep no device busy. The
 * optimizer's update is not counted. */
static cgp_status predict(const cgp_plan *plan, cgp_recompute recompute, const cli_costs *costs,
                          const cli_cluster *cluster, cgp_schedule_timeline *timeline) {
    const int n = cgp_plan_stages(plan), edges = cgp_plan_edges(plan);
    double *times = stage_costs(plan, recompute, costs);
    double *latency = cli_calloc(2 * (size_t)edges, sizeof *latency);
    int *buffers = cli_calloc((size_t)edges, sizeof *buffers);
    for (int e = 0; e < edges; e++)
        buffers[e] = cgp_plan_edge_at(plan, e).buffers;
    const cgp_schedule_costs stage = {.forward = times,
                                      .backward_input = times + n,
                                      .backward_weight = times + 2 * n,
                                      .recompute = times + 3 * n,
                                      .latency = latency,
                                      .transfer = latency + edges,
                                      .capacity = buffers};
    cgp_status status = message_times(plan, costs, cluster, latency, latency + edges);
    if (status == CGP_OK)
        status = cgp_schedule_simulate(cgp_plan_schedule(plan), &stage, timeline);
    free(buffers);
    free(latency);
    free(times);
    return status;
}

/* Simulate a step with the layer times of --costs, and the links of --cluster. */
static cgp_status simulate(const cli_session *session, const cli_run_options *options,
                           cgp_schedule_timeline *timeline) {
    cli_costs costs;
    cli_cluster cluster = {0};
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    CGP_TRY(cgp_recompute_parse(&recompute, options->recompute));
    cgp_status status = cli_costs_read(&costs, options, session->model, session->model_spec);
    if (status == CGP_OK && options->cluster)
        status = cli_cluster_read(&cluster, options->cluster);
    if (status == CGP_OK && options->cluster)
        status = cli_cluster_check_plan(&cluster, session->plan);
    if (status == CGP_OK)
        status = predict(session->plan, recompute, &costs, &cluster, timeline);
    cli_cluster_release(&cluster);
    cli_costs_release(&costs);
    return status;
}

static cgp_status report(const cli_session *session, const cli_run_options *options) {
    cgp_schedule_timeline timeline = {0};
    CGP_TRY(cli_json_check(options));
    if (options->costs) CGP_TRY(simulate(session, options, &timeline));
    const double seconds = timeline.makespan, bubble = timeline.bubble_makespan;
    cgp_schedule_timeline_release(&timeline);
    CGP_TRY(cli_print_plan(cli_info_stream(options), session));
    json_t *o = cli_plan_json(session);
    if (options->costs) {
        fprintf(
            cli_info_stream(options),
            "simulated step %.4f s without the optimizer, bubble %.1f %% (costs of %s%s%s)\n",
            seconds, 100 * bubble, cli_shown(options->costs),
            options->cluster ? ", messages of " : "", cli_shown(options->cluster));
        cli_json_add(o, "{s:o, s:o}", "run_seconds_simulated", cli_real_json(seconds),
                     "bubble_simulated", cli_real_json(bubble));
    }
    return cli_json_write(options, o);
}

int cli_plan(const cli_run_options *options) {
    cli_run_options resolved = *options;
    cli_session session = {0};
    int code = cli_report(make(&session, &resolved), true);
    if (code == CLI_OK) code = cli_report(report(&session, &resolved), false);
    cli_session_release(&session);
    return code;
}
