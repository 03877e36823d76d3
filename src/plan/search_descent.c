/* SPDX-License-Identifier: Apache-2.0 */
/* search_descent.c -- searches for a balance by first-improvement descents. The value of a balance
 * comes from its plan.
 *
 * search_balances.c finds balances by estimates of memory, which exclude workspace, messages and
 * the recomputation of mode `budget`. A descent makes a plan for each balance instead. A value has
 * three keys. Less is better, and the first key that differs decides:
 *
 *     plan does not fit  largest excess over a limit, second largest excess, time
 *     plan fits          0, time, bytes
 *     least memory       bytes of the fullest device, bytes of the second fullest device, time
 *
 * So a descent leads to balances that fit, and then to faster balances. At the end, moving any
 * boundary by one layer gives no improvement. The number of plans depends on the size of a plan and
 * not on time, so the same search makes the same plans on every machine. */
#include "plan/search_trial.h"

#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "partition/local_search.h"

enum {
    MOST = 2000,              /* maximum number of plans for a mode */
    FEWEST = 2,               /* minimum number of plans for each boundary; with fewer plans, no
                               * descent begins */
    KICKS = 100,              /* number of descents that start from a random change of the best
                               * balance */
    MOST_TO_SETTLE = 1 << 18, /* cgp__search_settle(): maximum of (work of a plan) x (number of
                               * boundaries) */
    BY_BUDGET = 8,            /* a plan of mode `budget` takes as much work as this many other
                               * plans */
    PLAN = 400,               /* fixed part of a plan's work; its nodes and actions are added */
};

typedef struct descent {
    cgp__plan_search *search;
    cgp__trial *trial;
    cgp_search_choice *best;
    /* [capacity][stages] balances that were planned, and [capacity] their values */
    int *balances;
    cgp__value *values;
    int n, balances_capacity, values_capacity;
    /* set if the descent starts only from the first start, and has no random changes */
    bool settle;
} descent;

/* Return the bits of a time. For times >= 0, the bits have the same order as the times. */
static int64_t bits_of(double time) {
    int64_t bits;
    memcpy(&bits, &time, sizeof bits);
    return bits;
}

static bool is_by_budget(const descent *d) {
    return d->trial->options.recompute == CGP_RECOMPUTE_BUDGET;
}

/* Return the work of making a plan, in nodes and actions. */
static int64_t work_of(const cgp__plan_search *s, const cgp__trial *t) {
    const int64_t chunks = cgp__ceil_div(t->options.chunks, t->options.replicas);
    const int64_t actions = 4 * t->stages * chunks;
    return (PLAN + s->model->n_nodes + actions) *
           (t->options.recompute == CGP_RECOMPUTE_BUDGET ? BY_BUDGET : 1);
}

/* --- values --- */

/* Return the known value of the trial's balance, or NULL if no plan was made for it. */
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

/* Keep a choice if it fits and is the best choice; otherwise free its balance. */
static void consider(descent *d, cgp_search_choice *choice, bool fits) {
    cgp_search_choice worse = *choice;
    if (fits && (!d->best->balance || cgp__choice_better(choice, d->best))) {
        worse = *d->best;
        *d->best = *choice;
    }
    free(worse.balance);
}

/* Make a plan for the trial's balance, and set *value. */
static cgp_status plan(descent *d, cgp__value *value) {
    const cgp__trial *t = d->trial;
    cgp_search_choice choice = {0};
    bool fits = false, room;
    const cgp_status status = cgp__trial_plan(d->search, d->trial, &choice, &fits, &room);
    const int64_t time = bits_of(cgp__choice_time(&choice)), bytes = choice.bytes;
    if (status == CGP_OK && fits)
        *value = (cgp__value){{0, time, bytes}};
    else if (status == CGP_OK)
        *value = (cgp__value){{t->excess, t->second, time}};
    consider(d, &choice, status == CGP_OK && fits);
    return status;
}

/* Set *slow if the balance cannot be the best one, even if it recomputes nothing. */
static cgp_status is_slow(const descent *d, bool *slow) {
    cgp_search_choice choice = {0};
    *slow = false;
    if (!is_by_budget(d) || !d->best->balance) return CGP_OK;
    CGP_TRY(cgp__trial_unrecomputed(d->search, d->trial, &choice));
    *slow = cgp__choice_time(&choice) >= cgp__choice_time(d->best);
    return CGP_OK;
}

/* Evaluate a balance. This function has the type cgp__evaluate. */
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

/* Set cuts[stages + 1] to the cuts of a balance. */
static void set_cuts(int *cuts, const int *balance, int stages) {
    for (int j = 0; j < stages; j++)
        cuts[j + 1] = cuts[j] + balance[j];
}

/* Descend from each start, the last start first. If a descent does not lead to a plan that fits,
 * the remaining starts are skipped, because they are unlikely to lead to one. Then try all cuts if
 * the remaining work allows it; otherwise try random changes. */
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

/* Descend with quick plans of mode `budget`, which do not consider the other modes. The result
 * becomes the only start. */
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
