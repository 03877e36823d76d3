/* SPDX-License-Identifier: Apache-2.0 */
/* simulate.c -- what a step looks like in time, for given costs (timeline.c draws one).
 *
 * The free capacity of an edge comes from the times with unbounded buffers. With c buffers,
 * SEND k waits for RECV k-c; if q_k RECVs happened until then (the same instant included: freed
 * before taken), it does not wait if k-c < q_k:
 *
 *     c >= k + 1 - q_k    for every k
 *
 * The one exception is a cycle of actions that all fall on one instant, which no order of
 * clocks can see; the engine does, and raises c. */
#include "schedule/schedule.h"

#include "schedule/timeline.h"

#include <math.h>
#include <stdlib.h>

cgp_status cgp__cost_check(const char *what, const double *costs, int count) {
    for (int i = 0; costs && i < count; i++) {
        if (!isfinite(costs[i]) || costs[i] < 0.0)
            return cgp_fail(CGP_EINVAL, "%s: expected 0 or more and finite, got %g (entry %d)",
                            what, costs[i], i);
    }
    return CGP_OK;
}

static cgp_status check_costs(const cgp_schedule *s, const cgp_schedule_costs *costs) {
    CGP_TRY(cgp__cost_check("cost of forward", costs->forward, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_input", costs->backward_input, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_weight", costs->backward_weight, s->stages));
    CGP_TRY(cgp__cost_check("cost of recompute", costs->recompute, s->stages));
    CGP_TRY(cgp__cost_check("latency", costs->latency, s->n_edges));
    CGP_TRY(cgp__cost_check("cost of transfer", costs->transfer, s->n_edges));
    for (int e = 0; costs->capacity && e < s->n_edges; e++) {
        if (costs->capacity[e] < 1)
            return cgp_fail(CGP_EINVAL, "capacity: expected 1 or more, got %d (edge %d)",
                            costs->capacity[e], e);
    }
    return CGP_OK;
}

/* [CGP__COMPUTE_KINDS][stages] */
static void fill_durations(double *duration, const cgp_schedule_costs *costs, int n) {
    for (int j = 0; j < n; j++) {
        const double forward = costs->forward ? costs->forward[j] : 1.0;
        const double input = costs->backward_input ? costs->backward_input[j] : 1.0;
        const double weight = costs->backward_weight ? costs->backward_weight[j] : 1.0;
        duration[(size_t)CGP_ACTION_F * n + j] = forward;
        duration[(size_t)CGP_ACTION_B * n + j] = input + weight;
        duration[(size_t)CGP_ACTION_I * n + j] = input;
        duration[(size_t)CGP_ACTION_W * n + j] = weight;
        duration[(size_t)CGP_ACTION_R * n + j] =
            costs->recompute ? costs->recompute[j] : forward;
    }
}

/* After a run with unbounded buffers. */
static void count_buffers(const cgp__execution *x, int *free_capacity) {
    for (int e = 0; e < x->schedule->n_edges; e++) {
        const double *sent = x->sent + (size_t)e * x->schedule->chunks;
        const double *received = x->received + (size_t)e * x->schedule->chunks;
        int most = 1, q = 0;
        for (int k = 0; k < x->sends[e]; k++) {
            while (q < x->receives[e] && received[q] <= sent[k])
                q++;
            most = k + 1 - q > most ? k + 1 - q : most;
        }
        free_capacity[e] = most;
    }
}

static double compute_time(const cgp_schedule *s, const double *duration, int device) {
    double sum = 0.0;
    for (int i = 0; i < s->counts[device]; i++) {
        const cgp_action *a = &s->lists[device][i];
        if (!cgp__is_transfer(a->kind)) sum += duration[(size_t)a->kind * s->stages + a->stage];
    }
    return sum;
}

/* Everything but free capacities and the critical path. */
static void summarise(const cgp_schedule *s, const double *duration, cgp_schedule_timeline *t) {
    for (int device = 0; device < s->devices; device++)
        t->busy[device] = compute_time(s, duration, device);
    cgp__timeline_summarise(t, s);
}

