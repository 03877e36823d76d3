/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c -- inserts the transfers between the compute actions of a schedule.
 *
 * Example: stage 1 of 3, with edges 0: 0 -> 1, 1: 1 -> 2, 2: 2 -> 1, 3: 1 -> 0; micro-batch i is
 * recomputed:
 *
 *     ... RECV_F (0)  F  SEND_F (1) ...            R  RECV_B (2)  B  SEND_B (3) ...
 *
 * SEND stands right after its producer, so that no message is delayed. RECV stands right before its
 * consumer, so that a posted receive does not hold a buffer early. R stands before the RECV of the
 * gradient, and runs while the gradient is in flight. So a device may run its list in order, and
 * block at each RECV (list_order.c).
 *
 * An overlapped pair is an F of one stage and a B of another. All RECVs of the pair stand before
 * both actions, and all SENDs after both. */
#include "schedule/table.h"

#include <stdlib.h>

#define TRANSFER_KINDS 4 /* SEND_F RECV_F SEND_B RECV_B */

/* The edges of each (transfer kind, stage), ascending, as linked lists. Entry 2 e + is_send belongs
 * to edge e. A link is the number of the next entry + 1; 0: there is no next entry. */
typedef struct edge_groups {
    int *first; /* [TRANSFER_KINDS x stages] */
    int *next;  /* [2 n_edges] */
} edge_groups;

static int *first_of(const edge_groups *groups, cgp_action_kind kind, int stage) {
    return &groups->first[stage * TRANSFER_KINDS + (int)kind - CGP_ACTION_SEND_F];
}

/* Group the edges that are set in `selected`; NULL: all edges. */
static void group_edges(const edge_groups *groups, const cgp_edge *edges, int n_edges,
                        const bool *selected) {
    for (int k = 2 * n_edges - 1; k >= 0; k--) {
        const cgp_edge edge = edges[k / 2];
        const bool is_send = k % 2 == 1;
        if (selected && !selected[k / 2]) continue;
        int *first = first_of(groups, cgp__transfer_kind(cgp__is_gradient(edge), is_send),
                              is_send ? edge.from : edge.to);
        groups->next[k] = *first;
        *first = k + 1;
    }
}

/* Append all RECVs, or all SENDs, that belong to compute action `a`. */
static void append_transfers(cgp_schedule *to, const edge_groups *groups, const cgp_action *a,
                             bool is_send) {
    const bool forward = a->kind == CGP_ACTION_F;
    if (!forward && !cgp__starts_backward(a->kind)) return;
    cgp_action transfer = {.kind = cgp__transfer_kind(!forward, is_send),
                           .stage = a->stage,
                           .microbatch = a->microbatch};
    for (int k = *first_of(groups, transfer.kind, a->stage); k > 0; k = groups->next[k - 1]) {
        transfer.edge = (k - 1) / 2;
        cgp__append_action(to, &transfer);
    }
}

int cgp__partner(const cgp_schedule *s, int device, int position) {
    const cgp_action *list = s->lists[device];
    int i = position + 1;
    if (!list[position].overlapped || list[position].kind != CGP_ACTION_F) return position;
    while (i < s->counts[device] && list[i].kind == CGP_ACTION_R)
        i++;
    return i < s->counts[device] && cgp__starts_backward(list[i].kind) ? i : position;
}

/* Append the action list of a device, with its transfers. */
static void lower_device(cgp_schedule *to, const cgp_schedule *schedule, const edge_groups *groups,
                         int device) {
    const cgp_action *list = schedule->lists[device];
    for (int i = 0, last; i < schedule->counts[device]; i = last + 1) {
        last = cgp__partner(schedule, device, i);
        append_transfers(to, groups, &list[i], false);
        if (last > i) append_transfers(to, groups, &list[last], false);
        for (int k = i; k <= last; k++)
            cgp__append_action(to, &list[k]);
        append_transfers(to, groups, &list[i], true);
        if (last > i) append_transfers(to, groups, &list[last], true);
    }
}

