/* SPDX-License-Identifier: Apache-2.0 */
/* v_block.c -- half and a third of 1F1B's memory: one block of six slots, repeated.
 *
 * Each device has two stages in a V, 0 the way down and 1 the way back. A micro-batch takes four
 * slots of a device and two for its W; the next one takes the same slots six later. How long a
 * micro-batch is in flight is then a matter of where the four slots are:
 *
 *                    F0     F1              I1               I0                of device r
 *     v-min          r      2n-1-r          2n + d + r       4n + d - 1 - r     d = 2 if 3 | n
 *     v-half         2r     3n-2-r          3n + d + 2r - 1  6n + d - 2 - r     d = 3 if 2 | n
 *
 * d keeps the slots of a device apart. W takes the first slot after its I that is left over.
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
 * That is optimal where the blocks repeat, and leaves holes at both ends. So the lists are played
 * once, a tick per action, and a device takes the first action of its list that can run: in
 * their order within a stage and kind, an F only if with it and all that it overtakes no more is
 * in flight than in the repeating part, a W only if nothing else can run. Where memory is short it
 * may be better to run a W that is first in the list at once; both are tried.
 *
 * Bubble, in F of a half stage at F = I = W: v-half 3n-4 or less, v-min 4n-5 or less. Where
 * F, I and W differ much v-min idles in each block.
 *
 * Source: Qi et al. 2024, arXiv:2405.15362, section 3 and appendix. */
#include "schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS = 6, BLOCK = 4 };

/* An action of a device: 0 or 1 the stage, 0.. the micro-batch. */
typedef struct move {
    cgp_action_kind kind;
    int chunk, microbatch;
    bool taken;
} move;

typedef struct row {
    move *moves;     /* [6 m] as laid out */
    int count, head; /* before head all are taken */
    int in_flight;
    int begin, end; /* ticks in which the first and the last ran */
} row;

typedef struct play {
    cgp_schedule *schedule;
    int n, m, max;
    bool weight_in_turn; /* a W that is first in the list runs at once */
    bool append;         /* to the schedule */
    row *rows;           /* [n] */
    int *done
        [2]; /* [2n stages x m]: of F and of I, the tick from which it is done; 0: not yet */
} play;

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

/* --- as laid out --- */

/* The oldest I without W so far; `at` is where the last one was found. */
static bool next_weight(const row *w, int *at, move *out) {
    int i = *at;
    while (i < w->count && w->moves[i].kind != CGP_ACTION_I)
        i++;
    if (i == w->count) return false;
    *out = w->moves[i];
    out->kind = CGP_ACTION_W;
    *at = i + 1;
    return true;
}

static void lay_out(row *w, const block *b, int m) {
    const struct {
        cgp_action_kind kind;
        int chunk, slot;
    } four[BLOCK] = {{CGP_ACTION_F, 0, b->f0},
                     {CGP_ACTION_F, 1, b->f1},
                     {CGP_ACTION_I, 1, b->i1},
                     {CGP_ACTION_I, 0, b->i0}};
    int weights = 0;
    for (int64_t tick = 0; w->count < SLOTS * m; tick++) {
        bool of_block = false;
        for (int k = 0; k < BLOCK; k++) {
            const int64_t since = tick - four[k].slot;
            if (since % SLOTS != 0) continue;
            of_block = true;
            if (since >= 0 && since < (int64_t)SLOTS * m)
                w->moves[w->count++] =
                    (move){four[k].kind, four[k].chunk, (int)(since / SLOTS), false};
        }
        move weight;
        if (!of_block && next_weight(w, &weights, &weight)) w->moves[w->count++] = weight;
    }
}

/* --- played --- */

static int stage_of(const play *p, int device, int chunk) {
    return chunk == 0 ? device : 2 * p->n - 1 - device;
}

static int *done_at(const play *p, bool backward, int stage, int microbatch) {
    return &p->done[backward][(size_t)stage * (size_t)p->m + (size_t)microbatch];
}

static bool is_done(const play *p, bool backward, int stage, int microbatch, int tick) {
    const int at = *done_at(p, backward, stage, microbatch);
    return at > 0 && at <= tick;
}

static bool can_run(const play *p, int device, const move *a, int tick) {
    const int stage = stage_of(p, device, a->chunk);
    if (a->kind == CGP_ACTION_F)
        return stage == 0 || is_done(p, false, stage - 1, a->microbatch, tick);
    if (a->kind == CGP_ACTION_W) return is_done(p, true, stage, a->microbatch, tick);
    if (stage == 2 * p->n - 1) return is_done(p, false, stage, a->microbatch, tick);
    return is_done(p, false, stage, a->microbatch, tick) &&
           is_done(p, true, stage + 1, a->microbatch, tick);
}

/* The action to run now, -1 if none can. Walks the list from its head; `peak` is the most in
 * flight while what was passed runs in its order. */
