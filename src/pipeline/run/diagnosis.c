/* SPDX-License-Identifier: Apache-2.0 */
/* diagnosis.c -- makes the JSON object of a diagnosis. It has the state of this rank's devices
 * (what each device runs or waits for), and the last known state of the other ranks. */
#include "pipeline/run/diagnosis.h"

#include "model/model.h"
#include "pipeline/run/bind.h"
#include "pipeline/run/execute.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/measured.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/views.h"
#include "pipeline/team/team.h"
#include "plan/messages.h"
#include "schedule/kinds.h"

#include <stdlib.h>
#include <string.h>

enum { EVENTS = 100, SENDS = 64 };

/* Return the seconds since the event at `then_ns`, or JSON null if the event has not happened. */
static json_t *seconds_json(int64_t then_ns, int64_t now_ns) {
    return then_ns > 0 ? json_real(cgp__seconds_since(then_ns, now_ns)) : json_null();
}

/* Return a text as a JSON string. If the text is not UTF-8, escape it. */
static json_t *text_json(const char *text) {
    json_t *plain = json_string(text);
    char shown[1024];
    return plain ? plain : json_string(cgp_escape(text, shown, sizeof shown));
}

/* --- devices --- */

/* Return true while a job without a time limit is running. Such a job may change traces, for
 * example when it binds kernels. So traces must not be read while it runs. */
static bool prepares(const cgp__executor *executor) {
    return executor->team->remaining > 0 && !executor->team->timed;
}

static const char *state_of(const cgp__view *v) {
    const cgp__team *team = v->executor->team;
    if (!v->busy) return team->remaining > 0 ? "done" : "idle";
    if (!v->bound) return team->job == cgp__job_run ? "done" : "updates";
    /* if another rank has failed, workers in transfers have just stopped waiting; report them as
     * waiting */
    const bool waits = v->waits || (team->first_status == CGP_EPEER && v->bound->action.edge >= 0);
    return waits ? "waits" : "runs";
}

/* Add the index of the matching transfer in the peer device's action list. Also add the peer's
 * action that must run before the message or buffer is available. A peer that does not answer is at
 * this action or at an earlier action. */
static void add_peer_action(json_t *o, const cgp_schedule *schedule, const cgp_action *action,
                            int peer) {
    int n = 0, i = 0;
    char text[32];
    const cgp_action *list = cgp_schedule_actions(schedule, peer, &n);
    while (i < n && (list[i].edge != action->edge || list[i].microbatch != action->microbatch ||
                     cgp__is_send(list[i].kind) == cgp__is_send(action->kind)))
        i++;
    if (i == n) return;
    int j = i;
    while (j > 0 && (list[j].edge >= 0 || list[j].stage != list[i].stage ||
                     list[j].microbatch != list[i].microbatch))
        j--;
    const bool computes = cgp__is_send(list[i].kind) && list[j].edge < 0 &&
                          list[j].stage == list[i].stage &&
                          list[j].microbatch == list[i].microbatch;
    json_object_update_new(o,
                           json_pack("{s:i, s:s}", "peer_index", i, "peer_action",
                                     cgp_action_text(&list[computes ? j : i], text, sizeof text)));
}

/* Add the other end of a transfer in progress. */
static void add_transfer(json_t *o, const cgp__view *v) {
    const cgp__executor *executor = v->executor;
    const cgp_plan *plan = executor->plan;
    const cgp_action *action = &v->bound->action;
    const cgp_edge *edge = &cgp__plan_edge(plan, action->edge)->edge;
    const bool sends = cgp__is_send(action->kind);
    const int peer = cgp_plan_stage_at(plan, sends ? edge->to : edge->from)->device;
    json_object_update_new(o, json_pack("{s:i, s:i, s:i, s:s, s:i, s:i}", "edge", action->edge,
                                        "from_stage", edge->from, "to_stage", edge->to, "wants",
                                        sends ? "buffer" : "message", "peer_device", peer,
                                        "peer_rank", cgp__ranks_with(executor->ranks, plan, peer)));
    add_peer_action(o, executor->context.run->schedule, action, peer);
}

static json_t *device_json(const cgp__view *v, int64_t now) {
    const cgp_plan *plan = v->executor->plan;
    const int d = v->device;
    char text[32];
    json_t *o = json_pack("{s:i, s:s, s:s}", "device", d, "name", cgp_plan_device_at(plan, d)->name,
                          "state", state_of(v));
    if (v->busy) json_object_set_new(o, "seconds", json_real(cgp__seconds_since(v->since_ns, now)));
    if (!v->bound) return o;
    const cgp_action *action = &v->bound->action;
    json_object_update_new(o, json_pack("{s:s, s:i, s:i}", "action",
                                        cgp_action_text(action, text, sizeof text), "stage",
                                        action->stage, "microbatch", action->microbatch));
    if (action->edge >= 0) add_transfer(o, v);
    const cgp__node *node = cgp__view_node(v);
    if (node) {
        json_object_set_new(o, "layer", text_json(v->executor->model->layers[node->layer]));
        json_object_set_new(o, "op", text_json(node->use.op->name));
    }
    return o;
}

/* --- messages and events --- */

static int peer_rank_of(const cgp__executor *executor, const cgp_action *action) {
    const cgp_plan *plan = executor->plan;
    return cgp__ranks_with(executor->ranks, plan,
                           cgp_plan_stage_at(plan, cgp__peer_of(plan, action))->device);
}

/* Add the last messages that this rank has sent to other ranks in the current run. The run may
 * already have ended on this rank. */
