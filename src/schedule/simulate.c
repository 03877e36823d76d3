/* simulate.c -- what a step looks like in time, for given costs.
 *
 *     device 0   |F0|F1|..................|B0  |B1  |
 *     device 1      |F0|F1|.........|B0  |B1  |            span: first start to last end
 *     device 2         |F0|F1|B0  |B1  |                   makespan: 0 to the last end of all
 *
 * Idle time can be counted in two ways. By makespan, if all devices wait for each other at the
 * end of a step, as a gradient norm makes them. By span, if the next step may begin where a
 * device is done; that is the bubble which zero-bubble papers quote.
 *
 * The free capacity of an edge comes from the times with unbounded buffers. With c buffers,
 * SEND k waits for RECV k-c; if q_k RECVs happened until then (the same instant included: freed
 * before taken), it does not wait if k-c < q_k:
 *
 *     c >= k + 1 - q_k    for every k
 *
 * The one exception is a cycle of actions that all fall on one instant, which no order of
 * clocks can see; the engine does, and raises c.
 *
 * Source: bubble by span: Qi et al. 2023, arXiv:2401.10241. */
#include "schedule/schedule.h"

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

static size_t count_actions(const cgp_schedule *s) {
    size_t total = 0;
    for (int device = 0; device < s->devices; device++)
        total += (size_t)s->counts[device];
    return total;
}

/* [devices][actions of the device], in one block that the first row owns. */
static double **new_rows(const cgp_schedule *s) {
    double **rows = cgp__calloc((size_t)s->devices, sizeof *rows);
    double *block = cgp__calloc(count_actions(s), sizeof *block);
    if (!rows || !block) {
        free(block);
        free(rows);
        return NULL;
    }
    for (int device = 0; device < s->devices; device++) {
        rows[device] = block;
        block += s->counts[device];
    }
    return rows;
}

static void free_rows(double **rows) {
    if (rows) free(rows[0]);
    free(rows);
}

static bool **new_flags(const cgp_schedule *s) {
    bool **rows = cgp__calloc((size_t)s->devices, sizeof *rows);
    bool *block = cgp__calloc(count_actions(s), sizeof *block);
    if (!rows || !block) {
        free(block);
        free(rows);
        return NULL;
    }
    for (int device = 0; device < s->devices; device++) {
        rows[device] = block;
        block += s->counts[device];
    }
    return rows;
}

static cgp_status create_timeline(cgp_schedule_timeline *t, const cgp_schedule *s) {
    *t = (cgp_schedule_timeline){.devices = s->devices, .edges = s->n_edges};
    t->busy = cgp__calloc((size_t)s->devices, sizeof *t->busy);
    t->free_capacity = cgp__calloc((size_t)s->n_edges, sizeof *t->free_capacity);
    t->start = new_rows(s);
    t->end = new_rows(s);
    t->critical = new_flags(s);
    if (t->busy && t->free_capacity && t->start && t->end && t->critical) return CGP_OK;
    cgp_schedule_timeline_release(t);
    return cgp__no_memory("schedule: timeline", (size_t)s->devices * sizeof(double));
}

void cgp_schedule_timeline_release(cgp_schedule_timeline *timeline) {
    if (!timeline) return;
    if (timeline->critical) free(timeline->critical[0]);
    free(timeline->critical);
    free_rows(timeline->end);
    free_rows(timeline->start);
    free(timeline->free_capacity);
    free(timeline->busy);
    *timeline = (cgp_schedule_timeline){0};
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

static double span_of(const cgp_schedule *s, const cgp_schedule_timeline *t, int device) {
    const int count = s->counts[device];
    return count > 0 ? t->end[device][count - 1] - t->start[device][0] : 0.0;
}

/* The numbers that follow from start and end. Nothing takes time: everything is 0. */
static void summarise(const cgp_schedule *s, const double *duration, cgp_schedule_timeline *t) {
    double total = 0.0, least = INFINITY;
    for (int device = 0; device < s->devices; device++) {
        const int count = s->counts[device];
        t->span = fmax(t->span, span_of(s, t, device));
        if (count > 0) t->makespan = fmax(t->makespan, t->end[device][count - 1]);
    }
    for (int device = 0; device < s->devices; device++) {
        const double compute = compute_time(s, duration, device);
        total += compute;
        t->busy[device] = t->makespan > 0.0 ? compute / t->makespan : 0.0;
        /* Spans that differ by rounding only are equal: the device must not be drawn by lot. */
        if (span_of(s, t, device) >= t->span * (1.0 - 1e-12)) least = fmin(least, compute);
    }
    /* Not below 0, where two sums of the same terms were rounded differently. */
    if (t->makespan > 0.0)
        t->bubble_makespan = fmax(0.0, 1.0 - total / (s->devices * t->makespan));
    if (t->span > 0.0) t->bubble_span = fmax(0.0, 1.0 - least / t->span);
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

/* Make a timeline by `run`. `costs` NULL: ticks. */
static cgp_status make_timeline(const cgp_schedule *schedule, const cgp_schedule_costs *costs,
                                simulator *run, cgp_schedule_timeline *out) {
    static const cgp_schedule_costs none = {0};
    cgp_schedule_timeline t = {0};
    cgp__execution x = {0};
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)schedule->stages;
    double *duration = cgp__calloc(cells, sizeof *duration);
    cgp_status status = CGP_OK;
    if (!duration) status = cgp__no_memory("schedule: simulate", cells * sizeof *duration);
    if (status == CGP_OK) status = create_timeline(&t, schedule);
    if (status == CGP_OK) status = cgp__execution_create(&x, schedule);
    if (status == CGP_OK) {
        for (size_t i = 0; i < cells; i++)
            duration[i] = 1.0;
        if (costs) fill_durations(duration, costs, schedule->stages);
        status = run(&x, duration, costs ? costs : &none, &t);
    }
    if (status == CGP_OK)
        *out = t;
    else
        cgp_schedule_timeline_release(&t);
    cgp__execution_release(&x);
    free(duration);
    return status;
}

cgp_status cgp_schedule_simulate(const cgp_schedule *schedule, const cgp_schedule_costs *costs,
                                 cgp_schedule_timeline *out) {
    static const cgp_schedule_costs defaults = {0};
    costs = costs ? costs : &defaults;
    CGP_TRY(cgp__rules_check(schedule, NULL));
    CGP_TRY(check_costs(schedule, costs));
    return make_timeline(schedule, costs, simulate, out);
}

cgp_status cgp__simulate_ticks(const cgp_schedule *schedule, cgp_schedule_timeline *out) {
    CGP_TRY(cgp__rules_check(schedule, NULL));
    return make_timeline(schedule, NULL, simulate_ticks, out);
}