static int choose(const play *p, int device, int tick) {
    const row *w = &p->rows[device];
    int seen = 0, weight = -1, in_flight = w->in_flight, peak = in_flight;
    for (int i = w->head; i < w->count && seen != (1 << SLOTS) - 1; i++) {
        const move *a = &w->moves[i];
        if (a->taken) continue;
        const int bit = 1 << (a->chunk * 3 + (a->kind == CGP_ACTION_F   ? 0
                                              : a->kind == CGP_ACTION_I ? 1
                                                                        : 2));
        const bool first = !(seen & bit);
        const bool fits = a->kind != CGP_ACTION_F || peak + 1 <= p->max || i == w->head;
        seen |= bit;
        if (first && fits && can_run(p, device, a, tick)) {
            if (a->kind != CGP_ACTION_W || (p->weight_in_turn && i == w->head)) return i;
            if (weight < 0) weight = i;
        }
        in_flight += a->kind == CGP_ACTION_F ? 1 : a->kind == CGP_ACTION_W ? -1 : 0;
        peak = in_flight > peak ? in_flight : peak;
    }
    return weight;
}

static void run(play *p, int device, int index, int tick) {
    row *w = &p->rows[device];
    move *a = &w->moves[index];
    const int stage = stage_of(p, device, a->chunk);
    a->taken = true;
    w->begin = w->begin ? w->begin : tick;
    w->end = tick;
    while (w->head < w->count && w->moves[w->head].taken)
        w->head++;
    w->in_flight += a->kind == CGP_ACTION_F ? 1 : a->kind == CGP_ACTION_W ? -1 : 0;
    if (a->kind != CGP_ACTION_W)
        *done_at(p, a->kind == CGP_ACTION_I, stage, a->microbatch) = tick + 1;
    if (p->append) cgp__append(p->schedule, a->kind, stage, a->microbatch);
}

static void rewind_play(play *p) {
    for (int r = 0; r < p->n; r++) {
        row *w = &p->rows[r];
        for (int i = 0; i < w->count; i++)
            w->moves[i].taken = false;
        w->head = w->in_flight = w->begin = w->end = 0;
    }
    for (int k = 0; k < 2; k++)
        memset(p->done[k], 0, 2 * (size_t)p->n * (size_t)p->m * sizeof *p->done[k]);
}

/* Return the longest time between the first and the last action of a device. The head of some
 * list can always run, as in the layout, so it ends. */
static int play_all(play *p, bool weight_in_turn, bool append) {
    int span = 0;
    p->weight_in_turn = weight_in_turn;
    p->append = append;
    rewind_play(p);
    int64_t left = (int64_t)p->n * p->m * SLOTS;
    for (int tick = 1; left > 0; tick++) {
        for (int device = 0; device < p->n; device++) {
            const int index = choose(p, device, tick);
            if (index < 0) continue;
            run(p, device, index, tick);
            left--;
        }
    }
    for (int r = 0; r < p->n; r++) {
        const int ticks = p->rows[r].end - p->rows[r].begin + 1;
        span = ticks > span ? ticks : span;
    }
    return span;
}

static bool allocate(play *p) {
    const size_t cells = 2 * (size_t)p->n * (size_t)p->m;
    p->rows = cgp__calloc((size_t)p->n, sizeof *p->rows);
    p->done[0] = cgp__calloc(cells, sizeof *p->done[0]);
    p->done[1] = cgp__calloc(cells, sizeof *p->done[1]);
    bool enough = p->rows && p->done[0] && p->done[1];
    for (int r = 0; enough && r < p->n; r++) {
        p->rows[r].moves = cgp__calloc(SLOTS * (size_t)p->m, sizeof *p->rows[r].moves);
        enough = p->rows[r].moves != NULL;
    }
    return enough;
}

static void release(play *p) {
    for (int r = 0; p->rows && r < p->n; r++)
        free(p->rows[r].moves);
    free(p->done[1]);
    free(p->done[0]);
    free(p->rows);
}

static cgp_status fill(cgp_schedule *s, block (*block_of)(int n, int r), int max) {
    play p = {.schedule = s, .n = s->devices, .m = s->chunks, .max = max};
    CGP_TRY(cgp__surplus_check(s, (int64_t)p.m + 2 * (int64_t)p.n));
    const bool enough = allocate(&p);
    for (int r = 0; enough && r < p.n; r++) {
        const block b = block_of(p.n, r);
        lay_out(&p.rows[r], &b, p.m);
    }
    if (enough) {
        const bool in_turn = play_all(&p, true, false) < play_all(&p, false, false);
        play_all(&p, in_turn, true);
    }
    release(&p);
    return enough
               ? CGP_OK
               : cgp__no_memory("schedule", SLOTS * (size_t)p.n * (size_t)p.m * sizeof(move));
}

cgp_status cgp__generate_v_half(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    return fill(s, block_of_v_half, (s->devices + 2) / 2 * 2);
}

cgp_status cgp__generate_v_min(cgp_schedule *s, const cgp_schedule_options *options) {
    (void)options;
    return fill(s, block_of_v_min, (s->devices + 4) / 3 * 2);
}
