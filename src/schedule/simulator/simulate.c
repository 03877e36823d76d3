/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c -- computes when each action of a step starts and ends, for the caller's costs.
 *
 * The free capacity of an edge is the least number of buffers with which no SEND waits. This number
 * follows from the times of a run with unbounded buffers. With c buffers, SEND number k waits for
 * RECV number k-c. Let q_k be the number of RECVs that end no later than SEND k. Then SEND k does
 * not wait if k-c < q_k:
 *
 *     c >= k + 1 - q_k    for every k
 *
 * If all actions of a cycle of waits happen at one instant, the times do not show the cycle, and c
 * is too small. In this case cgp__simulator_min_capacity() raises c. */
#include "schedule/simulator/simulator.h"

#include "schedule/gradient_groups.h"
#include "schedule/simulator/timeline.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static cgp_status check_costs(const cgp_schedule *s, const cgp_schedule_costs *costs) {
    CGP_TRY(cgp__cost_check("cost of forward", costs->forward, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_input", costs->backward_input, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_weight", costs->backward_weight, s->stages));
    CGP_TRY(cgp__cost_check("cost of recompute", costs->recompute, s->stages));
    CGP_TRY(cgp__cost_check("latency", costs->latency, s->n_edges));
    CGP_TRY(cgp__cost_check("cost of transfer", costs->transfer, s->n_edges));
    CGP_TRY(cgp__cost_check("cost of add_input", costs->add_input, s->stages));
    CGP_TRY(cgp__cost_check("cost of add_weight", costs->add_weight, s->stages));
    if (costs->gradient_groups != 0) CGP_TRY(cgp__gradient_groups_check(costs->gradient_groups));
    for (int e = 0; costs->capacity && e < s->n_edges; e++) {
        if (costs->capacity[e] < 1)
            return cgp_fail(CGP_EINVAL, "capacity: expected 1 or more, got %d (edge %d)",
                            costs->capacity[e], e);
    }
    return CGP_OK;
}

/* --- scaled costs ---
 *
 * The default cost is 1 per device, shared equally by the stages of the device. So schedules with
 * one stage and with several stages per device have the same unit of time. Fractions such as 1/3
 * are not exact in floating point, so times that should be equal would differ by rounding. To avoid
 * this, the unit is divided into `parts` equal parts, and times are counted in these parts. `parts`
 * is the least common multiple of the devices' numbers of stages.
 *
 * If sums of costs could overflow, times are also multiplied by 2^-128. This rounds only costs that
 * become denormal, which are far below the rounding error of such sums. */

enum { MAX_PARTS = 1 << 20 };

typedef struct scaled_costs {
    double scale;               /* factor of all times below: parts, or parts x 2^-128 */
    int *stages_on;             /* [devices] */
    double *duration;           /* [CGP__COMPUTE_KINDS][stages] durations; one block of memory has
                                 * this array and the next three */
    double *addition;           /* [CGP__COMPUTE_KINDS][stages] */
    double *latency, *transfer; /* [edges] */
    cgp_schedule_costs costs;   /* the scaled costs; the struct points to the arrays above */
    cgp__durations durations;   /* the durations; its arrays are the arrays above */
} scaled_costs;

static void release_costs(scaled_costs *c) {
    free(c->duration);
    free(c->stages_on);
}

static double find_parts(const cgp_schedule *s, const cgp_schedule_costs *costs,
                         const int *stages_on) {
    int64_t parts = 1;
    if (costs->forward && costs->backward_input && costs->backward_weight) return 1.0;
    for (int device = 0; device < s->devices; device++) {
        const int64_t n = stages_on[device] > 0 ? stages_on[device] : 1;
        for (const int64_t step = parts; parts % n != 0; parts += step) {
            if (parts > MAX_PARTS) return 1.0;
        }
    }
    return parts > MAX_PARTS ? 1.0 : (double)parts;
}

