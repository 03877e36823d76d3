/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c -- exports the last step as a timeline. Event i of a worker's trace belongs to action
 * i of the worker's list. */
#include "pipeline/alive.h"
#include "pipeline/crew.h"
#include "pipeline/pipeline.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/clocks.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/gathers.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/ranks.h"
#include "pipeline/team/team.h"
#include "pipeline/times.h"

#include <math.h>
#include <stdlib.h>

#include "plan/setup.h"
#include "schedule/simulator/timeline.h"

static cgp_status none(const char *why) {
    return cgp_fail(CGP_ESTATE, "timeline: expected a step of a full mini-batch last, got %s", why);
}

/* Check that the last run was a step of a full mini-batch. The executor's context describes the
 * last run; before the first run, the context is zero. */
static cgp_status check_run(const cgp_pipeline *pipeline) {
    const cgp__run_context *last = &pipeline->executor->context;
    if (pipeline->team->failed) return none("one that failed");
    if (!last->run) return none("none");
    if (last->part != CGP__WHOLE_RUN) return none("one in two calls (external_loss)");
    if (!last->training) return none("an evaluation or prediction");
    const cgp__minibatch *share = &last->run->minibatch;
    const int64_t samples = share->of_chunks ? share->of_samples : share->samples;
    if (samples == pipeline->setup->batch) return CGP_OK;
    return cgp_fail(CGP_ESTATE,
                    "timeline: expected a step of a full mini-batch last, %lld samples, got one "
                    "of %lld",
                    (long long)pipeline->setup->batch, (long long)samples);
}

static bool is_event_of(const cgp_action *action, const cgp__event *event) {
    return (int)action->kind == event->kind && action->stage == event->stage &&
           action->microbatch == event->microbatch;
}

/* Check that the events of the run correspond to the actions of the device's list. */
static cgp_status check_events(const cgp_pipeline *pipeline, int d) {
    const cgp__measured *measured = &pipeline->measured[d];
    int n = 0;
    const cgp_action *actions = cgp_schedule_actions(cgp_plan_schedule(pipeline->plan), d, &n);
    bool good = cgp__measured_events(measured) == n;
    for (int i = 0; good && i < n; i++)
        good =
            is_event_of(&actions[i], cgp__trace_event(&measured->trace, measured->trace_start + i));
    return good ? CGP_OK : none("one of other lists");
}

static int64_t first_start(const cgp_pipeline *pipeline) {
    int64_t first = INT64_MAX;
    for (int d = 0; d < cgp_plan_devices(pipeline->plan); d++) {
        const cgp__measured *measured = &pipeline->measured[d];
        if (cgp__measured_events(measured) > 0)
            first =
                cgp__min(first, cgp__pipeline_event(pipeline, d, measured->trace_start).start_ns);
    }
    return first;
}

/* Return the seconds from `first_ns` to `ns`, or 0 if `ns` is earlier. */
static double seconds_from(int64_t first_ns, int64_t ns) {
    return ns > first_ns ? 1e-9 * (double)(ns - first_ns) : 0.0;
}

static void fill(const cgp_pipeline *pipeline, cgp_schedule_timeline *t) {
    const int64_t first = first_start(pipeline);
    for (int d = 0; d < t->devices; d++) {
        const cgp__measured *measured = &pipeline->measured[d];
        const int64_t n = cgp__measured_events(measured);
        for (int64_t i = 0; i < n; i++) {
            const cgp__event event = cgp__pipeline_event(pipeline, d, measured->trace_start + i);
            t->start[d][i] = seconds_from(first, event.start_ns);
            t->end[d][i] = seconds_from(first, event.end_ns);
            t->released[d][i] = seconds_from(first, event.released_ns);
            t->ready[d][i] = seconds_from(first, event.ready_ns);
        }
    }
}

/* Gather the ends of the exchanges of gradients from the devices of replica 0, on the clock of rank
 * 0. */
static cgp_status share_exchanged(const cgp_pipeline *pipeline) {
    const cgp__ranks *ranks = pipeline->ranks;
    for (int d = ranks->first; d < ranks->end; d++)
        ranks->figures[d] =
            cgp__clocks_map(ranks->clocks, ranks->rank, pipeline->measured[d].exchange_end_ns);
    return cgp__ranks_share_devices(ranks, pipeline->plan, ranks->figures, sizeof *ranks->figures);
}

/* Set the times at which devices have added their gradients over the replicas. */
static cgp_status fill_exchanged(const cgp_pipeline *pipeline, cgp_schedule_timeline *t) {
    const int64_t first = first_start(pipeline);
    CGP_TRY(CGP__NEW(t->exchanged, t->devices, "timeline"));
    for (int d = 0; d < t->devices; d++) {
        int n = 0;
        (void)cgp_schedule_actions(cgp_plan_schedule(pipeline->plan), d, &n);
        t->exchanged[d] = seconds_from(first, pipeline->ranks->figures[d]);
        if (n > 0) t->exchanged[d] = fmax(t->exchanged[d], t->end[d][n - 1]);
    }
    return CGP_OK;
}

/* Check the events of all devices. In a plan with replicas, a device of another replica than the
 * first has its own events, which are not returned. */
static cgp_status check_all_events(const cgp_pipeline *pipeline) {
    for (int d = 0; d < cgp_plan_devices(pipeline->plan) && pipeline->ranks->replica == 0; d++)
        CGP_TRY(check_events(pipeline, d));
    return CGP_OK;
}

cgp_status cgp_pipeline_last_timeline(const cgp_pipeline *pipeline, cgp_schedule_timeline *out) {
    CGP__PIPELINE(pipeline);
    CGP__ON_ALL_REPLICAS(pipeline, .kind = CGP__REQUEST_LAST_TIMELINE, .out = out);
    const cgp_schedule *schedule = cgp_plan_schedule(pipeline->plan);
    cgp_schedule_timeline timeline = {0};
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, out || pipeline->ranks->replica > 0
                                                  ? check_run(pipeline)
                                                  : cgp__missing(__func__, "out")));
    CGP_TRY(cgp__clocks_read(pipeline->ranks));
    CGP_TRY(cgp__pipeline_share_events(pipeline));
    CGP_TRY(cgp__ranks_agree(pipeline->ranks, check_all_events(pipeline)));
    if (pipeline->setup->replicas > 1) CGP_TRY(share_exchanged(pipeline));
    if (pipeline->ranks->replica > 0) {
        if (out) *out = timeline;
        return CGP_OK;
    }
    CGP_TRY(cgp__timeline_create(&timeline, schedule, true));
    fill(pipeline, &timeline);
    timeline.clock_uncertainty = cgp__pipeline_clock_uncertainty(pipeline);
    cgp_status status =
        pipeline->setup->replicas > 1 ? fill_exchanged(pipeline, &timeline) : CGP_OK;
    if (status == CGP_OK) status = cgp__timeline_complete(&timeline, schedule);
    if (status == CGP_OK)
        *out = timeline;
    else
        cgp_schedule_timeline_release(&timeline);
    return status;
}
