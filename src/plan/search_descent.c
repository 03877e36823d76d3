/* SPDX-License-Identifier: Apache-2.0 */
/* search_descent.c -- first-improvement descents among balances whose values come from plans.
 *
 * The balances of search_balances.c come from estimates of memory, without workspace, messages and
 * what a budget recomputes. Here each balance is planned. Less is better, and the first key that
 * differs decides:
 *
 *     it does not fit    the largest excess over a limit, the second largest, the time
 *     it fits            0, the time, the bytes
 *     least memory       the bytes of the fullest device, those of the second fullest, the time
 *
 * So a descent leads to balances that fit, and then to faster ones. At the end no boundary can move
 * by a layer with gain. The number of plans is limited by the size of a plan, so the same search
 * makes the same plans on every machine. */
#include "plan/search_trial.h"

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "partition/local_search.h"

enum {
    MOST = 2000,              /* plans of a mode */
    FEWEST = 2,               /* plans for each boundary; a descent with fewer is not begun */
    KICKS = 100,              /* descents from random changes of the best balance */
    MOST_TO_SETTLE = 1 << 18, /* work of a plan for each boundary */
    BY_BUDGET = 8,            /* plans that one by budget counts as */
    PLAN = 400,               /* work of a plan without nodes and actions */
};

typedef struct descent {
    cgp__plan_search *search;
    cgp__trial *trial;
    cgp_search_choice *best;
    /* [capacity][stages] balances that were planned, and [capacity] their values */
    int *balances;
    cgp__value *values;
    int n, balances_capacity, values_capacity;
    /* only move boundaries of the first start */
    bool settle;
} descent;

/* Return the bits of a time, which are in the order of times from 0. */
static int64_t bits_of(double time) {
    int64_t bits;
    memcpy(&bits, &time, sizeof bits);
    return bits;
}

static double time_of(const cgp_search_choice *choice) {
    return choice->makespan + choice->update;
}

static bool is_by_budget(const descent *d) {
    return d->trial->options.recompute == CGP_RECOMPUTE_BUDGET;
}

/* Return the work of a plan, about as many nodes and actions. */
static int64_t work_of(const cgp__plan_search *s, const cgp__trial *t) {
    const int64_t actions = 4 * (int64_t)t->stages * t->options.chunks;
    return (PLAN + s->model->n_nodes + actions) *
           (t->options.recompute == CGP_RECOMPUTE_BUDGET ? BY_BUDGET : 1);
}

/* --- values --- */

/* Return the value of a balance that was planned before, or NULL. */
static const cgp__value *find(const descent *d) {
    const size_t n = (size_t)d->trial->stages;
    for (int k = 0; k < d->n; k++) {
        if (memcmp(d->balances + (size_t)k * n, d->trial->balance, n * sizeof(int)) == 0)
            return &d->values[k];
    }
    return NULL;
}

static cgp_status remember(descent *d, const cgp__value *value) {
    const int n = d->trial->stages;
    if (!cgp__grow(&d->balances, &d->balances_capacity, (d->n + 1) * n, sizeof *d->balances) ||
        !cgp__grow(&d->values, &d->values_capacity, d->n + 1, sizeof *d->values))
        return cgp__no_memory("search", (size_t)n * sizeof(int));
    memcpy(d->balances + (size_t)d->n * (size_t)n, d->trial->balance, (size_t)n * sizeof(int));
    d->values[d->n++] = *value;
    return CGP_OK;
}

/* Keep a choice if it fits and is the best one; else free its balance. */
static void consider(descent *d, cgp_search_choice *choice, bool fits) {
    cgp_search_choice worse = *choice;
    if (fits && (!d->best->balance || cgp__choice_better(choice, d->best))) {
        worse = *d->best;
        *d->best = *choice;
    }
    free(worse.balance);
}

/* Plan the trial's balance. */
static cgp_status plan(descent *d, cgp__value *value) {
    const cgp__trial *t = d->trial;
    cgp_search_choice choice = {0};
    bool fits = false, room;
    const cgp_status status = cgp__trial_plan(d->search, d->trial, &choice, &fits, &room);
    const int64_t time = bits_of(time_of(&choice)), bytes = choice.bytes;
    if (status == CGP_OK && fits)
        *value = (cgp__value){{0, time, bytes}};
    else if (status == CGP_OK)
        *value = (cgp__value){{t->excess, t->second, time}};
    consider(d, &choice, status == CGP_OK && fits);
    return status;
}

/* Set *slow if the balance cannot be the best one, even if it recomputes nothing. */
static cgp_status is_slow(const descent *d, bool *slow) {
    double time = 0;
    *slow = false;
    if (!is_by_budget(d) || !d->best->balance) return CGP_OK;
    CGP_TRY(cgp__trial_unrecomputed(d->search, d->trial, &time));
    *slow = time >= time_of(d->best);
    return CGP_OK;
}

