/* SPDX-License-Identifier: Apache-2.0 */
/* simulator.c -- the discrete-event simulator: runs the lists of a lowered schedule, with time or without.
 *
 * Each device runs its list in the order of list_order.c, where RECV takes a message right before the action that needs
 * it, and blocks at an action that cannot happen yet:
 *
 *     RECV of micro-batch i        until its SEND happened (and the latency passed)
 *     SEND k of an edge, c buffers until RECV k-c of that edge happened, both counted from 0
 *
 * c is at least the number of receives posted at one time. A message takes time on its way, one after the other on an
 * edge, or, if transfers block, on the receiver.
 *
 * Both waits name one action of one other device, whatever the timing, so the times are those of a fixed graph: no queue
 * of events is needed, devices may run in any order, and a blocked device is woken by the one that it waits for.
 * Messages are matched by micro-batch and buffers by count, so a receiver may take messages in another order than they
 * were sent.
 *
 * If all devices block, each waits for exactly one other: following them leads into a cycle. If a SEND is in it, more
 * buffers on its edge may resolve it, without starting anew, because more buffers never undo what was reached with
 * fewer.
 *
 * Source: Parks 1995, Bounded Scheduling of Process Networks (UC Berkeley): which buffer to raise. */
#include "schedule/simulator/simulator.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cgp_status cgp__simulator_create(cgp__simulator *x, const cgp_schedule *schedule) {
    const size_t devices = (size_t)schedule->devices, edges = (size_t)schedule->n_edges;
    const size_t messages = edges * (size_t)schedule->chunks;
    *x = (cgp__simulator){.schedule = schedule};
    CGP_TRY(cgp__list_order_create(&x->order, schedule));
    x->next = cgp__calloc(devices, sizeof *x->next);
    x->clock = cgp__calloc(devices, sizeof *x->clock);
    x->waiting = cgp__calloc(devices, sizeof *x->waiting);
    x->ready = cgp__calloc(devices, sizeof *x->ready);
    x->sends = cgp__calloc(edges, sizeof *x->sends);
    x->receives = cgp__calloc(edges, sizeof *x->receives);
    x->arrival = cgp__calloc(messages, sizeof *x->arrival);
    x->sent = cgp__calloc(messages, sizeof *x->sent);
    x->received = cgp__calloc(messages, sizeof *x->received);
    x->link = cgp__calloc(edges, sizeof *x->link);
    if (!x->next || !x->clock || !x->waiting || !x->ready || !x->sends || !x->receives ||
        !x->arrival || !x->sent || !x->received || !x->link) {
        cgp__simulator_release(x);
        return cgp__no_memory("schedule: simulator", 3 * messages * sizeof(double));
    }
    cgp__simulator_reset(x);
    return CGP_OK;
}

void cgp__simulator_release(cgp__simulator *x) {
    cgp__list_order_release(&x->order);
    free(x->link);
    free(x->received);
    free(x->sent);
    free(x->arrival);
    free(x->receives);
    free(x->sends);
    free(x->ready);
    free(x->waiting);
    free(x->clock);
    free(x->next);
    *x = (cgp__simulator){0};
}

void cgp__simulator_reset(cgp__simulator *x) {
    const cgp_schedule *s = x->schedule;
    x->n_ready = 0;
    for (int device = s->devices - 1; device >= 0; device--) {
        x->next[device] = 0;
        x->clock[device] = 0.0;
        x->waiting[device] = false;
        x->ready[x->n_ready++] = device;
    }
    for (int e = 0; e < s->n_edges; e++) {
        x->sends[e] = x->receives[e] = 0;
        x->link[e] = 0.0;
    }
    for (size_t i = 0; i < (size_t)s->n_edges * s->chunks; i++)
        x->arrival[i] = -1.0;
}

static void wake(cgp__simulator *x, int device) {
    if (!x->waiting[device]) return;
    x->waiting[device] = false;
    x->ready[x->n_ready++] = device;
}

