/* SPDX-License-Identifier: Apache-2.0 */
/* queues.c -- manages the queues of a worker's device and the actions in flight. An action in
 * flight is enqueued but not complete.
 *
 *     list       0  1  2  3  4  5  6  7 ..
 *     complete   ─────────┘                  complete: their times are in the trace
 *     in flight            3  4  5           at most CGP__AHEAD
 *     begun      ──────────────────┘
 *
 * On a synchronous device an action is complete when its last call returns. */
#include "pipeline/run/queues.h"

#include "pipeline/run/execute.h"
#include "pipeline/run/landings.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/staging.h"
#include "pipeline/run/worker.h"
#include "schedule/kinds.h"

#include <stdlib.h>

enum { SIZE = 2 * CGP__AHEAD }; /* a power of two, because the code uses i & (SIZE - 1) */

struct cgp__queues {
    /* Action i of the list is in_flight[i & (SIZE - 1)]; actions before `complete` are complete. */
    cgp__in_flight in_flight[SIZE];
    int64_t complete;
};

static cgp__in_flight *at(cgp__worker *worker, int64_t i) {
    return &worker->queues->in_flight[i & (SIZE - 1)];
}

cgp_status cgp__queues_create(cgp__worker *worker) {
    const cgp_backend_streams *streams = worker->backend->streams;
    CGP_TRY(CGP__NEW(worker->queues, 1, "worker"));
    for (int i = 0; i < SIZE && streams; i++) {
        CGP_TRY(streams->event_create(worker->device, &at(worker, i)->start));
        CGP_TRY(streams->event_create(worker->device, &at(worker, i)->end));
    }
    return CGP_OK;
}

void cgp__queues_destroy(cgp__worker *worker) {
    for (int i = 0; i < SIZE && worker->queues; i++) {
        if (at(worker, i)->start) worker->backend->streams->event_destroy(at(worker, i)->start);
        if (at(worker, i)->end) worker->backend->streams->event_destroy(at(worker, i)->end);
    }
    free(worker->queues);
    worker->queues = NULL;
}

void cgp__queues_reset(cgp__worker *worker, int begin) {
    worker->progress.begun = worker->queues->complete = begin;
    cgp__landings_drop(worker);
}

/* Give up the run after a failure of the device. The device may name the failed kernel, which may
 * belong to an earlier action. If the device names no kernel, blame this action and call. If the
 * run was already given up, only the first error counts, and the plan may be freed. */
static bool fail_by_tag(const cgp__worker *worker, const cgp__list *list,
                        const cgp__bound_action *bound, int call) {
    if (cgp__is_stopped(worker)) return false;
    const cgp_backend_streams *streams = worker->backend->streams;
    bool failed = false;
    const int64_t tag = streams ? streams->tag_in_progress(worker->device, &failed) : -1;
    if (tag >= 0 && failed) {
        bound = &list->actions[cgp__tag_action(tag)];
        call = cgp__tag_call(tag);
    }
    return cgp__fail_in_action(worker, bound, &list->variants[bound->variant], call);
}

bool cgp__fail_on_device(const cgp__execution *s, int call) {
    return fail_by_tag(s->worker, s->list, s->bound, call);
}

/* Retire the oldest action in flight and add its times to the trace. Actions on several queues
 * overlap. In the trace, however, no action starts before the end of the previous action in the
 * list. */
static void retire(cgp__worker *worker) {
    const cgp_backend_streams *streams = worker->backend->streams;
    cgp__in_flight *f = at(worker, worker->queues->complete++);
    const int64_t written = cgp__trace_written(&worker->measured->trace);
    int64_t before = 0;
    if (written > worker->measured->trace_start)
        before = cgp__trace_event(&worker->measured->trace, written - 1)->end_ns;
    cgp__event event = f->event;
    event.start_ns = cgp__max(event.start_ns, before);
    event.ready_ns = cgp__max(streams->event_time(f->start), event.start_ns);
    event.end_ns = cgp__max(streams->event_time(f->end), event.ready_ns);
    cgp__staging_return(worker, f->pieces);
    cgp__trace_add(&worker->measured->trace, event);
    cgp__landings_check(worker);
}

/* If `status` is a failure of the device, give up the run. Otherwise retire the oldest action in
 * flight, which is complete. */
