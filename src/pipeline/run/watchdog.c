/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c -- stops a run in which nothing moves.
 *
 * It has no thread: the caller, who waits for the workers anyway, wakes up when the last action
 * that any of them ended is older than the timeout. What a worker is at costs it nothing to tell:
 * the events of its trace count the actions of its list that it has ended, the next one is in
 * progress. The trace is read while it grows, up to what is complete; it has room for a whole
 * list, so no event of this run is overwritten. An update, or a sum of gradients, counts as one
 * action of each device.
 *
 * Of the workers that have not come back, some wait in a channel, others run. The one that has
 * run longest is to blame; if all wait, the chain of who waits for whom is a cycle. */
#define _GNU_SOURCE /* open_memstream, also under -std=c11 */
#include "pipeline/pipeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define EVENTS 50   /* in a report */
#define LONGEST 1e9 /* seconds */

/* A worker, at one moment. */
typedef struct view {
    bool busy;                      /* has not come back */
    const cgp__bound_action *bound; /* in progress; NULL: none, or none of a list */
    bool waits;
    int waits_for;    /* a device */
    int64_t since_ns; /* when it began what it is at */
    int64_t written;  /* events of its trace */
    int64_t next;     /* of them to be taken into the report, from the last one */
} view;

cgp_status cgp_pipeline_set_timeout(cgp_pipeline *pipeline, double seconds) {
    CGP__PIPELINE(pipeline);
    if (!isfinite(seconds) || seconds < 0)
        return cgp_fail(CGP_EINVAL,
                        "timeout: expected seconds > 0, got %g (0 is for no timeout)", seconds);
    pipeline->timeout_ns = seconds < LONGEST ? (int64_t)ceil(seconds * 1e9) : 0;
    return CGP_OK;
}

const char *cgp_pipeline_report(const cgp_pipeline *pipeline) {
    CGP__PIPELINE_OR(pipeline, NULL);
    return pipeline->report ? pipeline->report : "";
}

/* When a worker ended something last, the job's start if nothing. */
static int64_t last_end(const cgp_pipeline *pipeline, const cgp__worker *worker,
                        int64_t written) {
    const int64_t start = pipeline->job_start_ns;
    if (written == 0) return start;
    const int64_t end = cgp__trace_event(&worker->trace, written - 1)->end_ns;
    return end > start ? end : start;
}

int64_t cgp__watchdog_deadline(const cgp_pipeline *pipeline) {
    cgp__job *const job = pipeline->job;
    if (pipeline->timeout_ns == 0 || job == cgp__job_create_device ||
        job == cgp__job_bind_kernels || job == cgp__job_destroy_device)
        return INT64_MAX;
    int64_t last = pipeline->back_ns;
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const cgp__worker *worker = &pipeline->workers[d];
        const int64_t end = last_end(pipeline, worker, cgp__trace_written(&worker->trace));
        if (end > last) last = end;
    }
    return last + pipeline->timeout_ns;
}

/* The action that a worker is at after so many events; NULL: none of a list. */
static const cgp__bound_action *action_at(const cgp_pipeline *pipeline,
                                          const cgp__worker *worker, int64_t written) {
    int begin = 0, end = 0;
    if (pipeline->job != cgp__job_run || !(worker->busy || worker->handed)) return NULL;
    const cgp__run_context *context = pipeline->argument;
    cgp__run_range(context, worker->index, &begin, &end);
    const int64_t i = begin + written - worker->trace_start;
    return i < end ? &context->run->lists[worker->index].actions[i] : NULL;
}

bool cgp__watchdog_computes(const cgp_pipeline *pipeline, const cgp__worker *worker) {
    const cgp__bound_action *bound =
        action_at(pipeline, worker, cgp__trace_written(&worker->trace));
    return bound && bound->action.edge < 0;
}

static bool is_send(const cgp_action *action) {
    return action->kind == CGP_ACTION_SEND_F || action->kind == CGP_ACTION_SEND_B;
}

/* The stage at the other end of a transfer. */
static int peer_of(const cgp_plan *plan, const cgp_action *action) {
    const cgp_edge *edge = &plan->edges[action->edge].edge;
    return is_send(action) ? edge->to : edge->from;
}

