/* lower.c -- puts the transfers between the compute actions.
 *
 * Stage 1 of 3, edges 0: 0 -> 1, 1: 1 -> 2, 2: 2 -> 1, 3: 1 -> 0, micro-batch i recomputed:
 *
 *     ... RECV_F (0)  F  SEND_F (1) ...            R  RECV_B (2)  B  SEND_B (3) ...
 *
 * SEND stands right after its producer: nothing that is needed elsewhere is held back. RECV
 * stands right before its consumer, so that the bytes stay in the sender's buffer for as
 * long as they can, and R, in front of it, runs while the gradient is still on its way. */
#include "schedule/schedule.h"

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

static bool group_edges(edge_groups *out, const cgp_schedule *schedule, const cgp_edge *edges,
                        int n_edges) {
    const int n_groups = TRANSFER_KINDS * schedule->stages;
    out->first = cgp__calloc((size_t)n_groups + 2, sizeof *out->first);
    out->edges = cgp__calloc(2 * (size_t)n_edges, sizeof *out->edges);
    if (!out->first || !out->edges) return false;
    /* Counting sort: sizes go one place further than they belong, so that filling moves each
     * start into its place. */
    int *start = out->first + 1;
    int groups[2];
    for (int e = 0; e < n_edges; e++) {
        groups_of_edge(schedule, edges[e], groups);
        start[groups[0] + 1]++;
        start[groups[1] + 1]++;
    }
    for (int g = 0; g < n_groups; g++)
        start[g + 1] += start[g];
    for (int e = 0; e < n_edges; e++) {
        groups_of_edge(schedule, edges[e], groups);
        out->edges[start[groups[0]]++] = e;
        out->edges[start[groups[1]]++] = e;
    }
    return true;
}

/* Append the transfers of one kind that go with compute action `a`; only count them if `to`
 * is NULL. */
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

/* Write the lowered list of a device; return its length. Only count if `to` is NULL. */
static int64_t lower_device(cgp_action *to, const cgp_schedule *schedule,
                            const edge_groups *groups, int device) {
    int64_t n = 0;
    for (int i = 0; i < schedule->counts[device]; i++) {
        const cgp_action *a = &schedule->lists[device][i];
        const bool forward = a->kind == CGP_ACTION_F;
        const bool moves = forward || cgp__starts_backward(a->kind);
        if (moves)
            n += append(to ? to + n : NULL, schedule, groups, a,
                        forward ? CGP_ACTION_RECV_F : CGP_ACTION_RECV_B);
        if (to) to[n] = *a;
        n++;
        if (moves)
            n += append(to ? to + n : NULL, schedule, groups, a,
                        forward ? CGP_ACTION_SEND_F : CGP_ACTION_SEND_B);
    }
    return n;
}

cgp_status cgp_schedule_lower(cgp_schedule *schedule, const cgp_edge *edges, int n_edges) {
    if (schedule->lowered)
        return cgp_fail(CGP_ESTATE,
                        "schedule: expected no transfers yet, got a lowered schedule");
    CGP_TRY(cgp__edges_check(edges, n_edges, schedule->stages));
    edge_groups groups = {0};
    cgp_action **lists = NULL;
    int64_t total = 0, longest = 0;
    int *counts = cgp__calloc((size_t)schedule->devices, sizeof *counts);
    cgp_edge *copy = cgp__calloc((size_t)n_edges, sizeof *copy);
    if (!counts || !copy || !group_edges(&groups, schedule, edges, n_edges)) goto out;
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
    if (n_edges > 0) memcpy(copy, edges, (size_t)n_edges * sizeof *copy);
    cgp__schedule_replace(schedule, lists, counts);
    free(schedule->edges);
    schedule->edges = copy;
    schedule->n_edges = n_edges;
    schedule->lowered = true;
    counts = NULL;
    copy = NULL;
out:
    free(groups.edges);
    free(groups.first);
    free(copy);
    free(counts);
    return lists ? CGP_OK
                 : cgp__no_memory("schedule: lower", (size_t)total * sizeof(cgp_action));
}
