/* SPDX-License-Identifier: Apache-2.0 */
/* lower.c -- inserts the transfers between the compute actions.
 *
 * Stage 1 of 3, edges 0: 0 -> 1, 1: 1 -> 2, 2: 2 -> 1, 3: 1 -> 0, micro-batch i recomputed:
 *
 *     ... RECV_F (0)  F  SEND_F (1) ...            R  RECV_B (2)  B  SEND_B (3) ...
 *
 * SEND stands right after its producer, so that no message is delayed. RECV stands right before its consumer, so that a
 * posted receive holds no buffer early; R, in front of it, runs while the gradient is on its way. A device that runs such a
 * list may wait at the RECV (list_order.c).
 *
 * Of an overlapped pair, F of one stage and B of another, all RECV stand before both and all SEND after both. */
#include "schedule/table.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define TRANSFER_KINDS 4 /* SEND_F RECV_F SEND_B RECV_B */

/* The edges of each (transfer kind, stage), ascending: edges[first[g]] .. edges[first[g + 1]
 * - 1], g = kind x n + stage. */
typedef struct edge_groups {
    int *first; /* [TRANSFER_KINDS x stages + 1] */
    int *edges; /* [2 n_edges] */
} edge_groups;

static int group_of(const cgp_schedule *schedule, cgp_action_kind kind, int stage) {
    return ((int)kind - CGP_ACTION_SEND_F) * schedule->stages + stage;
}

/* The two groups that an edge belongs to. */
static void groups_of_edge(const cgp_schedule *schedule, cgp_edge edge, int groups[2]) {
    const bool gradient = cgp__is_gradient(edge);
    groups[0] = group_of(schedule, gradient ? CGP_ACTION_SEND_B : CGP_ACTION_SEND_F, edge.from);
    groups[1] = group_of(schedule, gradient ? CGP_ACTION_RECV_B : CGP_ACTION_RECV_F, edge.to);
}

/* Group the `selected` edges; NULL: all. */
static bool group_edges(edge_groups *out, const cgp_schedule *schedule, const cgp_edge *edges,
                        int n_edges, const bool *selected) {
    const int n_groups = TRANSFER_KINDS * schedule->stages;
    out->first = cgp__calloc((size_t)n_groups + 2, sizeof *out->first);
    out->edges = cgp__calloc(2 * (size_t)n_edges, sizeof *out->edges);
    if (!out->first || !out->edges) return false;
    /* Counting sort: sizes are stored one entry late, so that filling moves each start to its own entry. */
    int *start = out->first + 1;
    int groups[2];
    for (int e = 0; e < n_edges; e++) {
        if (selected && !selected[e]) continue;
        groups_of_edge(schedule, edges[e], groups);
        start[groups[0] + 1]++;
        start[groups[1] + 1]++;
    }
    for (int g = 0; g < n_groups; g++)
        start[g + 1] += start[g];
    for (int e = 0; e < n_edges; e++) {
        if (selected && !selected[e]) continue;
        groups_of_edge(schedule, edges[e], groups);
        out->edges[start[groups[0]]++] = e;
        out->edges[start[groups[1]]++] = e;
    }
    return true;
}

/* Append the transfers of one kind that belong to compute action `a`; with `to` NULL only count them. */
static int64_t append(cgp_action *to, const cgp_schedule *schedule, const edge_groups *groups,
                      const cgp_action *a, cgp_action_kind kind) {
    const int g = group_of(schedule, kind, a->stage);
    const int first = groups->first[g], count = groups->first[g + 1] - first;
    for (int i = 0; to && i < count; i++)
        to[i] = (cgp_action){.kind = kind,
                             .stage = a->stage,
                             .microbatch = a->microbatch,
                             .edge = groups->edges[first + i]};
    return count;
}

/* A list under construction; with `to` NULL only counted. */
typedef struct writer {
    const cgp_schedule *schedule;
    const edge_groups *groups;
    cgp_action *to;
    int64_t n;
} writer;

static void write_transfers(writer *w, const cgp_action *a, bool before) {
    const bool forward = a->kind == CGP_ACTION_F;
    if (!forward && !cgp__starts_backward(a->kind)) return;
    const cgp_action_kind receive = forward ? CGP_ACTION_RECV_F : CGP_ACTION_RECV_B;
    const cgp_action_kind sends = forward ? CGP_ACTION_SEND_F : CGP_ACTION_SEND_B;
    w->n += append(w->to ? w->to + w->n : NULL, w->schedule, w->groups, a,
                   before ? receive : sends);
}

static void write_action(writer *w, const cgp_action *a) {
    if (w->to) w->to[w->n] = *a;
    w->n++;
}

int cgp__partner(const cgp_schedule *s, int device, int position) {
    const cgp_action *list = s->lists[device];
    int i = position + 1;
    if (!list[position].overlapped || list[position].kind != CGP_ACTION_F) return position;
    while (i < s->counts[device] && list[i].kind == CGP_ACTION_R)
        i++;
    return i < s->counts[device] && cgp__starts_backward(list[i].kind) ? i : position;
}