static void look(const cgp_pipeline *pipeline, int d, view *v) {
    const cgp_plan *plan = pipeline->plan;
    const cgp__worker *worker = &pipeline->workers[d];
    v->written = v->next = cgp__trace_written(&worker->trace);
    v->busy = worker->busy || worker->handed;
    v->bound = action_at(pipeline, worker, v->written);
    v->since_ns = last_end(pipeline, worker, v->written);
    if (!v->bound || v->bound->action.edge < 0) return;
    const cgp_action *action = &v->bound->action;
    v->waits = cgp__channel_waits(pipeline->channels[action->edge], is_send(action));
    v->waits_for = plan->stages[peer_of(plan, action)].info.device;
}

/* false if one of them has ended an action while they were looked at. */
static bool look_at_all(const cgp_pipeline *pipeline, view *views) {
    const int n = pipeline->plan->n_devices;
    for (int d = 0; d < n; d++)
        look(pipeline, d, &views[d]);
    for (int d = 0; d < n; d++) {
        if (cgp__trace_written(&pipeline->workers[d].trace) != views[d].written) return false;
    }
    return true;
}

/* Who has run longest; if all wait, who has waited longest. */
static int find_culprit(const view *views, int n) {
    int culprit = -1;
    for (int d = 0; d < n; d++) {
        if (!views[d].busy) continue;
        const view *worst = culprit < 0 ? NULL : &views[culprit];
        if (!worst || (worst->waits && !views[d].waits) ||
            (worst->waits == views[d].waits && views[d].since_ns < worst->since_ns))
            culprit = d;
    }
    return culprit;
}

/* ", in layer X, linear" of an action that computes. */
static const char *place_of(const cgp_pipeline *pipeline, int d, const view *v, char *text,
                            size_t size) {
    const cgp_plan *plan = pipeline->plan;
    const int i = atomic_load_explicit(&pipeline->workers[d].call, memory_order_relaxed);
    text[0] = 0;
    if (!v->bound || v->bound->action.edge >= 0) return text;
    const cgp__stage_plan *stage = &plan->stages[v->bound->action.stage];
    const cgp__program *program = cgp__stage_program(stage, v->bound->program);
    if (i >= v->bound->end || program->calls[i].node < 0) return text;
    const cgp__node *node = &plan->model->nodes[program->calls[i].node];
    snprintf(text, size, ", in layer %s, %s", plan->model->layers[node->layer], node->op->name);
    return text;
}

static double seconds_since(int64_t then_ns, int64_t now_ns) {
    return (double)(now_ns - then_ns) * 1e-9;
}

/* What a worker is at, as a line goes on after its name. */
static void write_state(FILE *file, const cgp_pipeline *pipeline, int d, const view *v,
                        int64_t now) {
    const double seconds = seconds_since(v->since_ns, now);
    char text[32], place[512];
    if (!v->busy || (!v->bound && pipeline->job == cgp__job_run)) {
        fprintf(file, "is done with its list\n");
    } else if (!v->bound) {
        fprintf(file, "adds up gradients or updates parameters or states for %.1f s\n",
                seconds);
    } else if (!v->waits) {
        fprintf(file, "runs %s for %.1f s%s\n",
                cgp_action_text(&v->bound->action, text, sizeof text), seconds,
                place_of(pipeline, d, v, place, sizeof place));
    } else {
        const cgp_action *action = &v->bound->action;
        fprintf(file, "waits in %s for stage %d to %s, for %.1f s\n",
                cgp_action_text(action, text, sizeof text), peer_of(pipeline->plan, action),
                is_send(action) ? "free a buffer" : "send it", seconds);
    }
}

/* How many steps it is from a device to one that does not wait; more than n in a cycle. */
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
        fprintf(file, "  nobody waits for another\n");
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
    else if (!views[d].busy || !views[d].bound)
        fprintf(file, ", which is done with its list\n");
    else
        fprintf(file, ", which runs %s\n",
                cgp_action_text(&views[d].bound->action, text, sizeof text));
}

