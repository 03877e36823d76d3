/* SPDX-License-Identifier: Apache-2.0 */
/* prediction.c -- see prediction.h. */
#include "session/prediction.h"

#include "errors.h"
#include "options/options.h"
#include "ranks.h"
#include "session/hardware.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>

/* Set the times of messages between the devices of a cluster file. */
static cgp_status read_links(cli_prediction *p, int devices) {
    const size_t n = (size_t)devices;
    CGP_TRY(cli_cluster_expect(&p->cluster, devices));
    p->links = cli_calloc(2 * n * n, sizeof *p->links);
    for (size_t from = 0; from < n; from++) {
        for (size_t to = 0; to < n; to++) {
            cli_message_cost cost = {0, 1};
            if (from != to) CGP_TRY(cli_cluster_message(&p->cluster, (int)from, (int)to, &cost));
            p->links[from * n + to] = cost.latency_seconds;
            p->links[n * n + from * n + to] = cost.bytes_per_second;
        }
    }
    p->messages.latency_seconds = p->links;
    p->messages.bytes_per_second = p->links + n * n;
    return CGP_OK;
}

/* Find the cost of a message from a device of a replica to the same device of another replica. */
static cgp_status link_between(const cli_prediction *p, int devices, int device, int from, int to,
                               cli_message_cost *cost) {
    *cost = (cli_message_cost){0, p->messages.copy_bytes_per_second};
    if (!p->cluster.path) return CGP_OK;
    return cli_cluster_message(&p->cluster, from * devices + device, to * devices + device, cost);
}

/* Return log2 of the number of replicas; 0 for a number that plans refuse. */
static int levels_of(int64_t replicas) {
    enum { MOST = 10 };
    for (int levels = 1; levels <= MOST; levels++) {
        if ((int64_t)1 << levels == replicas) return levels;
    }
    return 0;
}

/* Set the times of messages between replicas, unless no bandwidth is known. */
static cgp_status read_exchange(cli_prediction *p, int devices, int64_t replicas) {
    const int levels = levels_of(replicas), n = (int)replicas;
    const size_t count = (size_t)levels * (size_t)replicas * (size_t)devices;
    if (levels == 0 || (!p->cluster.path && p->messages.copy_bytes_per_second <= 0)) return CGP_OK;
    if (p->cluster.path) CGP_TRY(cli_cluster_check_replicas(&p->cluster, devices, n));
    p->exchange_links = cli_calloc(2 * count, sizeof *p->exchange_links);
    double *latency = p->exchange_links, *bandwidth = latency + count;
    size_t at = 0;
    for (int pair = 0; pair < levels * n; pair++) {
        const int r = pair % n, other = r ^ 1 << pair / n;
        for (int d = 0; d < devices; d++, at++) {
            cli_message_cost cost;
            CGP_TRY(link_between(p, devices, d, r, other, &cost));
            latency[at] = cost.latency_seconds;
            bandwidth[at] = cost.bytes_per_second;
        }
    }
    p->exchange = (cgp_exchange_costs){latency, bandwidth};
    return CGP_OK;
}

static cgp_status read_costs(cli_prediction *p, const cli_session *session) {
    const cli_run_options *options = session->options;
    if (options->cluster) CGP_TRY(cli_cluster_read(&p->cluster, options->cluster));
    if (options->cluster) CGP_TRY(read_links(p, (int)options->stages));
    if (!options->costs) return cli_hardware_costs(&p->costs, session, &p->cluster);
    CGP_TRY(cli_costs_read(&p->costs, options, session->model, session->model_spec));
    if (p->costs.bandwidth > 0) p->messages.copy_bytes_per_second = p->costs.bandwidth;
    return CGP_OK;
}

cgp_status cli_prediction_read(cli_prediction *p, const cli_session *session) {
    const cli_run_options *options = session->options;
    *p = (cli_prediction){0};
    CGP_TRY(read_costs(p, session));
    CGP_TRY(read_exchange(p, (int)options->stages, options->replicas));
    if (options->time_factor > 0) cli_costs_scale(&p->costs, options->time_factor);
    return CGP_OK;
}

bool cli_prediction_has(const cli_run_options *options) {
    return options->costs || options->cluster || options->given[CLI_OPTION_TFLOPS];
}

bool cli_prediction_is_estimate(const cli_run_options *options) {
    return cli_prediction_has(options) && !options->costs;
}

const char *cli_prediction_source(const cli_run_options *options) {
    if (options->costs) return options->costs;
    return options->given[CLI_OPTION_TFLOPS] ? "--tflops" : options->cluster;
}

cgp_status cli_prediction_balance(int **balance, const cli_session *session,
                                  const cgp_plan_options *options) {
    cli_prediction prediction;
    cgp_layer_cost *layers = NULL;
    const int64_t samples = (options->batch + options->chunks - 1) / options->chunks;
    *balance = cli_calloc((size_t)cgp_plan_options_stages(options), sizeof **balance);
    cgp_status status = cli_prediction_read(&prediction, session);
    if (status == CGP_OK) status = cli_costs_at(&prediction.costs, samples, &layers);
    if (status == CGP_OK)
        status = cgp_balance_for_devices(session->model, options, layers, prediction.costs.row_of,
                                         *balance);
    free(layers);
    cli_prediction_release(&prediction);
    return status;
}

void cli_prediction_release(cli_prediction *p) {
    free(p->exchange_links);
    free(p->links);
    cli_cluster_release(&p->cluster);
    cli_costs_release(&p->costs);
}

cgp_status cli_prediction_simulate(const cli_prediction *p, const cgp_plan *plan,
                                   cgp_schedule_timeline *timeline, double *update) {
    cgp_layer_cost *layers = NULL;
    cgp_status status = CGP_OK;
    if (p->cluster.path) CGP_TRY(cli_cluster_check_plan(&p->cluster, plan));
    status = cli_costs_at(&p->costs, cgp_plan_microbatch(plan), &layers);
    if (status == CGP_OK)
        status = cgp_plan_simulate(plan, layers, p->costs.row_of, &p->messages, timeline, update);
    free(layers);
    return status;
}

cgp_status cli_prediction_exchange(const cli_prediction *p, const cli_session *session,
                                   const cgp_schedule_timeline *timeline,
                                   cgp_plan_exchange *exchange) {
    const double seconds = session->options->replicas == 1 ? 0 : NAN;
    *exchange = (cgp_plan_exchange){seconds, seconds};
    if (!p->exchange_links) return CGP_OK;
    return cgp_plan_simulate_exchange(session->plan, timeline, &p->exchange, exchange);
}

double cli_prediction_of_run(const cli_session *session) {
    cli_prediction prediction;
    cgp_schedule_timeline timeline = {0};
    if (!session->options->costs || cli_rank() > 0) return NAN;
    cgp_status status = cli_prediction_read(&prediction, session);
    if (status == CGP_OK)
        status = cli_prediction_simulate(&prediction, session->plan, &timeline, NULL);
    if (status != CGP_OK) cli_warn();
    const double seconds = status == CGP_OK ? timeline.makespan : NAN;
    cgp_schedule_timeline_release(&timeline);
    cli_prediction_release(&prediction);
    return seconds;
}
