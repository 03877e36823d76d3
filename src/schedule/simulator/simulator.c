/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.c -- the discrete-event simulator, which runs the action lists of a lowered schedule
 * with or without times.
 *
 * Each device runs its list in the order of list_order.c, in which a RECV takes a message right
 * before the action that needs the message. The device blocks at an action that cannot happen yet:
 *
 *     RECV of micro-batch i        until its SEND has happened (and the latency has passed)
 *     SEND k of an edge, c buffers until RECV k-c of that edge has happened (counted from 0)
 *
 * The number c is at least the number of receives posted at one time. A transfer takes time on its
 * edge, one message after the other; if transfers are blocking, it takes time on the receiving
 * device instead.
 *
 * Whatever the timing is, an action always waits for the same action of another device, so the
 * times follow from a fixed graph. So no event queue is needed, devices may be simulated in any
 * order, and a blocked device is woken by the device that it waits for. Messages are matched by
 * micro-batch and buffers by count. So a receiver may take messages in another order than the order
 * in which they were sent.
 *
 * If all devices block, each waits for exactly one other device, so following the waits leads into
 * a cycle. If a SEND is in the cycle, more buffers on its edge may resolve the cycle. The run then
 * continues from its current state, because everything that happened with fewer buffers can also
 * happen with more.
 *
 * Source for the choice of the edge that gets more buffers: Parks 1995, Bounded Scheduling of
 * Process Networks (UC Berkeley). */
#include "schedule/simulator/simulator.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

cgp_status cgp__simulator_create(cgp__simulator *x, const cgp_schedule *schedule) {
    const size_t devices = (size_t)schedule->devices, edges = (size_t)schedule->n_edges;
    const size_t messages = edges * (size_t)schedule->chunks;
    *x = (cgp__simulator){.schedule = schedule};
    CGP_TRY(cgp__list_order_create(&x->order, schedule));
    x->devices = cgp__calloc(devices, sizeof *x->devices);
    x->ready = cgp__calloc(devices, sizeof *x->ready);
    x->edges = cgp__calloc(edges, sizeof *x->edges);
    x->messages = cgp__calloc(messages, sizeof *x->messages);
    if (!x->devices || !x->ready || !x->edges || !x->messages) {
        cgp__simulator_release(x);
        return cgp__no_memory("schedule: simulator", messages * sizeof *x->messages);
    }
    cgp__simulator_reset(x);
    return CGP_OK;
}

void cgp__simulator_release(cgp__simulator *x) {
    cgp__list_order_release(&x->order);
    free(x->messages);
    free(x->edges);
    free(x->ready);
    free(x->devices);
    *x = (cgp__simulator){0};
}

void cgp__simulator_reset(cgp__simulator *x) {
    const cgp_schedule *s = x->schedule;
    x->n_ready = 0;
    for (int device = s->devices - 1; device >= 0; device--) {
        x->devices[device] = (cgp__simulated_device){0};
        x->ready[x->n_ready++] = device;
    }
    for (int e = 0; e < s->n_edges; e++)
        x->edges[e] = (cgp__simulated_edge){0};
    for (size_t i = 0; i < (size_t)s->n_edges * s->chunks; i++)
        x->messages[i].arrival = -1.0;
}

static void wake(cgp__simulator *x, int device) {
    if (!x->devices[device].waiting) return;
    x->devices[device].waiting = false;
    x->ready[x->n_ready++] = device;
}

static cgp__simulated_message *message_at(const cgp__simulator *x, int edge, int k) {
    return &x->messages[(size_t)edge * (size_t)x->schedule->chunks + (size_t)k];
}

/* Run a SEND, and advance *time to the time at which it happens. Return false if there is no free
 * buffer. */
static bool send(cgp__simulator *x, const cgp_action *a, double *time) {
    const cgp__simulation *set = &x->set;
    cgp__simulated_edge *edge = &x->edges[a->edge];
    if (set->capacity && edge->sends >= set->capacity[a->edge]) {
        const int freed = edge->sends - set->capacity[a->edge];
        if (edge->receives <= freed) return false;
        *time = fmax(*time, message_at(x, a->edge, freed)->received);
    }
    message_at(x, a->edge, edge->sends++)->sent = *time;
    double leaves = *time;
    if (set->transfer && !set->blocking) /* the edge sends one message at a time */
        leaves = edge->link = fmax(leaves, edge->link) + set->transfer[a->edge];
    message_at(x, a->edge, a->microbatch)->arrival =
        leaves + (set->latency ? set->latency[a->edge] : 0.0);
    wake(x, x->schedule->device_of[x->schedule->edges[a->edge].to]);
    return true;
}

