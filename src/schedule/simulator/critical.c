/* SPDX-License-Identifier: Apache-2.0 */
/* critical.c -- finds the critical path of a step. It walks back from the last action. Each step of
 * the walk goes to the action whose end allowed the current action to start.
 *
 *     device 0   |F0|F1|F2|           |B0   |      the last to end is B0 of device 0; it waited
 *     device 1      |F0|F1|F2|B0   |               for its message, sent after B0 of device 1;
 *                                                  that followed F2, and so on down to 0
 *
 * An action starts when the previous action on its device ends (in the order of list_order.c). A
 * RECV also waits for its message, and a SEND for a free buffer. All time on this path that is not
 * compute time is the time of messages. In a measured step, a transfer waited if the other side
 * released the buffer or the message after the transfer had started. */
#include "schedule/simulator/simulator.h"

#include <stdlib.h>

/* An action, identified by its device and by its number in the order in which the device runs its
 * actions. */
typedef struct node {
    int device, number;
} node;

/* Entry k of an edge's transfers. */
typedef struct transfer {
    int send, receive; /* node numbers of the edge's k-th SEND and k-th RECV */
    int number;        /* index of the SEND of micro-batch k among the SENDs of the edge */
} transfer;

typedef struct path {
    const cgp_schedule *s;
    const cgp_schedule_costs *costs;
    const cgp_schedule_timeline *t;
    cgp__list_order order;
    transfer *transfers; /* [edges][chunks] */
} path;

/* Return the position of an action in its list, which is also the index of its times. */
static int position_of(const path *p, node at) {
    return cgp__list_order_at(&p->order, at.device, at.number);
}

/* Return a time of an action. `times` is one of the timeline's arrays `start`, `end` and
 * `released`. */
static double time_of(const path *p, double *const *times, node at) {
    return times[at.device][position_of(p, at)];
}

static transfer *transfer_at(const path *p, int edge, int k) {
    return &p->transfers[(size_t)edge * (size_t)p->s->chunks + (size_t)k];
}

/* Fill in path->transfers. The caller passes zeroed scratch memory, done[edges][2]. */
static void find_transfers(path *p, int *done) {
    const cgp_schedule *s = p->s;
    for (int device = 0; device < s->devices; device++) {
        for (int i = 0; i < s->counts[device]; i++) {
            const cgp_action *a = &s->lists[device][position_of(p, (node){device, i})];
            if (!cgp__is_transfer(a->kind)) continue;
            const bool is_send = cgp__is_send(a->kind);
            const int k = done[2 * a->edge + is_send]++;
            if (is_send) {
                transfer_at(p, a->edge, k)->send = i;
                transfer_at(p, a->edge, a->microbatch)->number = k;
            } else {
                transfer_at(p, a->edge, k)->receive = i;
            }
        }
    }
}

/* Return the SEND that a RECV waits for. If the edge was busy, return the first SEND of the busy
 * period instead. */
static node sender_of(const path *p, const cgp_action *a, double start) {
    const int e = a->edge, device = p->s->device_of[p->s->edges[e].from];
    int k = transfer_at(p, e, a->microbatch)->number;
    if (!p->t->released) {
        const cgp_schedule_costs *c = p->costs;
        const double each = c->transfer && !c->transfers_block ? c->transfer[e] : 0.0;
        double took = (c->latency ? c->latency[e] : 0.0) + each;
        for (; k > 0 && each != 0.0; k--, took += each) {
            const node sender = {device, transfer_at(p, e, k)->send};
            if (time_of(p, p->t->end, sender) + took >= start * (1.0 - 1e-12)) break;
        }
    }
    return (node){device, transfer_at(p, e, k)->send};
}

/* Return the RECV that freed the buffer of the SEND at `at`. In a measured step, this is the first
 * RECV that ended at or after the release of the buffer. */
static node receiver_of(const path *p, const cgp_action *a, node at) {
    node receiver = {p->s->device_of[p->s->edges[a->edge].to], 0};
    if (!p->t->released) {
        const int k = transfer_at(p, a->edge, a->microbatch)->number;
        receiver.number = transfer_at(p, a->edge, k - p->costs->capacity[a->edge])->receive;
        return receiver;
    }
    for (int k = 0; k < p->s->chunks; k++) {
        receiver.number = transfer_at(p, a->edge, k)->receive;
        if (time_of(p, p->t->end, receiver) >= time_of(p, p->t->released, at)) break;
    }
    return receiver;
}

/* Return the action whose end allowed an action to start. If there is none, because the action is
 * the first, the result has number -1. */
static node before(const path *p, node at) {
    const cgp_action *a = &p->s->lists[at.device][position_of(p, at)];
    const node previous = {at.device, at.number - 1};
    const double start = time_of(p, p->t->start, at);
    const bool waited = p->t->released
                            ? time_of(p, p->t->released, at) > start
                            : start > (at.number > 0 ? time_of(p, p->t->end, previous) : 0.0);
    if (!cgp__is_transfer(a->kind) || !waited) return previous;
    return cgp__is_send(a->kind) ? receiver_of(p, a, at) : sender_of(p, a, start);
}

/* Return the action that ends last. The last action of a list is never a RECV, so this action is
 * also the last that its device runs. */
static node last_of(const path *p) {
    node last = {0, -1};
    double end = -1.0;
    for (int device = 0; device < p->s->devices; device++) {
        const int number = p->s->counts[device] - 1;
        if (number < 0 || p->t->end[device][number] <= end) continue;
        end = p->t->end[device][number];
        last = (node){device, number};
    }
    return last;
}

/* Walk back along the critical path and mark its actions. If the schedule has run, no action comes
 * twice. Only a measured step from a file can lead the walk into a cycle, because such a step may
 * never have run. */
static void walk(const path *p, const cgp__durations *durations, cgp_schedule_timeline *t) {
    for (node at = last_of(p); at.number >= 0; at = before(p, at)) {
        const int position = position_of(p, at);
        const cgp_action *a = &p->s->lists[at.device][position];
        if (t->critical[at.device][position]) return;
        t->critical[at.device][position] = true;
        if (cgp__is_transfer(a->kind)) continue;
        t->critical_path[a->kind] +=
            durations ? cgp__duration_of(durations, p->s, a)
                      : t->end[at.device][position] - t->start[at.device][position];
    }
}

cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const cgp__durations *durations,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline) {
    const size_t edges = (size_t)schedule->n_edges, cells = edges * (size_t)schedule->chunks;
    path p = {.s = schedule, .costs = costs, .t = timeline};
    CGP_TRY(cgp__list_order_create(&p.order, schedule));
    p.transfers = cgp__calloc(cells, sizeof *p.transfers);
    int *done = cgp__calloc(2 * edges, sizeof *done);
    const bool enough = p.transfers && done;
    if (enough) {
        find_transfers(&p, done);
        walk(&p, durations, timeline);
    }
    free(done);
    free(p.transfers);
    cgp__list_order_release(&p.order);
    return enough ? CGP_OK : cgp__no_memory("schedule: simulate", cells * sizeof(transfer));
}
