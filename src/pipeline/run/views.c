/* SPDX-License-Identifier: Apache-2.0 */
/* views.c -- implements views.h. */
#include "pipeline/run/views.h"

#include "model/model.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/link_ends.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/queues.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/links.h"
#include "plan/messages.h"
#include "plan/program/program.h"
#include "schedule/kinds.h"

static bool is_busy(const cgp__executor *executor, int device) {
    const cgp__thread *thread = &executor->team->threads[device - executor->ranks->first];
    return thread->busy || thread->assigned;
}

int64_t cgp__last_end(const cgp__executor *executor, int device, int64_t written) {
    const int64_t start = executor->team->job_start_ns;
    if (written == 0) return start;
    const cgp__trace *trace = &executor->measured[device].trace;
    return cgp__max(start, cgp__trace_event(trace, written - 1)->end_ns);
}

int64_t cgp__ended_here(const cgp__executor *executor) {
    int64_t ended = 0;
    for (int d = executor->ranks->first; d < executor->ranks->end; d++)
        ended += cgp__trace_written(&executor->measured[d].trace);
    return ended;
}

const cgp__bound_action *cgp__action_at(const cgp__executor *executor, int device,
                                        int64_t written) {
    int begin = 0, end = 0;
    if (executor->team->job != cgp__job_run || !is_busy(executor, device)) return NULL;
    const cgp__run_context *context = &executor->context;
    cgp__run_range(context, device, &begin, &end);
    const int64_t i = begin + written - executor->measured[device].trace_start;
    return i < end ? &context->run->lists[device].actions[i] : NULL;
}

int cgp__peer_of(const cgp_plan *plan, const cgp_action *action) {
    const cgp_edge *edge = &cgp__plan_edge(plan, action->edge)->edge;
    return cgp__is_send(action->kind) ? edge->to : edge->from;
}

/* Return true if a worker waits for a buffer, a message or a piece of a message on an edge. */
static bool waits_for_buffer(const cgp__executor *executor, int edge, int side) {
    const int pieces = cgp__plan_links(executor->plan)->list[edge].pieces;
    for (int k = 0; k < pieces; k++) {
        const cgp__end *end = &executor->ends[2 * cgp__plan_piece(executor->plan, edge, k) + side];
        if (end->transport->links.waits(end->link)) return true;
    }
    return false;
}

/* Return true if a transfer waits for an event of the device at its other end. If the transfer is
 * enqueued, the worker's device waits; otherwise the worker itself waits. Between ranks, only
 * shared edges have events. */
static bool waits_for_event(const cgp__worker *worker, const cgp__bound_action *bound,
                            const cgp__end *end) {
    const cgp__list *list = &worker->executor->context.run->lists[worker->index];
    if (end->transport->copies && !end->shares) return false;
    return atomic_load(&worker->progress.syncs) ||
           (worker->backend->streams &&
            bound - list->actions < atomic_load(&worker->progress.begun));
}

cgp__view cgp__view_of(const cgp__executor *executor, int device) {
    if (!cgp__ranks_own(executor->ranks, device))
        return (cgp__view){.executor = executor, .device = device};
    const int64_t written = cgp__trace_written(&executor->measured[device].trace);
    cgp__view v = {.executor = executor,
                   .device = device,
                   .is_here = true,
                   .busy = is_busy(executor, device),
                   .bound = cgp__action_at(executor, device, written),
                   .since_ns = cgp__last_end(executor, device, written),
                   .written = written,
                   .next = written};
    if (!v.bound || v.bound->action.edge < 0) return v;
    const cgp_action *action = &v.bound->action;
    const int side = cgp__is_send(action->kind) ? 0 : 1;
    const cgp__end *end = &executor->ends[2 * action->edge + side];
    v.waits = waits_for_buffer(executor, action->edge, side) ||
              waits_for_event(&executor->workers[device], v.bound, end);
    v.waits_for = cgp_plan_stage_at(executor->plan, cgp__peer_of(executor->plan, action))->device;
    return v;
}

bool cgp__views_take(const cgp__executor *executor, cgp__view *views) {
    const int n = cgp_plan_devices(executor->plan);
    for (int d = 0; d < n; d++)
        views[d] = cgp__view_of(executor, d);
    for (int d = executor->ranks->first; d < executor->ranks->end; d++) {
        if (cgp__trace_written(&executor->measured[d].trace) != views[d].written) return false;
    }
    return true;
}

const cgp__view *cgp__views_blamed(const cgp__view *views, int n) {
    const cgp__view *worst = NULL;
    for (const cgp__view *v = views; v < views + n; v++) {
        if (v->busy && (!worst || (worst->waits && !v->waits) ||
                        (worst->waits == v->waits && v->since_ns < worst->since_ns)))
            worst = v;
    }
    return worst;
}

const cgp__node *cgp__view_node(const cgp__view *v) {
    const cgp_plan *plan = v->executor->plan;
    const cgp__worker *worker = &v->executor->workers[v->device];
    const cgp_backend *backend = worker->backend;
    int i = atomic_load_explicit(&worker->progress.call, memory_order_relaxed);
    if (!v->bound || v->bound->action.edge >= 0) return NULL;
    const cgp__list *list = &v->executor->context.run->lists[v->device];
    if (backend->streams) {
        bool failed = false;
        const int64_t tag = backend->streams->tag_in_progress(worker->device, &failed);
        if (tag < 0 || v->bound != &list->actions[cgp__tag_action(tag)]) return NULL;
        i = cgp__tag_call(tag);
    }
    const cgp__variant *variant = &list->variants[v->bound->variant];
    const cgp__program *program =
        &cgp__plan_stage(plan, variant->stage)->programs[variant->program];
    if (i < 0 || i >= variant->end || program->calls[i].node < 0) return NULL;
    return &worker->model->nodes[program->calls[i].node];
}

int cgp__views_latest_event(const cgp__view *views, int n) {
    int latest = -1;
    int64_t end = 0;
    for (int d = 0; d < n; d++) {
        const cgp__measured *measured = &views[d].executor->measured[d];
        if (!views[d].is_here || views[d].next <= measured->trace_start) continue;
        const cgp__event *event = cgp__trace_event(&measured->trace, views[d].next - 1);
        if (latest >= 0 && event->end_ns <= end) continue;
        latest = d;
        end = event->end_ns;
    }
    return latest;
}
