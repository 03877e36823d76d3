/* SPDX-License-Identifier: Apache-2.0 */
/* views.c -- see views.h. */
#include "pipeline/run/views.h"
#include "schedule/table.h"

static bool is_busy(const cgp__worker *worker) {
    const cgp__thread *thread = cgp__thread_of(worker);
    return thread->busy || thread->assigned;
}

int64_t cgp__last_end(const cgp__worker *worker, int64_t written) {
    const int64_t start = worker->executor->team->job_start_ns;
    if (written == 0) return start;
    return cgp__max(start, cgp__trace_event(&worker->trace, written - 1)->end_ns);
}

const cgp__bound_action *cgp__action_at(const cgp__worker *worker, int64_t written) {
    int begin = 0, end = 0;
    if (worker->executor->team->job != cgp__job_run || !is_busy(worker)) return NULL;
    const cgp__run_context *context = &worker->executor->context;
    cgp__run_range(context, worker->index, &begin, &end);
    const int64_t i = begin + written - worker->trace_start;
    return i < end ? &context->run->lists[worker->index].actions[i] : NULL;
}

int cgp__peer_of(const cgp_plan *plan, const cgp_action *action) {
    const cgp_edge *edge = &plan->edges[action->edge].edge;
    return cgp__is_send(action->kind) ? edge->to : edge->from;
}

/* Return whether a transfer waits for an event of the device at its other end. The worker may wait
 * for it or, if the transfer is enqueued, its device. There are no events between ranks. */
static bool waits_for_event(const cgp__worker *worker, const cgp__bound_action *bound,
                            const cgp__end *end) {
    const cgp__list *list = &worker->executor->context.run->lists[worker->index];
    if (end->transport->copies) return false;
    return atomic_load(&worker->syncs) || (cgp__backend_of(worker)->asynchronous &&
                                           bound - list->actions < atomic_load(&worker->begun));
}

cgp__view cgp__view_of(const cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    if (!cgp__is_here(worker)) return (cgp__view){.worker = worker};
    const int64_t written = cgp__trace_written(&worker->trace);
    cgp__view v = {.worker = worker,
                   .busy = is_busy(worker),
                   .bound = cgp__action_at(worker, written),
                   .since_ns = cgp__last_end(worker, written),
                   .written = written,
                   .next = written};
    if (!v.bound || v.bound->action.edge < 0) return v;
    const cgp_action *action = &v.bound->action;
    const cgp__end *end = &executor->ends[action->edge][cgp__is_send(action->kind) ? 0 : 1];
    v.waits = end->transport->waits(end->link) || waits_for_event(worker, v.bound, end);
    v.waits_for = executor->plan->stages[cgp__peer_of(executor->plan, action)].info.device;
    return v;
}

bool cgp__views_take(const cgp__executor *executor, cgp__view *views) {
    const int n = executor->plan->n_devices;
    for (int d = 0; d < n; d++)
        views[d] = cgp__view_of(&executor->workers[d]);
    for (int d = executor->ranks.first; d < executor->ranks.end; d++) {
        if (cgp__trace_written(&executor->workers[d].trace) != views[d].written) return false;
    }
    return true;
}

const cgp__view *cgp__views_culprit(const cgp__view *views, int n) {
    const cgp__view *worst = NULL;
    for (const cgp__view *v = views; v < views + n; v++) {
        if (v->busy && (!worst || (worst->waits && !v->waits) ||
                        (worst->waits == v->waits && v->since_ns < worst->since_ns)))
            worst = v;
    }
    return worst;
}

const cgp__node *cgp__view_node(const cgp__view *v) {
    const cgp_plan *plan = v->worker->executor->plan;
    const cgp_backend *backend = cgp__backend_of(v->worker);
    int i = atomic_load_explicit(&v->worker->call, memory_order_relaxed);
    if (!v->bound || v->bound->action.edge >= 0) return NULL;
    const cgp__list *list = &v->worker->executor->context.run->lists[v->worker->index];
    if (backend->asynchronous) {
        bool failed = false;
        const int64_t tag = backend->tag_in_progress(v->worker->device, &failed);
        if (tag < 0 || v->bound != &list->actions[cgp__tag_action(tag)]) return NULL;
        i = cgp__tag_call(tag);
    }
    const cgp__variant *variant = &list->variants[v->bound->variant];
    const cgp__program *program =
        cgp__stage_program(&plan->stages[variant->stage], variant->program);
    if (i < 0 || i >= variant->end || program->calls[i].node < 0) return NULL;
    return &plan->model->nodes[program->calls[i].node];
}

int cgp__views_latest_event(const cgp__view *views, int n) {
    int latest = -1;
    int64_t end = 0;
    for (int d = 0; d < n; d++) {
        const cgp__worker *worker = views[d].worker;
        if (!cgp__is_here(worker) || views[d].next <= worker->trace_start) continue;
        const cgp__event *event = cgp__trace_event(&worker->trace, views[d].next - 1);
        if (latest >= 0 && event->end_ns <= end) continue;
        latest = d;
        end = event->end_ns;
    }
    return latest;
}
