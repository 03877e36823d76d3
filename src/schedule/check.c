/* SPDX-License-Identifier: Apache-2.0 */
/* check.c -- proves that a lowered schedule keeps the rules and does not deadlock.
 *
 * It checks the rules first. All actions of a stage are on one device, so a < b below compares two
 * positions in that device's list.
 *
 *     forward       RECV_F ... < F < SEND_F ...             all once, on each stage,
 *     backward      F < [R] < B,  or  F < [R] < I < W       for each micro-batch
 *                   F < [R] < I for all, if the stage's parameters are frozen
 *                   no backward at all, if the stage has no gradient edge
 *                   RECV_B ... < B or I < SEND_B ...
 *
 * Then the simulator runs the schedule without times and with unbounded buffers. If an action stays
 * blocked in this run, the schedule deadlocks. At the end, the simulator finds the least capacities
 * of the edges. It starts with one buffer per edge, and adds buffers where a SEND blocks in a
 * deadlock. */
#include "schedule/check.h"

#include "base/json.h"
#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct position_index {
    const cgp_schedule *schedule;
    bool backward; /* true: the schedule has backward actions */
    /* [rows][chunks] positions of actions in the list of their device; -1: the action is absent.
     * There is one row per compute kind and stage, then one row for RECV and one for SEND of each
     * edge. */
    int *at;
    int *marks; /* see cgp__rules_check(); may be NULL */
    /* [stages] the kind of action that ends a micro-batch; see cgp__stage_ends() */
    cgp_action_kind *ends;
} position_index;

/* Return the address of the index entry for an action. `place` is the stage of a compute action, or
 * the edge of a transfer. */
static int *slot(const position_index *x, cgp_action_kind kind, int place, int microbatch) {
    const size_t stages = (size_t)x->schedule->stages;
    const size_t row = cgp__is_transfer(kind)
                           ? CGP__COMPUTE_KINDS * stages + 2 * (size_t)place + cgp__is_send(kind)
                           : (size_t)kind * stages + (size_t)place;
    return &x->at[row * (size_t)x->schedule->chunks + (size_t)microbatch];
}

/* Return an error with a message such as "schedule: device 1, position 4, 1B0: <rule>". */
static CGP_PRINTF(4, 5) cgp_status
    broken(const position_index *x, int stage, int position, const char *rule, ...) {
    char why[256];
    const int device = x->schedule->device_of[stage];
    va_list args;
    va_start(args, rule);
    cgp__vprint(why, sizeof why, rule, args);
    va_end(args);
    if (x->marks) x->marks[device] = position;
    return cgp__wrong_action(&x->schedule->lists[device][position], device, position, "%s", why);
}

/* Return an error with a message such as "schedule: device 1, 1B0: expected <expected>, got
 * none". */
static cgp_status missing(const position_index *x, cgp_action_kind kind, int stage, int microbatch,
                          const char *expected) {
    char text[CGP__ACTION_TEXT];
    const int device = x->schedule->device_of[stage];
    const cgp_action a = {.kind = kind, .stage = stage, .microbatch = microbatch, .edge = -1};
    if (x->marks) x->marks[device] = x->schedule->counts[device];
    return cgp_fail(CGP_EINVAL, "schedule: device %d, %s: expected %s, got none", device,
                    cgp_action_text(&a, text, sizeof text), expected);
}

/* Check that the kind and the stage of a transfer fit the transfer's edge. */
static cgp_status check_edge(const position_index *x, int device, int position) {
    const cgp_schedule *s = x->schedule;
    const cgp_action *a = &s->lists[device][position];
    const cgp_edge edge = s->edges[a->edge];
    const bool is_send = cgp__is_send(a->kind);
    const bool gradient = cgp__is_gradient(edge);
    if (a->kind != cgp__transfer_kind(gradient, is_send))
        return broken(x, a->stage, position, "expected %s on edge %d, which is %d -> %d",
                      gradient ? "an activation" : "a gradient", a->edge, edge.from, edge.to);
    if (a->stage != (is_send ? edge.from : edge.to))
        return broken(x, a->stage, position,
                      "expected stage %d as edge %d is %d -> %d, got stage %d",
                      is_send ? edge.from : edge.to, a->edge, edge.from, edge.to, a->stage);
    return CGP_OK;
}

/* Fill the index with the positions of the transfers or, if `transfers` is false, of the compute
 * actions. Call this for the compute actions first: if a compute action is repeated, its transfers
 * are repeated too, and the error message should name the compute action. */
static cgp_status fill_index(position_index *x, bool transfers) {
    cgp__cursor at = {0};
    while (cgp__next(x->schedule, &at)) {
        const cgp_action *a = at.action;
        if (cgp__is_transfer(a->kind) != transfers) continue;
        if (transfers) CGP_TRY(check_edge(x, at.device, at.position));
        int *position = slot(x, a->kind, transfers ? a->edge : a->stage, a->microbatch);
        if (*position >= 0)
            return broken(x, a->stage, at.position,
                          "expected once, got it again (first at position %d)", *position);
        *position = at.position;
    }
    return CGP_OK;
}