/* Run a RECV: advance *time to the time at which it starts, and set *end. Return false if the
 * message has not been sent yet. */
static bool receive(cgp__simulator *x, const cgp_action *a, double *time, double *end) {
    const cgp__simulation *set = &x->set;
    const double arrival = message_at(x, a->edge, a->microbatch)->arrival;
    if (arrival < 0.0) return false;
    *time = fmax(*time, arrival);
    *end = *time + (set->transfer && set->blocking ? set->transfer[a->edge] : 0.0);
    message_at(x, a->edge, x->edges[a->edge].receives++)->received = *end;
    wake(x, x->schedule->device_of[x->schedule->edges[a->edge].from]);
    return true;
}

/* Run the next action of a device, if it can happen. */
static bool step(cgp__simulator *x, int device) {
    const cgp__simulation *set = &x->set;
    cgp__simulated_device *d = &x->devices[device];
    const int position = cgp__list_order_at(&x->order, device, d->next);
    const cgp_action *a = &x->schedule->lists[device][position];
    double start = d->clock;
    if (cgp__is_send(a->kind)) {
        if (!send(x, a, &start)) return false;
        d->clock = start;
    } else if (cgp__is_transfer(a->kind)) {
        if (!receive(x, a, &start, &d->clock)) return false;
    } else if (set->measured) {
        d->clock += set->measured->end[device][position] - set->measured->start[device][position];
    } else if (set->duration) {
        d->clock += cgp__duration_of(set->duration, x->schedule, a);
    }
    if (set->start) set->start[device][position] = start;
    if (set->end) set->end[device][position] = d->clock;
    d->next++;
    return true;
}

/* Run until all devices are done or blocked. Return false if there is a deadlock. */
static bool run(cgp__simulator *x) {
    const int *counts = x->schedule->counts;
    while (x->n_ready > 0) {
        const int device = x->ready[--x->n_ready];
        cgp__simulated_device *d = &x->devices[device];
        while (d->next < counts[device] && step(x, device))
            ;
        d->waiting = d->next < counts[device];
    }
    for (int device = 0; device < x->schedule->devices; device++) {
        if (x->devices[device].waiting) return false;
    }
    return true;
}

/* Return action number `k`, in the order in which the device runs its list. */
static const cgp_action *action_at(const cgp__simulator *x, int device, int k) {
    return &x->schedule->lists[device][cgp__list_order_at(&x->order, device, k)];
}

static const cgp_action *blocked_at(const cgp__simulator *x, int device) {
    return action_at(x, device, x->devices[device].next);
}

/* Return the device that a blocked device waits for. The returned device is blocked too, because by
 * the rules the awaited action is in its list. */
static int waits_for(const cgp__simulator *x, int device) {
    const cgp_action *a = blocked_at(x, device);
    const cgp_edge edge = x->schedule->edges[a->edge];
    return x->schedule->device_of[cgp__is_send(a->kind) ? edge.to : edge.from];
}

/* Return the lowest device of a cycle of waits. */
static int find_cycle(const cgp__simulator *x) {
    int device = 0;
    while (!x->devices[device].waiting)
        device++;
    /* every path reaches its cycle after at most as many steps as there are devices */
    for (int i = 0; i < x->schedule->devices; i++)
        device = waits_for(x, device);
    int lowest = device;
    for (int d = waits_for(x, device); d != device; d = waits_for(x, d))
        lowest = d < lowest ? d : lowest;
    return lowest;
}

/* Return the action that a blocked device waits for. */
static cgp_action awaited(const cgp__simulator *x, int device) {
    const cgp_action *a = blocked_at(x, device);
    const cgp_edge edge = x->schedule->edges[a->edge];
    cgp_action other = *a;
    if (!cgp__is_send(a->kind)) {
        other.kind = a->kind == CGP_ACTION_RECV_F ? CGP_ACTION_SEND_F : CGP_ACTION_SEND_B;
        other.stage = edge.from;
        return other;
    }
    const int receiver = x->schedule->device_of[edge.to];
    for (int i = x->devices[receiver].next; i < x->schedule->counts[receiver]; i++) {
        const cgp_action *b = action_at(x, receiver, i);
        if (b->edge == a->edge && !cgp__is_send(b->kind)) return *b;
    }
    return other; /* unreachable: if an edge has no free buffer, a message on it can be received */
}

