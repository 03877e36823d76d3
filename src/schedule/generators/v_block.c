/* SPDX-License-Identifier: Apache-2.0 */
/* v_block.c -- half and a third of 1F1B's memory: one block of six slots, repeated.
 *
 * Each device has two stages in a V, 0 the way down and 1 the way back. A micro-batch takes four slots of a device and two
 * for its W; the next one takes the same slots six later. The four slots determine how long a micro-batch is in flight:
 *
 *                    F0     F1              I1               I0                of device r
 *     v-min          r      2n-1-r          2n + d + r       4n + d - 1 - r     d = 2 if 3 | n
 *     v-half         2r     3n-2-r          3n + d + 2r - 1  6n + d - 2 - r     d = 3 if 2 | n
 *
 * d keeps the slots of a device apart. W takes the first free slot after its I.
 *
 * A micro-batch of v-half on 4 devices, two slots down the V and one up, and of v-min:
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
 * That is optimal where the blocks repeat, and leaves holes at both ends. So the layout is packed: simulated once, a tick
 * per action, where a device takes the first action of its list that can run. Within a stage and kind the order stays; an F
 * runs only if with it and all that it overtakes no more is in flight than in the repeating part, a W only if nothing else
 * can run. Where memory is short it may be better to run a W that is first in the list at once; both policies are tried.
 *
 * Bubble, in F of a half stage at F = I = W: v-half 3n-4 or less, v-min 4n-5 or less. Where F, I and W differ much v-min
 * idles in each block.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 3 and appendix. */
#include "schedule/generators/generators.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 6, BLOCK = 4 };

/* An action of the layout. */
typedef struct slot {
    cgp_action_kind kind;
    int chunk, microbatch; /* 0 or 1 the stage; 0.. */
    bool done;
} slot;

typedef struct device {
    slot *slots;     /* [6 m] in the order of the layout */
    int count, head; /* before head all are done */
    int in_flight;
    int begin, end; /* ticks in which the first and the last ran */
} device;

typedef struct packer {
    cgp_schedule *schedule;
    int n, m, max;
    bool weight_in_turn; /* the policy: a W that is first in the list runs at once */
    bool append;         /* to the schedule */
    device *devices;     /* [n] */
    /* [2n stages x m] of F and of I: the tick from which it is done; 0: not yet */
    int *done[2];
} packer;

typedef struct block {
    int f0, f1, i1, i0; /* slots of micro-batch 0 */
} block;

static block block_of_v_min(int n, int r) {
    const int d = n % 3 == 0 ? 2 : 0;
    return (block){r, 2 * n - 1 - r, 2 * n + d + r, 4 * n + d - 1 - r};
}

static block block_of_v_half(int n, int r) {
    const int d = n % 2 == 0 ? 3 : 0;
    return (block){2 * r, 3 * n - 2 - r, 3 * n + d + 2 * r - 1, 6 * n + d - 2 - r};
}

/* --- layout --- */

/* The W of the oldest I without one; `at` moves on from call to call. */
static bool next_weight(const device *d, int *at, slot *out) {
    int i = *at;
    while (i < d->count && d->slots[i].kind != CGP_ACTION_I)
        i++;
    if (i == d->count) return false;
    *out = d->slots[i];
    out->kind = CGP_ACTION_W;
    *at = i + 1;
    return true;
}

static void lay_out(device *d, const block *b, int m) {
    const struct {
        cgp_action_kind kind;
        int chunk, offset;
    } four[BLOCK] = {{CGP_ACTION_F, 0, b->f0},
                     {CGP_ACTION_F, 1, b->f1},
                     {CGP_ACTION_I, 1, b->i1},
                     {CGP_ACTION_I, 0, b->i0}};
    int weights = 0;
    for (int64_t tick = 0; d->count < SLOTS * m; tick++) {
        bool of_block = false;
        for (int k = 0; k < BLOCK; k++) {
            const int64_t since = tick - four[k].offset;
            if (since % SLOTS != 0) continue;
            of_block = true;
            if (since >= 0 && since < (int64_t)SLOTS * m)
                d->slots[d->count++] =
                    (slot){four[k].kind, four[k].chunk, (int)(since / SLOTS), false};
        }
        slot weight;
        if (!of_block && next_weight(d, &weights, &weight)) d->slots[d->count++] = weight;
    }
}

/* --- packing --- */

static int stage_of(const packer *p, int r, int chunk) {
    return chunk == 0 ? r : 2 * p->n - 1 - r;
}