/* Move *time to when the SEND happens. */
static bool send(cgp__simulator *x, const cgp_action *a, double *time) {
    const cgp_schedule *s = x->schedule;
    const size_t row = (size_t)a->edge * s->chunks;
    const int k = x->sends[a->edge];
    if (x->capacity && k >= x->capacity[a->edge]) {
        const int freed = k - x->capacity[a->edge];
        if (x->receives[a->edge] <= freed) return false;
        if (x->received[row + freed] > *time) *time = x->received[row + freed];
    }
    x->sent[row + k] = *time;
    double leaves = *time;
    if (x->transfer && !x->blocking) { /* one message at a time */
        if (x->link[a->edge] > leaves) leaves = x->link[a->edge];
        leaves += x->transfer[a->edge];
        x->link[a->edge] = leaves;
    }
    x->arrival[row + a->microbatch] = leaves + (x->latency ? x->latency[a->edge] : 0.0);
    x->sends[a->edge]++;
    wake(x, s->device_of[s->edges[a->edge].to]);
    return true;
}

/* Move *time to when the RECV starts, and set *end. */
static bool receive(cgp__simulator *x, const cgp_action *a, double *time, double *end) {
    const cgp_schedule *s = x->schedule;
    const size_t row = (size_t)a->edge * s->chunks;
    const double arrival = x->arrival[row + a->microbatch];
    if (arrival < 0.0) return false;
    if (arrival > *time) *time = arrival;
    *end = *time + (x->transfer && x->blocking ? x->transfer[a->edge] : 0.0);
    x->received[row + x->receives[a->edge]++] = *end;
    wake(x, s->device_of[s->edges[a->edge].from]);
    return true;
}

/* Run the next action of a device, if it can happen. */
static bool step(cgp__simulator *x, int device) {
    const int position = cgp__list_order_at(&x->order, device, x->next[device]);
    const cgp_action *a = &x->schedule->lists[device][position];
    double start = x->clock[device];
    if (cgp__is_send(a->kind)) {
        if (!send(x, a, &start)) return false;
        x->clock[device] = start;
    } else if (cgp__is_transfer(a->kind)) {
        if (!receive(x, a, &start, &x->clock[device])) return false;
    } else if (x->measured) {
        x->clock[device] +=
            x->measured->end[device][position] - x->measured->start[device][position];
    } else if (x->duration) {
        x->clock[device] += x->duration[(size_t)a->kind * x->schedule->stages + a->stage];
    }
    if (x->start) x->start[device][position] = start;
    if (x->end) x->end[device][position] = x->clock[device];
    x->next[device]++;
    return true;
}

bool cgp__simulator_run(cgp__simulator *x) {
    const int *counts = x->schedule->counts;
    while (x->n_ready > 0) {
        const int device = x->ready[--x->n_ready];
        while (x->next[device] < counts[device] && step(x, device))
            ;
        x->waiting[device] = x->next[device] < counts[device];
    }
    for (int device = 0; device < x->schedule->devices; device++) {
        if (x->waiting[device]) return false;
    }
    return true;
}

/* The k-th action that a device runs. */
static const cgp_action *action_at(const cgp__simulator *x, int device, int k) {
    return &x->schedule->lists[device][cgp__list_order_at(&x->order, device, k)];
}

static const cgp_action *blocked_at(const cgp__simulator *x, int device) {
    return action_at(x, device, x->next[device]);
}

/* The device that a blocked one waits for. It is blocked too: by the rules the awaited action is in its list. */
static int waits_for(const cgp__simulator *x, int device) {
    const cgp_action *a = blocked_at(x, device);
    const cgp_edge edge = x->schedule->edges[a->edge];
    return x->schedule->device_of[cgp__is_send(a->kind) ? edge.to : edge.from];
}