/* Return the list position of the action at which a blocked device is marked. For a RECV, this is
 * the action that needs the message. */
static int mark_of(const cgp__simulator *x, int device) {
    int k = x->devices[device].next;
    while (cgp__is_receive(action_at(x, device, k)->kind))
        k++;
    return cgp__list_order_at(&x->order, device, k);
}

static cgp_status deadlock(const cgp__simulator *x, int *marks) {
    char text[900], at[CGP__ACTION_TEXT], for_what[CGP__ACTION_TEXT], full[64];
    const int first = find_cycle(x);
    int device = first, left_out = 0;
    size_t used = 0;
    text[0] = '\0';
    do {
        const cgp_action *a = blocked_at(x, device);
        const cgp_action other = awaited(x, device);
        full[0] = '\0';
        if (cgp__is_send(a->kind))
            snprintf(full, sizeof full, " (edge %d, capacity %d)", a->edge,
                     x->set.capacity[a->edge]);
        if (used + 200 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%sdevice %d waits at %s%s for %s", used ? "; " : "", device,
                                     cgp_action_text(a, at, sizeof at), full,
                                     cgp_action_text(&other, for_what, sizeof for_what));
        else
            left_out++;
        if (marks) marks[device] = mark_of(x, device);
        device = waits_for(x, device);
    } while (device != first);
    if (left_out) snprintf(text + used, sizeof text - used, "; and so on over %d more", left_out);
    return cgp_fail(CGP_EINVAL, "schedule: deadlock: %s", text);
}

cgp_status cgp__simulator_run(cgp__simulator *x, int *marks) {
    return run(x) ? CGP_OK : deadlock(x, marks);
}

/* --- least capacities --- */

/* Return the edge with the fewest buffers among the edges whose SEND waits in the cycle; -1 if only
 * RECVs wait.
 *
 * Let C be the least capacity that suffices if all edges have it. If the smallest capacity is
 * always raised, no capacity exceeds C. An edge would be raised beyond C only if all edges whose
 * SEND waits in the cycle had at least C buffers. But then the cycle would also deadlock if all
 * edges had C buffers. */
static int fullest_edge(const cgp__simulator *x) {
    const int first = find_cycle(x);
    int device = first, best = -1;
    do {
        const cgp_action *a = blocked_at(x, device);
        if (cgp__is_send(a->kind) && (best < 0 || x->set.capacity[a->edge] < x->set.capacity[best]))
            best = a->edge;
        device = waits_for(x, device);
    } while (device != first);
    return best;
}

/* Find the least capacity of one edge that suffices and is at least `low`. The capacities of all
 * other edges do not change. The edge's current capacity must suffice. */
static void lower_edge(cgp__simulator *x, int *capacity, int edge, int low) {
    int high = capacity[edge];
    for (bool first = true; low < high; first = false) {
        /* The current capacity is usually the least that suffices, so try one buffer less first. */
        capacity[edge] = first ? high - 1 : low + (high - low) / 2;
        cgp__simulator_reset(x);
        if (run(x))
            high = capacity[edge];
        else
            low = capacity[edge] + 1;
    }
    capacity[edge] = high;
}

cgp_status cgp__simulator_min_capacity(cgp__simulator *x, int *capacity) {
    const cgp_schedule *s = x->schedule;
    int *floor = cgp__calloc((size_t)s->n_edges, sizeof *floor);
    if (!floor) return cgp__no_memory("schedule: capacity", (size_t)s->n_edges * sizeof *floor);
    for (int e = 0; e < s->n_edges; e++) {
        if (capacity[e] < x->order.posted[e]) capacity[e] = x->order.posted[e];
        floor[e] = capacity[e];
    }
    x->set = (cgp__simulation){.capacity = capacity};
    cgp__simulator_reset(x);
    while (!run(x)) {
        const int edge = fullest_edge(x);
        if (edge < 0) {
            free(floor);
            return deadlock(x, NULL);
        }
        capacity[edge]++;
        wake(x, s->device_of[s->edges[edge].from]);
    }
    /* An edge that was raised early may need fewer buffers now that other edges have been
     * raised. */
    for (int e = 0; e < s->n_edges; e++)
        lower_edge(x, capacity, e, floor[e]);
    free(floor);
    return CGP_OK;
}
