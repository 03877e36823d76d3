/* SPDX-License-Identifier: Apache-2.0 */
/* heuristic.c -- the zero-bubble schedules zb-1p and zb-2p, for unequal costs and within a memory
 * limit.
 *
 * A list scheduler builds the action lists forward in time. It always continues on the device whose
 * next action can start first. That action is chosen by these rules:
 *
 *     F and I   whichever can start first; if both can start at once, the kind that did not run
 *               last
 *     W         if the wait for F or I is at least as long as a W, or if the memory limit forbids
 *               an F; during shorter waits only if the policy says so
 *     F         before the first I, as many as the policy says; at most `max` micro-batches may be
 *               between F and W at any time
 *
 * The best policy depends on the costs, so all policies are tried, and also the fixed orders of
 * ZB-H1 and, if `max` allows it, ZB-H2. The order with the shortest span wins; among equal spans,
 * the order with the shorter makespan. So for the given costs, the result is never longer than a
 * fixed order.
 *
 * `max` is n (zb-1p) or 2n (zb-2p) micro-batches. The paper limits bytes instead, and there an I
 * frees some of the bytes. In this library, a micro-batch's whole slot is in use from F to W.
 *
 * Source: Qi et al. 2023, arXiv:2401.10241, section 3.1 and appendix; the policies are this
 * library's invention. */
#include "schedule/generators/generators.h"

#include "schedule/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Policies for the number of forwards that a device runs before its first I: */
typedef enum warm_up {
    WARM_UP_FITS,   /* all forwards that can end before the first I can start */
    WARM_UP_BEGINS, /* all forwards that can begin before the first I can start */
    WARM_UP_DOUBLE, /* 2(n-r)-1 forwards, as in ZB-H2 */
    WARM_UP_ALL,    /* as many forwards as the memory limit allows */
    WARM_UPS
} warm_up;

/* Policies for running a W in a wait that is shorter than the W: */
typedef enum filling {
    FILL_NEVER,
    FILL_LONGEST, /* W runs if the device would otherwise become the device that has waited
                   * longest */
    FILL_ALWAYS,
    FILLINGS
} filling;

typedef struct policy {
    int fixed; /* 1: the order of ZB-H1; 2: the order of ZB-H2; 0: the two fields below decide */
    warm_up warm_up;
    filling filling;
} policy;

typedef struct device {
    int done[CGP__COMPUTE_KINDS]; /* number of actions of each kind so far */
    double clock, begin, waited;
    bool forward_last;
    cgp_action_kind next; /* the kind of action that the device would run next */
    double start;         /* time at which `next` can start; INFINITY: the device waits for other
                           * devices */
} device;

typedef struct builder {
    cgp_schedule *schedule;
    const policy *policy;
    int n, m, max;
    const double *cost[CGP__COMPUTE_KINDS]; /* [n] costs of F, I and W; NULL: each costs 1 */
    double latency;
    double *first_backward; /* [n] earliest start of each device's first I */
    double *patience;       /* [n] longest total time that the device may wait after its first F */
    device *devices;        /* [n] */
    /* [n x m] earliest starts for each (stage, micro-batch): arrival[0] for F, arrival[1] for I */
    double *arrival[2];
    double longest_wait;
    /* [2 x leaves] a tournament tree over the devices. Device r is node `leaves` + r. Each inner
     * node holds the device below it whose next action can start first; on a tie, the lower
     * device. */
    int *winner;
    int leaves;
} builder;

static double cost_of(const builder *b, cgp_action_kind kind, int r) {
    return b->cost[kind] ? b->cost[kind][r] : 1.0;
}

/* --- choosing the next action --- */

/* Return the earliest start of the next F or I of device r. Return INFINITY if there is no such
 * action, or if the action that makes its input is not in the lists yet. */
static double earliest(const builder *b, int r, cgp_action_kind kind) {
    const device *d = &b->devices[r];
    const int i = d->done[kind];
    if (i == b->m) return INFINITY;
    return fmax(d->clock, b->arrival[kind != CGP_ACTION_F][(size_t)r * (size_t)b->m + (size_t)i]);
}

/* Return true if one more F may run before the device's first I. */
static bool warms_up(const builder *b, int r, double start) {
    const device *d = &b->devices[r];
    const double end = start + cost_of(b, CGP_ACTION_F, r), slack = 1e-9 * end;
    if (d->done[CGP_ACTION_F] < b->n - r) return true;
    switch (b->policy->warm_up) {
    case WARM_UP_FITS:
        return end <= b->first_backward[r] + slack;
    case WARM_UP_BEGINS:
        return start + slack < b->first_backward[r];
    case WARM_UP_DOUBLE:
        return d->done[CGP_ACTION_F] < 2 * (b->n - r) - 1;
    default:
        return true;
    }
}

