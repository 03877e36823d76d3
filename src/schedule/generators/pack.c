/* SPDX-License-Identifier: Apache-2.0 */
/* pack.c -- a list scheduler that fills the idle ticks at both ends of a layout of repeating
 * blocks.
 *
 * A layout has one action list for each device. All devices can run their lists in the order of the
 * layout. The list scheduler simulates the step with one tick per F, I and W, and two ticks per B.
 * In each tick, a device runs the first action of its list that can run, under the conditions that
 * cgp__packer describes.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, describe how the ends of a schedule are squeezed and
 * reordered. The list scheduler itself is this library's invention. */
#include "schedule/generators/pack.h"

#include <stdlib.h>
#include <string.h>

cgp_status cgp__packer_create(cgp__packer *packer, const cgp_schedule *schedule, int kinds) {
    const size_t stages = (size_t)schedule->stages, m = (size_t)schedule->chunks;
    const size_t lists = (size_t)kinds * stages * m;
    const size_t per_device = stages / (size_t)schedule->devices;
    *packer =
        (cgp__packer){.schedule = schedule,
                      .kinds = kinds,
                      .devices = cgp__calloc((size_t)schedule->devices, sizeof *packer->devices),
                      .done = cgp__calloc(2 * stages * m, sizeof *packer->done),
                      .slots = cgp__calloc(lists, sizeof *packer->slots),
                      .seen = cgp__calloc(per_device * CGP__COMPUTE_KINDS, sizeof *packer->seen)};
    if (!packer->devices || !packer->done || !packer->slots || !packer->seen) {
        cgp__packer_release(packer);
        return cgp__no_memory("schedule", lists * sizeof *packer->slots);
    }
    for (int d = 0; d < schedule->devices; d++)
        packer->devices[d].slots = packer->slots + (size_t)d * (lists / (size_t)schedule->devices);
    return CGP_OK;
}

void cgp__packer_release(cgp__packer *packer) {
    free(packer->devices);
    free(packer->done);
    free(packer->slots);
    free(packer->seen);
    *packer = (cgp__packer){0};
}

/* Return the change that an action makes in the number of micro-batches in flight. */
static int flight_of(const cgp__packed *a) {
    return (a->kind == CGP_ACTION_F) - (a->kind == CGP_ACTION_W || a->kind == CGP_ACTION_B);
}

int cgp__packer_peak(const cgp__packer *packer) {
    int peak = 0;
    for (int d = 0; d < packer->schedule->devices; d++) {
        int in_flight = 0;
        for (int i = 0; i < packer->devices[d].count; i++) {
            in_flight += flight_of(&packer->devices[d].slots[i]);
            peak = in_flight > peak ? in_flight : peak;
        }
    }
    return peak;
}

static int *done_at(const cgp__packer *p, bool backward, int stage, int microbatch) {
    const size_t row = (size_t)(backward ? p->schedule->stages + stage : stage);
    return &p->done[row * (size_t)p->schedule->chunks + (size_t)microbatch];
}

static bool is_done(const cgp__packer *p, bool backward, int stage, int microbatch, int tick) {
    const int at = *done_at(p, backward, stage, microbatch);
    return at > 0 && at <= tick;
}

static bool can_run(const cgp__packer *p, const cgp__packed *a, int tick) {
    const int forward = a->kind == CGP_ACTION_F ? a->stage - 1 : a->stage;
    if (a->kind == CGP_ACTION_W) return is_done(p, true, a->stage, a->microbatch, tick);
    if (forward >= 0 && !is_done(p, false, forward, a->microbatch, tick)) return false;
    return a->kind == CGP_ACTION_F || a->stage == p->schedule->stages - 1 ||
           is_done(p, true, a->stage + 1, a->microbatch, tick);
}

static bool *seen_at(const cgp__packer *p, const cgp__packed *a) {
    const int of_device = a->stage / p->schedule->devices;
    return &p->seen[of_device * CGP__COMPUTE_KINDS + (int)a->kind];
}

/* Return the index of the action to run in this tick, or -1 if no action is ready. The list is
 * walked from its head. `peak` is the largest number of micro-batches in flight if the actions
 * before the current position of the walk run in list order. */
static int find_action(const cgp__packer *p, const cgp__pack_device *d, int tick) {
    const int stages = p->schedule->stages / p->schedule->devices;
    int unseen = stages * p->kinds;
    int weight = -1, in_flight = d->in_flight, peak = in_flight;
    memset(p->seen, 0, (size_t)stages * CGP__COMPUTE_KINDS * sizeof *p->seen);
    for (int i = d->head; i < d->count && unseen > 0; i++) {
        const cgp__packed *a = &d->slots[i];
        if (a->done) continue;
        bool *const seen = seen_at(p, a);
        const bool first = !*seen;
        const bool fits = a->kind != CGP_ACTION_F || peak + 1 <= p->max || i == d->head;
        *seen = true;
        unseen -= first;
        if (first && fits && can_run(p, a, tick)) {
            if (a->kind != CGP_ACTION_W || (p->weight_in_turn && i == d->head)) return i;
            if (weight < 0) weight = i;
        }
        in_flight += flight_of(a);
        peak = in_flight > peak ? in_flight : peak;
    }
    return weight;
}

static void run(cgp__packer *p, cgp__pack_device *d, int index, int tick, cgp_schedule *out) {
    cgp__packed *a = &d->slots[index];
    a->done = true;
    d->begin = d->begin ? d->begin : tick;
    d->end = tick + (a->kind == CGP_ACTION_B ? 2 : 1);
    while (d->head < d->count && d->slots[d->head].done)
        d->head++;
    d->in_flight += flight_of(a);
    if (a->kind != CGP_ACTION_W)
        *done_at(p, a->kind != CGP_ACTION_F, a->stage, a->microbatch) = d->end;
    if (out) cgp__append(out, a->kind, a->stage, a->microbatch);
}

/* Reset the packer, and return the number of actions. */
static int64_t reset(cgp__packer *p) {
    const cgp_schedule *s = p->schedule;
    int64_t count = 0;
    for (int r = 0; r < s->devices; r++) {
        cgp__pack_device *d = &p->devices[r];
        for (int i = 0; i < d->count; i++)
            d->slots[i].done = false;
        d->head = d->in_flight = d->begin = d->end = 0;
        count += d->count;
    }
    memset(p->done, 0, 2 * (size_t)s->stages * (size_t)s->chunks * sizeof *p->done);
    return count;
}

/* Pack the lists. The loop ends, because the head of some list can always run, as in the layout. */
cgp__pack_times cgp__pack(cgp__packer *p, cgp_schedule *out) {
    const cgp_schedule *s = p->schedule;
    int64_t left = reset(p);
    for (int tick = 1; left > 0; tick++) {
        for (int r = 0; r < s->devices; r++) {
            cgp__pack_device *d = &p->devices[r];
            if (d->end > tick || d->head == d->count) continue;
            const int index = find_action(p, d, tick);
            if (index < 0) continue;
            run(p, d, index, tick, out);
            left--;
        }
    }
    cgp__pack_times times = {0, 0};
    for (int r = 0; r < s->devices; r++) {
        const cgp__pack_device *d = &p->devices[r];
        times.makespan = d->end - 1 > times.makespan ? d->end - 1 : times.makespan;
        times.span = d->end - d->begin > times.span ? d->end - d->begin : times.span;
    }
    return times;
}
