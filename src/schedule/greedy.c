/* SPDX-License-Identifier: Apache-2.0 */
/* greedy.c -- zero bubble for costs as they are, in a given memory: zb-1p and zb-2p.
 *
 * All devices are played forward in time, always the one whose next action can start first.
 *
 *     F and I   whichever can start first; if both can, the one that was not run last
 *     W         where the wait for F or I is at least as long, where memory holds an F back, and
 *               in shorter waits if a rule says so
 *     F         before the first I only as many as a rule says; never more than `most` in
 *               flight from F to W
 *
 * Which rules are best depends on the costs, so all are tried, and the hand-made orders of ZB-H1
 * and ZB-H2 with them; the shortest span stays (of equal ones the shorter makespan). It is
 * therefore never longer than those, for the costs given.
 *
 * `most` is n (zb-1p) or 2n (zb-2p). The paper counts bytes and lets I free some of them; here a
 * slot is taken from F to W.
 *
 * Source: Qi et al. 2023, arXiv:2401.10241, section 3.1 and appendix; rules of our own. */
#include "schedule/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How many F before the first I. */
typedef enum warm_up {
    WARM_UP_FITS,   /* those that end before it can come */
    WARM_UP_BEGINS, /* those that begin before it can come */
    WARM_UP_DOUBLE, /* 2(n-r)-1, as ZB-H2 */
    WARM_UP_ALL,    /* as memory allows */
    WARM_UPS
} warm_up;

/* When W runs in a wait shorter than W. */
typedef enum filling {
    FILL_NEVER,
    FILL_LONGEST, /* if the device would become the one that waited longest */
    FILL_ALWAYS,
    FILLINGS
} filling;

typedef struct rules {
    int hand; /* 1: ZB-H1, 2: ZB-H2; 0: the rules below */
    warm_up warm_up;
    filling filling;
} rules;

typedef struct device {
    int done[CGP__COMPUTE_KINDS]; /* how many of each kind */
    double clock, begin, waited;
    bool forward_last;
    cgp_action_kind next; /* what it would run, */
    double start;         /* and when; INFINITY: it waits for others */
} device;

typedef struct game {
    cgp_schedule *schedule;
    const rules *rules;
    int n, m, max;
    double *cost[CGP__COMPUTE_KINDS]; /* [n] of F, I and W */
    double latency;
    double *first_backward; /* [n] the first I cannot come before */
    device *devices;        /* [n] */
    double *arrival[2];     /* [n x m]: from when F, and I, of (stage, micro-batch) can run */
    double longest_wait;
    /* [2 leaves] a tree over the devices, of which r is node leaves + r: whose next action can start
     * first, the lower of two at one time */
    int *winner;
    int leaves;
} game;

/* --- choosing --- */

/* From when the next F or I can start, as far as is known. */
static double when(const game *g, int r, cgp_action_kind kind) {
    const device *d = &g->devices[r];
    const int i = d->done[kind];
    if (i == g->m) return INFINITY;
    return fmax(d->clock,
                g->arrival[kind != CGP_ACTION_F][(size_t)r * (size_t)g->m + (size_t)i]);
}

/* ZB-H1's and ZB-H2's order, from how many of each are done. */
static cgp_action_kind next_by_hand(const game *g, int r) {
    const int hand = g->rules->hand, *done = g->devices[r].done;
    const int f = done[CGP_ACTION_F], i = done[CGP_ACTION_I], w = done[CGP_ACTION_W];
    const int64_t first = hand == 1 ? g->n - r : 2 * (int64_t)(g->n - r) - 1;
    if (w < i - hand * (int64_t)r || i == g->m) return CGP_ACTION_W;
    if (f < g->m && f < first + i) return CGP_ACTION_F;
    return CGP_ACTION_I;
}

/* Before the first I: may one more F run? */
static bool warms_up(const game *g, int r, double start) {
    const device *d = &g->devices[r];
    const double end = start + g->cost[CGP_ACTION_F][r], slack = 1e-9 * end;
    if (d->done[CGP_ACTION_F] < g->n - r) return true;
    switch (g->rules->warm_up) {
    case WARM_UP_FITS:
        return end <= g->first_backward[r] + slack;
    case WARM_UP_BEGINS:
        return start + slack < g->first_backward[r];
    case WARM_UP_DOUBLE:
        return d->done[CGP_ACTION_F] < 2 * (g->n - r) - 1;
    default:
        return true;
    }
}