/* Choose the next action of device r, and set the time at which it can start. */
static void choose(const builder *b, int r) {
    device *d = &b->devices[r];
    const int in_flight = d->done[CGP_ACTION_F] - d->done[CGP_ACTION_W];
    const bool weight = d->done[CGP_ACTION_W] < d->done[CGP_ACTION_I];
    double forward = earliest(b, r, CGP_ACTION_F), backward = earliest(b, r, CGP_ACTION_I);
    if (b->policy->fixed) {
        d->next = cgp__zero_bubble_next(b->schedule, b->policy->fixed, r, d->done);
        d->start = d->next == CGP_ACTION_F   ? forward
                   : d->next == CGP_ACTION_I ? backward
                   : weight                  ? d->clock
                                             : INFINITY;
        return;
    }
    const bool held_back = in_flight >= b->max && forward <= d->clock;
    if (in_flight >= b->max ||
        (d->done[CGP_ACTION_I] == 0 && isfinite(forward) && !warms_up(b, r, forward)))
        forward = INFINITY;
    const bool runs_forward = forward == backward ? !d->forward_last : forward < backward;
    d->next = runs_forward ? CGP_ACTION_F : CGP_ACTION_I;
    d->start = runs_forward ? forward : backward;
    const double wait = d->start - d->clock, cost = cost_of(b, CGP_ACTION_W, r);
    if (!weight) return;
    const bool fills = b->policy->filling == FILL_ALWAYS ||
                       (b->policy->filling == FILL_LONGEST && d->waited + wait > b->longest_wait);
    if (held_back || wait >= cost * (1.0 - 1e-9) || (wait > 1e-9 * cost && fills)) {
        d->next = CGP_ACTION_W;
        d->start = d->clock;
    }
}

/* --- building --- */

/* Return the one of two devices whose next action can start first; on a tie, the first of the two.
 * The number n stands for "no device". */
static int earlier(const builder *b, int r, int q) {
    if (r == b->n || q == b->n) return r == b->n ? q : r;
    return b->devices[q].start < b->devices[r].start ? q : r;
}

/* Choose the next action of device r again, and update the tournament tree. The tree depends on
 * device r only through the start of this action. */
static void update(builder *b, int r) {
    const double before = b->devices[r].start;
    choose(b, r);
    if (b->devices[r].start == before) return;
    for (int p = (b->leaves + r) / 2; p > 0; p /= 2)
        b->winner[p] = earlier(b, b->winner[2 * p], b->winner[2 * p + 1]);
}

/* Update device r after its action, and also the neighbour that waits for the output of this
 * action. With FILL_LONGEST, update both neighbours, because the action may have changed the
 * longest wait. */
static void update_around(builder *b, int r, cgp_action_kind kind) {
    const bool both = b->policy->filling == FILL_LONGEST;
    update(b, r);
    if (r > 0 && (both || kind == CGP_ACTION_I)) update(b, r - 1);
    if (r + 1 < b->n && (both || kind == CGP_ACTION_F)) update(b, r + 1);
}

static void reset(builder *b) {
    memset(b->devices, 0, (size_t)b->n * sizeof *b->devices);
    for (size_t k = 0; k < (size_t)b->n * (size_t)b->m; k++) {
        b->arrival[0][k] = k < (size_t)b->m ? 0.0 : INFINITY;
        b->arrival[1][k] = INFINITY;
    }
    b->longest_wait = 0.0;
    for (int p = 1; p < 2 * b->leaves; p++)
        b->winner[p] = p >= b->leaves && p < b->leaves + b->n ? p - b->leaves : b->n;
    for (int r = 0; r < b->n; r++)
        choose(b, r);
    for (int p = b->leaves - 1; p > 0; p--)
        b->winner[p] = earlier(b, b->winner[2 * p], b->winner[2 * p + 1]);
}

/* Set the arrival times that follow from an action. */
static void set_arrivals(builder *b, int r, cgp_action_kind kind, int i) {
    const double end = b->devices[r].clock;
    const size_t m = (size_t)b->m, at = (size_t)r * m + (size_t)i;
    if (kind == CGP_ACTION_F && r + 1 < b->n) b->arrival[0][at + m] = end + b->latency;
    if (kind == CGP_ACTION_F && r + 1 == b->n) b->arrival[1][at] = end;
    if (kind == CGP_ACTION_I && r > 0) b->arrival[1][at - m] = end + b->latency;
}

static void run(builder *b, int r, bool append) {
    device *d = &b->devices[r];
    const cgp_action_kind kind = d->next;
    const int i = d->done[kind]++;
    if (kind == CGP_ACTION_F && i == 0)
        d->begin = d->start;
    else
        d->waited += d->start - d->clock;
    b->longest_wait = fmax(b->longest_wait, d->waited);
    if (kind != CGP_ACTION_W) d->forward_last = kind == CGP_ACTION_F;
    d->clock = d->start + cost_of(b, kind, r);
    set_arrivals(b, r, kind, i);
    if (append) cgp__append(b->schedule, kind, r, i);
}