static bool retire_or_fail(cgp__worker *worker, const cgp__list *list, cgp_status status) {
    const cgp__in_flight *f = at(worker, worker->queues->complete);
    if (cgp__is_stopped(worker)) return false;
    if (status != CGP_OK) return fail_by_tag(worker, list, f->bound, -1);
    retire(worker);
    return true;
}

bool cgp__in_flight_retire(cgp__worker *worker, const cgp__list *list) {
    if (!cgp__is_stopped(worker)) cgp__landings_check(worker);
    while (worker->queues->complete < worker->progress.begun) {
        bool done = false;
        const cgp_status status =
            worker->backend->streams->event_done(at(worker, worker->queues->complete)->end, &done);
        if (status == CGP_OK && !done) return !cgp__is_stopped(worker);
        if (!retire_or_fail(worker, list, status)) return false;
    }
    return true;
}

/* Wait until at most `n` actions are in flight. */
static bool retire_but(cgp__worker *worker, const cgp__list *list, int64_t n) {
    while (worker->progress.begun - worker->queues->complete > n) {
        const cgp_status status =
            cgp__worker_wait(worker, at(worker, worker->queues->complete)->end);
        if (!retire_or_fail(worker, list, status)) return false;
    }
    return true;
}

cgp__in_flight *cgp__in_flight_begin(const cgp__execution *s) {
    cgp__worker *worker = s->worker;
    const cgp_action *action = &s->bound->action;
    const int64_t start = cgp__now_ns();
    const int64_t others = CGP__ON(CGP__SITE_AHEAD) ? CGP__AHEAD - 1 : CGP__AHEAD;
    if (worker->backend->streams &&
        (!retire_but(worker, s->list, others) || !cgp__in_flight_retire(worker, s->list)))
        return NULL;
    cgp__in_flight *f = at(worker, worker->progress.begun);
    f->bound = s->bound;
    f->event = (cgp__event){.start_ns = start,
                            .ready_ns = start,
                            .kind = (int)action->kind,
                            .stage = action->stage,
                            .microbatch = action->microbatch};
    return f;
}

/* Make the action's queue wait for actions on the other queues. */
static cgp_status wait_for_queues(const cgp__execution *s) {
    cgp__worker *worker = s->worker;
    const cgp_backend_streams *streams = worker->backend->streams;
    const cgp_queue queue = cgp__queue_of(s->bound->action.kind);
    for (int other = 0; other < CGP_QUEUES; other++) {
        const int i = s->bound->wait[other];
        if (i >= worker->queues->complete &&
            CGP__ON(CGP__SITE_QUEUES + CGP_QUEUES * (int)queue + other))
            CGP_TRY(streams->event_wait(worker->device, queue, at(worker, i)->end));
    }
    return CGP_OK;
}

bool cgp__in_flight_start(const cgp__execution *s, cgp__in_flight *f) {
    const cgp_backend_streams *streams = s->worker->backend->streams;
    if (!streams) return true;
    if (wait_for_queues(s) != CGP_OK) return cgp__fail_on_device(s, -1);
    return streams->event_record(s->worker->device, cgp__queue_of(s->bound->action.kind),
                                 f->start) == CGP_OK ||
           cgp__fail_on_device(s, -1);
}

bool cgp__in_flight_end(const cgp__execution *s, cgp__in_flight *f) {
    cgp__worker *worker = s->worker;
    const cgp_backend_streams *streams = worker->backend->streams;
    if (!streams) {
        cgp__staging_return(worker, cgp__staging_taken(worker));
        f->event.end_ns = cgp__now_ns();
        cgp__trace_add(&worker->measured->trace, f->event);
        return true;
    }
    /* Only queue COMPUTE copies staging pieces, so only events on COMPUTE show that the copies are
     * complete. */
    f->pieces =
        cgp__queue_of(s->bound->action.kind) == CGP_QUEUE_COMPUTE ? cgp__staging_taken(worker) : 0;
    if (streams->event_record(worker->device, cgp__queue_of(s->bound->action.kind), f->end) !=
        CGP_OK)
        return cgp__fail_on_device(s, -1);
    worker->progress.begun++;
    return true;
}

bool cgp__in_flight_finish(cgp__worker *worker, const cgp__list *list) {
    return retire_but(worker, list, 0);
}

int64_t cgp__in_flight_patience(const cgp__worker *worker) {
    if (cgp__landings_pending(worker)) return 50000;
    return worker->queues->complete == worker->progress.begun ? INT64_MAX : 1000000;
}