/* The lowest device of a cycle. */
static int find_cycle(const cgp__simulator *x) {
    int device = 0;
    while (!x->waiting[device])
        device++;
    for (int i = 0; i < x->schedule->devices; i++) /* no path into the cycle is longer */
        device = waits_for(x, device);
    int lowest = device;
    for (int d = waits_for(x, device); d != device; d = waits_for(x, d))
        lowest = d < lowest ? d : lowest;
    return lowest;
}

void cgp__simulator_cycle(const cgp__simulator *x, cgp__diagnostic *diagnostic) {
    const int first = find_cycle(x);
    int device = first;
    do {
        int k = x->next[device]; /* for a RECV, the action that waits for it */
        while (cgp__is_receive(action_at(x, device, k)->kind))
            k++;
        cgp__diagnostic_add(diagnostic, device, cgp__list_order_at(&x->order, device, k));
        device = waits_for(x, device);
    } while (device != first);
}

/* The action that a blocked device waits for. */
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
    for (int i = x->next[receiver]; i < x->schedule->counts[receiver]; i++) {
        const cgp_action *b = action_at(x, receiver, i);
        if (b->edge == a->edge && !cgp__is_send(b->kind)) return *b;
    }
    return other; /* not reached: a full edge has a message to receive */
}

cgp_status cgp__simulator_deadlock(const cgp__simulator *x) {
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
                     x->capacity[a->edge]);
        if (used + 200 < sizeof text)
            used += (size_t)snprintf(text + used, sizeof text - used,
                                     "%sdevice %d waits at %s%s for %s", used ? "; " : "",
                                     device, cgp_action_text(a, at, sizeof at), full,
                                     cgp_action_text(&other, for_what, sizeof for_what));
        else
            left_out++;
        device = waits_for(x, device);
    } while (device != first);
    if (left_out)
        snprintf(text + used, sizeof text - used, "; and so on over %d more", left_out);
    return cgp_fail(CGP_EINVAL, "schedule: deadlock: %s", text);
}

/* The edge with the fewest buffers that a SEND of the cycle waits at; -1 if only RECVs wait.
 *
 * Raising the smallest keeps the largest at C, the least that would do for all edges alike: an edge of the cycle is
 * raised beyond C only if all others of it have C already, and then the cycle would deadlock with C everywhere, too. */
static int fullest_edge(const cgp__simulator *x) {
    const int first = find_cycle(x);
    int device = first, best = -1;
    do {
        const cgp_action *a = blocked_at(x, device);
        if (cgp__is_send(a->kind) && (best < 0 || x->capacity[a->edge] < x->capacity[best]))
            best = a->edge;
        device = waits_for(x, device);
    } while (device != first);
    return best;
}

/* Find the least capacity of one edge at or above `low` with the others unchanged; with the current one it runs. */
static void lower_edge(cgp__simulator *x, int *capacity, int edge, int low) {
    int high = capacity[edge];
    for (bool first = true; low < high; first = false) {
        /* Mostly it is the least already: one run suffices. */
        capacity[edge] = first ? high - 1 : low + (high - low) / 2;
        cgp__simulator_reset(x);
        if (cgp__simulator_run(x))
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
    *x = (cgp__simulator){.schedule = s,
                          .capacity = capacity,
                          .order = x->order,
                          .next = x->next,
                          .clock = x->clock,
                          .waiting = x->waiting,
                          .ready = x->ready,
                          .sends = x->sends,
                          .receives = x->receives,
                          .arrival = x->arrival,
                          .sent = x->sent,
                          .received = x->received,
                          .link = x->link};
    cgp__simulator_reset(x);
    while (!cgp__simulator_run(x)) {
        const int edge = fullest_edge(x);
        if (edge < 0) {
            free(floor);
            return cgp__simulator_deadlock(x);
        }
        capacity[edge]++;
        wake(x, s->device_of[s->edges[edge].from]);
    }
    /* An edge raised early may need less after others were raised. */
    for (int e = 0; e < s->n_edges; e++)
        lower_edge(x, capacity, e, floor[e]);
    free(floor);
    return CGP_OK;
}