/* Set all times to the caller's costs multiplied by a scale. */
static void fill_times(scaled_costs *c, const cgp_schedule *s, const cgp_schedule_costs *costs,
                       double scale) {
    const int n = s->stages;
    c->scale = scale;
    for (int j = 0; j < n; j++) {
        const double unset = scale / c->stages_on[s->device_of[j]];
        const double forward = costs->forward ? costs->forward[j] * scale : unset;
        const double input = costs->backward_input ? costs->backward_input[j] * scale : unset;
        const double weight = costs->backward_weight ? costs->backward_weight[j] * scale : unset;
        c->duration[(size_t)CGP_ACTION_F * n + j] = forward;
        c->duration[(size_t)CGP_ACTION_B * n + j] = input + weight;
        c->duration[(size_t)CGP_ACTION_I * n + j] = input;
        c->duration[(size_t)CGP_ACTION_W * n + j] = weight;
        c->duration[(size_t)CGP_ACTION_R * n + j] =
            costs->recompute ? costs->recompute[j] * scale : forward;
        const double add_input = costs->add_input ? costs->add_input[j] * scale : 0.0;
        const double add_weight = costs->add_weight ? costs->add_weight[j] * scale : 0.0;
        c->addition[(size_t)CGP_ACTION_B * n + j] = add_input + add_weight;
        c->addition[(size_t)CGP_ACTION_I * n + j] = add_input;
        c->addition[(size_t)CGP_ACTION_W * n + j] = add_weight;
    }
    for (int e = 0; e < s->n_edges; e++) {
        c->latency[e] = costs->latency ? costs->latency[e] * scale : 0.0;
        c->transfer[e] = costs->transfer ? costs->transfer[e] * scale : 0.0;
    }
}

/* Scale the costs. The caller must release the scaled costs with release_costs(), also after a
 * failure. */
static cgp_status scale_costs(scaled_costs *c, const cgp_schedule *s,
                              const cgp_schedule_costs *costs) {
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)s->stages, edges = (size_t)s->n_edges;
    const size_t times = 2 * cells + 2 * edges;
    double max = 0.0, actions = 1.0;
    *c = (scaled_costs){.costs = *costs,
                        .stages_on = cgp__calloc((size_t)s->devices, sizeof *c->stages_on),
                        .duration = cgp__calloc(times, sizeof *c->duration)};
    if (!c->stages_on || !c->duration)
        return cgp__no_memory("schedule: simulate", times * sizeof *c->duration);
    c->addition = c->duration + cells;
    c->durations = (cgp__durations){c->duration, costs->gradient_groups > 1 ? c->addition : NULL,
                                    costs->gradient_groups};
    c->latency = c->addition + cells;
    c->transfer = c->latency + edges;
    if (costs->latency) c->costs.latency = c->latency;
    if (costs->transfer) c->costs.transfer = c->transfer;
    for (int j = 0; j < s->stages; j++)
        c->stages_on[s->device_of[j]]++;
    for (int device = 0; device < s->devices; device++)
        actions += s->counts[device];
    fill_times(c, s, costs, find_parts(s, costs, c->stages_on));
    for (size_t i = 0; i < times; i++)
        max = fmax(max, c->duration[i]);
    /* The factor 2 is needed for two reasons. A message takes both a transfer time and a latency. A
     * stage has additions besides its actions, but fewer additions than backward actions. The
     * factor `devices` is needed because the total busy time is compared with devices x
     * makespan. */
    if (max > DBL_MAX / (2.0 * actions * s->devices)) fill_times(c, s, costs, c->scale * 0x1p-128);
    return CGP_OK;
}

/* Convert the times back to the caller's unit. */
static void unscale(cgp_schedule_timeline *t, const cgp_schedule *s, double scale) {
    t->makespan /= scale;
    t->span /= scale;
    for (int kind = 0; kind < CGP__COMPUTE_KINDS; kind++)
        t->critical_path[kind] /= scale;
    cgp__cursor at = {0};
    while (cgp__next(s, &at)) {
        t->start[at.device][at.position] /= scale;
        t->end[at.device][at.position] /= scale;
    }
}

/* --- a step --- */

/* Find the free capacities after a run with unbounded buffers. */
static void count_buffers(const cgp__simulator *x, int *free_capacity) {
    for (int e = 0; e < x->schedule->n_edges; e++) {
        const cgp__simulated_message *m = x->messages + (size_t)e * x->schedule->chunks;
        int max = 1, q = 0;
        for (int k = 0; k < x->edges[e].sends; k++) {
            while (q < x->edges[e].receives && m[q].received <= m[k].sent)
                q++;
            max = k + 1 - q > max ? k + 1 - q : max;
        }
        free_capacity[e] = max;
    }
}