/* A cgp__evaluate. */
static cgp_status evaluate(void *self, const int *cuts, const cgp__value *limit, cgp__value *value,
                           int64_t *spent) {
    descent *d = self;
    bool slow = false;
    (void)limit;
    for (int j = 0; j < d->trial->stages; j++)
        d->trial->balance[j] = cuts[j + 1] - cuts[j];
    const cgp__value *known = find(d);
    if (known) {
        *value = *known;
        return CGP_OK;
    }
    *value = CGP__REJECTED;
    ++*spent;
    CGP_TRY(is_slow(d, &slow));
    if (!slow) CGP_TRY(plan(d, value));
    return remember(d, value);
}

/* --- descents --- */

/* Set cuts[stages + 1] to those of a balance. */
static void set_cuts(int *cuts, const int *balance, int stages) {
    for (int j = 0; j < stages; j++)
        cuts[j + 1] = cuts[j] + balance[j];
}

/* Descend from the starts, the last one first. If it does not lead to a plan that fits, the others
 * hardly do. Then try all cuts if there is work left for them, else random changes. */
static cgp_status from_starts(cgp__cut_search *cuts, const descent *d, int *start) {
    const cgp__trial *t = d->trial;
    for (int k = t->n_starts - 1; k >= 0; k--) {
        set_cuts(start, t->starts + (size_t)k * (size_t)t->stages, t->stages);
        CGP_TRY(cgp__descend(cuts, start));
        if (cuts->value.key[0] > 0 && !d->search->smallest) return CGP_OK;
    }
    const int64_t left = cuts->budget - cuts->spent;
    if (cgp__count_cuts(cuts->layers, t->stages, MOST) <= left) return cgp__try_all_cuts(cuts);
    return t->stages > 2 ? cgp__perturb(cuts, KICKS) : CGP_OK;
}

/* Descend with plans by budget for which the other modes are no candidates, and take the result as
 * the only start. */
static cgp_status descend_quickly(cgp__cut_search *cuts, descent *d, int *start) {
    cgp__trial *t = d->trial;
    cgp_search_choice *best = d->best, quick = {0};
    d->best = &quick;
    t->quick = true;
    const cgp_status status = from_starts(cuts, d, start);
    t->quick = false;
    d->best = best;
    d->n = 0;
    for (int j = 0; j < t->stages; j++)
        t->starts[j] = cuts->best[j + 1] - cuts->best[j];
    t->n_starts = 1;
    free(quick.balance);
    cuts->value = CGP__REJECTED;
    return status;
}

static cgp_status descend(cgp__cut_search *cuts, descent *d, int *start) {
    if (d->settle || (is_by_budget(d) && !d->search->alone)) {
        if (!d->settle) CGP_TRY(descend_quickly(cuts, d, start));
        set_cuts(start, d->trial->starts, d->trial->stages);
        CGP_TRY(cgp__try_cuts(cuts, start));
    } else {
        CGP_TRY(from_starts(cuts, d, start));
    }
    return d->settle || cuts->spent < cuts->budget ? cgp__settle(cuts) : CGP_OK;
}

static cgp_status run(descent *d, int64_t most) {
    const size_t n = (size_t)d->trial->stages;
    const int layers = d->search->model->n_layers;
    cgp__cut_search cuts = {0};
    int *start = cgp__calloc(n + 1, sizeof *start);
    cgp_status status = start ? CGP_OK : cgp__no_memory("search", n * sizeof *start);
    if (status == CGP_OK)
        status = cgp__cut_search_create(&cuts, layers, d->trial->stages, evaluate, d);
    cuts.budget = most;
    if (status == CGP_OK) status = descend(&cuts, d, start);
    d->search->work -= cuts.spent * work_of(d->search, d->trial);
    cgp__cut_search_release(&cuts);
    free(start);
    free(d->values);
    free(d->balances);
    return status;
}

cgp_status cgp__search_descend(cgp__plan_search *search, cgp__trial *trial,
                               cgp_search_choice *best) {
    descent d = {.search = search, .trial = trial, .best = best};
    const int64_t share = search->work / search->modes / work_of(search, trial);
    const int64_t most = cgp__min(share, MOST), boundaries = trial->stages - 1;
    return boundaries == 0 || most < FEWEST * boundaries ? CGP_OK : run(&d, most);
}

cgp_status cgp__search_settle(cgp__plan_search *search, cgp__trial *trial,
                              cgp_search_choice *best) {
    descent d = {.search = search, .trial = trial, .best = best, .settle = true};
    const int64_t work = work_of(search, trial) * (trial->stages - 1);
    return work == 0 || work > MOST_TO_SETTLE ? CGP_OK : run(&d, MOST);
}