static void add_sent(json_t *list, const cgp__view *v) {
    const cgp__executor *executor = v->executor;
    int begin = 0, end = 0, found = 0;
    if (executor->team->job != cgp__job_run || !executor->context.run) return;
    cgp__run_range(&executor->context, v->device, &begin, &end);
    const cgp__bound_action *actions = executor->context.run->lists[v->device].actions;
    for (int64_t i = begin + v->written - executor->measured[v->device].trace_start - 1;
         i >= begin && found < SENDS; i--) {
        const cgp_action *action = &actions[i].action;
        if (action->edge < 0 || !cgp__is_send(action->kind)) continue;
        const int peer = peer_rank_of(executor, action);
        if (peer == executor->ranks->rank) continue;
        const cgp_edge *edge = &cgp__plan_edge(executor->plan, action->edge)->edge;
        json_array_append_new(list, json_pack("{s:i, s:i, s:i, s:i, s:i}", "edge", action->edge,
                                              "from_stage", edge->from, "to_stage", edge->to,
                                              "microbatch", action->microbatch, "to_rank", peer));
        found++;
    }
}

static json_t *events_json(cgp__view *views, int n_views, int64_t now) {
    json_t *list = json_array();
    char text[32];
    for (int n = 0, d; n < EVENTS && (d = cgp__views_latest_event(views, n_views)) >= 0; n++) {
        const cgp__event *event =
            cgp__trace_event(&views[d].executor->measured[d].trace, --views[d].next);
        const cgp_action action = {.kind = (cgp_action_kind)event->kind,
                                   .stage = event->stage,
                                   .microbatch = event->microbatch,
                                   .edge = -1};
        json_array_insert_new(list, 0,
                              json_pack("{s:i, s:s, s:f, s:f}", "device", d, "action",
                                        cgp_action_text(&action, text, sizeof text), "start",
                                        cgp__seconds_since(now, event->start_ns), "end",
                                        cgp__seconds_since(now, event->end_ns)));
    }
    return list;
}

/* --- ranks --- */

static json_t *rank_json(const cgp_rank_state *s, int r, int64_t now) {
    return json_pack("{s:i, s:o, s:I, s:o, s:I, s:o, s:I, s:o, s:b}", "rank", r, "host",
                     text_json(s->host), "process", (json_int_t)s->process, "heard",
                     seconds_json(s->heartbeat_ns, now), "ended", (json_int_t)s->ended, "last_end",
                     seconds_json(s->end_ns, now), "agreements", (json_int_t)s->agreements,
                     "agreeing", seconds_json(s->agreeing_ns, now), "left", s->left);
}

/* Return the later of two times: the start of the current wait, and the end of the last action on
 * any rank. Return 0 if this rank does not wait in a call. */
static int64_t waits_since(const cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    const cgp__team *team = executor->team;
    int64_t since = 0;
    if (team->remaining > 0 && team->timed)
        since = team->job_start_ns;
    else if (ranks->transport)
        since = ranks->states[ranks->rank].agreeing_ns;
    if (since == 0) return 0;
    for (int d = ranks->first; d < ranks->end && !prepares(executor); d++) {
        const cgp__measured *measured = &executor->measured[d];
        const int64_t written = cgp__trace_written(&measured->trace);
        if (written > measured->trace_start)
            since = cgp__max(since, cgp__last_end(executor, d, written));
    }
    for (int r = 0; ranks->transport && r < ranks->n; r++)
        since = cgp__max(since, ranks->states[r].end_ns);
    return since;
}

/* --- all of it; called with the team's lock held --- */

static json_t *make(const cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    const int64_t now = cgp__now_ns(), since = waits_since(executor);
    const int n = cgp_plan_devices(executor->plan);
    json_t *devices = json_array(), *sent = json_array(), *known = json_array(), *events = NULL;
    cgp__view *views = prepares(executor) ? NULL : cgp__calloc((size_t)n, sizeof *views);
    if (views) (void)cgp__views_take(executor, views);
    for (int d = ranks->first; views && d < ranks->end; d++) {
        json_array_append_new(devices, device_json(&views[d], now));
        add_sent(sent, &views[d]);
    }
    if (views) events = events_json(views, n, now);
    for (int r = 0; ranks->transport && r < ranks->n; r++)
        json_array_append_new(known, rank_json(&ranks->states[r], r, now));
    free(views);
    return json_pack("{s:I, s:b, s:o, s:s, s:o, s:o, s:o, s:o*}", "ended",
                     (json_int_t)cgp__ended_here(executor), "in_step",
                     executor->team->remaining > 0 && executor->team->timed, "waits",
                     seconds_json(since, now), "failure", executor->team->first_message, "devices",
                     devices, "sent", sent, "known", known, "events", events);
}

static void read_rank_states(const cgp__executor *executor) {
    const cgp__ranks *ranks = executor->ranks;
    if (ranks->transport)
        ranks->transport->failures.rank_states(ranks->communicator, ranks->states);
}

void cgp__diagnosis_keep(cgp__executor *executor) {
    if (executor->diagnosis || !executor->ranks->transport) return;
    read_rank_states(executor);
    json_t *o = make(executor);
    executor->diagnosis = o ? cgp__json_text(o, JSON_COMPACT | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(o);
}

json_t *cgp__diagnosis_of(cgp__executor *executor, double idle, bool *is_idle) {
    cgp__json_error error;
    pthread_mutex_lock(&executor->team->lock);
    read_rank_states(executor);
    const int64_t since = waits_since(executor);
    *is_idle = idle <= 0 || executor->diagnosis ||
               (since > 0 && cgp__seconds_since(since, cgp__now_ns()) >= idle);
    json_t *o = NULL;
    if (*is_idle && executor->diagnosis)
        o = cgp__json_read(executor->diagnosis, strlen(executor->diagnosis), &error);
    else if (*is_idle)
        o = make(executor);
    pthread_mutex_unlock(&executor->team->lock);
    return o;
}
