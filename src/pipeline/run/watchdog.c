/* SPDX-License-Identifier: Apache-2.0 */
/* watchdog.c -- gives up a run that makes no progress, and reports which action hangs.
 *
 * Heartbeats carry the end time of each rank's last action, so no rank gives up while another rank
 * makes progress. A rank whose own worker hangs gives up first, because this rank can name the
 * action that hangs. The other ranks then receive its message. Ranks that only wait for messages
 * have a slightly longer time limit. */
#include "pipeline/run/watchdog.h"

#include "base/json.h"
#include "model/model.h"
#include "pipeline/run/agreements.h"
#include "pipeline/run/diagnosis.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/views.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"
#include "plan/memory/devices.h"
#include "schedule/kinds.h"
#include "transport/transport.h"

#include <stdlib.h>

#define EVENTS 50 /* maximum number of events in a report */

/* Progress information is at most 3 heartbeat intervals old. It passes through three threads, and
 * each of them adds up to one interval: the other rank's user thread, its heartbeat thread, and
 * this rank's heartbeat thread. */
#define HEARTBEATS_LATE 3
/* Extra time limits, in ns. Ranks that only wait get WAITS_LATE_NS, so a rank that hangs gives up
 * before them. If another rank has waited longer, a waiting rank gets OTHERS_LATE_NS too. So the
 * rank that has waited longest gives up first; most likely its message was lost. */
#define WAITS_LATE_NS 500000000
#define OTHERS_LATE_NS 400000000

/* Return the end time of the last action on this rank. The arrival of a part of an exchange between
 * replicas counts as an end, so that an exchange may take longer than the time limit. */
static int64_t last_end_here(const cgp__executor *executor) {
    int64_t last = executor->team->last_end_ns;
    for (int d = executor->ranks->first; d < executor->ranks->end; d++) {
        const int64_t written = cgp__trace_written(&executor->measured[d].trace);
        last = cgp__max(last, cgp__last_end(executor, d, written));
        last = cgp__max(last, atomic_load(&executor->workers[d].progress.part_ns));
    }
    return last;
}

/* Return true if no worker on this rank runs an action: each worker waits for a message or has
 * ended its job. */
static bool all_wait(const cgp__executor *executor) {
    for (int d = executor->ranks->first; d < executor->ranks->end; d++) {
        const cgp__view v = cgp__view_of(executor, d);
        if (v.busy && !v.waits && !atomic_load(&executor->workers[d].progress.exchanges))
            return false;
    }
    return true;
}

/* Return true if the last action of another rank in this step ended before this rank's last
 * action. */
static bool another_waits_longer(const cgp__ranks *ranks, int64_t here) {
    for (int r = 0; r < ranks->n; r++) {
        const cgp_rank_state *s = &ranks->states[r];
        if (r != ranks->rank && s->heartbeat_ns > 0 && s->agreeing_ns == 0 && s->end_ns > 0 &&
            s->end_ns < here)
            return true;
    }
    return false;
}

/* Report this rank's progress, read the progress of the other ranks, and return the time at which
 * the job times out. The interval between heartbeats is look_ns. */
static int64_t deadline(const void *self) {
    const cgp__executor *executor = self;
    const cgp__ranks *ranks = executor->ranks;
    const int64_t timeout_ns = executor->team->timeout_ns, here = last_end_here(executor);
    if (!ranks->transport) return here + timeout_ns;
    const int64_t last = cgp__ranks_exchange_progress(ranks, cgp__ended_here(executor), here);
    const int64_t limit = last + timeout_ns + HEARTBEATS_LATE * executor->team->look_ns;
    if (!all_wait(executor)) return limit;
    return limit + WAITS_LATE_NS + (another_waits_longer(ranks, here) ? OTHERS_LATE_NS : 0);
}

/* Return true if it is certain that device `d` touches only its own memory. An asynchronous device
 * may already run later actions, which may touch such memory. */
static bool computes(const void *self, int d) {
    const cgp__executor *executor = self;
    const int64_t written = cgp__trace_written(&executor->measured[d].trace);
    const cgp__bound_action *bound = cgp__action_at(executor, d, written);
    return bound && bound->action.edge < 0 &&
           !cgp__plan_device(executor->plan, d)->backend->streams;
}

/* If the view's action runs a known kernel, return a text such as ", in layer X, linear"; otherwise
 * return "". */