static int *done_at(const packer *p, bool backward, int stage, int microbatch) {
    return &p->done[backward][(size_t)stage * (size_t)p->m + (size_t)microbatch];
}

static bool is_done(const packer *p, bool backward, int stage, int microbatch, int tick) {
    const int at = *done_at(p, backward, stage, microbatch);
    return at > 0 && at <= tick;
}

static bool can_run(const packer *p, int r, const slot *a, int tick) {
    const int stage = stage_of(p, r, a->chunk);
    if (a->kind == CGP_ACTION_F)
        return stage == 0 || is_done(p, false, stage - 1, a->microbatch, tick);
    if (a->kind == CGP_ACTION_W) return is_done(p, true, stage, a->microbatch, tick);
    if (stage == 2 * p->n - 1) return is_done(p, false, stage, a->microbatch, tick);
    return is_done(p, false, stage, a->microbatch, tick) &&
           is_done(p, true, stage + 1, a->microbatch, tick);
}

/* The action to run now, -1 if none can. Walks the list from its head; `peak` is the largest number in flight if the
 * actions passed so far ran in their order. */
static int choose(const packer *p, int r, int tick) {
    const device *d = &p->devices[r];
    int seen = 0, weight = -1, in_flight = d->in_flight, peak = in_flight;
    for (int i = d->head; i < d->count && seen != (1 << SLOTS) - 1; i++) {
        const slot *a = &d->slots[i];
        if (a->done) continue;
        const int bit = 1 << (a->chunk * 3 + (a->kind == CGP_ACTION_F   ? 0
                                              : a->kind == CGP_ACTION_I ? 1
                                                                        : 2));
        const bool first = !(seen & bit);
        const bool fits = a->kind != CGP_ACTION_F || peak + 1 <= p->max || i == d->head;
        seen |= bit;
        if (first && fits && can_run(p, r, a, tick)) {
            if (a->kind != CGP_ACTION_W || (p->weight_in_turn && i == d->head)) return i;
            if (weight < 0) weight = i;
        }
        in_flight += a->kind == CGP_ACTION_F ? 1 : a->kind == CGP_ACTION_W ? -1 : 0;
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
    d->in_flight += a->kind == CGP_ACTION_F ? 1 : a->kind == CGP_ACTION_W ? -1 : 0;
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
    for (int k = 0; k < 2; k++)
        memset(p->done[k], 0, 2 * (size_t)p->n * (size_t)p->m * sizeof *p->done[k]);
}

/* Return the largest span of a device. The head of some list can always run, as in the layout, so it ends. */
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

static bool allocate(packer *p) {
    const size_t cells = 2 * (size_t)p->n * (size_t)p->m;
    p->devices = cgp__calloc((size_t)p->n, sizeof *p->devices);
    p->done[0] = cgp__calloc(cells, sizeof *p->done[0]);
    p->done[1] = cgp__calloc(cells, sizeof *p->done[1]);
    bool enough = p->devices && p->done[0] && p->done[1];
    for (int r = 0; enough && r < p->n; r++) {
        p->devices[r].slots = cgp__calloc(SLOTS * (size_t)p->m, sizeof *p->devices[r].slots);
        enough = p->devices[r].slots != NULL;
    }
    return enough;
}

static void release(packer *p) {
    for (int r = 0; p->devices && r < p->n; r++)
        free(p->devices[r].slots);
    free(p->done[1]);
    free(p->done[0]);
    free(p->devices);
}

static cgp_status fill(cgp_schedule *s, block (*block_of)(int n, int r), int max) {
    packer p = {.schedule = s, .n = s->devices, .m = s->chunks, .max = max};
    CGP_TRY(cgp__surplus_check(s, (int64_t)p.m + 2 * (int64_t)p.n));
    const bool enough = allocate(&p);
    for (int r = 0; enough && r < p.n; r++) {
        const block b = block_of(p.n, r);
        lay_out(&p.devices[r], &b, p.m);
    }
    if (enough) {
        const bool in_turn = pack(&p, true, false) < pack(&p, false, false);
        pack(&p, in_turn, true);
    }
    release(&p);
    return enough
               ? CGP_OK
               : cgp__no_memory("schedule", SLOTS * (size_t)p.n * (size_t)p.m * sizeof(slot));
}

cgp_status cgp__generate_v_half(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    return fill(s, block_of_v_half, (s->devices + 2) / 2 * 2);
}

cgp_status cgp__generate_v_min(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    return fill(s, block_of_v_min, (s->devices + 4) / 3 * 2);
}