/* Write the lowered list of a device; return its length. */
static int64_t lower_device(cgp_action *to, const cgp_schedule *schedule,
                            const edge_groups *groups, int device) {
    writer w = {schedule, groups, to, 0};
    const cgp_action *list = schedule->lists[device];
    for (int i = 0, last; i < schedule->counts[device]; i = last + 1) {
        last = cgp__partner(schedule, device, i);
        write_transfers(&w, &list[i], true);
        if (last > i) write_transfers(&w, &list[last], true);
        for (int k = i; k <= last; k++)
            write_action(&w, &list[k]);
        write_transfers(&w, &list[i], false);
        if (last > i) write_transfers(&w, &list[last], false);
    }
    return w.n;
}

/* Insert the transfers of the selected edges into the lists. */
static cgp_status insert(cgp_schedule *schedule, const cgp_edge *edges, int n_edges,
                         const bool *selected) {
    edge_groups groups = {0};
    cgp_action **lists = NULL;
    int64_t total = 0, longest = 0;
    int *counts = cgp__calloc((size_t)schedule->devices, sizeof *counts);
    if (!counts || !group_edges(&groups, schedule, edges, n_edges, selected)) goto out;
    for (int device = 0; device < schedule->devices; device++) {
        const int64_t n = lower_device(NULL, schedule, &groups, device);
        counts[device] = (int)n;
        longest = n > longest ? n : longest;
        total += n;
    }
    lists = longest <= INT_MAX ? cgp__lists_new(schedule->devices, counts) : NULL;
    if (!lists) goto out;
    for (int device = 0; device < schedule->devices; device++)
        lower_device(lists[device], schedule, &groups, device);
    cgp__schedule_replace(schedule, lists, counts);
    counts = NULL;
out:
    free(groups.edges);
    free(groups.first);
    free(counts);
    return lists ? CGP_OK
                 : cgp__no_memory("schedule: lower", (size_t)total * sizeof(cgp_action));
}

cgp_status cgp_schedule_lower(cgp_schedule *schedule, const cgp_edge *edges, int n_edges) {
    CGP__NEED(schedule);
    if (n_edges > 0) CGP__NEED(edges);
    if (schedule->lowered)
        return cgp_fail(CGP_ESTATE,
                        "schedule: expected no transfers yet, got a lowered schedule");
    CGP_TRY(cgp__edges_check(edges, n_edges, schedule->stages));
    cgp_edge *copy = cgp__calloc((size_t)n_edges, sizeof *copy);
    if (!copy) return cgp__no_memory("schedule: lower", (size_t)n_edges * sizeof *copy);
    if (n_edges > 0) memcpy(copy, edges, (size_t)n_edges * sizeof *copy);
    const cgp_status status = insert(schedule, edges, n_edges, NULL);
    if (status != CGP_OK) {
        free(copy);
        return status;
    }
    free(schedule->edges);
    schedule->edges = copy;
    schedule->n_edges = n_edges;
    schedule->lowered = true;
    return CGP_OK;
}

/* --- chains --- */

void cgp__chain_edges(cgp_edge *edges, int links) {
    for (int j = 0; j < links; j++) {
        edges[j] = (cgp_edge){.from = j, .to = j + 1};
        edges[links + j] = (cgp_edge){.from = j + 1, .to = j};
    }
}

cgp_status cgp_schedule_lower_chain(cgp_schedule *schedule) {
    CGP__NEED(schedule);
    const int links = schedule->stages - 1;
    cgp_edge *edges = cgp__calloc(2 * (size_t)links, sizeof *edges);
    if (!edges) return cgp__no_memory("schedule: lower", 2 * (size_t)links * sizeof *edges);
    cgp__chain_edges(edges, links);
    const cgp_status status = cgp_schedule_lower(schedule, edges, 2 * links);
    free(edges);
    return status;
}

cgp_status cgp__lower_local(cgp_schedule *schedule) {
    const cgp_schedule *s = schedule;
    const bool backward = cgp__has_backward(s);
    bool *selected = cgp__calloc((size_t)s->n_edges, sizeof *selected);
    if (!selected) return cgp__no_memory("schedule: lower", (size_t)s->n_edges);
    for (int e = 0; e < s->n_edges; e++)
        selected[e] = s->device_of[s->edges[e].from] == s->device_of[s->edges[e].to] &&
                      (backward || !cgp__is_gradient(s->edges[e]));
    for (int device = 0; device < s->devices; device++) {
        for (int i = 0; i < s->counts[device]; i++) {
            if (s->lists[device][i].edge >= 0) selected[s->lists[device][i].edge] = false;
        }
    }
    const cgp_status status = insert(schedule, s->edges, s->n_edges, selected);
    free(selected);
    return status;
}

cgp_schedule *cgp__copy_lowered(const cgp_schedule *schedule) {
    const cgp__schedule_table table = {.name = schedule->name,
                                       .stages = schedule->stages,
                                       .chunks = schedule->chunks,
                                       .devices = schedule->devices,
                                       .device_of = schedule->device_of,
                                       .lists = (const cgp_action *const *)schedule->lists,
                                       .counts = schedule->counts,
                                       .lowered = schedule->lowered,
                                       .edges = schedule->edges,
                                       .n_edges = schedule->n_edges};
    cgp_schedule *copy = NULL;
    if (cgp__schedule_from_lists(&copy, &table) != CGP_OK) return NULL;
    if (schedule->lowered || cgp_schedule_lower_chain(copy) == CGP_OK) return copy;
    cgp_schedule_destroy(copy);
    return NULL;
}