/* Fill in what device r would run next, and when. */
static void choose(const game *g, int r) {
    device *d = &g->devices[r];
    const int in_flight = d->done[CGP_ACTION_F] - d->done[CGP_ACTION_W];
    const bool weight = d->done[CGP_ACTION_W] < d->done[CGP_ACTION_I];
    double forward = when(g, r, CGP_ACTION_F), backward = when(g, r, CGP_ACTION_I);
    if (g->rules->hand) {
        d->next = next_by_hand(g, r);
        d->start = d->next == CGP_ACTION_F   ? forward
                   : d->next == CGP_ACTION_I ? backward
                   : weight                  ? d->clock
                                             : INFINITY;
        return;
    }
    const bool held_back = in_flight >= g->max && forward <= d->clock;
    if (in_flight >= g->max ||
        (d->done[CGP_ACTION_I] == 0 && isfinite(forward) && !warms_up(g, r, forward)))
        forward = INFINITY;
    const bool runs_forward = forward == backward ? !d->forward_last : forward < backward;
    d->next = runs_forward ? CGP_ACTION_F : CGP_ACTION_I;
    d->start = runs_forward ? forward : backward;
    const double wait = d->start - d->clock, cost = g->cost[CGP_ACTION_W][r];
    if (!weight) return;
    const bool fills = g->rules->filling == FILL_ALWAYS || (g->rules->filling == FILL_LONGEST &&
                                                            d->waited + wait > g->longest_wait);
    if (held_back || wait >= cost * (1.0 - 1e-9) || (wait > 1e-9 * cost && fills)) {
        d->next = CGP_ACTION_W;
        d->start = d->clock;
    }
}

/* --- playing --- */

/* Of two devices; n: none. */
static int earlier(const game *g, int a, int b) {
    if (a == g->n || b == g->n) return a == g->n ? b : a;
    return g->devices[b].start < g->devices[a].start ? b : a;
}

/* Choose anew for device r, and see who can start first now. */
static void choose_anew(game *g, int r) {
    choose(g, r);
    for (int p = (g->leaves + r) / 2; p > 0; p /= 2)
        g->winner[p] = earlier(g, g->winner[2 * p], g->winner[2 * p + 1]);
}

static void rewind_game(game *g) {
    memset(g->devices, 0, (size_t)g->n * sizeof *g->devices);
    for (size_t k = 0; k < (size_t)g->n * (size_t)g->m; k++) {
        g->arrival[0][k] = k < (size_t)g->m ? 0.0 : INFINITY;
        g->arrival[1][k] = INFINITY;
    }
    g->longest_wait = 0.0;
    for (int r = 0; r < g->leaves; r++)
        g->winner[g->leaves + r] = r < g->n ? r : g->n;
    for (int r = 0; r < g->n; r++)
        choose(g, r);
    for (int p = g->leaves - 1; p > 0; p--)
        g->winner[p] = earlier(g, g->winner[2 * p], g->winner[2 * p + 1]);
}

/* What an action lets others do. */
static void tell(game *g, int r, cgp_action_kind kind, int i) {
    const double end = g->devices[r].clock;
    const size_t m = (size_t)g->m, at = (size_t)r * m + (size_t)i;
    if (kind == CGP_ACTION_F && r + 1 < g->n) g->arrival[0][at + m] = end + g->latency;
    if (kind == CGP_ACTION_F && r + 1 == g->n) g->arrival[1][at] = end;
    if (kind == CGP_ACTION_I && r > 0) g->arrival[1][at - m] = end + g->latency;
}

static void run(game *g, int r, bool append) {
    device *d = &g->devices[r];
    const cgp_action_kind kind = d->next;
    const int i = d->done[kind]++;
    if (kind == CGP_ACTION_F && i == 0)
        d->begin = d->start;
    else
        d->waited += d->start - d->clock;
    g->longest_wait = fmax(g->longest_wait, d->waited);
    if (kind != CGP_ACTION_W) d->forward_last = kind == CGP_ACTION_F;
    d->clock = d->start + g->cost[kind][r];
    tell(g, r, kind, i);
    if (append) cgp__append(g->schedule, kind, r, i);
}

typedef struct length {
    double span, makespan;
} length;

