/* SPDX-License-Identifier: Apache-2.0 */
/* balance_search.c -- searches for the balance with the least simulated makespan, or with the
 * fewest bytes.
 *
 *     all balances             if few actions must be simulated for this. The result is the
 *                              optimum.
 *     local search             for schedules of up to LARGE actions. It descends from three starts
 *                              (balanced by device, by stage, evenly) or, with caps, from three
 *                              starts by time and three by bytes. Then it descends from random
 *                              changes of the best cuts. At the end, no move of one boundary by one
 *                              layer gives a better value.
 *     critical path            for schedules of more actions. It takes the best of the starts. Then
 *                              it moves only boundaries of stages on the critical path, in at most
 *                              SIMULATIONS simulations.
 *
 * A schedule that is generated for the costs of its stages (zb-1p, zb-2p) takes much longer to
 * generate than to simulate. So such a schedule already counts as large with more than
 * LARGE_VARYING actions. */
#include "partition/balance_search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "partition/device_balance.h"

enum {
    EXHAUSTIVE = 1 << 20,      /* all balances are tried if their simulations have at most this many
                                * actions */
    LARGE = 50000,             /* a schedule with more actions than this is large */
    LARGE_VARYING = 1600,      /* a schedule that depends on the cuts is large if it has more
                                * actions */
    BUDGET = 1 << 21,          /* maximum number of actions that a local search simulates */
    TIMES = 100,               /* number of random changes of the best cuts */
    SIMULATIONS = 100,         /* maximum number of simulations of a search along the critical
                                * path */
    CRITICAL_BUDGET = 1 << 28, /* maximum number of actions in all simulations along the critical
                                * path */
};

static cgp_status by_device(const cgp__device_row *row, int *cuts) {
    int64_t largest = 0;
    bool exact = false;
    CGP_TRY(cgp__balance_devices(row, cuts, &largest, &exact));
    const double bound = (double)cgp__device_bound(row);
    cgp_log(CGP_LOG_DEBUG, "balance", "largest device: %s%.3f %% above its lower bound",
            exact ? "least, " : "", bound > 0 ? 100 * ((double)largest / bound - 1) : 0);
    return CGP_OK;
}

/* --- large schedules --- */

/* Evaluate cuts. If they are better than the best cuts so far, keep them and set *better to true;
 * else set it to false. */
static cgp_status try(cgp__cut_search *s, const int *cuts, bool *better) {
    const cgp__value before = s->value;
    CGP_TRY(cgp__try_cuts(s, cuts));
    *better = cgp__value_less(&s->value, &before);
    return CGP_OK;
}

static bool is_out(const cgp__cut_search *s, const cgp__objective *x) {
    return x->simulations >= SIMULATIONS || s->spent >= s->budget;
}

/* Try to move layers from one stage to another; all boundaries between the two stages move. */
static cgp_status move(cgp__cut_search *s, int from, int to, int by, int *cuts, bool *better) {
    memcpy(cuts, s->best, ((size_t)s->stages + 1) * sizeof *cuts);
    for (int j = from; j > to; j--)
        cuts[j] += by;
    for (int j = from; j < to; j++)
        cuts[j + 1] -= by;
    for (int j = 0; j < s->stages; j++) {
        if (cuts[j] >= cuts[j + 1]) return CGP_OK;
    }
    return try(s, cuts, better);
}

/* Try to move layers from a stage to another stage. For a neighbouring stage, try half of the
 * layers first; if this is not better, try a quarter, and so on down to one layer. For a stage
 * farther away, try one layer. */
static cgp_status shrink(cgp__cut_search *s, const cgp__objective *x, int stage, int *cuts,
                         bool *better) {
    for (int by = (s->best[stage + 1] - s->best[stage]) / 2; by > 0; by /= 2) {
        for (int to = stage - 1; to <= stage + 1; to += 2) {
            if (to < 0 || to == s->stages || *better || is_out(s, x)) continue;
            CGP_TRY(move(s, stage, to, by, cuts, better));
        }
    }
    for (int distance = 2; distance < s->stages; distance++) {
        for (int to = stage - distance; to <= stage + distance; to += 2 * distance) {
            if (to < 0 || to >= s->stages || *better || is_out(s, x)) continue;
            CGP_TRY(move(s, stage, to, 1, cuts, better));
        }
    }
    return CGP_OK;
}

/* Move layers away from stages on the critical path, the longest stage first, until no such move
 * gives a better value. `time` is scratch memory for [stages] times. */
static cgp_status follow(cgp__cut_search *s, cgp__objective *x, int *cuts, int64_t *time) {
    for (bool better = true; better && !is_out(s, x);) {
        better = false;
        CGP_TRY(cgp__objective_critical(x, s->best, time));
        while (!better && !is_out(s, x)) {
            int longest = 0;
            for (int j = 1; j < s->stages; j++)
                longest = time[j] > time[longest] ? j : longest;
            if (time[longest] <= 0) break;
            time[longest] = 0;
            CGP_TRY(shrink(s, x, longest, cuts, &better));
        }
    }
    return CGP_OK;
}

