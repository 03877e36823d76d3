/* SPDX-License-Identifier: Apache-2.0 */
/* costs.c -- see planner.h. The speeds of devices and links, from a measured step.
 *
 * Devices: layers with the same FLOPs and parameters are equal. A device is as slow as its equal
 * layers are on average, relative to the device on which they are fastest. Without equal layers on
 * several devices, nothing can be said, and the device counts as fast.
 *
 * Links: a latency is the time from the end of a SEND until the receiver has the message. The
 * latency of a link is the median over the messages for which the receiver waited. It is 0 if the
 * receiver waited for less than a quarter of the messages, because it then costs little time. */
#include "report_page/planner.h"

#include "report_page/run.h"

#include "machine.h"
#include "session/session.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A device is called slow only above this. Below it, the difference may be noise. */
#define SLOW 1.4
#define NO_LIMIT 1e30 /* bytes per second */

/* --- devices --- */

static double seconds_of(const cgp_layer_cost *c) {
    return c->forward_seconds + c->input_seconds + c->weight_seconds;
}

static bool equal_layers(const cgp_layer_cost *a, const cgp_layer_cost *b) {
    return a->parameter_bytes == b->parameter_bytes && a->flops[0] == b->flops[0] &&
           a->flops[1] == b->flops[1] && a->flops[2] == b->flops[2] && a->flops[0] > 0;
}

/* Return the device of each layer, [layers]. Freed by the caller. */
static int *devices_of_layers(const cgp_plan *plan, int layers) {
    int *device = cli_calloc((size_t)layers, sizeof *device);
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *s = cgp_plan_stage_at(plan, j);
        for (int i = 0; i < s->layers; i++)
            device[s->first_layer + i] = s->device;
    }
    return device;
}

/* Find the mean times of the layers that are equal to layer `i`, on each device. Return the number
 * of devices that have such layers. */
static int means(const cli_page_run *run, const int *device_of, const cli_page_costs *c, int i,
                 double *mean) {
    int devices = 0;
    for (int d = 0; d < c->devices; d++) {
        double sum = 0;
        int n = 0;
        for (int k = 0; k < c->layers; k++) {
            if (device_of[k] != d || !equal_layers(&run->costs[i], &run->costs[k])) continue;
            sum += seconds_of(&run->costs[k]);
            n++;
        }
        mean[d] = n > 0 ? sum / n : INFINITY;
        devices += n > 0;
    }
    return devices;
}

static void find_slowness(cli_page_costs *c, const cli_page_run *run, const int *device_of) {
    double *mean = cli_calloc((size_t)c->devices, sizeof *mean);
    double *measured = cli_calloc((size_t)c->devices, sizeof *measured);
    double *fastest = cli_calloc((size_t)c->devices, sizeof *fastest);
    for (int i = 0; i < c->layers; i++) {
        double least = INFINITY;
        bool first = true; /* the first of its equal layers */
        for (int k = 0; k < i && first; k++)
            first = !equal_layers(&run->costs[i], &run->costs[k]);
        if (!first || means(run, device_of, c, i, mean) < 2) continue;
        for (int d = 0; d < c->devices; d++)
            least = fmin(least, mean[d]);
        for (int d = 0; d < c->devices; d++) {
            if (isinf(mean[d])) continue;
            measured[d] += mean[d];
            fastest[d] += least;
        }
    }
    for (int d = 0; d < c->devices; d++) {
        const double ratio = fastest[d] > 0 ? measured[d] / fastest[d] : 1;
        c->slowness[d] = ratio > SLOW ? ratio : 1;
    }
    free(fastest);
    free(measured);
    free(mean);
}

/* --- all devices --- */

static void scale(cgp_layer_cost *cost, double factor) {
    cost->forward_seconds *= factor;
    cost->input_seconds *= factor;
    cost->weight_seconds *= factor;
    cost->recompute_seconds *= factor;
    cost->selective_seconds *= factor;
}

static void fill_rows(cli_page_costs *c, const cli_page_run *run, const int *device_of) {
    for (int i = 0; i < c->layers; i++) {
        c->even[i] = run->costs[i];
        scale(&c->even[i], 1 / c->slowness[device_of[i]]);
        for (int d = 0; d < c->devices; d++) {
            cgp_layer_cost *row = &c->rows[(size_t)d * (size_t)c->layers + (size_t)i];
            *row = c->even[i];
            scale(row, c->slowness[d]);
        }
    }
}

/* --- medians of a stage --- */

/* Return the median time of a stage's actions of one kind in the measured step; 0: none. */
static double median_of(const cli_page_run *run, int stage, cgp_action_kind kind) {
    const int device = cgp_schedule_device_of(run->schedule, stage);
    int n = 0, count = 0;
    const cgp_action *list = cgp_schedule_actions(run->schedule, device, &n);
    double *times = cli_calloc((size_t)n, sizeof *times);
    for (int i = 0; i < n; i++) {
        if (list[i].stage == stage && list[i].kind == kind)
            times[count++] = run->timeline.end[device][i] - run->timeline.start[device][i];
    }
    const double median = count > 0 ? cli_median(times, count, 1, 0) : 0;
    free(times);
    return median;
}

/* Return the factor that gives a stage the time `median`; 1 if either time is 0. */
static double factor_of(double median, double sum) {
    return median > 0 && sum > 0 ? median / sum : 1;
}

/* The times of layers are means of one step, in which a kernel may have been interrupted. The
 * medians of the actions are robust. So the layers of a stage are scaled to the medians. */