/* Play to the end. Micro-batch 0 gets through on its own, and then the next, so somebody can
 * always run. */
static length play(game *g, const rules *by, bool append) {
    length out = {0.0, 0.0};
    g->rules = by;
    rewind_game(g);
    for (int64_t left = 3 * (int64_t)g->n * g->m; left > 0; left--) {
        const int r = g->winner[1];
        run(g, r, append);
        for (int k = r > 0 ? r - 1 : 0; k <= r + 1 && k < g->n; k++)
            choose_anew(g, k);
    }
    for (int r = 0; r < g->n; r++) {
        out.span = fmax(out.span, g->devices[r].clock - g->devices[r].begin);
        out.makespan = fmax(out.makespan, g->devices[r].clock);
    }
    return out;
}

static bool is_shorter(length a, length b) {
    const double slack = 1e-9 * b.span;
    if (fabs(a.span - b.span) > slack) return a.span < b.span;
    return a.makespan < b.makespan - slack;
}

/* The next set of rules to try; false after the last. */
static bool next_rules(rules *r) {
    if (r->hand) {
        r->hand--;
        return true;
    }
    if ((r->filling = (filling)((r->filling + 1) % FILLINGS))) return true;
    return (r->warm_up = (warm_up)((r->warm_up + 1) % WARM_UPS)) != 0;
}

static void play_shortest(game *g) {
    /* ZB-H2 keeps up to 2n - 1 in flight. */
    rules trial = {.hand = g->max >= 2 * g->n - 1 ? 2 : 1}, best = trial;
    length shortest = play(g, &trial, false);
    while (next_rules(&trial)) {
        const length now = play(g, &trial, false);
        if (!is_shorter(now, shortest)) continue;
        shortest = now;
        best = trial;
    }
    play(g, &best, true);
}

/* --- set-up --- */

static void fill_costs(game *g, const cgp_schedule_options *o) {
    double down = 0.0, back = 0.0;
    for (int r = 0; r < g->n; r++) {
        g->cost[CGP_ACTION_F][r] = o->forward ? o->forward[r] : 1.0;
        g->cost[CGP_ACTION_I][r] = o->backward_input ? o->backward_input[r] : 1.0;
        g->cost[CGP_ACTION_W][r] = o->backward_weight ? o->backward_weight[r] : 1.0;
        down += g->cost[CGP_ACTION_F][r] + (r ? g->latency : 0.0);
    }
    for (int r = g->n - 1; r >= 0; r--) {
        g->first_backward[r] = down + back;
        back += g->cost[CGP_ACTION_I][r] + g->latency;
    }
}

static cgp_status generate(cgp_schedule *s, const cgp_schedule_options *o, int depth) {
    const size_t n = (size_t)s->stages, cells = n * (size_t)s->chunks;
    CGP_TRY(cgp__surplus_check(s, (int64_t)s->chunks + s->stages));
    game g = {.schedule = s, .n = s->stages, .m = s->chunks, .latency = o->latency};
    g.max = depth * g.n;
    double *numbers = cgp__calloc(4 * n + 2 * cells, sizeof *numbers);
    g.devices = cgp__calloc(n, sizeof *g.devices);
    for (g.leaves = 1; g.leaves < g.n; g.leaves *= 2)
        ;
    g.winner = cgp__calloc(2 * (size_t)g.leaves, sizeof *g.winner);
    const bool enough = numbers && g.devices && g.winner;
    if (enough) {
        g.cost[CGP_ACTION_F] = numbers;
        g.cost[CGP_ACTION_I] = numbers + n;
        g.cost[CGP_ACTION_W] = numbers + 2 * n;
        g.first_backward = numbers + 3 * n;
        g.arrival[0] = numbers + 4 * n;
        g.arrival[1] = g.arrival[0] + cells;
        fill_costs(&g, o);
        play_shortest(&g);
    }
    free(g.winner);
    free(g.devices);
    free(numbers);
    return enough ? CGP_OK : cgp__no_memory("schedule", (4 * n + 2 * cells) * sizeof *numbers);
}

cgp_status cgp__generate_zb_1p(cgp_schedule *s, const cgp_schedule_options *options) {
    return generate(s, options, 1);
}

cgp_status cgp__generate_zb_2p(cgp_schedule *s, const cgp_schedule_options *options) {
    return generate(s, options, 2);
}