static void release_index(position_index *x) {
    free(x->ends);
    free(x->at);
}

static cgp_status create_index(position_index *x, const cgp_schedule *s, int *marks) {
    const size_t rows = CGP__COMPUTE_KINDS * (size_t)s->stages + 2 * (size_t)s->n_edges;
    const size_t cells = rows * (size_t)s->chunks;
    *x = (position_index){.schedule = s,
                          .backward = cgp__has_backward(s),
                          .at = cgp__calloc(cells, sizeof *x->at),
                          .marks = marks};
    if (!x->at) return cgp__no_memory("schedule: check", cells * sizeof *x->at);
    const cgp_status status = cgp__stage_ends(s, &x->ends);
    if (status != CGP_OK) release_index(x);
    CGP_TRY(status);
    for (size_t i = 0; i < cells; i++)
        x->at[i] = -1;
    return CGP_OK;
}

/* Check that the action at `position` comes after the action at `first`. */
static cgp_status check_after(const position_index *x, int stage, int position, int first) {
    const cgp_schedule *s = x->schedule;
    char text[CGP__ACTION_TEXT];
    const cgp_action *a = &s->lists[s->device_of[stage]][first];
    if (position > first) return CGP_OK;
    return broken(x, stage, position, "expected after %s, got it before (position %d)",
                  cgp_action_text(a, text, sizeof text), first);
}

/* Check that a micro-batch has one backward (either a B, or an I and a W), and that the actions of
 * the micro-batch are in order. */
static cgp_status check_backward(const position_index *x, int j, int i) {
    const int f = *slot(x, CGP_ACTION_F, j, i), r = *slot(x, CGP_ACTION_R, j, i);
    const int both = *slot(x, CGP_ACTION_B, j, i);
    const int input = *slot(x, CGP_ACTION_I, j, i);
    const int weight = *slot(x, CGP_ACTION_W, j, i);
    if (both < 0 && input < 0 && weight < 0)
        return missing(x, CGP_ACTION_B, j, i, "once (or I and W)");
    if (both >= 0 && (input >= 0 || weight >= 0))
        return broken(x, j, input >= 0 ? input : weight,
                      "expected B or else I and W, got B, too (position %d)", both);
    if (both < 0 && input < 0) return missing(x, CGP_ACTION_I, j, i, "once before W");
    if (both < 0 && weight < 0 && x->ends[j] == CGP_ACTION_W)
        return missing(x, CGP_ACTION_W, j, i, "once after I");
    const int first = both >= 0 ? both : input;
    CGP_TRY(check_after(x, j, first, f));
    if (weight >= 0) CGP_TRY(check_after(x, j, weight, input));
    if (r >= 0) {
        CGP_TRY(check_after(x, j, r, f));
        CGP_TRY(check_after(x, j, first, r));
    }
    return CGP_OK;
}

/* Set needed[j] to true for each stage j that sends or receives gradients. These stages must have a
 * backward. */
static void find_gradients(const position_index *x, bool *needed) {
    const cgp_schedule *s = x->schedule;
    for (int e = 0; x->backward && e < s->n_edges; e++) {
        if (!cgp__is_gradient(s->edges[e])) continue;
        needed[s->edges[e].from] = needed[s->edges[e].to] = true;
    }
}

/* Check the actions of a stage. `backward` is true if the stage has, or must have, backward
 * actions. */
static cgp_status check_stage(const position_index *x, int j, bool backward) {
    for (int i = 0; i < x->schedule->chunks; i++) {
        const int r = *slot(x, CGP_ACTION_R, j, i);
        if (*slot(x, CGP_ACTION_F, j, i) < 0) return missing(x, CGP_ACTION_F, j, i, "once");
        if (backward)
            CGP_TRY(check_backward(x, j, i));
        else if (r >= 0)
            return broken(x, j, r, "expected F only %s without backward, got R",
                          x->backward ? "on a stage" : "in a schedule");
    }
    return CGP_OK;
}

static cgp_status check_compute(const position_index *x) {
    bool *needed = NULL;
    cgp_status status = CGP__NEW(needed, x->schedule->stages, "schedule: check");
    if (status == CGP_OK) find_gradients(x, needed);
    for (int j = 0; status == CGP_OK && j < x->schedule->stages; j++)
        status = check_stage(x, j, needed[j] || x->ends[j] != CGP_ACTION_F);
    free(needed);
    return status;
}

/* Return the position of the compute action that produces an edge's message, or of the compute
 * action that consumes it. */
static int endpoint(const position_index *x, cgp_edge edge, int stage, int microbatch) {
    const int both = *slot(x, CGP_ACTION_B, stage, microbatch);
    if (!cgp__is_gradient(edge)) return *slot(x, CGP_ACTION_F, stage, microbatch);
    return both >= 0 ? both : *slot(x, CGP_ACTION_I, stage, microbatch);
}

