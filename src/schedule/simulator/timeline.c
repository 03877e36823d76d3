/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c -- computes the makespan, span and bubbles of a step.
 *
 *     device 0   |F0|F1|..................|B0  |B1  |
 *     device 1      |F0|F1|.........|B0  |B1  |            span: first start to last end
 *     device 2         |F0|F1|B0  |B1  |                   makespan: 0 to the last end of all
 *
 * The bubble by makespan is the right measure if all devices wait for each other at the end of a
 * step, for example for a gradient norm. The bubble by span is the right measure if a device may
 * begin the next step when its last action ends. Zero-bubble papers quote the bubble by span.
 *
 * Source for the bubble by span: Qi et al. 2023, arXiv:2401.10241. */
#include "schedule/simulator/timeline.h"

#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdlib.h>

/* Allocate [devices][actions of the device] elements of `bytes` bytes each. One block of memory has
 * the row pointers, followed by all rows. */
static void *new_rows(const cgp_schedule *s, size_t bytes) {
    const size_t head = (size_t)cgp__align_up((int64_t)s->devices * (int64_t)sizeof(char *));
    size_t total = 0;
    for (int device = 0; device < s->devices; device++)
        total += (size_t)s->counts[device];
    char **rows = cgp__calloc(head + total * bytes, 1);
    char *row = rows ? (char *)rows + head : NULL;
    for (int device = 0; rows && device < s->devices; device++) {
        rows[device] = row;
        row += (size_t)s->counts[device] * bytes;
    }
    return rows;
}

cgp_status cgp__timeline_create(cgp_schedule_timeline *t, const cgp_schedule *s, bool measured) {
    *t = (cgp_schedule_timeline){.devices = s->devices, .edges = s->n_edges};
    t->busy = cgp__calloc((size_t)s->devices, sizeof *t->busy);
    t->free_capacity = cgp__calloc((size_t)s->n_edges, sizeof *t->free_capacity);
    t->start = new_rows(s, sizeof(double));
    t->end = new_rows(s, sizeof(double));
    t->critical = new_rows(s, sizeof(bool));
    if (measured) t->released = new_rows(s, sizeof(double));
    if (measured) t->ready = new_rows(s, sizeof(double));
    if (t->busy && t->free_capacity && t->start && t->end && t->critical &&
        (!measured || (t->released && t->ready)))
        return CGP_OK;
    cgp_schedule_timeline_release(t);
    return cgp__no_memory("schedule: timeline", (size_t)s->devices * sizeof(double));
}

void cgp_schedule_timeline_release(cgp_schedule_timeline *timeline) {
    if (!timeline) return;
    free(timeline->exchanged);
    free(timeline->ready);
    free(timeline->released);
    free(timeline->critical);
    free(timeline->end);
    free(timeline->start);
    free(timeline->free_capacity);
    free(timeline->busy);
    *timeline = (cgp_schedule_timeline){0};
}

/* --- figures --- */

/* Return the time from a device's first start to its last end. The action that starts first may not
 * be the first of the list, because the first may be a RECV whose message is taken later. */
static double span_of(const cgp_schedule *s, const cgp_schedule_timeline *t, int device) {
    const int count = s->counts[device];
    double first = INFINITY;
    for (int i = 0; i < count; i++)
        first = fmin(first, t->start[device][i]);
    return count > 0 ? t->end[device][count - 1] - first : 0.0;
}

