/* SPDX-License-Identifier: Apache-2.0 */
/* times.c -- computes times of the last run from the workers' traces. A rank's own events use its
 * own clock; events received from other ranks use the clock of rank 0. In a plan with replicas, the
 * ranks of replica 0 return the times of replica 0. */
#include "pipeline/times.h"

#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/ranks.h"
#include "schedule/kinds.h"

#include <math.h>
#include <stdlib.h>

int64_t cgp_pipeline_allocated_bytes(const cgp_pipeline *pipeline, int device) {
    CGP__PIPELINE_OR(pipeline, 0);
    if (device < 0 || device >= cgp_plan_devices(pipeline->plan)) return 0;
    return pipeline->measured[device].bytes;
}

static int by_size(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Sort `ns`, and return the median in seconds. */
static double median_seconds(int64_t *ns, int64_t n) {
    if (n == 0) return NAN;
    qsort(ns, (size_t)n, sizeof *ns, by_size);
    const int64_t low = ns[(n - 1) / 2], high = ns[n / 2];
    return 0.5e-9 * (double)(low + high);
}

cgp__event cgp__pipeline_event(const cgp_pipeline *pipeline, int device, int64_t k) {
    cgp__event event = *cgp__trace_event(&pipeline->measured[device].trace, k);
    const cgp__ranks *ranks = pipeline->ranks;
    if (!cgp__ranks_own(ranks, device)) return event;
    event.start_ns = cgp__clocks_map(ranks->clocks, ranks->rank, event.start_ns);
    event.end_ns = cgp__clocks_map(ranks->clocks, ranks->rank, event.end_ns);
    event.released_ns = cgp__clocks_map(ranks->clocks, ranks->rank, event.released_ns);
    event.ready_ns = cgp__clocks_map(ranks->clocks, ranks->rank, event.ready_ns);
    return event;
}

double cgp__pipeline_clock_uncertainty(const cgp_pipeline *pipeline) {
    return 1e-9 * (double)cgp__clocks_uncertainty(pipeline->ranks->clocks);
}

typedef enum overhead { GAPS, WAKEUPS } overhead;

/* Return the overhead of event `k` of a trace, in ns; -1: the event has none. GAPS: time from the
 * end of the previous action until this action is ready; counted only if this action's message
 * arrived before the previous action ended. WAKEUPS: time from the arrival of a message until its
 * receive is ready; counted only if the message arrived after the receive started. */
static int64_t overhead_of(const cgp_pipeline *pipeline, int device, int64_t k, overhead which) {
    const cgp__event event = cgp__pipeline_event(pipeline, device, k);
    const bool receives = event.kind == CGP_ACTION_RECV_F || event.kind == CGP_ACTION_RECV_B;
    if (which == WAKEUPS)
        return receives && event.released_ns > event.start_ns ? event.ready_ns - event.released_ns
                                                              : -1;
    if (k == pipeline->measured[device].trace_start) return -1;
    const int64_t before = cgp__pipeline_event(pipeline, device, k - 1).end_ns;
    return event.released_ns <= before ? event.ready_ns - before : -1;
}

/* Return the median overhead of the events of all devices, in seconds. Return NaN if no event has
 * an overhead, or if memory runs out. */
static double median_overhead(const cgp_pipeline *pipeline, overhead which) {
    const int devices = cgp_plan_devices(pipeline->plan);
    int64_t events = 0, n = 0;
    for (int d = 0; d < devices; d++)
        events += cgp__measured_events(&pipeline->measured[d]);
    int64_t *ns = cgp__calloc((size_t)events, sizeof *ns);
    for (int d = 0; ns && d < devices; d++) {
        const cgp__measured *measured = &pipeline->measured[d];
        for (int64_t k = measured->trace_start; k < measured->trace.written; k++) {
            const int64_t duration = overhead_of(pipeline, d, k, which);
            if (duration >= 0) ns[n++] = duration;
        }
    }
    const double median = median_seconds(ns, n);
    free(ns);
    return median;
}

/* Allocate a buffer that is large enough for the events of any one device, and reserve space in the
 * traces of other ranks' devices. */
static cgp_status reserve_events(const cgp_pipeline *pipeline, cgp__event **events) {
    const int n = cgp_plan_devices(pipeline->plan);
    const int64_t *counts = pipeline->ranks->figures;
    int64_t largest = 0;
    for (int d = 0; d < n; d++)
        largest = cgp__max(largest, counts[d]);
    CGP_TRY(CGP__NEW(*events, largest, "times"));
    for (int d = 0; d < n; d++) {
        if (!cgp__ranks_own(pipeline->ranks, d))
            CGP_TRY(cgp__trace_reserve(&pipeline->measured[d].trace, counts[d]));
    }
    return CGP_OK;
}

/* Broadcast the events of device `d` of replica 0 to all ranks. */
static cgp_status share_events(const cgp_pipeline *pipeline, cgp__event *events, int d) {
    cgp__measured *measured = &pipeline->measured[d];
    const cgp__ranks *ranks = pipeline->ranks;
    const int64_t n = ranks->figures[d];
    for (int64_t k = 0; k < n && ranks->replica == 0 && cgp__ranks_own(ranks, d); k++)
        events[k] = cgp__pipeline_event(pipeline, d, measured->trace_start + k);
    CGP_TRY(cgp__ranks_broadcast(ranks, cgp_plan_device_at(pipeline->plan, d)->rank, events,
                                 (size_t)n * sizeof *events));
    if (cgp__ranks_own(ranks, d)) return CGP_OK;
    measured->trace_start = cgp__trace_written(&measured->trace);
    for (int64_t k = 0; k < n; k++)
        cgp__trace_add(&measured->trace, events[k]);
    return CGP_OK;
}

cgp_status cgp__pipeline_share_events(const cgp_pipeline *pipeline) {
    const cgp__ranks *ranks = pipeline->ranks;
    cgp__event *events = NULL;
    if (!ranks->transport) return CGP_OK;
    for (int d = ranks->first; d < ranks->end; d++)
        ranks->figures[d] = cgp__measured_events(&pipeline->measured[d]);
    CGP_TRY(
        cgp__ranks_share_devices(ranks, pipeline->plan, ranks->figures, sizeof *ranks->figures));
    cgp_status status = cgp__ranks_agree(ranks, reserve_events(pipeline, &events));
    for (int d = 0; d < cgp_plan_devices(pipeline->plan) && status == CGP_OK; d++)
        status = share_events(pipeline, events, d);
    free(events);
    return status;
}

cgp_pipeline_times cgp_pipeline_last_times(const cgp_pipeline *pipeline, double *busy) {
    cgp_pipeline_times times = {NAN, NAN, NAN, NAN, NAN, NAN};
    CGP__PIPELINE_OR(pipeline, times);
    if (pipeline->crew && !cgp__crew_is_calling(pipeline->crew)) {
        const cgp__request call = {.kind = CGP__REQUEST_LAST_TIMES, .out = &times, .more = busy};
        (void)cgp__crew_request(pipeline->crew, &call);
        return times;
    }
    if (cgp__clocks_refresh(pipeline->ranks) != CGP_OK ||
        cgp__pipeline_share_events(pipeline) != CGP_OK)
        return times;
    int64_t start = INT64_MAX, end = 0, last_forward = 0, first_backward = INT64_MAX;
    const int n = cgp_plan_devices(pipeline->plan);
    double total = 0;
    for (int d = 0; d < n; d++) {
        const cgp__measured *measured = &pipeline->measured[d];
        int64_t sum = 0;
        for (int64_t k = measured->trace_start; k < measured->trace.written; k++) {
            const cgp__event event = cgp__pipeline_event(pipeline, d, k);
            start = cgp__min(start, event.start_ns);
            end = cgp__max(end, event.end_ns);
            if (!cgp__is_transfer((cgp_action_kind)event.kind))
                sum += event.end_ns - event.start_ns;
            if (event.kind == CGP_ACTION_F) last_forward = cgp__max(last_forward, event.end_ns);
            if (event.kind == CGP_ACTION_B || event.kind == CGP_ACTION_I)
                first_backward = cgp__min(first_backward, event.start_ns);
        }
        total += (double)sum;
        if (busy) busy[d] = (double)sum;
    }
    for (int d = 0; busy && d < n; d++)
        busy[d] = end > 0 ? busy[d] / (double)(end - start) : NAN;
    if (end == 0) return times;
    times.seconds = (double)(end - start) * 1e-9;
    times.bubble = 1 - total / (n * (double)(end - start));
    times.gap_seconds = median_overhead(pipeline, GAPS);
    times.wakeup_seconds = median_overhead(pipeline, WAKEUPS);
    if (first_backward == INT64_MAX) {
        times.forward_seconds = times.seconds;
        times.backward_seconds = 0;
    } else if (last_forward == 0) {
        times.forward_seconds = 0;
        times.backward_seconds = times.seconds;
    } else if (last_forward <= first_backward) {
        times.forward_seconds = (double)(last_forward - start) * 1e-9;
        times.backward_seconds = (double)(end - last_forward) * 1e-9;
    }
    return times;
}