static cgp_status check_message(const position_index *x, int e, int i) {
    const cgp_schedule *s = x->schedule;
    const cgp_edge edge = s->edges[e];
    const bool gradient = cgp__is_gradient(edge);
    const int sent = *slot(x, CGP_ACTION_SEND_F, e, i),
              received = *slot(x, CGP_ACTION_RECV_F, e, i);
    if (gradient && !x->backward) {
        if (sent >= 0 || received >= 0)
            return broken(x, sent >= 0 ? edge.from : edge.to, sent >= 0 ? sent : received,
                          "expected no gradient in a schedule without backward");
        return CGP_OK;
    }
    if (sent < 0 || received < 0) {
        char once[64];
        snprintf(once, sizeof once, "once for edge %d, %d -> %d", e, edge.from, edge.to);
        return missing(x, cgp__transfer_kind(gradient, sent < 0), sent < 0 ? edge.from : edge.to, i,
                       once);
    }
    CGP_TRY(check_after(x, edge.from, sent, endpoint(x, edge, edge.from, i)));
    return check_after(x, edge.to, endpoint(x, edge, edge.to, i), received);
}

cgp_status cgp__rules_check(const cgp_schedule *schedule, int *marks) {
    if (!schedule->lowered)
        return cgp_fail(CGP_ESTATE,
                        "schedule: expected a lowered schedule, got one without transfers "
                        "(call cgp_schedule_lower first)");
    position_index x;
    CGP_TRY(create_index(&x, schedule, marks));
    cgp_status status = fill_index(&x, false);
    if (status == CGP_OK) status = fill_index(&x, true);
    if (status == CGP_OK) status = check_compute(&x);
    for (int e = 0; status == CGP_OK && e < schedule->n_edges; e++) {
        for (int i = 0; status == CGP_OK && i < schedule->chunks; i++)
            status = check_message(&x, e, i);
    }
    release_index(&x);
    return status;
}

cgp_status cgp__cost_check(const char *name, const double *costs, int count) {
    for (int i = 0; costs && i < count; i++) {
        if (!isfinite(costs[i]) || costs[i] < 0.0)
            return cgp_fail(CGP_EINVAL, "%s: expected 0 or more and finite, got %g (entry %d)",
                            name, costs[i], i);
    }
    return CGP_OK;
}

/* Find the peak numbers of micro-batches in flight. A micro-batch is in flight from its F to the
 * end of its backward or, without backward, only during its F. The caller passes zeroed scratch
 * memory, in_flight[stages]. */
static void find_peaks(const cgp_schedule *s, const cgp_action_kind *ends, int *in_flight,
                       cgp_schedule_report *report) {
    int together = 0;
    cgp__cursor at = {0};
    while (cgp__next(s, &at)) {
        const cgp_action *a = at.action;
        int *peak = &report->peak_in_flight[a->stage], *slots = &report->peak_slots[at.device];
        if (at.position == 0) together = 0;
        if (a->kind == CGP_ACTION_F) {
            *peak = (int)cgp__max(*peak, ++in_flight[a->stage]);
            *slots = (int)cgp__max(*slots, ++together);
        }
        if (cgp__ends(a, ends)) {
            in_flight[a->stage]--;
            together--;
        }
    }
}

static cgp_status fill_report(cgp__simulator *x, cgp_schedule_report *out) {
    const cgp_schedule *s = x->schedule;
    int *in_flight = cgp__calloc((size_t)s->stages, sizeof *in_flight);
    cgp_action_kind *ends = NULL;
    cgp_schedule_report report = {
        .devices = s->devices,
        .stages = s->stages,
        .edges = s->n_edges,
        .peak_in_flight = cgp__calloc((size_t)s->stages, sizeof(int)),
        .peak_slots = cgp__calloc((size_t)s->devices, sizeof(int)),
        .min_capacity = cgp__calloc((size_t)s->n_edges, sizeof(int)),
    };
    cgp_status status = cgp__stage_ends(s, &ends);
    if (status == CGP_OK && in_flight && report.peak_in_flight && report.peak_slots &&
        report.min_capacity) {
        find_peaks(s, ends, in_flight, &report);
        status = cgp__simulator_min_capacity(x, report.min_capacity);
    } else if (status == CGP_OK) {
        status = cgp__no_memory("schedule: report", (size_t)s->stages * sizeof(int));
    }
    free(ends);
    free(in_flight);
    if (status == CGP_OK)
        *out = report;
    else
        cgp_schedule_report_release(&report);
    return status;
}

cgp_status cgp__schedule_check(const cgp_schedule *schedule, int *marks,
                               cgp_schedule_report *report) {
    cgp__simulator x;
    CGP_TRY(cgp__rules_check(schedule, marks));
    CGP_TRY(cgp__simulator_create(&x, schedule));
    cgp_status status = cgp__simulator_run(&x, marks);
    if (status == CGP_OK && report) status = fill_report(&x, report);
    cgp__simulator_release(&x);
    return status;
}

cgp_status cgp_schedule_check(const cgp_schedule *schedule, cgp_schedule_report *report) {
    CGP__NEED(schedule);
    return cgp__schedule_check(schedule, NULL, report);
}

void cgp_schedule_report_release(cgp_schedule_report *report) {
    if (!report) return;
    free(report->min_capacity);
    free(report->peak_slots);
    free(report->peak_in_flight);
    *report = (cgp_schedule_report){0};
}
