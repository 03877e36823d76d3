/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c -- simulates the exchange of gradients between replicas (pipeline/run/exchange.c). All
 * replicas are taken to run the same actions at the same times. The messages of a level leave over
 * one connection, one after the other in the order in which they are posted. */
#include <cgpipe/planner.h>

#include "model/backward.h"
#include "model/model.h"
#include "plan/list.h"
#include "plan/memory/devices.h"
#include "plan/memory/shards.h"
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

/* The state while an exchange of n pieces is simulated. */
typedef struct exchange {
    const cgp__setup *setup;
    int64_t untied, end; /* bytes of the untied pieces, and of all pieces */
    int n, levels;
    bool halves, doubles_untied, doubles_other;
    const double *latency, *seconds_per_byte; /* [levels] */
    double *times; /* [1 + 2 levels][n] when a piece is ready, and when it has left each step */
    double *free;  /* [levels] when the connection is free */
    int *next;     /* [2 levels] number of pieces that have left each step */
} exchange;

/* Return the bytes that a step of a piece sends: half of what the level divides. Step k < levels is
 * level k of halving; the others are the levels of doubling, the last level first. */
static int64_t sent_bytes(const exchange *x, int piece, int k) {
    cgp__byte_range own = cgp__shard_piece(x->setup, x->untied, x->end, piece), other = {0, 0};
    const bool doubles = k >= x->levels, is_untied = own.begin < x->untied;
    const int level = doubles ? 2 * x->levels - 1 - k : k;
    if (doubles ? !(is_untied ? x->doubles_untied : x->doubles_other) : !x->halves) return 0;
    for (int i = 0; i <= level; i++)
        cgp__shard_divide(own, 0, i, &own, &other);
    return own.end - own.begin;
}

/* Return the step whose next piece has been ready for longest; -1: no step has a piece. */
static int next_step(const exchange *x) {
    int first = -1;
    double least = INFINITY;
    for (int k = 0; k < 2 * x->levels; k++) {
        if (x->next[k] == (k == 0 ? x->n : x->next[k - 1])) continue;
        const double ready = x->times[(size_t)k * (size_t)x->n + (size_t)x->next[k]];
        if (first >= 0 && ready >= least) continue;
        first = k;
        least = ready;
    }
    return first;
}

/* Simulate all steps of all pieces. Return the end of the last step. */
static double run(exchange *x) {
    double last = 0;
    for (int k; (k = next_step(x)) >= 0; x->next[k]++) {
        const int level = k < x->levels ? k : 2 * x->levels - 1 - k;
        const int64_t bytes = sent_bytes(x, x->next[k], k);
        double *left = &x->times[(size_t)(k + 1) * (size_t)x->n + (size_t)x->next[k]];
        const double ready = left[-x->n];
        *left = ready;
        if (bytes > 0) {
            x->free[level] =
                fmax(ready, x->free[level]) + (double)bytes * x->seconds_per_byte[level];
            *left = x->free[level] + x->latency[level];
        }
        if (x->next[k] > 0) *left = fmax(*left, left[-1]);
        last = fmax(last, *left);
    }
    return last;
}

/* Return the share of an action's FLOPs that its calls up to `call` have. */
static double share_of(const cgp_plan *plan, const cgp__variant *v, int call) {
    const cgp_model *model = plan->setup.model;
    const cgp__program *program = &plan->placement.stages[v->stage].programs[v->program];
    double sum = 0, all = 0;
    for (int i = v->begin; i < v->end; i++) {
        const cgp__call *c = &program->calls[i];
        if (c->node < 0) continue;
        all += cgp__node_flops(model, &model->nodes[c->node], c->direction);
        if (i == call) sum = all;
    }
    return all > 0 ? sum / all : 1;
}

/* Set the times at which the pieces of a device are ready. */
static cgp_status set_ready(const cgp_plan *plan, const cgp_schedule_timeline *timeline, int device,
                            double end, exchange *x) {
    cgp__list list = {0};
    const cgp__minibatch share = cgp__plan_share(plan, plan->setup.batch, plan->setup.replicas - 1);
    for (int i = 0; i < x->n; i++)
        x->times[i] = end;
    if (!cgp__exchange_overlaps(plan->placement.devices[device].backend)) return CGP_OK;
    const cgp_status status = cgp__plan_bind(plan, plan->actions.schedule, share, device, &list);
    for (int i = 0; i < x->n && status == CGP_OK; i++) {
        const cgp__completion *piece = &list.pieces[i];
        if (piece->action < 0) x->times[i] = 0; /* backward writes no part of it */
        if (piece->action < 0) continue;
        const double begin = timeline->start[device][piece->action],
                     length = timeline->end[device][piece->action] - begin;
        const cgp__variant *v = &list.variants[list.actions[piece->action].variant];
        x->times[i] = begin + length * share_of(plan, v, piece->call);
        if (i > 0) x->times[i] = fmax(x->times[i], x->times[i - 1]);
    }
    cgp__list_release(&list);
    return status;
}