/* Insert the transfers of the selected edges into the lists. */
static cgp_status insert(cgp_schedule *schedule, const cgp_edge *edges, int n_edges,
                         const bool *selected) {
    cgp_schedule *lowered = NULL;
    CGP_TRY(cgp__schedule_new(&lowered, schedule->name, schedule->stages, schedule->chunks,
                              schedule->devices, schedule->device_of));
    const size_t n_groups = TRANSFER_KINDS * (size_t)schedule->stages;
    edge_groups groups = {cgp__calloc(n_groups, sizeof *groups.first),
                          cgp__calloc(2 * (size_t)n_edges, sizeof *groups.next)};
    cgp_status status = groups.first && groups.next
                            ? cgp__set_edges(lowered, edges, n_edges)
                            : cgp__no_memory("schedule: lower", n_groups * sizeof(int));
    if (status == CGP_OK) {
        group_edges(&groups, edges, n_edges, selected);
        for (int device = 0; device < schedule->devices; device++)
            lower_device(lowered, schedule, &groups, device);
        status = cgp__schedule_replace(schedule, lowered);
    } else {
        cgp_schedule_destroy(lowered);
    }
    free(groups.next);
    free(groups.first);
    return status;
}

cgp_status cgp_schedule_lower(cgp_schedule *schedule, const cgp_edge *edges, int n_edges) {
    CGP__NEED(schedule);
    if (n_edges > 0) CGP__NEED(edges);
    if (schedule->lowered)
        return cgp_fail(CGP_ESTATE, "schedule: expected no transfers yet, got a lowered schedule");
    CGP_TRY(cgp__edges_check(edges, n_edges, schedule->stages));
    return insert(schedule, edges, n_edges, NULL);
}

/* --- chains --- */

int cgp__chain_starts(const cgp_schedule *s) {
    bool backward = false;
    int first = s->stages;
    cgp__cursor at = {0};
    while (cgp__next(s, &at)) {
        const cgp_action *a = at.action;
        if (a->kind == CGP_ACTION_F || cgp__is_transfer(a->kind)) continue;
        backward = true;
        if (a->stage < first) first = a->stage;
    }
    return backward ? first : 0;
}

/* Return the [2 x links - first] edges of a chain: 0 -> 1, 1 -> 2 ..., then `first` + 1 -> `first`
 * ...; NULL if memory is short. */
static cgp_edge *chain_edges(int links, int first) {
    cgp_edge *edges = cgp__calloc(2 * (size_t)links, sizeof *edges);
    for (int j = 0; edges && j < links; j++) {
        edges[j] = (cgp_edge){.from = j, .to = j + 1};
        if (j >= first) edges[links + j - first] = (cgp_edge){.from = j + 1, .to = j};
    }
    return edges;
}

cgp_status cgp_schedule_lower_chain(cgp_schedule *schedule) {
    CGP__NEED(schedule);
    const int links = schedule->stages - 1, first = cgp__chain_starts(schedule);
    cgp_edge *edges = chain_edges(links, first);
    if (!edges) return cgp__no_memory("schedule: lower", 2 * (size_t)links * sizeof *edges);
    const cgp_status status = cgp_schedule_lower(schedule, edges, 2 * links - first);
    free(edges);
    return status;
}

cgp_status cgp__lower_local(cgp_schedule *schedule) {
    const cgp_schedule *s = schedule;
    const int first = cgp__chain_starts(s), n_edges = 2 * (s->stages - 1) - first;
    const bool backward = cgp__has_backward(s);
    cgp__cursor at = {0};
    cgp_edge *edges = chain_edges(s->stages - 1, first);
    bool *selected = cgp__calloc((size_t)n_edges, sizeof *selected);
    cgp_status status = CGP_OK;
    if (!edges || !selected)
        status = cgp__no_memory("schedule: lower", (size_t)n_edges * sizeof *edges);
    for (int e = 0; status == CGP_OK && e < n_edges; e++)
        selected[e] = s->device_of[edges[e].from] == s->device_of[edges[e].to] &&
                      (backward || !cgp__is_gradient(edges[e]));
    while (status == CGP_OK && cgp__next(s, &at)) {
        if (at.action->edge >= 0) selected[at.action->edge] = false;
    }
    if (status == CGP_OK) status = insert(schedule, edges, n_edges, selected);
    free(selected);
    free(edges);
    return status;
}

cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule) {
    cgp_schedule *copy = NULL;
    cgp__cursor at = {0};
    if (cgp__schedule_new(&copy, schedule->name, schedule->stages, schedule->chunks,
                          schedule->devices, schedule->device_of) != CGP_OK)
        return NULL;
    while (cgp__next(schedule, &at))
        cgp__append_action(copy, at.action);
    const cgp_status status = schedule->lowered
                                  ? cgp__set_edges(copy, schedule->edges, schedule->n_edges)
                                  : cgp_schedule_lower_chain(copy);
    return cgp__schedule_finish(&copy, copy, status) == CGP_OK ? copy : NULL;
}
