/* SPDX-License-Identifier: Apache-2.0 */
/* v_block.c -- V-Half and V-Min: less memory than 1F1B, from one block of six slots that repeats.
 * With many devices they tend to half and a third of it.
 *
 * Each device has two stages in a V, 0 on the way down and 1 on the way back. A micro-batch takes
 * four slots of a device and two for its W; the next micro-batch takes the same slots, six slots
 * later. The four slots determine how long a micro-batch is in flight:
 *
 *                    F0     F1              I1               I0                of device r
 *     v-min          r      2n-1-r          2n + d + r       4n + d - 1 - r     d = 2 if 3 | n
 *     v-half         2r     3n-2-r          3n + d + 2r - 1  6n + d - 2 - r     d = 3 if 2 | n
 *
 * d keeps the slots of a device apart. W takes the first free slot after its I.
 *
 * One micro-batch on 4 devices, first in v-half, which takes two slots per stage on the way down
 * and one on the way back, then in v-min:
 *
 *     0  F0  .  .  .  .  .  .  .  .  . F1  .  .  . I1  .  .  .  .  .  .  .  .  .  . I0
 *     1   .  . F0  .  .  .  .  .  . F1  .  .  .  .  .  . I1  .  .  .  .  .  .  . I0  .
 *     2   .  .  .  . F0  .  .  . F1  .  .  .  .  .  .  .  .  . I1  .  .  .  . I0  .  .
 *     3   .  .  .  .  .  . F0 F1  .  .  .  .  .  .  .  .  .  .  .  . I1  . I0  .  .  .
 *
 *     0  F0  .  .  .  .  .  . F1 I1  .  .  .  .  .  . I0
 *     1   . F0  .  .  .  . F1  .  . I1  .  .  .  . I0  .
 *     2   .  . F0  .  . F1  .  .  .  . I1  .  . I0  .  .
 *     3   .  .  . F0 F1  .  .  .  .  .  . I1 I0  .  .  .
 *
 * This layout is optimal where the blocks repeat, but leaves holes at both ends. So it is packed: a
 * simulation, one tick per action, lets each device run the first action of its list that can run.
 * The order within a stage and kind does not change. An F overtakes other actions only if that puts
 * no more micro-batches in flight than the repeating part has. A W runs only if nothing else can.
 * With few slots it may be better to run a W as soon as it is first in the list, so both policies
 * are tried.
 *
 * The bubble, in units of F of a half stage with F = I = W, is at most 3n-4 for v-half and at most
 * 4n-5 for v-min. If F, I and W differ much, v-min idles in each block.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 3 and appendix. */
#include "schedule/generators/generators.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 6, BLOCK = 4 };

/* An action of the layout. */
typedef struct slot {
    cgp_action_kind kind;
    int chunk, microbatch; /* chunk: stage of the device, 0 or 1 */
    bool done;
} slot;

typedef struct device {
    slot *slots;     /* [6 m] slots in the order of the layout */
    int count, head; /* all slots before `head` are done */
    int in_flight;
    int begin, end; /* ticks in which the first and the last action ran */
} device;

typedef struct packer {
    cgp_schedule *schedule;
    int n, m, max;
    bool weight_in_turn; /* the policy: a W that is first in the list runs at once */
    bool append;         /* to the schedule */
    device *devices;     /* [n] */
    /* [F, I][2n stages][m] the tick from which the action is done; 0: not yet */
    int *done;
} packer;

static const struct {
    cgp_action_kind kind;
    int chunk;
} in_block[BLOCK] = {{CGP_ACTION_F, 0}, {CGP_ACTION_F, 1}, {CGP_ACTION_I, 1}, {CGP_ACTION_I, 0}};

/* Set the slots of micro-batch 0 on device r, in the order of the array in_block; fraction: 2 for
 * v-half, 3 for v-min. */
static void find_block(int fraction, int n, int r, int offsets[BLOCK]) {
    const int d = n % fraction == 0 ? SLOTS / fraction : 0;
    const int half[BLOCK] = {2 * r, 3 * n - 2 - r, 3 * n + d + 2 * r - 1, 6 * n + d - 2 - r};
    const int third[BLOCK] = {r, 2 * n - 1 - r, 2 * n + d + r, 4 * n + d - 1 - r};
    memcpy(offsets, fraction == 2 ? half : third, sizeof half);
}

/* --- layout --- */

/* Lay out a device's list: the blocks, and in each free tick the W of the oldest I that has no W
 * yet. */
static void lay_out(device *d, const int offsets[BLOCK], int m) {
    int oldest = 0;
    for (int64_t tick = 0; d->count < SLOTS * m; tick++) {
        bool of_block = false;
        for (int k = 0; k < BLOCK; k++) {
            const int64_t since = tick - offsets[k];
            if (since % SLOTS != 0) continue;
            of_block = true;
            if (since >= 0 && since < (int64_t)SLOTS * m)
                d->slots[d->count++] =
                    (slot){in_block[k].kind, in_block[k].chunk, (int)(since / SLOTS), false};
        }
        while (oldest < d->count && d->slots[oldest].kind != CGP_ACTION_I)
            oldest++;
        if (of_block || oldest == d->count) continue;
        d->slots[d->count] = d->slots[oldest++];
        d->slots[d->count++].kind = CGP_ACTION_W;
    }
}

/* --- packing --- */

static int stage_of(const packer *p, int r, int chunk) {
    return chunk == 0 ? r : 2 * p->n - 1 - r;
}

