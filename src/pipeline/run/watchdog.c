/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c -- gives up a run without progress and reports which action hangs.
 *
 * A worker's progress is its trace: the number of this run's events is the index, in its list, of the action in progress.
 * The trace is read while it grows, up to the last complete event; it has capacity for a whole list, so no event of this
 * run is overwritten. An update, or a sum of gradients, counts as one action of each device.
 *
 * Of the busy workers, some wait for a link, others run. The one that has run longest is to blame; if all wait, the chain
 * of waiting devices is a cycle. */
#include "pipeline/run/run.h"
#include "schedule/table.h"

#include <stdlib.h>

#define EVENTS 50 /* in a report */

/* A snapshot of a worker. */
typedef struct view {
    const cgp__worker *worker;
    bool busy;                      /* has not ended the job */
    const cgp__bound_action *bound; /* in progress; NULL: none, or none of a list */
    bool waits;
    int waits_for;    /* a device */
    int64_t since_ns; /* start of the action in progress, or of the job */
    int64_t written;  /* events of its trace */
    int64_t next;     /* events not in the report yet: those before this one */
} view;

static bool is_busy(const cgp__worker *worker) {
    const cgp__thread *thread = cgp__thread_of(worker);
    return thread->busy || thread->assigned;
}

/* The end of a worker's last action; the job's start if there is none. */
static int64_t last_end(const cgp__worker *worker, int64_t written) {
    const int64_t start = worker->executor->team->job_start_ns;
    if (written == 0) return start;
    return cgp__max(start, cgp__trace_event(&worker->trace, written - 1)->end_ns);
}

/* The executor's supervisor: the end of the last action of any worker. */
static int64_t last_action_end(const void *self) {
    const cgp__executor *executor = self;
    int64_t last = 0;
    for (int d = executor->ranks.first; d < executor->ranks.end; d++) {
        const cgp__worker *worker = &executor->workers[d];
        last = cgp__max(last, last_end(worker, cgp__trace_written(&worker->trace)));
    }
    return last;
}

static bool is_here(const cgp__worker *worker) {
    return cgp__ranks_own(&worker->executor->ranks, worker->index);
}

/* The action in progress after `written` events; NULL: none of a list. */
static const cgp__bound_action *action_at(const cgp__worker *worker, int64_t written) {
    int begin = 0, end = 0;
    if (worker->executor->team->job != cgp__job_run || !is_busy(worker)) return NULL;
    const cgp__run_context *context = &worker->executor->context;
    cgp__run_range(context, worker->index, &begin, &end);
    const int64_t i = begin + written - worker->trace_start;
    return i < end ? &context->run->lists[worker->index].actions[i] : NULL;
}

/* A device that runs ahead may touch others in the actions behind the one in progress. */
static bool computes(const void *self, int d) {
    const cgp__worker *worker = &((const cgp__executor *)self)->workers[d];
    const cgp__bound_action *bound = action_at(worker, cgp__trace_written(&worker->trace));
    return bound && bound->action.edge < 0 && !cgp__backend_of(worker)->asynchronous;
}

/* The stage at the other end of a transfer. */
static int peer_of(const cgp_plan *plan, const cgp_action *action) {
    const cgp_edge *edge = &plan->edges[action->edge].edge;
    return cgp__is_send(action->kind) ? edge->to : edge->from;
}

/* Return whether a transfer waits for an event of the other end's device: the worker does, or its device, which has been given the
 * transfer. (Between ranks there are no events.) */
static bool waits_for_event(const cgp__worker *worker, const cgp__bound_action *bound,
                            const cgp__end *end) {
    const cgp__list *list = &worker->executor->context.run->lists[worker->index];
    if (end->transport->copies) return false;
    return atomic_load(&worker->syncs) || (cgp__backend_of(worker)->asynchronous &&
                                           bound - list->actions < atomic_load(&worker->begun));
}

static view snapshot_of(const cgp__worker *worker) {
    const cgp__executor *executor = worker->executor;
    if (!is_here(worker)) return (view){.worker = worker, .next = worker->trace_start};
    const int64_t written = cgp__trace_written(&worker->trace);
    view v = {.worker = worker,
              .busy = is_busy(worker),
              .bound = action_at(worker, written),
              .since_ns = last_end(worker, written),
              .written = written,
              .next = written};
    if (!v.bound || v.bound->action.edge < 0) return v;
    const cgp_action *action = &v.bound->action;
    const cgp__end *end = &executor->ends[action->edge][cgp__is_send(action->kind) ? 0 : 1];
    v.waits = end->transport->waits(end->link) || waits_for_event(worker, v.bound, end);
    v.waits_for = executor->plan->stages[peer_of(executor->plan, action)].info.device;
    return v;
}

