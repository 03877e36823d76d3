/* SPDX-License-Identifier: Apache-2.0 */
/* list_order.c -- finds the order in which a device runs its list.
 *
 * A RECV takes no time and waits for nothing, because it only posts a receive. The F, B or I that
 * needs the message waits for the message. So a message is taken right before that action, wherever
 * the message's RECV stands:
 *
 *     list     RECV_F0 RECV_F1 F0 RECV_B0 SEND_F0 F1 SEND_F1 B0
 *     run      RECV_F0 F0 SEND_F0 RECV_F1 F1 SEND_F1 RECV_B0 B0
 *
 * In the second order, RECV means: wait for the message and take it. A receive holds a buffer from
 * the moment at which it is posted. In the list above, one edge has receives for micro-batches 0
 * and 1 posted at the same time, so this edge needs two buffers. Lists from lower.c are already in
 * the second order.
 *
 * In an overlapped pair, the F and its partner run at the same time, so the messages of both are
 * taken before the F.
 *
 * Source: torch/distributed/pipelining/schedules.py, _PipelineScheduleRuntime: RECV_F and RECV_B
 * store the request; FORWARD and the backward actions wait for it. */
#include "schedule/simulator/simulator.h"

#include <stdlib.h>

/* Return true if `by` is the action that waits for the message that `a` receives. */
static bool takes(const cgp_action *by, const cgp_action *a) {
    const bool kind =
        a->kind == CGP_ACTION_RECV_F ? by->kind == CGP_ACTION_F : cgp__starts_backward(by->kind);
    return kind && by->stage == a->stage && by->microbatch == a->microbatch;
}

/* Return true if every RECV stands right before the action that takes its message. */
static bool is_in_order(const cgp_schedule *s, int device) {
    const cgp_action *list = s->lists[device];
    int next = 0; /* index of the first action after the sequence of RECVs that includes i */
    for (int i = 0; i < s->counts[device]; i++) {
        if (!cgp__is_receive(list[i].kind)) continue;
        while (next <= i || (next < s->counts[device] && cgp__is_receive(list[next].kind)))
            next++;
        if (next == s->counts[device]) return false;
        if (!takes(&list[next], &list[i]) && !takes(&list[cgp__partner(s, device, next)], &list[i]))
            return false;
    }
    return true;
}

/* The receives of a device's list, in one linked list for each action that takes messages. */
typedef struct receives {
    const cgp_schedule *s;
    /* [2][stages][chunks] position + 1 of the first RECV for each F or backward; 0: no RECV */
    int *first;
    /* [actions of the device] for a RECV, position + 1 of the next RECV for the same action */
    int *next;
    int *posted; /* [edges] number of receives that are posted and not taken */
} receives;

static int *first_for(const receives *x, const cgp_action *a) {
    const bool forward = a->kind == CGP_ACTION_RECV_F || a->kind == CGP_ACTION_F;
    const size_t row = forward ? (size_t)a->stage : (size_t)(x->s->stages + a->stage);
    return &x->first[row * (size_t)x->s->chunks + (size_t)a->microbatch];
}

/* Write the positions of the RECVs whose messages an action takes; return the number of these
 * RECVs. */
static int take(receives *x, const cgp_action *list, const cgp_action *a, int *to) {
    int n = 0;
    if (a->kind != CGP_ACTION_F && !cgp__starts_backward(a->kind)) return 0;
    int *first = first_for(x, a);
    for (; *first > 0; *first = x->next[*first - 1]) {
        to[n++] = *first - 1;
        x->posted[list[*first - 1].edge]--;
    }
    return n;
}

static void sort_list(receives *x, int device, int *to, int *max) {
    const cgp_action *list = x->s->lists[device];
    int n = 0;
    for (int i = x->s->counts[device] - 1; i >= 0; i--) {
        if (!cgp__is_receive(list[i].kind)) continue;
        int *first = first_for(x, &list[i]);
        x->next[i] = *first;
        *first = i + 1;
    }
    for (int i = 0; i < x->s->counts[device]; i++) {
        const int edge = list[i].edge, partner = cgp__partner(x->s, device, i);
        if (cgp__is_receive(list[i].kind)) {
            x->posted[edge]++;
            max[edge] = x->posted[edge] > max[edge] ? x->posted[edge] : max[edge];
            continue;
        }
        n += take(x, list, &list[i], to + n);
        if (partner != i) n += take(x, list, &list[partner], to + n);
        to[n++] = i;
    }
}

/* Find the order of one device's list. *first is scratch memory [2][stages][chunks], which the
 * first call allocates. It is all zero before and after a call, because every receive is taken. */
static cgp_status order_device(cgp__list_order *o, const cgp_schedule *s, int device, int **first) {
    const size_t actions = (size_t)s->counts[device];
    const size_t messages = 2 * (size_t)s->stages * (size_t)s->chunks;
    if (!*first) *first = cgp__calloc(messages, sizeof **first);
    receives x = {.s = s,
                  .first = *first,
                  .next = cgp__calloc(actions, sizeof *x.next),
                  .posted = cgp__calloc((size_t)s->n_edges, sizeof *x.posted)};
    o->at[device] = cgp__calloc(actions, sizeof **o->at);
    const bool enough = x.first && x.next && x.posted && o->at[device];
    if (enough) sort_list(&x, device, o->at[device], o->posted);
    free(x.posted);
    free(x.next);
    return enough ? CGP_OK : cgp__no_memory("schedule: order", messages * sizeof(int));
}

cgp_status cgp__list_order_create(cgp__list_order *o, const cgp_schedule *s) {
    *o = (cgp__list_order){.devices = s->devices,
                           .at = cgp__calloc((size_t)s->devices, sizeof *o->at),
                           .posted = cgp__calloc((size_t)s->n_edges, sizeof *o->posted)};
    cgp_status status = o->at && o->posted
                            ? CGP_OK
                            : cgp__no_memory("schedule: order", (size_t)s->devices * sizeof(int *));
    int *first = NULL;
    for (int e = 0; status == CGP_OK && e < s->n_edges; e++)
        o->posted[e] = 1;
    for (int device = 0; status == CGP_OK && device < s->devices; device++) {
        if (!is_in_order(s, device)) status = order_device(o, s, device, &first);
    }
    free(first);
    if (status != CGP_OK) cgp__list_order_release(o);
    return status;
}

void cgp__list_order_release(cgp__list_order *o) {
    for (int device = 0; o->at && device < o->devices; device++)
        free(o->at[device]);
    free(o->at);
    free(o->posted);
    *o = (cgp__list_order){0};
}

cgp_status cgp__list_order_check_capacity(const cgp__list_order *o, const cgp_schedule *s,
                                          const int *capacity) {
    for (int e = 0; e < s->n_edges; e++) {
        if (capacity[e] >= o->posted[e]) continue;
        return cgp_fail(CGP_EINVAL,
                        "schedule: deadlock: device %d has %d receives posted at one time on edge "
                        "%d, %d -> %d, capacity %d",
                        s->device_of[s->edges[e].to], o->posted[e], e, s->edges[e].from,
                        s->edges[e].to, capacity[e]);
    }
    return CGP_OK;
}