static void set_costs(cgp__execution *x, const double *duration,
                      const cgp_schedule_costs *costs, const cgp_schedule_timeline *t) {
    x->duration = duration;
    x->latency = costs->latency;
    x->transfer = costs->transfer;
    x->blocking = costs->transfers_block;
    x->start = t->start;
    x->end = t->end;
}

static cgp_status simulate(cgp__execution *x, const double *duration,
                           const cgp_schedule_costs *costs, cgp_schedule_timeline *t) {
    set_costs(x, duration, costs, t);
    if (!cgp__execution_run(x)) return cgp__execution_deadlock(x);
    count_buffers(x, t->free_capacity);
    CGP_TRY(cgp__execution_least_capacity(x, t->free_capacity));
    if (costs->capacity) {
        CGP_TRY(cgp__list_order_check_capacity(&x->order, x->schedule, costs->capacity));
        set_costs(x, duration, costs, t);
        x->capacity = costs->capacity;
        cgp__execution_rewind(x);
        if (!cgp__execution_run(x)) return cgp__execution_deadlock(x);
    }
    summarise(x->schedule, duration, t);
    if (!isfinite(t->makespan))
        return cgp_fail(CGP_EINVAL, "costs: expected a finite sum, got %g", t->makespan);
    return cgp__find_critical_path(x->schedule, duration, costs, t);
}

static cgp_status simulate_ticks(cgp__execution *x, const double *duration,
                                 const cgp_schedule_costs *costs, cgp_schedule_timeline *t) {
    set_costs(x, duration, costs, t);
    if (!cgp__execution_run(x)) return cgp__execution_deadlock(x);
    summarise(x->schedule, duration, t);
    return CGP_OK;
}

typedef cgp_status simulator(cgp__execution *x, const double *duration,
                             const cgp_schedule_costs *costs, cgp_schedule_timeline *t);

/* Make a timeline by `run`. */
static cgp_status make_timeline(const cgp_schedule *schedule, const double *duration,
                                const cgp_schedule_costs *costs, simulator *run,
                                cgp_schedule_timeline *out) {
    cgp_schedule_timeline t = {0};
    cgp__execution x = {0};
    cgp_status status = cgp__timeline_create(&t, schedule, false);
    if (status == CGP_OK) status = cgp__execution_create(&x, schedule);
    if (status == CGP_OK) status = run(&x, duration, costs, &t);
    if (status == CGP_OK)
        *out = t;
    else
        cgp_schedule_timeline_release(&t);
    cgp__execution_release(&x);
    return status;
}

static const cgp_schedule_costs free_messages = {0};

static cgp_status new_durations(const cgp_schedule *schedule, double **out) {
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)schedule->stages;
    *out = cgp__calloc(cells, sizeof **out);
    return *out ? CGP_OK : cgp__no_memory("schedule: simulate", cells * sizeof **out);
}

cgp_status cgp_schedule_simulate(const cgp_schedule *schedule, const cgp_schedule_costs *costs,
                                 cgp_schedule_timeline *out) {
    double *duration = NULL;
    costs = costs ? costs : &free_messages;
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(check_costs(schedule, costs));
    CGP_TRY(new_durations(schedule, &duration));
    fill_durations(duration, costs, schedule->stages);
    const cgp_status status = make_timeline(schedule, duration, costs, simulate, out);
    free(duration);
    return status;
}

cgp_status cgp__simulate_durations(const cgp_schedule *schedule, const double *duration,
                                   cgp_schedule_timeline *out) {
    return make_timeline(schedule, duration, &free_messages, simulate, out);
}

cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out) {
    double *duration = NULL;
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(new_durations(schedule, &duration));
    for (size_t i = 0; i < CGP__COMPUTE_KINDS * (size_t)schedule->stages; i++)
        duration[i] = 1.0;
    const cgp_status status =
        make_timeline(schedule, duration, &free_messages, simulate_ticks, out);
    free(duration);
    return status;
}
