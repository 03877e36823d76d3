/* SPDX-License-Identifier: Apache-2.0 */
/* search_balances.c -- for one schedule and recomputation mode, chooses the balances for which a
 * search makes plans.
 *
 * The search for a balance uses an estimate of memory, which excludes workspace and messages. The
 * bytes that a plan needs beyond the estimate are subtracted from the devices' limits. The results
 * are the caps for the next balance. If few balances are possible, a plan is made for each balance
 * instead. Exception: mode `budget`, because each plan of this mode needs a search of its own. */
#include "plan/search_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "partition/local_search.h"
#include "plan/budget.h"
#include "plan/memory/outside.h"
#include "plan/plan.h"
#include "schedule/table.h"

enum {
    ROUNDS = 4,
    PROGRESS = 8, /* the search stops after a round that reduces the excess over the limit by less
                   * than 1/8 */
    HOPELESS = 4, /* a mode is hopeless if it exceeds the limit by more than 1/4 */
    FEW = 32,     /* if at most this many balances are possible, a plan is made for each */
};

static cgp_status reserve(cgp__trial *t) {
    CGP_TRY(CGP__NEW(t->balance, (2 + CGP__MOST_STARTS) * (size_t)t->stages, "search"));
    t->before = t->balance + t->stages;
    t->starts = t->before + t->stages;
    CGP_TRY(CGP__NEW(t->caps, 4 * (size_t)t->devices, "search"));
    t->bytes = t->caps + t->devices;
    t->limits = t->bytes + t->devices;
    t->zeros = t->limits + t->devices;
    return CGP_OK;
}

static cgp_status simulate(const cgp__plan_search *s, const cgp_plan *plan, cgp_search_choice *c) {
    cgp_schedule_timeline timeline = {0};
    if (s->costs)
        CGP_TRY(cgp_plan_simulate(plan, s->costs, s->options->row_of, s->options->messages,
                                  &timeline, &c->update));
    const cgp_schedule_timeline *t = s->costs ? &timeline : &plan->actions.timeline;
    cgp_plan_exchange exchange = {0, 0};
    cgp_status status = CGP_OK;
    c->makespan = t->makespan;
    c->bubble = t->bubble_makespan;
    if (s->options->exchange)
        status = cgp_plan_simulate_exchange(plan, t, s->options->exchange, &exchange);
    c->exchange = exchange.added;
    cgp_schedule_timeline_release(&timeline);
    return status;
}

/* Return the FLOPs of recomputation, in R and within backward, divided by the FLOPs of F and B. */
static double recomputed(const cgp_plan *plan) {
    const int chunks = plan->setup.chunks;
    double again = 0, all = 0;
    for (cgp__cursor at = {0}; cgp__next(plan->actions.schedule, &at);) {
        const cgp_plan_stage *stage = &plan->placement.stages[at.action->stage].info;
        if (at.action->kind == CGP_ACTION_R) again += stage->recompute_flops;
    }
    for (int j = 0; j < plan->placement.n_stages; j++) {
        const cgp_plan_stage *stage = &plan->placement.stages[j].info;
        again += chunks * stage->recomputed_flops;
        all += chunks * (stage->forward_flops + stage->backward_flops - stage->recomputed_flops);
    }
    return all > 0 ? again / all : 0;
}

static cgp_status copy_balance(cgp_search_choice *choice, const cgp_plan *plan) {
    const size_t n = (size_t)plan->placement.n_stages;
    int *balance = cgp__calloc(n, sizeof *balance);
    if (!balance) return cgp__no_memory("search", n * sizeof *balance);
    memcpy(balance, plan->placement.balance, n * sizeof *balance);
    free(choice->balance);
    choice->balance = balance;
    return CGP_OK;
}

/* Describe a plan in *choice. If *choice holds the balance of an earlier plan, that balance is
 * freed. */
static cgp_status describe(const cgp__plan_search *s, const cgp__trial *t, const cgp_plan *plan,
                           cgp_search_choice *choice) {
    const cgp_search_choice described = {
        .schedule = t->options.table ? NULL : cgp_schedule_info_find(t->options.schedule)->name,
        .virtual_stages = t->stages / t->devices,
        .chunks = t->options.chunks,
        .recompute = t->options.recompute,
        .precision = t->options.precision,
        .stages = t->stages,
        .in_flight = t->options.in_flight,
        .recomputed = recomputed(plan),
        .balance = choice->balance};
    *choice = described;
    for (int d = 0; d < t->devices; d++) {
        const int64_t bytes = cgp__limited_bytes(cgp_plan_device_at(plan, d));
        if (bytes <= choice->bytes) continue;
        choice->bytes = bytes;
        choice->device = d;
    }
    CGP_TRY(copy_balance(choice, plan));
    return simulate(s, plan, choice);
}

