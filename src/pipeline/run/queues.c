/* SPDX-License-Identifier: Apache-2.0 */
/* queues.c -- the queues of a worker's device, and the actions in flight: enqueued but not
 * complete.
 *
 *     list       0  1  2  3  4  5  6  7 ..
 *     landed     ─────────┘                  complete: their times are in the trace
 *     in flight            3  4  5           at most CGP__AHEAD
 *     begun      ──────────────────┘
 *
 * On a synchronous device an action is complete when its last call returns. */
#include "pipeline/run/run.h"
#include "schedule/table.h"

#include <time.h>

#define POLL_NS 20000

static cgp__flight *flight_at(cgp__worker *worker, int64_t i) {
    return &worker->flights[i & (CGP__FLIGHTS - 1)];
}

/* Give up after a failure of the device. It may name the failed kernel, which may belong to an
 * earlier action; otherwise blame this action and call. If the run was given up before, only the
 * first error counts, and the plan may be gone. */
static bool fail_by_tag(const cgp__worker *worker, const cgp__list *list,
                        const cgp__bound_action *bound, int call) {
    if (cgp__is_stopped(worker)) return false;
    const cgp_backend *backend = cgp__backend_of(worker);
    bool failed = false;
    const int64_t tag =
        backend->asynchronous ? backend->tag_in_progress(worker->device, &failed) : -1;
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
 * overlap, but in the trace each one starts after the previous one in the list. */
static void land(cgp__worker *worker) {
    const cgp_backend *backend = cgp__backend_of(worker);
    cgp__flight *f = flight_at(worker, worker->landed++);
    const int64_t written = cgp__trace_written(&worker->trace);
    int64_t before = 0;
    if (written > worker->trace_start)
        before = cgp__trace_event(&worker->trace, written - 1)->end_ns;
    cgp__event event = f->event;
    event.start_ns = cgp__max(event.start_ns, before);
    event.ready_ns = cgp__max(backend->event_time(f->start), event.start_ns);
    event.end_ns = cgp__max(backend->event_time(f->end), event.ready_ns);
    cgp__staging_return(worker, f->pieces);
    cgp__trace_add(&worker->trace, event);
    if (f->transport && cgp__is_send(f->bound->action.kind))
        f->transport->post(f->link, &f->message);
    else if (f->transport)
        f->transport->release(f->link, &f->message);
    f->transport = NULL;
}

/* Retire the oldest action in flight, which is complete, unless `status` says that the device has
 * failed. */
static bool land_or_fail(cgp__worker *worker, const cgp__list *list, cgp_status status) {
    const cgp__flight *f = flight_at(worker, worker->landed);
    if (cgp__is_stopped(worker)) return false;
    if (status != CGP_OK) return fail_by_tag(worker, list, f->bound, -1);
    land(worker);
    return true;
}

bool cgp__flight_land(cgp__worker *worker, const cgp__list *list) {
    while (worker->landed < worker->begun) {
        bool done = false;
        const cgp_status status =
            cgp__backend_of(worker)->event_done(flight_at(worker, worker->landed)->end, &done);
        if (status == CGP_OK && !done) return !cgp__is_stopped(worker);
        if (!land_or_fail(worker, list, status)) return false;
    }
    return true;
}

cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event) {
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp__ranks *ranks = &worker->executor->ranks;
    if (!ranks->transport) return backend->event_sync(event);
    bool done = false;
    for (;;) {
        const cgp_status status = backend->event_done(event, &done);
        if (status != CGP_OK || done || cgp__is_stopped(worker)) return status;
        ranks->transport->progress(ranks->communicator);
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
}

/* Wait until at most `n` actions are in flight. */
static bool land_but(cgp__worker *worker, const cgp__list *list, int64_t n) {
    while (worker->begun - worker->landed > n) {
        const cgp_status status = cgp__worker_wait(worker, flight_at(worker, worker->landed)->end);
        if (!land_or_fail(worker, list, status)) return false;
    }
    return true;
}

cgp__flight *cgp__flight_begin(const cgp__execution *s) {
    cgp__worker *worker = s->worker;
    const cgp_action *action = &s->bound->action;
    const int64_t start = cgp__now_ns();
    const int64_t others = CGP__ON(CGP__SITE_AHEAD) ? CGP__AHEAD - 1 : CGP__AHEAD;
    if (cgp__backend_of(worker)->asynchronous &&
        (!land_but(worker, s->list, others) || !cgp__flight_land(worker, s->list)))
        return NULL;
    cgp__flight *f = flight_at(worker, worker->begun);
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
    const cgp_queue queue = cgp__queue_of(s->bound->action.kind);
    for (int other = 0; other < CGP_QUEUES; other++) {
        const int i = s->bound->wait[other];
        if (i >= worker->landed && CGP__ON(CGP__SITE_QUEUES + CGP_QUEUES * (int)queue + other))
            CGP_TRY(cgp__backend_of(worker)->event_wait(worker->device, queue,
                                                        flight_at(worker, i)->end));
    }
    return CGP_OK;
}

bool cgp__flight_start(const cgp__execution *s, cgp__flight *f) {
    const cgp_backend *backend = cgp__backend_of(s->worker);
    if (!backend->asynchronous) return true;
    if (wait_for_queues(s) != CGP_OK) return cgp__fail_on_device(s, -1);
    return backend->event_record(s->worker->device, cgp__queue_of(s->bound->action.kind),
                                 f->start) == CGP_OK ||
           cgp__fail_on_device(s, -1);
}

bool cgp__flight_end(const cgp__execution *s, cgp__flight *f) {
    cgp__worker *worker = s->worker;
    const cgp_backend *backend = cgp__backend_of(worker);
    if (!backend->asynchronous) {
        cgp__staging_return(worker, worker->taken);
        f->event.end_ns = cgp__now_ns();
        cgp__trace_add(&worker->trace, f->event);
        return true;
    }
    /* Only COMPUTE copies staging pieces, so only its events show that they are complete. */
    f->pieces = cgp__queue_of(s->bound->action.kind) == CGP_QUEUE_COMPUTE ? worker->taken : 0;
    if (backend->event_record(worker->device, cgp__queue_of(s->bound->action.kind), f->end) !=
        CGP_OK)
        return cgp__fail_on_device(s, -1);
    worker->begun++;
    return true;
}

bool cgp__flight_finish(cgp__worker *worker, const cgp__list *list) {
    return land_but(worker, list, 0);
}

int64_t cgp__flight_patience(const cgp__worker *worker) {
    if (worker->landed == worker->begun) return INT64_MAX;
    for (int64_t i = worker->landed; i < worker->begun; i++) {
        if (worker->flights[i & (CGP__FLIGHTS - 1)].transport) return 50000;
    }
    return 1000000;
}

/* --- jobs --- */

cgp_status cgp__worker_finish(cgp__worker *worker) {
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp_status status = backend->asynchronous ? backend->finish(worker->device) : CGP_OK;
    if (status == CGP_OK && !cgp__is_stopped(worker)) cgp__staging_return(worker, worker->taken);
    worker->returned = worker->taken; /* after a failure no data arrives */
    return status;
}

cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes) {
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp_place there = cgp__device_place(worker, (void *)(uintptr_t)from);
    const cgp_status status =
        backend->host_addressable
            ? backend->copy(worker->device, CGP_QUEUE_COMPUTE, cgp__host_place(out), there, bytes)
            : cgp__staging_get(worker, out, from, bytes);
    if (status == CGP_OK && !cgp__is_stopped(worker)) return cgp__worker_finish(worker);
    worker->returned = worker->taken;
    return status;
}

cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes) {
    const cgp_backend *backend = cgp__backend_of(worker);
    const cgp_place there = cgp__device_place(worker, to);
    CGP_TRY(backend->host_addressable ? backend->copy(worker->device, CGP_QUEUE_COMPUTE, there,
                                                      cgp__host_place(in), bytes)
                                      : cgp__staging_put(worker, to, in, bytes));
    return cgp__is_stopped(worker) ? CGP_OK : cgp__worker_finish(worker);
}

cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n) {
    if (worker->fetched == worker->words) return CGP_OK;
    return cgp__worker_read(worker, worker->fetched, worker->words, (size_t)n * sizeof(double));
}
