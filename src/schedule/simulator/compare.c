/* SPDX-License-Identifier: Apache-2.0 */
/* compare.c -- compares a measured step with its plan, and explains where the time of the step
 * went.
 *
 *     measured    |F0|c|...wait...|wake|c|B0    |..|       c: a transfer copies
 *                 compute + copy + wake-up + idle = makespan
 *
 * Three simulations of the same action lists explain the idle time of a device. Each is closer to
 * the measured step than the one before. Messages take no time in the simulations:
 *
 *     equal      each stage has the mean costs of all     its idle time: the bubble
 *     planned    each stage has its own median costs      more idle time: imbalance
 *     varied     each action has its measured time        more idle time: variation
 *     measured                                            more idle time: other
 *
 * A device may idle less in a later simulation than in an earlier one; for example, the slowest
 * stage idles less than it would among equal stages. Then the previous part of the idle time is
 * reduced by the difference. So no part is negative, and the parts add up to the idle time. */
#include <cgpipe/compare.h>

#include "schedule/simulator/simulator.h"

#include "schedule/simulator/timeline.h"

#include <math.h>
#include <stdlib.h>

const char *cgp_schedule_part_name(cgp_schedule_part part) {
    static const char *const names[CGP_PARTS] = {"compute", "bubble",  "imbalance", "variation",
                                                 "copy",    "wake-up", "other"};
    return part >= 0 && part < CGP_PARTS ? names[part] : "unknown part";
}

/* --- medians --- */

typedef struct sample {
    int cell; /* combined index of the action's kind and stage: kind x stages + stage */
    double seconds;
} sample;