static cgp_status follow_critical_path(cgp__cut_search *s, cgp__objective *x, int *cuts) {
    int64_t *time = cgp__calloc((size_t)s->stages, sizeof *time);
    if (!time) return cgp__no_memory("balance", (size_t)s->stages * sizeof *time);
    s->budget = CRITICAL_BUDGET;
    const cgp_status status = follow(s, x, cuts, time);
    free(time);
    return status;
}

/* --- the search --- */

/* Set sums[layers + 1] to the prefix sums of the layers' bytes. */
static void add_bytes(const cgp__layer_sums *s, int64_t *sums) {
    for (int i = 0; i <= s->layers; i++)
        sums[i] = s->parameter[i] + s->saved[i];
}

/* Set sums[rows][layers + 1] to the prefix sums of the layers' times. */
static void add_times(const cgp__objective *x, int64_t *sums) {
    static const int kinds[] = {CGP__TIME_F, CGP__TIME_I, CGP__TIME_W, CGP__TIME_R};
    const cgp__layer_sums *s = x->sums;
    bool recomputes = false;
    for (int j = 0; j < x->stages; j++)
        recomputes = recomputes || x->counts[(size_t)CGP_ACTION_R * x->stages + j] > 0;
    for (int i = 0; i < s->rows * (s->layers + 1); i++) {
        sums[i] = 0;
        for (int k = 0; k < (recomputes ? 4 : 3); k++)
            sums[i] += s->time[kinds[k]][i];
    }
}

/* Start from three cuts: balanced by device, balanced by stage, and even. */
static cgp_status from_balanced(cgp__cut_search *s, const cgp__device_row *row, bool large,
                                int *cuts) {
    cgp_status (*start)(cgp__cut_search *, const int *) = large ? cgp__try_cuts : cgp__descend;
    CGP_TRY(by_device(row, cuts));
    CGP_TRY(start(s, cuts));
    CGP_TRY(cgp__balance_stages(row, cuts));
    CGP_TRY(start(s, cuts));
    cgp__balance_evenly(row, cuts);
    return start(s, cuts);
}

/* Return true if memory is the first goal, that is, if all caps are 0. */
static bool is_memory_first(const cgp__objective *x) {
    bool zero = x->caps != NULL;
    for (int d = 0; zero && d < x->devices; d++)
        zero = x->caps[d] <= 0;
    return zero;
}

static cgp_status from_starts(cgp__cut_search *s, cgp__objective *x, bool large, int64_t *sums,
                              int *cuts) {
    for (int bytes = 0; bytes < 2; bytes++) {
        const cgp__device_row row = {sums,      s->layers,  x->device_of,
                                     s->stages, x->devices, bytes ? NULL : x->sums->row_of};
        if (bytes == 0 ? is_memory_first(x) : !x->caps) continue;
        if (bytes)
            add_bytes(x->sums, sums);
        else
            add_times(x, sums);
        s->budget = s->spent + BUDGET;
        CGP_TRY(from_balanced(s, &row, large, cuts));
    }
    if (large) return follow_critical_path(s, x, cuts);
    CGP_TRY(cgp__perturb(s, TIMES));
    return cgp__settle(s);
}

static cgp_status search(cgp__cut_search *s, cgp__objective *x, int *cuts, int64_t *sums) {
    const int64_t actions = (int64_t)x->n * (x->source.varies ? CGP__GENERATE : 1);
    const bool large = x->n > (x->source.varies ? LARGE_VARYING : LARGE);
    if (cgp__count_cuts(s->layers, s->stages, EXHAUSTIVE) * actions <= EXHAUSTIVE)
        return cgp__try_all_cuts(s);
    return from_starts(s, x, large, sums, cuts);
}

cgp_status cgp__search_balance(cgp__objective *x, int *balance) {
    const size_t layers = (size_t)x->sums->layers, n = (size_t)x->stages;
    cgp__cut_search s = {0};
    const size_t rows = (size_t)x->sums->rows * (layers + 1);
    int64_t *sums = cgp__calloc(rows, sizeof *sums);
    int *cuts = cgp__calloc(n + 1, sizeof *cuts);
    cgp_status status = sums && cuts ? CGP_OK : cgp__no_memory("balance", rows * sizeof *sums);
    if (status == CGP_OK)
        status = cgp__cut_search_create(&s, (int)layers, (int)n, cgp__objective_evaluate, x);
    if (status == CGP_OK) status = search(&s, x, cuts, sums);
    for (size_t j = 0; status == CGP_OK && j < n; j++)
        balance[j] = s.best[j + 1] - s.best[j];
    if (status == CGP_OK)
        cgp_log(CGP_LOG_DEBUG, "balance", "%" PRId64 " simulations of %d actions", x->simulations,
                x->n);
    cgp__cut_search_release(&s);
    free(cuts);
    free(sums);
    return status;
}

cgp_status cgp__balance_bytes(cgp__objective *x, const int *balance, int64_t *bytes) {
    int *cuts = cgp__calloc((size_t)x->stages + 1, sizeof *cuts);
    if (!cuts) return cgp__no_memory("balance", (size_t)x->stages * sizeof *cuts);
    for (int j = 0; j < x->stages; j++)
        cuts[j + 1] = cuts[j] + balance[j];
    cgp__objective_bytes(x, cuts, bytes);
    free(cuts);
    return CGP_OK;
}