static const char *layer_text(const cgp__view *v, char *text, size_t size) {
    const cgp__node *node = cgp__view_node(v);
    text[0] = 0;
    if (node)
        snprintf(text, size, ", in layer %s, %s", v->executor->model->layers[node->layer],
                 node->use.op->name);
    return text;
}

/* Write a worker's line of the report. The caller has already written the worker's name at the
 * start of the line. */
static void write_state(FILE *file, const cgp__view *v, int64_t now) {
    const cgp__executor *executor = v->executor;
    const double seconds = cgp__seconds_since(v->since_ns, now);
    char text[32], layer[512];
    if (!v->is_here) {
        fprintf(file, "is on rank %d\n",
                cgp__ranks_with(executor->ranks, executor->plan, v->device));
    } else if (!v->busy || (!v->bound && executor->team->job == cgp__job_run)) {
        fprintf(file, "is done with its list\n");
    } else if (!v->bound) {
        fprintf(file, "adds up gradients or updates parameters or states for %.1f s\n", seconds);
    } else if (!v->waits) {
        fprintf(file, "runs %s for %.1f s%s\n",
                cgp_action_text(&v->bound->action, text, sizeof text), seconds,
                layer_text(v, layer, sizeof layer));
    } else {
        const cgp_action *action = &v->bound->action;
        fprintf(file, "waits in %s for stage %d to %s, for %.1f s\n",
                cgp_action_text(action, text, sizeof text), cgp__peer_of(executor->plan, action),
                cgp__is_send(action->kind) ? "free a buffer" : "send it", seconds);
    }
}

/* Return the length of the chain of waits that begins at device `d`. A length above n means that
 * the chain has a cycle. */
static int chain_length(const cgp__view *views, int n, int d) {
    int length = 0;
    for (; views[d].waits && length <= n; length++)
        d = views[d].waits_for;
    return length;
}

/* Write the longest chain of waits, such as "device 0 waits for device 1, which waits for device 2,
 * which runs 2B5". */
static void write_chain(FILE *file, const cgp__view *views, int n) {
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
    else if (!views[d].is_here)
        fprintf(file, ", which is on another rank\n");
    else if (!views[d].busy || !views[d].bound)
        fprintf(file, ", which is done with its list\n");
    else
        fprintf(file, ", which runs %s\n",
                cgp_action_text(&views[d].bound->action, text, sizeof text));
}

static void write_events(FILE *file, cgp__view *views, int n_views) {
    struct {
        int device;
        cgp__event event;
    } taken[EVENTS];
    const int64_t start_ns = views[0].executor->run_start_ns;
    int n = 0;
    char text[32];
    for (int d; n < EVENTS && (d = cgp__views_latest_event(views, n_views)) >= 0; n++) {
        taken[n].device = d;
        taken[n].event = *cgp__trace_event(&views[d].executor->measured[d].trace, --views[d].next);
    }
    fprintf(file, "the last %d events (start and end in ms since the start of the run):\n", n);
    for (int i = n - 1; i >= 0; i--) {
        const cgp__event *event = &taken[i].event;
        const cgp_action action = {.kind = (cgp_action_kind)event->kind,
                                   .stage = event->stage,
                                   .microbatch = event->microbatch,
                                   .edge = -1};
        fprintf(file, "  %10.3f %10.3f  device %d  %s\n",
                1e3 * cgp__seconds_since(start_ns, event->start_ns),
                1e3 * cgp__seconds_since(start_ns, event->end_ns), taken[i].device,
                cgp_action_text(&action, text, sizeof text));
    }
}

/* Return the view of the device to blame. If that device waits, follow its chain of waits to the
 * last device of this rank, which may wait for another rank. */
static const cgp__view *find_blamed(const cgp__view *views, int n) {
    const cgp__view *v = cgp__views_blamed(views, n);
    for (int i = 0; i < n && v && v->waits && views[v->waits_for].busy; i++)
        v = &views[v->waits_for];
    return v;
}

/* Return true if the worker of a view waits for another rank. */
static bool waits_for_rank(const cgp__view *v) {
    return v->waits && !cgp__ranks_own(v->executor->ranks, v->waits_for);
}

/* Return a text that names the rank for which an action waits, or ", all wait for each other".
 * Return "" if the action does not wait. */