/* The device whose last event, of those not taken yet, ended last; -1: none is left. */
static int latest_event(const cgp_pipeline *pipeline, const view *views) {
    int latest = -1;
    int64_t end = 0;
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const cgp__worker *worker = &pipeline->workers[d];
        if (views[d].next <= worker->trace_start) continue;
        const cgp__event *event = cgp__trace_event(&worker->trace, views[d].next - 1);
        if (latest >= 0 && event->end_ns <= end) continue;
        latest = d;
        end = event->end_ns;
    }
    return latest;
}

static void write_events(FILE *file, const cgp_pipeline *pipeline, view *views) {
    struct {
        int device;
        cgp__event event;
    } taken[EVENTS];
    int n = 0;
    char text[32];
    for (int d; n < EVENTS && (d = latest_event(pipeline, views)) >= 0; n++) {
        taken[n].device = d;
        taken[n].event = *cgp__trace_event(&pipeline->workers[d].trace, --views[d].next);
    }
    fprintf(file, "the last %d events (start and end in ms since the start of the run):\n", n);
    for (int i = n - 1; i >= 0; i--) {
        const cgp__event *event = &taken[i].event;
        const cgp_action action = {.kind = (cgp_action_kind)event->kind,
                                   .stage = event->stage,
                                   .microbatch = event->microbatch,
                                   .edge = -1};
        fprintf(file, "  %10.3f %10.3f  device %d  %s\n",
                1e3 * seconds_since(pipeline->run_start_ns, event->start_ns),
                1e3 * seconds_since(pipeline->run_start_ns, event->end_ns), taken[i].device,
                cgp_action_text(&action, text, sizeof text));
    }
}

/* Which action hangs: the message of the run, and the first line of the report. */
static void describe(const cgp_pipeline *pipeline, const view *views, int d, int64_t now,
                     char *text, size_t size) {
    const view *v = &views[d];
    const double seconds = seconds_since(v->since_ns, now);
    char name[32], place[512];
    if (!v->bound) {
        snprintf(text, size,
                 "device %d: did not end adding up gradients or updating parameters for %.1f s "
                 "(timeout)",
                 d, seconds);
        return;
    }
    const cgp_action *action = &v->bound->action;
    snprintf(text, size, "stage %d, micro-batch %d, %s: did not end for %.1f s (timeout)%s%s",
             action->stage, action->microbatch, cgp_action_text(action, name, sizeof name),
             seconds, place_of(pipeline, d, v, place, sizeof place),
             v->waits ? ", all wait for each other" : "");
}

static void write_report(cgp_pipeline *pipeline, view *views, int64_t now, const char *first) {
    const cgp_plan *plan = pipeline->plan;
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file) return;
    fprintf(file, "%s\nworkers:\n", first);
    for (int d = 0; d < plan->n_devices; d++) {
        fprintf(file, "  device %d (%s): ", d, plan->devices[d].name);
        write_state(file, pipeline, d, &views[d], now);
    }
    fprintf(file, "who waits for whom:\n");
    write_chain(file, views, plan->n_devices);
    write_events(file, pipeline, views);
    if (fclose(file) == 0) {
        free(pipeline->report);
        pipeline->report = text;
    } else {
        free(text); /* memory is short: no report */
    }
}

bool cgp__watchdog_bark(cgp_pipeline *pipeline) {
    const int n = pipeline->plan->n_devices;
    const int64_t now = cgp__now_ns();
    char culprit[768] = "pipeline: no action ended in time (timeout)";
    view *views = cgp__calloc((size_t)n, sizeof *views);
    if (views && !look_at_all(pipeline, views)) {
        free(views);
        return false;
    }
    if (views) {
        describe(pipeline, views, find_culprit(views, n), now, culprit, sizeof culprit);
        write_report(pipeline, views, now, culprit);
    }
    free(views);
    (void)cgp_fail(CGP_EDEVICE, "%s; cgp_pipeline_report() tells what everybody waits for",
                   culprit);
    cgp__workers_give_up(pipeline, CGP_EDEVICE);
    return true;
}