static int by_cell(const void *a, const void *b) {
    const sample *x = a, *y = b;
    if (x->cell != y->cell) return x->cell < y->cell ? -1 : 1;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

/* Collect all compute actions into `samples`, which must be large enough. Return the number of
 * these actions. */
static int collect(const cgp_schedule *s, const cgp_schedule_timeline *t, sample *samples) {
    int n = 0;
    cgp__cursor at = {0};
    while (cgp__next(s, &at)) {
        const cgp_action *a = at.action;
        if (cgp__is_transfer(a->kind)) continue;
        samples[n++] = (sample){(int)a->kind * s->stages + a->stage,
                                t->end[at.device][at.position] - t->start[at.device][at.position]};
    }
    return n;
}

/* Write two tables [CGP__COMPUTE_KINDS][stages]. The first has the median for each kind and stage.
 * The second has the mean of these medians over all actions of the kind. Summed over all actions,
 * both tables give the same time. */
static void find_costs(const cgp_schedule *s, sample *samples, int n, double *median,
                       double *mean) {
    double sum[CGP__COMPUTE_KINDS] = {0};
    int count[CGP__COMPUTE_KINDS] = {0};
    qsort(samples, (size_t)n, sizeof *samples, by_cell);
    for (int first = 0, last; first < n; first = last) {
        const int cell = samples[first].cell, kind = cell / s->stages;
        for (last = first; last < n && samples[last].cell == cell;)
            last++;
        median[cell] =
            0.5 * (samples[(first + last - 1) / 2].seconds + samples[(first + last) / 2].seconds);
        sum[kind] += median[cell] * (last - first);
        count[kind] += last - first;
    }
    for (int cell = 0; cell < CGP__COMPUTE_KINDS * s->stages; cell++) {
        const int kind = cell / s->stages;
        mean[cell] = count[kind] ? sum[kind] / count[kind] : 0.0;
    }
}

/* --- parts --- */

/* Simulate the lists with durations by kind and stage, or with the measured durations. */
static cgp_status find_makespan(const cgp_schedule *s, const cgp__durations *duration,
                                const cgp_schedule_timeline *measured, double *makespan) {
    cgp__simulator x;
    CGP_TRY(cgp__simulator_create(&x, s));
    x.set = (cgp__simulation){.duration = duration, .measured = measured};
    const cgp_status status = cgp__simulator_run(&x, NULL);
    for (int d = 0; status == CGP_OK && d < s->devices; d++)
        *makespan = fmax(*makespan, x.devices[d].clock);
    cgp__simulator_release(&x);
    return status;
}

/* Add up the time in which a device is not idle. */
static void add_measured(const cgp_schedule *s, const cgp_schedule_timeline *t, int d,
                         double *parts) {
    for (int i = 0; i < s->counts[d]; i++) {
        const double start = t->start[d][i], end = t->end[d][i];
        const double released = t->released[d][i], ready = t->ready[d][i];
        if (!cgp__is_transfer(s->lists[d][i].kind)) {
            parts[CGP_PART_COMPUTE] += end - start;
            continue;
        }
        parts[CGP_PART_COPY] += end - ready;
        if (released > start) parts[CGP_PART_WAKEUP] += ready - released;
    }
}

static double between(double value, double low, double high) {
    return fmin(fmax(value, low), high);
}

/* Split the idle time of a device into parts, by the idle times of the device in the
 * simulations. */
static void add_idle(const double simulated[3], double makespan, double *parts) {
    const double idle = fmax(0.0, makespan - parts[CGP_PART_COMPUTE] - parts[CGP_PART_COPY] -
                                      parts[CGP_PART_WAKEUP]);
    const double varied = between(simulated[2], 0.0, idle);
    const double planned = between(simulated[1], 0.0, varied);
    const double equal = between(simulated[0], 0.0, planned);
    parts[CGP_PART_BUBBLE] = equal;
    parts[CGP_PART_IMBALANCE] = planned - equal;
    parts[CGP_PART_VARIATION] = varied - planned;
    parts[CGP_PART_OTHER] = idle - varied;
}

/* Compare a measured step with its plan. `costs` [2][CGP__COMPUTE_KINDS][stages] has the medians
 * and the means of find_costs(). */
static cgp_status compare(const cgp_schedule *s, const cgp_schedule_timeline *measured,
                          const double *costs, cgp_schedule_comparison *c) {
    const cgp__durations median = {.action = costs},
                         mean = {.action = costs + CGP__COMPUTE_KINDS * (size_t)s->stages};
    CGP_TRY(find_makespan(s, &mean, NULL, &c->equal_makespan));
    CGP_TRY(find_makespan(s, NULL, measured, &c->varied_makespan));
    CGP_TRY(cgp__simulate_durations(s, &median, &c->planned));
    for (int d = 0; d < s->devices; d++) {
        double *parts = c->parts[d];
        add_measured(s, measured, d, parts);
        const double simulated[3] = {c->equal_makespan - cgp__compute_time(s, &mean, d),
                                     c->planned.makespan - cgp__compute_time(s, &median, d),
                                     c->varied_makespan - parts[CGP_PART_COMPUTE]};
        add_idle(simulated, measured->makespan, parts);
    }
    return CGP_OK;
}

cgp_status cgp_schedule_compare(const cgp_schedule *schedule, const cgp_schedule_timeline *measured,
                                cgp_schedule_comparison *out) {
    CGP__NEED(schedule);
    CGP__NEED(measured);
    CGP__NEED(out);
    const cgp_schedule *s = schedule;
    const size_t cells = CGP__COMPUTE_KINDS * (size_t)s->stages;
    size_t actions = 0;
    if (!measured->released)
        return cgp_fail(CGP_EINVAL, "compare: expected a measured step, got a simulated one");
    CGP_TRY(cgp__rules_check(s, NULL));
    for (int d = 0; d < s->devices; d++)
        actions += (size_t)s->counts[d];
    double *costs = cgp__calloc(2 * cells, sizeof *costs);
    sample *samples = cgp__calloc(actions, sizeof *samples);
    cgp_schedule_comparison c = {.devices = s->devices,
                                 .parts = cgp__calloc((size_t)s->devices, sizeof *c.parts)};
    cgp_status status = CGP_OK;
    if (costs && samples && c.parts) {
        find_costs(s, samples, collect(s, measured, samples), costs, costs + cells);
        status = compare(s, measured, costs, &c);
    } else {
        status = cgp__no_memory("schedule: compare", actions * sizeof *samples);
    }
    free(samples);
    free(costs);
    if (status == CGP_OK)
        *out = c;
    else
        cgp_schedule_comparison_release(&c);
    return status;
}

void cgp_schedule_comparison_release(cgp_schedule_comparison *comparison) {
    if (!comparison) return;
    free(comparison->parts);
    cgp_schedule_timeline_release(&comparison->planned);
    *comparison = (cgp_schedule_comparison){0};
}