static const char *wait_text(const cgp__view *v, char *text, size_t size) {
    const cgp_plan *plan = v->executor->plan;
    text[0] = 0;
    if (waits_for_rank(v))
        snprintf(text, size, ", waits for stage %d on rank %d",
                 cgp__peer_of(plan, &v->bound->action),
                 cgp__ranks_with(v->executor->ranks, plan, v->waits_for));
    else if (v->waits)
        snprintf(text, size, ", all wait for each other");
    return text;
}

/* Describe the action that hangs, for the run's message and the report's first line. */
static void describe(const cgp__view *v, int64_t now, char *text, size_t size) {
    const double seconds = cgp__seconds_since(v->since_ns, now);
    char name[32], layer[512], wait[96];
    if (!v->bound) {
        cgp__print(text, size,
                   "device %d: did not end adding up gradients or updating parameters for %.1f s "
                   "(timeout)",
                   v->device, seconds);
        return;
    }
    const cgp_action *action = &v->bound->action;
    cgp__print(text, size, "stage %d, micro-batch %d, %s: did not end for %.1f s (timeout)%s%s",
               action->stage, action->microbatch, cgp_action_text(action, name, sizeof name),
               seconds, layer_text(v, layer, sizeof layer), wait_text(v, wait, sizeof wait));
}

static void write_report(cgp__executor *executor, cgp__view *views, int64_t now,
                         const char *first) {
    const cgp_plan *plan = executor->plan;
    cgp__text text;
    char *report = NULL;
    if (cgp__text_open(&text, "pipeline") != CGP_OK) return;
    fprintf(text.file, "%s\nworkers:\n", first);
    for (int d = 0; d < cgp_plan_devices(plan); d++) {
        fprintf(text.file, "  device %d (%s): ", d, cgp_plan_device_at(plan, d)->name);
        write_state(text.file, &views[d], now);
    }
    fprintf(text.file, "longest chain of waiting devices:\n");
    write_chain(text.file, views, cgp_plan_devices(plan));
    write_events(text.file, views, cgp_plan_devices(plan));
    if (cgp__text_close(&text, CGP_OK, &report) != CGP_OK) return; /* out of memory */
    free(executor->report);
    executor->report = report;
}

/* If another rank has failed, give up with that rank's message. The failure has ended the waits on
 * this rank, but the workers of this rank may not have woken yet. */
static bool give_up_with_peer(cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    char message[1024];
    int rank = -1;
    if (!ranks->transport || ranks->transport->failures.first(ranks->communicator, &rank, message,
                                                              sizeof message) == CGP_OK)
        return false;
    cgp__team_give_up(executor->team, cgp_fail(CGP_EPEER, "rank %d: %s", rank, message));
    return true;
}

/* Give up the run. `what` describes the action that hangs. `elsewhere` is true if this rank waits
 * for a message from another rank. */
static void give_up(cgp__executor *executor, const char *what, bool elsewhere) {
    const cgp_status status = elsewhere ? CGP_EPEER : CGP_EDEVICE;
    (void)cgp_fail(status, "%s; cgp_pipeline_report() shows what each device waits for", what);
    cgp__team_give_up(executor->team, status);
    if (elsewhere) /* notify the other ranks here, because stop() does not do so for CGP_EPEER */
        executor->ranks->transport->failures.fail(executor->ranks->communicator, status,
                                                  cgp_message());
}

static bool time_out(void *self) {
    cgp__executor *executor = self;
    if (give_up_with_peer(executor)) return true;
    const int n = cgp_plan_devices(executor->plan);
    const int64_t now = cgp__now_ns();
    char text[768] = "pipeline: no action ended in time (timeout)";
    cgp__view *views = cgp__calloc((size_t)n, sizeof *views);
    const bool hangs = !views || cgp__views_take(executor, views);
    bool elsewhere = false;
    if (views && hangs) {
        const cgp__view *blamed = find_blamed(views, n);
        elsewhere = waits_for_rank(blamed);
        describe(blamed, now, text, sizeof text);
        write_report(executor, views, now, text);
    }
    free(views);
    if (hangs) give_up(executor, text, elsewhere);
    return hangs;
}

/* End all waits on this rank, and notify the other ranks of the failure. */
static void stop(void *self) {
    cgp__executor *executor = self;
    cgp__diagnosis_keep(executor);
    cgp__transport_inproc.failures.stop(executor->inproc);
    cgp__ranks_fail(executor->ranks, executor->team->first_status);
    if (executor->ranks->transport)
        executor->ranks->transport->failures.stop(executor->ranks->communicator);
}

const cgp__supervisor cgp__watchdog = {stop, deadline, time_out, computes};