typedef struct length {
    double span, makespan;
} length;

/* For each device, set the time that the device may wait before its span exceeds `span` by more
 * than rounding. */
static void set_patience(builder *b, double span) {
    for (int r = 0; r < b->n; r++) {
        const double work =
            cost_of(b, CGP_ACTION_F, r) + cost_of(b, CGP_ACTION_I, r) + cost_of(b, CGP_ACTION_W, r);
        b->patience[r] = span * (1.0 + 1e-6) - b->m * work;
    }
}

/* Build the action lists to the end, or until the span exceeds `longest`. No micro-batch waits for
 * a later micro-batch, so at any time some device can run. */
static length build(builder *b, const policy *chosen, double longest, bool append) {
    length out = {0.0, 0.0};
    b->policy = chosen;
    set_patience(b, longest);
    reset(b);
    for (int64_t left = 3 * (int64_t)b->n * b->m; left > 0; left--) {
        const int r = b->winner[1];
        const cgp_action_kind kind = b->devices[r].next;
        run(b, r, append);
        if (b->devices[r].waited > b->patience[r]) return (length){INFINITY, INFINITY};
        update_around(b, r, kind);
    }
    for (int r = 0; r < b->n; r++) {
        out.span = fmax(out.span, b->devices[r].clock - b->devices[r].begin);
        out.makespan = fmax(out.makespan, b->devices[r].clock);
    }
    return out;
}

static bool is_shorter(length a, length b) {
    const double slack = 1e-9 * b.span;
    if (fabs(a.span - b.span) > slack) return a.span < b.span;
    return a.makespan < b.makespan - slack;
}

/* Advance to the next policy; return false after the last. */
static bool next_policy(policy *p) {
    if (p->fixed) {
        p->fixed--;
        return true;
    }
    if ((p->filling = (filling)((p->filling + 1) % FILLINGS))) return true;
    return (p->warm_up = (warm_up)((p->warm_up + 1) % WARM_UPS)) != 0;
}

static void build_shortest(builder *b) {
    /* try ZB-H2 only if the limit allows the 2n - 1 micro-batches that it has in flight */
    policy trial = {.fixed = b->max >= 2 * b->n - 1 ? 2 : 1}, best = trial;
    length shortest = build(b, &trial, INFINITY, false);
    while (next_policy(&trial)) {
        const length now = build(b, &trial, shortest.span, false);
        if (!is_shorter(now, shortest)) continue;
        shortest = now;
        best = trial;
    }
    build(b, &best, INFINITY, true);
}

/* --- set-up --- */

static void find_first_backward(builder *b) {
    double down = 0.0, back = 0.0;
    for (int r = 0; r < b->n; r++)
        down += cost_of(b, CGP_ACTION_F, r) + (r ? b->latency : 0.0);
    for (int r = b->n - 1; r >= 0; r--) {
        b->first_backward[r] = down + back;
        back += cost_of(b, CGP_ACTION_I, r) + b->latency;
    }
}

cgp_status cgp__generate_heuristic(cgp_schedule *s, const cgp_schedule_options *o, int depth) {
    const size_t n = (size_t)s->stages, cells = n * (size_t)s->chunks;
    CGP_TRY(cgp__cost_check("cost of forward", o->forward, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_input", o->backward_input, s->stages));
    CGP_TRY(cgp__cost_check("cost of backward_weight", o->backward_weight, s->stages));
    CGP_TRY(cgp__surplus_check(s, (int64_t)s->chunks + s->stages));
    builder b = {.schedule = s,
                 .n = s->stages,
                 .m = s->chunks,
                 .max = depth * s->stages,
                 .cost = {[CGP_ACTION_F] = o->forward,
                          [CGP_ACTION_I] = o->backward_input,
                          [CGP_ACTION_W] = o->backward_weight},
                 .latency = o->latency};
    double *numbers = cgp__calloc(2 * n + 2 * cells, sizeof *numbers);
    b.devices = cgp__calloc(n, sizeof *b.devices);
    for (b.leaves = 1; b.leaves < b.n; b.leaves *= 2)
        ;
    b.winner = cgp__calloc(2 * (size_t)b.leaves, sizeof *b.winner);
    const bool enough = numbers && b.devices && b.winner;
    if (enough) {
        b.first_backward = numbers;
        b.patience = numbers + n;
        b.arrival[0] = b.patience + n;
        b.arrival[1] = b.arrival[0] + cells;
        find_first_backward(&b);
        build_shortest(&b);
    }
    free(b.winner);
    free(b.devices);
    free(numbers);
    return enough ? CGP_OK : cgp__no_memory("schedule", (2 * n + 2 * cells) * sizeof *numbers);
}