void cgp__timeline_summarise(cgp_schedule_timeline *t, const cgp_schedule *s) {
    double total = 0.0, min = INFINITY;
    for (int device = 0; device < s->devices; device++) {
        const int count = s->counts[device];
        t->span = fmax(t->span, span_of(s, t, device));
        if (count > 0) t->makespan = fmax(t->makespan, t->end[device][count - 1]);
    }
    for (int device = 0; device < s->devices; device++) {
        const double compute = t->busy[device];
        total += compute;
        t->busy[device] = t->makespan > 0.0 ? compute / t->makespan : 0.0;
        /* Spans that differ only by rounding count as equal, so that rounding does not choose the
         * device. */
        if (span_of(s, t, device) >= t->span * (1.0 - 1e-12)) min = fmin(min, compute);
    }
    /* Clamp to 0, because two sums of the same terms may be rounded differently. */
    if (t->makespan > 0.0) t->bubble_makespan = fmax(0.0, 1.0 - total / (s->devices * t->makespan));
    if (t->span > 0.0) t->bubble_span = fmax(0.0, 1.0 - min / t->span);
}

/* --- a measured step --- */

#define MAX_SECONDS 1e9 /* 30 years; with this limit, sums and products of times stay finite */

/* Check an action's four times: all are finite, start <= ready <= end, released <= ready, and the
 * previous action ended at or before `start`. */
static cgp_status check_action(const cgp_schedule *s, const cgp_schedule_timeline *t, int d,
                               int i) {
    const double start = t->start[d][i], end = t->end[d][i];
    const double released = t->released[d][i], ready = t->ready[d][i];
    const double before = i > 0 ? t->end[d][i - 1] : 0.0;
    char text[CGP__ACTION_TEXT];
    if (start >= before && ready >= start && end >= ready && end <= MAX_SECONDS &&
        released >= 0.0 && released <= ready)
        return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "times: device %d, position %d, %s: expected %g <= start <= ready <= end "
                    "<= %g and 0 <= released <= ready, got start %g, ready %g, end %g, released %g",
                    d, i, cgp_action_text(&s->lists[d][i], text, sizeof text), before, MAX_SECONDS,
                    start, ready, end, released);
}

/* Return the largest number of buffers of an edge in use at one time. A buffer is in use from the
 * time at which the SEND gets it until the matching RECV is done. */
static int count_buffers(const cgp_schedule *s, const cgp_schedule_timeline *t, int edge) {
    const int from = s->device_of[s->edges[edge].from], to = s->device_of[s->edges[edge].to];
    int taken = 0, max = 1, next = 0;
    for (int i = 0; i < s->counts[from]; i++) {
        const cgp_action *a = &s->lists[from][i];
        if (a->edge != edge || !cgp__is_send(a->kind)) continue;
        for (; next < s->counts[to] && t->end[to][next] <= t->ready[from][i]; next++) {
            const cgp_action *b = &s->lists[to][next];
            taken -= b->edge == edge && !cgp__is_send(b->kind);
        }
        max = ++taken > max ? taken : max;
    }
    return max;
}

/* Check that a device has added its gradients after its last action. */
static cgp_status check_exchanged(const cgp_schedule *s, const cgp_schedule_timeline *t, int d) {
    const double last = s->counts[d] > 0 ? t->end[d][s->counts[d] - 1] : 0.0,
                 exchanged = t->exchanged[d];
    if (exchanged >= last && exchanged <= MAX_SECONDS) return CGP_OK;
    return cgp_fail(CGP_EINVAL,
                    "times: device %d: expected gradients to be exchanged at %g to %g, got %g", d,
                    last, MAX_SECONDS, exchanged);
}

cgp_status cgp__timeline_complete(cgp_schedule_timeline *t, const cgp_schedule *s) {
    cgp__cursor at = {0};
    while (cgp__next(s, &at)) {
        const int d = at.device, i = at.position;
        CGP_TRY(check_action(s, t, d, i));
        if (!cgp__is_transfer(at.action->kind)) t->busy[d] += t->end[d][i] - t->start[d][i];
    }
    for (int d = 0; t->exchanged && d < s->devices; d++)
        CGP_TRY(check_exchanged(s, t, d));
    for (int e = 0; e < s->n_edges; e++)
        t->free_capacity[e] = count_buffers(s, t, e);
    cgp__timeline_summarise(t, s);
    return cgp__find_critical_path(s, NULL, NULL, t);
}
