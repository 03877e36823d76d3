/* SPDX-License-Identifier: Apache-2.0 */
/* critical.c -- why a step takes as long as it does: back from the last action, each time to the one whose end let this
 * one start.
 *
 *     device 0   |F0|F1|F2|           |B0   |       the last to end is B0 of device 0; it waited for
 *     device 1      |F0|F1|F2|B0   |                its message, sent after B0 of device 1; that
 *                                                   followed F2, and so on down to 0
 *
 * An action starts when the one before it on its device (in the order of list_order.c) ends, when its message has come,
 * or, a SEND, when a buffer is free. All that is not compute time on this path is messages. In a measured step a transfer
 * waited if the other side released its buffer, or message, after the transfer's own start. */
#include "schedule/simulator/simulator.h"

#include <stdlib.h>

/* The number-th action that a device runs. */
typedef struct node {
    int device, number;
} node;

/* The transfers of each edge, as actions of their devices. */
typedef struct transfers {
    int *send;                 /* [edges][chunks] the k-th SEND */
    int *receive;              /* [edges][chunks] the k-th RECV */
    int *number;               /* [edges][chunks] by micro-batch: its SEND is the k-th */
    int *n_sends, *n_receives; /* [edges] counters of find_transfers() */
} transfers;

typedef struct path {
    const cgp_schedule *s;
    const cgp_schedule_costs *costs;
    const cgp_schedule_timeline *t;
    cgp__list_order order;
    transfers x;
} path;

/* The position of an action in its list, and of its times. */
static int position_of(const path *p, int device, int number) {
    return cgp__list_order_at(&p->order, device, number);
}

static size_t cell(const cgp_schedule *s, int edge, int i) {
    return (size_t)edge * (size_t)s->chunks + (size_t)i;
}

static void find_transfers(path *p) {
    const cgp_schedule *s = p->s;
    transfers *x = &p->x;
    for (int device = 0; device < s->devices; device++) {
        for (int i = 0; i < s->counts[device]; i++) {
            const cgp_action *a = &s->lists[device][position_of(p, device, i)];
            if (cgp__is_send(a->kind)) {
                const int k = x->n_sends[a->edge]++;
                x->send[cell(s, a->edge, k)] = i;
                x->number[cell(s, a->edge, a->microbatch)] = k;
            } else if (cgp__is_transfer(a->kind)) {
                x->receive[cell(s, a->edge, x->n_receives[a->edge]++)] = i;
            }
        }
    }
}

/* The SEND that a RECV waits for; if the edge was busy, the first SEND of the busy period. */
static node sender_of(const path *p, const cgp_action *a, double start) {
    const cgp_schedule *s = p->s;
    const int device = s->device_of[s->edges[a->edge].from];
    int k = p->x.number[cell(s, a->edge, a->microbatch)];
    if (p->t->released) return (node){device, p->x.send[cell(s, a->edge, k)]};
    double took = p->costs->latency ? p->costs->latency[a->edge] : 0.0;
    const double each =
        p->costs->transfer && !p->costs->transfers_block ? p->costs->transfer[a->edge] : 0.0;
    took += each;
    for (; k > 0; k--, took += each) {
        const double sent =
            p->t->end[device][position_of(p, device, p->x.send[cell(s, a->edge, k)])];
        if (each == 0.0 || sent + took >= start * (1.0 - 1e-12)) break;
    }
    return (node){device, p->x.send[cell(s, a->edge, k)]};
}

/* Measured: the first RECV that ended when the buffer was released, or after that. */
static int freed_at(const path *p, const cgp_action *a, int device, double released) {
    const cgp_schedule *s = p->s;
    const int *receive = &p->x.receive[cell(s, a->edge, 0)];
    int k = 0;
    while (k + 1 < s->chunks &&
           p->t->end[device][position_of(p, device, receive[k])] < released)
        k++;
    return k;
}

/* The RECV that freed the buffer of the SEND at `at`. */
static node receiver_of(const path *p, const cgp_action *a, node at) {
    const cgp_schedule *s = p->s;
    const int device = s->device_of[s->edges[a->edge].to];
    const int position = position_of(p, at.device, at.number);
    const int k = p->t->released ? freed_at(p, a, device, p->t->released[at.device][position])
                                 : p->x.number[cell(s, a->edge, a->microbatch)] -
                                       p->costs->capacity[a->edge];
    return (node){device, p->x.receive[cell(s, a->edge, k)]};
}

/* The cause of an action's start; number -1: none, it is the first. */
static node before(const path *p, node at) {
    const int position = position_of(p, at.device, at.number);
    const cgp_action *a = &p->s->lists[at.device][position];
    const double start = p->t->start[at.device][position];
    const double previous =
        at.number > 0 ? p->t->end[at.device][position_of(p, at.device, at.number - 1)] : 0.0;
    const bool waited =
        p->t->released ? p->t->released[at.device][position] > start : start > previous;
    if (cgp__is_transfer(a->kind) && waited)
        return cgp__is_send(a->kind) ? receiver_of(p, a, at) : sender_of(p, a, start);
    return (node){at.device, at.number - 1};
}

/* The last of a list is never a RECV, so it is the last to run as well. */
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

/* Times do not grow on the way back, and no action comes twice: the schedule ran. Only a file's measured step, which
 * may never have run, can lead in a circle. */
static void walk(const path *p, const double *duration, cgp_schedule_timeline *t) {
    for (node at = last_of(p); at.number >= 0; at = before(p, at)) {
        const int position = position_of(p, at.device, at.number);
        const cgp_action *a = &p->s->lists[at.device][position];
        if (t->critical[at.device][position]) return;
        t->critical[at.device][position] = true;
        if (cgp__is_transfer(a->kind)) continue;
        t->critical_path[a->kind] +=
            duration ? duration[(size_t)a->kind * (size_t)p->s->stages + (size_t)a->stage]
                     : t->end[at.device][position] - t->start[at.device][position];
    }
}

cgp_status cgp__find_critical_path(const cgp_schedule *schedule, const double *duration,
                                   const cgp_schedule_costs *costs,
                                   cgp_schedule_timeline *timeline) {
    const size_t edges = (size_t)schedule->n_edges, cells = edges * (size_t)schedule->chunks;
    int *numbers = cgp__calloc(3 * cells + 2 * edges, sizeof *numbers);
    if (!numbers)
        return cgp__no_memory("schedule: simulate", (3 * cells + 2 * edges) * sizeof *numbers);
    path p = {.s = schedule, .costs = costs, .t = timeline};
    const cgp_status status = cgp__list_order_create(&p.order, schedule);
    p.x = (transfers){.send = numbers,
                      .receive = numbers + cells,
                      .number = numbers + 2 * cells,
                      .n_sends = numbers + 3 * cells,
                      .n_receives = numbers + 3 * cells + edges};
    if (status == CGP_OK) {
        find_transfers(&p);
        walk(&p, duration, timeline);
    }
    cgp__list_order_release(&p.order);
    free(numbers);
    return status;
}