static int *done_at(const packer *p, bool backward, int stage, int microbatch) {
    const size_t row = (size_t)(backward ? 2 * p->n + stage : stage);
    return &p->done[row * (size_t)p->m + (size_t)microbatch];
}

static bool is_done(const packer *p, bool backward, int stage, int microbatch, int tick) {
    const int at = *done_at(p, backward, stage, microbatch);
    return at > 0 && at <= tick;
}

static bool can_run(const packer *p, int r, const slot *a, int tick) {
    const int stage = stage_of(p, r, a->chunk);
    const int forward = a->kind == CGP_ACTION_F ? stage - 1 : stage;
    if (a->kind == CGP_ACTION_W) return is_done(p, true, stage, a->microbatch, tick);
    if (forward >= 0 && !is_done(p, false, forward, a->microbatch, tick)) return false;
    return a->kind == CGP_ACTION_F || stage == 2 * p->n - 1 ||
           is_done(p, true, stage + 1, a->microbatch, tick);
}

/* Return the change in the number of micro-batches in flight that an action makes. */
static int flight_of(const slot *a) {
    return (a->kind == CGP_ACTION_F) - (a->kind == CGP_ACTION_W);
}

/* Return the index of the action to run in this tick; -1: no action is ready. Walk the list from
 * its head. `peak` is the largest number of micro-batches in flight if all actions before the
 * current one run in list order. */
static int choose(const packer *p, int r, int tick) {
    const device *d = &p->devices[r];
    bool seen[2][CGP__COMPUTE_KINDS] = {{false}};
    int unseen = SLOTS, weight = -1, in_flight = d->in_flight, peak = in_flight;
    for (int i = d->head; i < d->count && unseen > 0; i++) {
        const slot *a = &d->slots[i];
        if (a->done) continue;
        const bool first = !seen[a->chunk][a->kind];
        const bool fits = a->kind != CGP_ACTION_F || peak + 1 <= p->max || i == d->head;
        seen[a->chunk][a->kind] = true;
        unseen -= first;
        if (first && fits && can_run(p, r, a, tick)) {
            if (a->kind != CGP_ACTION_W || (p->weight_in_turn && i == d->head)) return i;
            if (weight < 0) weight = i;
        }
        in_flight += flight_of(a);
        peak = in_flight > peak ? in_flight : peak;
    }
    return weight;
}

static void run(packer *p, int r, int index, int tick) {
    device *d = &p->devices[r];
    slot *a = &d->slots[index];
    const int stage = stage_of(p, r, a->chunk);
    a->done = true;
    d->begin = d->begin ? d->begin : tick;
    d->end = tick;
    while (d->head < d->count && d->slots[d->head].done)
        d->head++;
    d->in_flight += flight_of(a);
    if (a->kind != CGP_ACTION_W)
        *done_at(p, a->kind == CGP_ACTION_I, stage, a->microbatch) = tick + 1;
    if (p->append) cgp__append(p->schedule, a->kind, stage, a->microbatch);
}

static void reset(packer *p) {
    for (int r = 0; r < p->n; r++) {
        device *d = &p->devices[r];
        for (int i = 0; i < d->count; i++)
            d->slots[i].done = false;
        d->head = d->in_flight = d->begin = d->end = 0;
    }
    memset(p->done, 0, 4 * (size_t)p->n * (size_t)p->m * sizeof *p->done);
}

/* Pack all lists; return the largest span of a device. The loop ends because the head of some list
 * can always run, as in the layout. */
static int pack(packer *p, bool weight_in_turn, bool append) {
    int span = 0;
    p->weight_in_turn = weight_in_turn;
    p->append = append;
    reset(p);
    int64_t left = (int64_t)p->n * p->m * SLOTS;
    for (int tick = 1; left > 0; tick++) {
        for (int r = 0; r < p->n; r++) {
            const int index = choose(p, r, tick);
            if (index < 0) continue;
            run(p, r, index, tick);
            left--;
        }
    }
    for (int r = 0; r < p->n; r++) {
        const int ticks = p->devices[r].end - p->devices[r].begin + 1;
        span = ticks > span ? ticks : span;
    }
    return span;
}

cgp_status cgp__generate_v_block(cgp_schedule *s, const cgp_schedule_options *options,
                                 int fraction) {
    (void)options;
    const int n = s->devices, m = s->chunks;
    const size_t cells = (size_t)n * (size_t)m;
    CGP_TRY(cgp__surplus_check(s, (int64_t)m + 2 * (int64_t)n));
    slot *slots = cgp__calloc(SLOTS * cells, sizeof *slots);
    packer p = {.schedule = s,
                .n = n,
                .m = m,
                .max = (n + 2 * fraction - 2) / fraction * 2,
                .devices = cgp__calloc((size_t)n, sizeof *p.devices),
                .done = cgp__calloc(4 * cells, sizeof *p.done)};
    const bool enough = slots && p.devices && p.done;
    for (int r = 0; enough && r < n; r++) {
        int offsets[BLOCK];
        find_block(fraction, n, r, offsets);
        p.devices[r].slots = slots + SLOTS * (size_t)r * (size_t)m;
        lay_out(&p.devices[r], offsets, m);
    }
    if (enough) {
        const bool in_turn = pack(&p, true, false) < pack(&p, false, false);
        pack(&p, in_turn, true);
    }
    free(p.done);
    free(p.devices);
    free(slots);
    return enough ? CGP_OK : cgp__no_memory("schedule", SLOTS * cells * sizeof *slots);
}