/* Set the caps of the next balance. Return false if a device has no room. */
static bool set_caps(cgp__trial *t, const cgp_plan *plan) {
    for (int d = 0; d < t->devices; d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        const int64_t beyond = cgp__limited_bytes(device) - t->bytes[d];
        t->limits[d] = device->limit_bytes;
        t->caps[d] = device->limit_bytes > 0 ? device->limit_bytes - beyond : INT64_MAX / 2;
        if (t->caps[d] <= 0) return false;
    }
    return true;
}

/* Return the makespan at which a search for a plan of mode `budget` gives up. A slow plan that does
 * not fit needs more recomputation, which hardly ever makes the plan faster. So the balance can be
 * given up; another balance may be faster. */
static double too_slow(const cgp__plan_search *s) {
    /* Mode `budget` computes makespans in FLOPs, which cannot be compared with measured times. */
    return s->costs ? INFINITY : s->slowest * 1.05;
}

static bool is_by_budget(const cgp__trial *t) {
    return t->options.recompute == CGP_RECOMPUTE_BUDGET;
}

/* Set the trial's largest and second largest excess from a plan. */
static void measure(cgp__trial *t, const cgp_plan *plan) {
    t->excess = t->second = INT64_MIN;
    for (int d = 0; d < t->devices; d++) {
        const cgp_plan_device *device = cgp_plan_device_at(plan, d);
        if (device->limit_bytes == 0) continue;
        const int64_t excess = cgp__limited_bytes(device) - device->limit_bytes;
        t->second = cgp__max(t->second, cgp__min(t->excess, excess));
        t->excess = cgp__max(t->excess, excess);
    }
}

cgp_status cgp__trial_plan(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                           bool *fits, bool *room) {
    cgp_plan *plan = NULL;
    t->options.balance = t->balance;
    const bool quick = is_by_budget(t) && (s->alone || t->quick);
    CGP_TRY(quick ? cgp__plan_budget(&plan, s->model, &t->options, false, too_slow(s))
                  : cgp__plan_make(&plan, s->model, &t->options));
    cgp_status status = CGP_OK;
    s->plans++;
    measure(t, plan);
    *fits = t->excess <= 0;
    if (s->least.stages == 0 || cgp__plan_fullest(plan) < s->least.bytes)
        status = describe(s, t, plan, &s->least);
    if (status == CGP_OK) status = describe(s, t, plan, choice);
    *room = *fits || set_caps(t, plan);
    cgp_plan_destroy(plan);
    return status;
}

cgp_status cgp__trial_unrecomputed(cgp__plan_search *s, const cgp__trial *t,
                                   cgp_search_choice *choice) {
    cgp_plan *plan = NULL;
    cgp_plan_options o = t->options;
    o.balance = t->balance;
    o.recompute = CGP_RECOMPUTE_NEVER;
    CGP_TRY(cgp__plan_make(&plan, s->model, &o));
    s->plans++;
    const cgp_status status = simulate(s, plan, choice);
    cgp_plan_destroy(plan);
    return status;
}

static const cgp__device_costs *costs_of(const cgp__plan_search *s) {
    return s->costs ? &s->by_device : NULL;
}

/* Add the current balance to the balances from which descents start. */
static void add_start(cgp__trial *t) {
    const size_t n = (size_t)t->stages;
    memcpy(t->starts + (size_t)t->n_starts++ * n, t->balance, n * sizeof *t->balance);
}

/* Return the time of a step without the exchange, which may be shorter with another balance. */
static double bound_of(const cgp_search_choice *choice) {
    return choice->makespan + choice->update;
}

/* Make a plan for the fastest balance. */
static cgp_status try_fastest(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                              cgp__fit *fit, bool *room) {
    bool fits = false;
    CGP_TRY(cgp__plan_balance(s->model, &t->options, NULL, costs_of(s), t->balance, t->bytes));
    CGP_TRY(cgp__trial_plan(s, t, choice, &fits, room));
    t->bound = bound_of(choice);
    if (fits)
        *fit = CGP__FITS_FASTEST;
    else if (t->options.recompute != CGP_RECOMPUTE_BUDGET && t->bound > s->slowest)
        *fit = CGP__TOO_SLOW;
    return CGP_OK;
}