double cgp__duration_of(const cgp__durations *d, const cgp_schedule *s, const cgp_action *a) {
    const size_t at = (size_t)a->kind * (size_t)s->stages + (size_t)a->stage;
    if (!d->addition || d->addition[at] == 0.0) return d->action[at];
    return d->action[at] +
           cgp__gradient_place_of(a->microbatch, s->chunks, d->groups, 1).additions *
               d->addition[at];
}

double cgp__compute_time(const cgp_schedule *s, const cgp__durations *durations, int device) {
    double sum = 0.0;
    for (int i = 0; i < s->counts[device]; i++) {
        const cgp_action *a = &s->lists[device][i];
        if (!cgp__is_transfer(a->kind)) sum += cgp__duration_of(durations, s, a);
    }
    return sum;
}

/* Fill in a timeline. If `ticks` is true, do not compute the free capacities and the critical
 * path. */
static cgp_status simulate(cgp__simulator *x, const cgp__durations *durations,
                           const cgp_schedule_costs *costs, bool ticks, cgp_schedule_timeline *t) {
    const cgp_schedule *s = x->schedule;
    cgp__simulation set = {.duration = durations,
                           .latency = costs->latency,
                           .transfer = costs->transfer,
                           .blocking = costs->transfers_block,
                           .start = t->start,
                           .end = t->end};
    x->set = set;
    CGP_TRY(cgp__simulator_run(x, NULL));
    if (!ticks) {
        count_buffers(x, t->free_capacity);
        CGP_TRY(cgp__simulator_min_capacity(x, t->free_capacity));
    }
    if (costs->capacity) {
        CGP_TRY(cgp__list_order_check_capacity(&x->order, s, costs->capacity));
        set.capacity = costs->capacity;
        x->set = set;
        cgp__simulator_reset(x);
        CGP_TRY(cgp__simulator_run(x, NULL));
    }
    for (int device = 0; device < s->devices; device++)
        t->busy[device] = cgp__compute_time(s, durations, device);
    cgp__timeline_summarise(t, s);
    return ticks ? CGP_OK : cgp__find_critical_path(s, durations, costs, t);
}

static cgp_status make_timeline(const cgp_schedule *schedule, const cgp__durations *durations,
                                const cgp_schedule_costs *costs, bool ticks,
                                cgp_schedule_timeline *out) {
    cgp_schedule_timeline t = {0};
    cgp__simulator x = {0};
    cgp_status status = cgp__timeline_create(&t, schedule, false);
    if (status == CGP_OK) status = cgp__simulator_create(&x, schedule);
    if (status == CGP_OK) status = simulate(&x, durations, costs, ticks, &t);
    if (status == CGP_OK)
        *out = t;
    else
        cgp_schedule_timeline_release(&t);
    cgp__simulator_release(&x);
    return status;
}

static const cgp_schedule_costs free_messages = {0};

cgp_status cgp_schedule_simulate(const cgp_schedule *schedule, const cgp_schedule_costs *costs,
                                 cgp_schedule_timeline *out) {
    CGP__NEED(schedule);
    CGP__NEED(out);
    scaled_costs scaled;
    cgp_schedule_timeline t;
    costs = costs ? costs : &free_messages;
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(check_costs(schedule, costs));
    cgp_status status = scale_costs(&scaled, schedule, costs);
    if (status == CGP_OK)
        status = make_timeline(schedule, &scaled.durations, &scaled.costs, false, &t);
    if (status == CGP_OK) unscale(&t, schedule, scaled.scale);
    release_costs(&scaled);
    if (status != CGP_OK) return status;
    if (!isfinite(t.makespan)) {
        cgp_schedule_timeline_release(&t);
        return cgp_fail(CGP_EINVAL, "costs: expected a finite sum, got %g", INFINITY);
    }
    *out = t;
    return CGP_OK;
}

cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const cgp__durations *durations,
                                   cgp_schedule_timeline *out) {
    return make_timeline(schedule, durations, &free_messages, false, out);
}

cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out) {
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)schedule->stages;
    CGP_TRY(cgp__rules_check(schedule, NULL));
    double *duration = cgp__calloc(cells, sizeof *duration);
    if (!duration) return cgp__no_memory("schedule: simulate", cells * sizeof *duration);
    for (size_t i = 0; i < cells; i++)
        duration[i] = 1.0;
    const cgp_status status =
        make_timeline(schedule, &(cgp__durations){.action = duration}, &free_messages, true, out);
    free(duration);
    return status;
}