static void release(exchange *x) {
    free(x->times);
    free(x->free);
    free(x->next);
}

/* Begin an exchange of `end` bytes, whose pieces are ready at time 0. */
static cgp_status begin(const cgp_plan *plan, int device, int64_t end, exchange *x) {
    const cgp__device_plan *d = &plan->placement.devices[device];
    release(x);
    x->times = x->free = NULL;
    x->next = NULL;
    x->setup = &plan->setup;
    x->untied = cgp__min(d->untied_bytes, end);
    x->end = end;
    x->levels = cgp__shard_levels(x->setup);
    x->n = cgp__shard_pieces(x->setup, x->untied, end);
    CGP_TRY(CGP__NEW(x->times, (1 + 2 * (size_t)x->levels) * (size_t)x->n, "exchange"));
    CGP_TRY(CGP__NEW(x->free, x->levels, "exchange"));
    return CGP__NEW(x->next, 2 * x->levels, "exchange");
}

static double last_end(const cgp_plan *plan, const cgp_schedule_timeline *timeline, int device) {
    double end = 0;
    int n = 0;
    (void)cgp_schedule_actions(plan->actions.schedule, device, &n);
    for (int i = 0; i < n; i++)
        end = fmax(end, timeline->end[device][i]);
    return end;
}

/* Simulate the exchange of a device. Set *alone to the time of the exchange by itself, *end to its
 * end, and *update to the time after the update. */
static cgp_status simulate(const cgp_plan *plan, const cgp_schedule_timeline *timeline, int device,
                           exchange *x, double *alone, double *end, double *update) {
    const cgp__device_plan *d = &plan->placement.devices[device];
    const bool shards = plan->setup.shards;
    x->halves = x->doubles_other = true;
    x->doubles_untied = !shards || plan->setup.optim.clip_norm > 0;
    CGP_TRY(begin(plan, device, d->written_gradient_bytes, x));
    *alone = run(x);
    CGP_TRY(begin(plan, device, d->written_gradient_bytes, x));
    CGP_TRY(set_ready(plan, timeline, device, last_end(plan, timeline, device), x));
    *end = run(x);
    x->halves = false;
    x->doubles_untied = true;
    CGP_TRY(begin(plan, device, shards ? d->trained_bytes : 0, x));
    *update = run(x);
    return CGP_OK;
}

/* Set the times of the connections of a device of a replica. Set *same if they are those of the
 * same device of replica 0. */
static cgp_status set_connections(const cgp_exchange_costs *costs, const cgp__setup *setup,
                                  int devices, int replica, int device, double *times, bool *same) {
    const int levels = cgp__shard_levels(setup);
    *same = replica > 0;
    for (int l = 0; l < levels; l++) {
        const int at = (l * setup->replicas + replica) * devices + device,
                  first = at - replica * devices;
        const double latency = costs->latency_seconds[at], bandwidth = costs->bytes_per_second[at];
        if (!(latency >= 0) || isinf(latency) || !(bandwidth > 0))
            return cgp_fail(
                CGP_EINVAL,
                "exchange: expected latency_seconds of 0 or more and bytes_per_second above 0, got "
                "%g and %g",
                latency, bandwidth);
        *same = *same && latency == costs->latency_seconds[first] &&
                bandwidth == costs->bytes_per_second[first];
        times[l] = latency;
        times[levels + l] = 1 / bandwidth;
    }
    return CGP_OK;
}

cgp_status cgp_plan_simulate_exchange(const cgp_plan *plan, const cgp_schedule_timeline *timeline,
                                      const cgp_exchange_costs *costs, cgp_plan_exchange *out) {
    CGP__NEED(plan);
    CGP__NEED(timeline);
    CGP__NEED(costs);
    CGP__NEED(out);
    enum { MOST_LEVELS = 10 };
    const cgp__setup *setup = &plan->setup;
    const int levels = cgp__shard_levels(setup), devices = plan->placement.n_devices;
    double times[2 * MOST_LEVELS], gradients = 0, updates = 0, last = timeline->makespan;
    cgp_status status = CGP_OK;
    exchange x = {.latency = times, .seconds_per_byte = times + levels};
    for (int i = 0; i < setup->replicas * devices && levels > 0 && status == CGP_OK; i++) {
        const int device = i % devices;
        double alone = 0, end = 0, update = 0;
        bool same = false;
        status = set_connections(costs, setup, devices, i / devices, device, times, &same);
        if (status == CGP_OK && !same)
            status = simulate(plan, timeline, device, &x, &alone, &end, &update);
        gradients = fmax(gradients, alone);
        updates = fmax(updates, update);
        last = fmax(last, end);
    }
    release(&x);
    if (status == CGP_OK)
        *out = (cgp_plan_exchange){gradients + updates, last - timeline->makespan + updates};
    return status;
}