/* Make plans for balances within the caps. */
static cgp_status within_caps(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                              cgp__fit *fit) {
    bool room = true, fits = false;
    int64_t excess = t->excess;
    for (int round = 1; round < ROUNDS && room && !fits; round++) {
        memcpy(t->before, t->balance, (size_t)t->stages * sizeof *t->before);
        CGP_TRY(
            cgp__plan_balance(s->model, &t->options, t->caps, costs_of(s), t->balance, t->bytes));
        if (memcmp(t->before, t->balance, (size_t)t->stages * sizeof *t->before) == 0) break;
        CGP_TRY(cgp__trial_plan(s, t, choice, &fits, &room));
        if (fits) *fit = CGP__FITS_SLOWER;
        if (!is_by_budget(t) && t->excess > excess - excess / PROGRESS) break;
        excess = t->excess;
    }
    return CGP_OK;
}

/* Return true if the last plan far exceeds a limit. */
static bool exceeds_by_far(const cgp__trial *t) {
    for (int d = 0; d < t->devices; d++) {
        if (t->limits[d] > 0 && t->excess > t->limits[d] / HOPELESS) return true;
    }
    return false;
}

/* Set the balance with the least memory, and its estimated bytes. */
static cgp_status find_least_memory(const cgp__plan_search *s, cgp__trial *t) {
    return cgp__plan_balance(s->model, &t->options, t->zeros, costs_of(s), t->balance, t->bytes);
}

/* Set *yes if the balance with the least memory far exceeds a limit. The bytes of this balance are
 * only estimated. Add the bytes by which the last plan exceeded its own estimate. */
static cgp_status is_hopeless(const cgp__plan_search *s, cgp__trial *t, bool *yes) {
    *yes = false;
    if (!exceeds_by_far(t)) return CGP_OK;
    CGP_TRY(find_least_memory(s, t));
    for (int d = 0; d < t->devices; d++)
        *yes = *yes || (t->limits[d] > 0 && t->bytes[d] - t->caps[d] > t->limits[d] / HOPELESS);
    return CGP_OK;
}

/* Advance to the next balance in lexicographic order. Return false if there is none. */
static bool advance(int *balance, int stages) {
    for (int j = stages - 2; j >= 0; j--) {
        if (balance[stages - 1] > 1) {
            balance[j]++;
            balance[stages - 1]--;
            return true;
        }
        balance[stages - 1] += balance[j] - 1;
        balance[j] = 1;
    }
    return false;
}

/* Make a plan for each balance; keep the best plan that fits. */
static cgp_status try_each(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *best,
                           cgp__fit *fit) {
    double fastest = INFINITY;
    bool room, fits;
    cgp_status status;
    for (int j = 0; j < t->stages; j++)
        t->balance[j] = j < t->stages - 1 ? 1 : s->model->n_layers - t->stages + 1;
    do {
        cgp_search_choice choice = {0};
        status = cgp__trial_plan(s, t, &choice, &fits, &room);
        fastest = fmin(fastest, cgp__choice_time(&choice));
        if (status == CGP_OK && fits && (!best->balance || cgp__choice_better(&choice, best))) {
            const cgp_search_choice worse = *best;
            *best = choice;
            choice = worse;
        }
        free(choice.balance);
    } while (status == CGP_OK && advance(t->balance, t->stages));
    if (best->balance)
        *fit = cgp__choice_time(best) <= fastest ? CGP__FITS_FASTEST : CGP__FITS_SLOWER;
    return status;
}

/* Make a plan for the fastest balance. If it does not fit, make plans for balances with less
 * memory. */
static cgp_status try_estimated(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                                cgp__fit *fit) {
    const bool budget = is_by_budget(t);
    bool room, fits = false;
    CGP_TRY(try_fastest(s, t, choice, fit, &room));
    if (*fit == CGP__TOO_SLOW) return CGP_OK;
    add_start(t);
    if (*fit != CGP__FITS_NOT) return CGP_OK;
    bool hopeless = !room;
    if (room && !budget) CGP_TRY(is_hopeless(s, t, &hopeless));
    if (!hopeless) CGP_TRY(within_caps(s, t, choice, fit));
    if (!hopeless) add_start(t);
    if (*fit != CGP__FITS_NOT) return CGP_OK;
    CGP_TRY(find_least_memory(s, t));
    CGP_TRY(cgp__trial_plan(s, t, choice, &fits, &room));
    add_start(t);
    if (fits) *fit = CGP__FITS_SLOWER;
    return CGP_OK;
}

/* Set *slow if no balance can be faster than the fastest mode so far. */
static cgp_status is_slow(cgp__plan_search *s, cgp__trial *t, bool *slow) {
    cgp_search_choice choice = {0};
    if (is_by_budget(t) && isfinite(s->to_beat)) {
        memcpy(t->balance, t->starts, (size_t)t->stages * sizeof *t->balance);
        CGP_TRY(cgp__trial_unrecomputed(s, t, &choice));
        t->bound = bound_of(&choice);
    }
    *slow = t->bound >= s->to_beat;
    return CGP_OK;
}