/* false if a worker has ended an action meanwhile. */
static bool take_snapshots(const cgp__executor *executor, view *views) {
    const int n = executor->plan->n_devices;
    for (int d = 0; d < n; d++)
        views[d] = snapshot_of(&executor->workers[d]);
    for (int d = executor->ranks.first; d < executor->ranks.end; d++) {
        if (cgp__trace_written(&executor->workers[d].trace) != views[d].written) return false;
    }
    return true;
}

/* The device that has run longest; if all wait, the one that has waited longest. */
static const view *find_culprit(const view *views, int n) {
    const view *worst = NULL;
    for (const view *v = views; v < views + n; v++) {
        if (v->busy && (!worst || (worst->waits && !v->waits) ||
                        (worst->waits == v->waits && v->since_ns < worst->since_ns)))
            worst = v;
    }
    return worst;
}

/* ", in layer X, linear" of an action that computes. */
static const char *layer_text(const view *v, char *text, size_t size) {
    const cgp_plan *plan = v->worker->executor->plan;
    const cgp_backend *backend = cgp__backend_of(v->worker);
    int i = atomic_load_explicit(&v->worker->call, memory_order_relaxed);
    text[0] = 0;
    if (!v->bound || v->bound->action.edge >= 0) return text;
    const cgp__list *list = &v->worker->executor->context.run->lists[v->worker->index];
    if (backend->asynchronous) {
        bool failed = false;
        const int64_t tag = backend->tag_in_progress(v->worker->device, &failed);
        if (tag < 0 || v->bound != &list->actions[cgp__tag_action(tag)]) return text;
        i = cgp__tag_call(tag);
    }
    const cgp__variant *variant = &list->variants[v->bound->variant];
    const cgp__program *program =
        cgp__stage_program(&plan->stages[variant->stage], variant->program);
    if (i < 0 || i >= variant->end || program->calls[i].node < 0) return text;
    const cgp__node *node = &plan->model->nodes[program->calls[i].node];
    snprintf(text, size, ", in layer %s, %s", plan->model->layers[node->layer],
             node->use.op->name);
    return text;
}

static double seconds_since(int64_t then_ns, int64_t now_ns) {
    return (double)(now_ns - then_ns) * 1e-9;
}

/* The rest of a worker's line in the report, after its name. */
static void write_state(FILE *file, const view *v, int64_t now) {
    const cgp__executor *executor = v->worker->executor;
    const double seconds = seconds_since(v->since_ns, now);
    char text[32], layer[512];
    if (!is_here(v->worker)) {
        fprintf(file, "is on rank %d\n", executor->plan->devices[v->worker->index].info.rank);
    } else if (!v->busy || (!v->bound && executor->team->job == cgp__job_run)) {
        fprintf(file, "is done with its list\n");
    } else if (!v->bound) {
        fprintf(file, "adds up gradients or updates parameters or states for %.1f s\n",
                seconds);
    } else if (!v->waits) {
        fprintf(file, "runs %s for %.1f s%s\n",
                cgp_action_text(&v->bound->action, text, sizeof text), seconds,
                layer_text(v, layer, sizeof layer));
    } else {
        const cgp_action *action = &v->bound->action;
        fprintf(file, "waits in %s for stage %d to %s, for %.1f s\n",
                cgp_action_text(action, text, sizeof text), peer_of(executor->plan, action),
                cgp__is_send(action->kind) ? "free a buffer" : "send it", seconds);
    }
}

/* The number of steps from a device to one that does not wait; more than n in a cycle. */
static int chain_length(const view *views, int n, int d) {
    int length = 0;
    for (; views[d].waits && length <= n; length++)
        d = views[d].waits_for;
    return length;
}

/* The longest chain: "device 0 waits for device 1, which waits for device 2, which runs 2B5". */
static void write_chain(FILE *file, const view *views, int n) {
    int first = 0;
    char text[32];
    for (int d = 1; d < n; d++) {
        if (chain_length(views, n, d) > chain_length(views, n, first)) first = d;
    }
    const int length = chain_length(views, n, first);
    if (length == 0) {
        fprintf(file, "  no device waits for another\n");
        return;
    }
    int d = first;
    fprintf(file, "  device %d", d);
    for (int i = 0; i < length && i < n; i++) {
        d = views[d].waits_for;
        fprintf(file, "%s waits for device %d", i > 0 ? ", which" : "", d);
        if (length > n && d == first) break;
    }
    if (length > n)
        fprintf(file, ": a cycle\n");
    else if (!is_here(views[d].worker))
        fprintf(file, ", which is on another rank\n");
    else if (!views[d].busy || !views[d].bound)
        fprintf(file, ", which is done with its list\n");
    else
        fprintf(file, ", which runs %s\n",
                cgp_action_text(&views[d].bound->action, text, sizeof text));
}