void cli_page_costs_scale(cli_page_run *run) {
    const cgp_plan *plan = run->session->plan;
    for (int j = 0; j < cgp_plan_stages(plan); j++) {
        const cgp_plan_stage *s = cgp_plan_stage_at(plan, j);
        cgp_layer_cost *layers = run->costs + s->first_layer;
        double f = 0, i = 0, w = 0;
        for (int k = 0; k < s->layers; k++) {
            f += layers[k].forward_seconds;
            i += layers[k].input_seconds;
            w += layers[k].weight_seconds;
        }
        const double both = factor_of(median_of(run, j, CGP_ACTION_B), i + w);
        const double forward = factor_of(median_of(run, j, CGP_ACTION_F), f);
        const double input = both * factor_of(median_of(run, j, CGP_ACTION_I), i);
        const double weight = both * factor_of(median_of(run, j, CGP_ACTION_W), w);
        for (int k = 0; k < s->layers; k++) {
            layers[k].forward_seconds *= forward;
            layers[k].recompute_seconds *= forward;
            layers[k].selective_seconds *= forward;
            layers[k].input_seconds *= input;
            layers[k].weight_seconds *= weight;
        }
    }
}

/* --- links --- */

/* Return the ends of all SENDs, [edges][micro-batches]. Freed by the caller. */
static double *find_sent(const cli_page_run *run) {
    int n_edges = 0;
    const int chunks = cgp_schedule_chunks(run->schedule);
    cgp_schedule_edges(run->schedule, &n_edges);
    double *sent = cli_calloc((size_t)n_edges * (size_t)chunks, sizeof *sent);
    for (int d = 0; d < cgp_schedule_devices(run->schedule); d++) {
        int n = 0;
        const cgp_action *list = cgp_schedule_actions(run->schedule, d, &n);
        for (int i = 0; i < n; i++) {
            if (list[i].kind == CGP_ACTION_SEND_F || list[i].kind == CGP_ACTION_SEND_B)
                sent[(size_t)list[i].edge * (size_t)chunks + (size_t)list[i].microbatch] =
                    run->timeline.end[d][i];
        }
    }
    return sent;
}

/* Write the latencies of the messages from one device to another to `list`. Return their number; 0
 * if they are less than a quarter of the messages. */
static int list_latencies(const cli_page_run *run, const double *sent, int from, int to,
                          double *list) {
    int n = 0, count = 0, messages = 0, n_edges = 0;
    const size_t chunks = (size_t)cgp_schedule_chunks(run->schedule);
    const cgp_action *actions = cgp_schedule_actions(run->schedule, to, &n);
    const cgp_edge *edges = cgp_schedule_edges(run->schedule, &n_edges);
    const cgp_schedule_timeline *t = &run->timeline;
    for (int i = 0; i < n; i++) {
        const cgp_action *a = &actions[i];
        const bool receives = a->kind == CGP_ACTION_RECV_F || a->kind == CGP_ACTION_RECV_B;
        if (!receives || cgp_schedule_device_of(run->schedule, edges[a->edge].from) != from)
            continue;
        messages++;
        const double end = sent[(size_t)a->edge * chunks + (size_t)a->microbatch];
        if (t->released[to][i] > t->start[to][i] && t->ready[to][i] > end)
            list[count++] = t->ready[to][i] - end;
    }
    return 4 * count < messages ? 0 : count;
}

static void find_links(cli_page_costs *c, const cli_page_run *run) {
    for (int i = 0; i < c->devices * c->devices; i++)
        c->bandwidth[i] = NO_LIMIT;
    c->messages.latency_seconds = c->latency;
    c->messages.bytes_per_second = c->bandwidth;
    if (!run->schedule) return;
    double *sent = find_sent(run);
    for (int to = 0; to < c->devices; to++) {
        int n = 0;
        cgp_schedule_actions(run->schedule, to, &n);
        double *list = cli_calloc((size_t)n, sizeof *list);
        for (int from = 0; from < c->devices; from++) {
            const int count = from == to ? 0 : list_latencies(run, sent, from, to, list);
            if (count == 0) continue;
            c->latency[from * c->devices + to] = cli_median(list, count, 1, 0);
        }
        free(list);
    }
    free(sent);
}

/* --- all --- */

void cli_page_costs_find(cli_page_costs *c, const cli_page_run *run) {
    const cgp_plan *plan = run->session->plan;
    *c = (cli_page_costs){.devices = cgp_plan_devices(plan),
                          .layers = cgp_model_layers(run->session->model)};
    const size_t n = (size_t)c->devices, layers = (size_t)c->layers;
    c->slowness = cli_calloc(n, sizeof *c->slowness);
    c->even = cli_calloc(layers, sizeof *c->even);
    c->rows = cli_calloc(n * layers, sizeof *c->rows);
    c->row_of = cli_calloc(n, sizeof *c->row_of);
    c->latency = cli_calloc(n * n, sizeof *c->latency);
    c->bandwidth = cli_calloc(n * n, sizeof *c->bandwidth);
    for (int d = 0; d < c->devices; d++)
        c->row_of[d] = d;
    int *device_of = devices_of_layers(plan, c->layers);
    find_slowness(c, run, device_of);
    fill_rows(c, run, device_of);
    find_links(c, run);
    free(device_of);
}

void cli_page_costs_release(cli_page_costs *c) {
    free(c->bandwidth);
    free(c->latency);
    free(c->row_of);
    free(c->rows);
    free(c->even);
    free(c->slowness);
    *c = (cli_page_costs){0};
}

double cli_page_simulate(const cgp_plan *plan, const cli_page_costs *c, double *bubble) {
    cgp_schedule_timeline timeline = {0};
    if (cgp_plan_simulate(plan, c->rows, c->row_of, &c->messages, &timeline, NULL) != CGP_OK)
        return NAN;
    const double seconds = timeline.makespan;
    if (bubble) *bubble = timeline.bubble_makespan;
    cgp_schedule_timeline_release(&timeline);
    return seconds;
}