/* Return true if a step takes time for messages, which the estimates leave out. */
static bool has_messages(const cgp__plan_search *s) {
    return s->options->messages || s->options->exchange;
}

/* Improve the balances that were found by estimates. */
static cgp_status descend(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                          cgp__fit *fit) {
    const bool exact = *fit == CGP__FITS_FASTEST && !is_by_budget(t) && !has_messages(s);
    bool slow;
    if (*fit == CGP__TOO_SLOW || exact || (*fit == CGP__FITS_NOT && exceeds_by_far(t)))
        return CGP_OK;
    CGP_TRY(is_slow(s, t, &slow));
    if (slow) return CGP_OK;
    if (*fit == CGP__FITS_NOT) {
        free(choice->balance);
        *choice = (cgp_search_choice){0};
    }
    CGP_TRY(cgp__search_descend(s, t, choice));
    if (*fit == CGP__FITS_NOT && choice->balance) *fit = CGP__FITS_SLOWER;
    return CGP_OK;
}

/* Search for the balance with the least memory. */
static cgp_status try_smallest(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice) {
    bool room, fits;
    cgp_search_choice none = {0};
    CGP_TRY(find_least_memory(s, t));
    CGP_TRY(cgp__trial_plan(s, t, choice, &fits, &room));
    add_start(t);
    if (cgp__is_far(choice->bytes, s->to_undercut)) return CGP_OK;
    return cgp__search_descend(s, t, &none);
}

static cgp_status try_balances(cgp__plan_search *s, cgp__trial *t, cgp_search_choice *choice,
                               cgp__fit *fit) {
    bool room, fits = false;
    if (!s->options->balances && s->given.balance) {
        memcpy(t->balance, s->given.balance, (size_t)t->stages * sizeof *t->balance);
        CGP_TRY(cgp__trial_plan(s, t, choice, &fits, &room));
        if (fits) *fit = CGP__FITS_FASTEST;
        return CGP_OK;
    }
    if (!is_by_budget(t) && cgp__count_cuts(s->model->n_layers, t->stages, FEW + 1) <= FEW)
        return try_each(s, t, choice, fit);
    if (s->smallest) return try_smallest(s, t, choice);
    CGP_TRY(try_estimated(s, t, choice, fit));
    return descend(s, t, choice, fit);
}

cgp_status cgp__search_complete(cgp__plan_search *s, const cgp_plan_options *options,
                                cgp_search_choice *choice) {
    cgp__trial t = {.options = *options, .stages = choice->stages};
    t.devices = cgp__options_devices(options);
    t.options.balance = choice->balance;
    cgp_plan *plan = NULL;
    CGP_TRY(cgp__plan_make(&plan, s->model, &t.options));
    s->plans++;
    const cgp_status status = describe(s, &t, plan, choice);
    cgp_plan_destroy(plan);
    return status;
}

cgp_status cgp__search_balances(cgp__plan_search *s, const cgp_plan_options *options,
                                cgp_search_choice *choice, cgp__fit *fit) {
    cgp__trial t = {.options = *options,
                    .stages = cgp_plan_options_stages(options),
                    .devices = cgp__options_devices(options)};
    *fit = CGP__FITS_NOT;
    *choice = (cgp_search_choice){0};
    cgp_status status = t.stages <= s->model->n_layers
                            ? reserve(&t)
                            : cgp_fail(CGP_EINVAL, "search: too many stages");
    if (status == CGP_OK) status = try_balances(s, &t, choice, fit);
    if (status != CGP_OK || *fit == CGP__FITS_NOT || *fit == CGP__TOO_SLOW) {
        free(choice->balance);
        choice->balance = NULL;
    }
    free(t.caps);
    free(t.balance);
    return status;
}

cgp_status cgp__search_from(cgp__plan_search *s, const cgp_plan_options *options, bool widely,
                            cgp_search_choice *choice, bool *fits) {
    cgp__trial t = {.options = *options,
                    .stages = cgp_plan_options_stages(options),
                    .devices = cgp__options_devices(options)};
    bool room;
    cgp_status status = reserve(&t);
    if (status == CGP_OK) {
        memcpy(t.balance, options->balance, (size_t)t.stages * sizeof *t.balance);
        add_start(&t);
        status = cgp__trial_plan(s, &t, choice, fits, &room);
    }
    if (status == CGP_OK && !*fits) {
        free(choice->balance);
        *choice = (cgp_search_choice){0};
    }
    const bool moves = s->options->balances && (t.excess > INT64_MIN || has_messages(s));
    if (status == CGP_OK && moves)
        status = widely ? cgp__search_descend(s, &t, choice) : cgp__search_settle(s, &t, choice);
    *fits = choice->balance != NULL;
    free(t.caps);
    free(t.balance);
    return status;
}