/* The device whose last event, of those not in the report yet, ended last; -1: none is left. */
static int latest_event(const view *views, int n) {
    int latest = -1;
    int64_t end = 0;
    for (int d = 0; d < n; d++) {
        const cgp__worker *worker = views[d].worker;
        if (views[d].next <= worker->trace_start) continue;
        const cgp__event *event = cgp__trace_event(&worker->trace, views[d].next - 1);
        if (latest >= 0 && event->end_ns <= end) continue;
        latest = d;
        end = event->end_ns;
    }
    return latest;
}

static void write_events(FILE *file, view *views, int n_views) {
    struct {
        int device;
        cgp__event event;
    } taken[EVENTS];
    const int64_t start_ns = views[0].worker->executor->run_start_ns;
    int n = 0;
    char text[32];
    for (int d; n < EVENTS && (d = latest_event(views, n_views)) >= 0; n++) {
        taken[n].device = d;
        taken[n].event = *cgp__trace_event(&views[d].worker->trace, --views[d].next);
    }
    fprintf(file, "the last %d events (start and end in ms since the start of the run):\n", n);
    for (int i = n - 1; i >= 0; i--) {
        const cgp__event *event = &taken[i].event;
        const cgp_action action = {.kind = (cgp_action_kind)event->kind,
                                   .stage = event->stage,
                                   .microbatch = event->microbatch,
                                   .edge = -1};
        fprintf(file, "  %10.3f %10.3f  device %d  %s\n",
                1e3 * seconds_since(start_ns, event->start_ns),
                1e3 * seconds_since(start_ns, event->end_ns), taken[i].device,
                cgp_action_text(&action, text, sizeof text));
    }
}

/* The action that hangs: the message of the run, and the first line of the report. */
static void describe(const view *v, int64_t now, char *text, size_t size) {
    const double seconds = seconds_since(v->since_ns, now);
    char name[32], layer[512];
    if (!v->bound) {
        snprintf(text, size,
                 "device %d: did not end adding up gradients or updating parameters for %.1f s "
                 "(timeout)",
                 v->worker->index, seconds);
        return;
    }
    const cgp_action *action = &v->bound->action;
    snprintf(text, size, "stage %d, micro-batch %d, %s: did not end for %.1f s (timeout)%s%s",
             action->stage, action->microbatch, cgp_action_text(action, name, sizeof name),
             seconds, layer_text(v, layer, sizeof layer),
             v->waits ? ", all wait for each other" : "");
}

static void write_report(cgp__executor *executor, view *views, int64_t now, const char *first) {
    const cgp_plan *plan = executor->plan;
    cgp__text text;
    char *report = NULL;
    if (cgp__text_open(&text, "pipeline") != CGP_OK) return;
    fprintf(text.file, "%s\nworkers:\n", first);
    for (int d = 0; d < plan->n_devices; d++) {
        fprintf(text.file, "  device %d (%s): ", d, plan->devices[d].name);
        write_state(text.file, &views[d], now);
    }
    fprintf(text.file, "longest chain of waiting devices:\n");
    write_chain(text.file, views, plan->n_devices);
    write_events(text.file, views, plan->n_devices);
    if (cgp__text_close(&text, CGP_OK, &report) != CGP_OK) return; /* out of memory */
    free(executor->report);
    executor->report = report;
}

static bool time_out(void *self) {
    cgp__executor *executor = self;
    const int n = executor->plan->n_devices;
    const int64_t now = cgp__now_ns();
    char culprit[768] = "pipeline: no action ended in time (timeout)";
    view *views = cgp__calloc((size_t)n, sizeof *views);
    const bool hangs = !views || take_snapshots(executor, views);
    if (views && hangs) {
        describe(find_culprit(views, n), now, culprit, sizeof culprit);
        write_report(executor, views, now, culprit);
    }
    free(views);
    if (!hangs) return false;
    (void)cgp_fail(CGP_EDEVICE, "%s; cgp_pipeline_report() shows what each device waits for",
                   culprit);
    cgp__team_give_up(executor->team, CGP_EDEVICE);
    return true;
}

/* The waits for other ranks end when these know of the failure. */
static void stop(void *self) {
    const cgp__executor *executor = self;
    cgp__transport_inproc.stop(executor->inproc);
    cgp__ranks_fail(&executor->ranks, executor->team->first_status);
    if (executor->ranks.transport)
        executor->ranks.transport->stop(executor->ranks.communicator);
}

const cgp__supervisor cgp__watchdog = {stop, last_action_end, time_out, computes};
