/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c -- cgpipe plan: print memory and timeline before anything runs. */
#include "commands/commands.h"

#include "errors.h"
#include "json_value.h"
#include "report/output.h"
#include "report/report.h"
#include "session/cluster.h"
#include "session/costs.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>

static cgp_status make(cli_session *session, cli_run_options *options) {
    cli_model model;
    CGP_TRY(cli_model_find(&model, options, "plan gpt2"));
    return cli_session_plan(session, options, &model);
}

/* Return the seconds of F, I, W and R for each stage, [4][stages]. The caller frees them. */
static double *stage_costs(const cgp_plan *plan, cgp_recompute recompute,
                           const cgp_layer_cost *costs) {
    const int n = cgp_plan_stages(plan);
    double *times = cli_calloc(4 * (size_t)n, sizeof *times);
    for (int j = 0; j < n; j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        for (int i = stage->first_layer; i < stage->first_layer + stage->layers; i++) {
            const cgp_layer_cost *c = &costs[i];
            const double selective =
                cgp_recompute_is_selective(recompute) ? c->selective_seconds : 0;
            times[j] += c->forward_seconds;
            times[n + j] += (c->input_seconds + selective);
            times[2 * n + j] += c->weight_seconds;
            times[3 * n + j] += c->recompute_seconds;
        }
    }
    return times;
}

/* Set the times of messages, [edges]. Between different devices of a cluster file, use the times in
 * that file. Otherwise use the bytes of the message / costs->bandwidth. */
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

/* The simulated step, and the seconds of the slowest device's update; 0: the costs file has no
 * updates. */
typedef struct prediction {
    cgp_schedule_timeline timeline;
    double update_seconds;
} prediction;

static double update_seconds(const cgp_plan *plan, const cgp_layer_cost *layers) {
    double longest = 0;
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        double sum = 0;
        for (int k = 0; k < device->stages; k++) {
            const cgp_plan_stage *stage = cgp_plan_stage_at(plan, device->stage_list[k]);
            for (int i = 0; i < stage->layers; i++)
                sum += layers[stage->first_layer + i].update_seconds;
        }
        longest = sum > longest ? sum : longest;
    }
    return longest;
}

/* Predict a step of a full mini-batch from layer costs. Messages take no compute time on a
 * device. */
static cgp_status predict(const cgp_plan *plan, cgp_recompute recompute, const cli_costs *costs,
                          const cli_cluster *cluster, prediction *out) {
    const int n = cgp_plan_stages(plan), edges = cgp_plan_edges(plan);
    cgp_layer_cost *layers = NULL;
    const cgp_status status = cli_costs_at(costs, cgp_plan_microbatch(plan), &layers);
    if (status != CGP_OK) {
        free(layers);
        return status;
    }
    double *times = stage_costs(plan, recompute, layers);
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
    cgp_status simulated = message_times(plan, costs, cluster, latency, latency + edges);
    if (simulated == CGP_OK)
        simulated = cgp_schedule_simulate(cgp_plan_schedule(plan), &stage, &out->timeline);
    out->update_seconds = update_seconds(plan, layers);
    free(buffers);
    free(latency);
    free(times);
    free(layers);
    return simulated;
}

/* Simulate a step with the layer times of --costs, and the links of --cluster. */
static cgp_status simulate(const cli_session *session, const cli_run_options *options,
                           prediction *out) {
    cli_costs costs;
    cli_cluster cluster = {0};
    cgp_recompute recompute = CGP_RECOMPUTE_NEVER;
    CGP_TRY(cgp_recompute_parse(&recompute, options->recompute));
    cgp_status status = cli_costs_read(&costs, options, session->model, session->model_spec);
    if (status == CGP_OK && options->cluster) status = cli_cluster_read(&cluster, options->cluster);
    if (status == CGP_OK && options->cluster)
        status = cli_cluster_check_plan(&cluster, session->plan);
    if (status == CGP_OK) status = predict(session->plan, recompute, &costs, &cluster, out);
    cli_cluster_release(&cluster);
    cli_costs_release(&costs);
    return status;
}

static cgp_status report(const cli_session *session, const cli_run_options *options) {
    FILE *out = cli_info_stream(options);
    prediction p = {0};
    CGP_TRY(cli_json_check(options));
    if (options->costs) CGP_TRY(simulate(session, options, &p));
    const double seconds = p.timeline.makespan, bubble = p.timeline.bubble_makespan;
    const double step = p.update_seconds > 0 ? seconds + p.update_seconds : NAN;
    cgp_schedule_timeline_release(&p.timeline);
    CGP_TRY(cli_print_plan(out, session));
    json_t *o = cli_plan_json(session);
    if (options->costs) {
        fprintf(out, "simulated step %.4f s without the optimizer, ", seconds);
        if (!isnan(step)) fprintf(out, "%.4f s with it, ", step);
        fprintf(out, "bubble %.1f %% (costs of %s%s%s)\n", 100 * bubble, cli_shown(options->costs),
                options->cluster ? ", messages of " : "", cli_shown(options->cluster));
        cli_json_add(o, "{s:o, s:o, s:o}", "run_seconds_simulated", cli_real_json(seconds),
                     "step_seconds_simulated", cli_real_json(step), "bubble_simulated",
                     cli_real_json(bubble));
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
