/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c -- recomputes as little as the memory limits allow.
 *
 * Each device has a Pareto frontier of choices of recomputed values (segments.c). At each later
 * point of the frontier, backward recomputes more values, takes more time and needs fewer bytes.
 * The bytes of a point are an estimate, so the search makes a plan for the point. The search then
 * corrects the limit by the difference between the plan's bytes and the estimate. The corrected
 * limit gives the next point. A point known to fit and a point known not to fit bound the next
 * point from both sides, as in regula falsi. The search advances on all devices at the same time,
 * because the choice on one device hardly affects the others.
 *
 * If the point with the fewest bytes does not fit on a device, the search continues on the
 * frontiers of plans with R. In these plans, a micro-batch keeps only its input until R recomputes
 * the values of the micro-batch's slot. Backward recomputes the other values. */
#include "plan/budget.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "plan/memory/devices.h"
#include "plan/memory/outside.h"
#include "plan/plan.h"
#include "plan/segments.h"
#include "schedule/table.h"

enum {
    ROUNDS = 12,
    MOST_RAISES = 16,  /* maximum number of limits to try before one fits */
    MOST_NODES = 2000, /* a model with more nodes gets no search for its least limit, because that
                        * search would make about a thousand plans */
};

typedef struct device_search {
    cgp__device_chain chain;
    /* the device's limit, and the bytes of the last plan minus the estimate */
    int64_t limit, beyond;
    /* points of the frontier: the current point, the last point known not to fit, and the first
     * point known to fit */
    int point, fails, fits;
} device_search;

typedef struct budget {
    const cgp_model *model;
    cgp_plan_options options;
    /* [stages] the balance for which the frontiers were made */
    int *balance;
    int devices;
    device_search *search;
    /* [nodes] true if backward recomputes the node */
    bool *recomputed;
    /* the best plan so far */
    cgp_plan *best;
    /* makespan in FLOPs at which to give up a plan that does not fit */
    double too_slow;
    /* set if the last plan does not fit and its makespan reached `too_slow` */
    bool hopeless;
} budget;

/* --- plans --- */

static bool is_better(const cgp_plan *a, const cgp_plan *b) {
    const int64_t x = cgp__plan_excess(a), y = cgp__plan_excess(b);
    const double of_a = a->actions.timeline.makespan, of_b = b->actions.timeline.makespan;
    if (x > 0 || y > 0) return x < y;
    return of_a != of_b ? of_a < of_b : cgp__plan_fullest(a) < cgp__plan_fullest(b);
}

/* Keep a plan if it is the best plan so far; otherwise destroy it. */
static void consider(budget *b, cgp_plan *plan) {
    if (b->best && !is_better(plan, b->best)) {
        cgp_plan_destroy(plan);
        return;
    }
    cgp_plan_destroy(b->best);
    b->best = plan;
}

static cgp_status make(budget *b, const cgp_plan_options *options, cgp_recompute mode,
                       const bool *recomputed, cgp_plan **out) {
    cgp_plan_options o = *options;
    o.recompute = mode;
    return cgp__plan_make_with(out, b->model, &o, recomputed);
}

/* Return true if a plan recomputes at least one value. */
static bool is_recomputing(const cgp_plan *plan) {
    return plan->setup.recomputed || plan->setup.recompute != CGP_RECOMPUTE_NEVER;
}

static bool fits(const cgp_plan *plan) {
    return plan && cgp__plan_excess(plan) <= 0;
}

/* --- points --- */

static int64_t estimate(const device_search *s, int point) {
    const cgp__frontier_point *p = &s->chain.frontier.points[point];
    return p->bytes + p->work;
}

static int last_point(const device_search *s) {
    return s->chain.frontier.n - 1;
}

/* Choose a device's next point on its frontier, between `fails` and `fits`. If `middle`, the next
 * point is in the middle. Otherwise it is the first point that should fit according to the
 * estimate. */
static void choose_point(device_search *s, bool middle) {
    const int last = last_point(s);
    if (s->fits <= s->fails) s->fits = last + 1;
    if (s->fails + 1 == s->fits) {
        s->point = s->fits;
    } else if (middle) {
        s->point = s->fails + (s->fits - s->fails) / 2;
    } else {
        for (s->point = s->fails + 1; s->point < s->fits - 1; s->point++) {
            if (estimate(s, s->point) <= s->limit - s->beyond) break;
        }
    }
}

/* Choose the next point on each device's frontier. Return false if a device has no point left, or
 * if no device's point has changed (the plan for these points exists already). */
static bool choose(budget *b, bool middle) {
    bool open = false;
    for (int d = 0; d < b->devices; d++) {
        device_search *s = &b->search[d];
        const int before = s->point;
        if (s->limit == 0) continue;
        if (s->fails >= last_point(s)) return false;
        choose_point(s, middle);
        open = open || s->point != before;
    }
    return open;
}

/* Record which devices fit into their limits at their current points. */
static void note(budget *b, const cgp_plan *plan) {
    for (int d = 0; d < b->devices; d++) {
        device_search *s = &b->search[d];
        const int64_t bytes = cgp__limited_bytes(&plan->placement.devices[d].info);
        if (s->limit == 0) continue;
        s->beyond = bytes - estimate(s, s->point);
        if (bytes <= s->limit)
            s->fits = s->point;
        else
            s->fails = s->point;
    }
}

/* Make a plan for the current points of all devices. */
static cgp_status plan_points(budget *b, const cgp_plan *first, cgp_recompute base) {
    cgp_plan *plan = NULL;
    memset(b->recomputed, 0, (size_t)b->model->n_nodes * sizeof *b->recomputed);
    for (int d = 0; d < b->devices; d++) {
        const device_search *s = &b->search[d];
        if (s->limit > 0) cgp__device_chain_mark(&s->chain, first, s->point, b->recomputed);
    }
    CGP_TRY(make(b, &b->options, base, b->recomputed, &plan));
    note(b, plan);
    b->hopeless = cgp__plan_excess(plan) > 0 && plan->actions.timeline.makespan >= b->too_slow;
    consider(b, plan);
    return CGP_OK;
}

/* --- frontiers --- */

static cgp_status begin(budget *b, const cgp_plan *first) {
    for (int d = 0; d < b->devices; d++) {
        const cgp_plan_device *device = &first->placement.devices[d].info;
        device_search *s = &b->search[d];
        s->limit = device->limit_bytes;
        if (s->limit == 0) continue;
        CGP_TRY(cgp__device_chain_create(&s->chain, first, d));
        int64_t kept = 0;
        for (int i = 0; i < s->chain.n; i++)
            kept += s->chain.kept[i];
        s->beyond = cgp__limited_bytes(device) - kept;
        s->point = s->fails = -1;
        s->fits = last_point(s) + 1;
    }
    return CGP_OK;
}

static cgp_status search_points(budget *b, const cgp_plan *first, cgp_recompute base) {
    CGP_TRY(begin(b, first));
    for (int round = 0; round < ROUNDS && choose(b, round % 3 == 2); round++) {
        CGP_TRY(plan_points(b, first, base));
        if (b->hopeless) return CGP_OK;
    }
    if (fits(b->best)) return CGP_OK;
    bool planned = true;
    for (int d = 0; d < b->devices; d++) {
        device_search *s = &b->search[d];
        planned = planned && (s->limit == 0 || s->point == last_point(s));
        s->point = last_point(s);
    }
    return planned ? CGP_OK : plan_points(b, first, base);
}

/* Search the frontiers of plans with the actions of recomputation mode `base`. `first` is the plan
 * that mode `base` itself gives. */
static cgp_status search_base(budget *b, const cgp_plan *first, cgp_recompute base) {
    const cgp_status status = search_points(b, first, base);
    for (int d = 0; d < b->devices; d++)
        cgp__device_chain_release(&b->search[d].chain);
    return status;
}

static cgp_status reserve(budget *b, const cgp_plan *plan) {
    CGP_TRY(CGP__NEW(b->balance, plan->placement.n_stages, "recompute"));
    CGP_TRY(CGP__NEW(b->search, plan->placement.n_devices, "recompute"));
    CGP_TRY(CGP__NEW(b->recomputed, b->model->n_nodes, "recompute"));
    b->options.balance = b->balance;
    b->devices = plan->placement.n_devices;
    return CGP_OK;
}

/* Set the current balance to the balance of a plan. Return false if it was the same balance
 * already. */
static bool keep_balance(budget *b, const cgp_plan *plan) {
    const size_t bytes = (size_t)plan->placement.n_stages * sizeof *b->balance;
    if (memcmp(b->balance, plan->placement.balance, bytes) == 0) return false;
    memcpy(b->balance, plan->placement.balance, bytes);
    return true;
}

/* Search the frontiers of plans with the actions of mode `base`. */
static cgp_status try_base(budget *b, cgp_recompute base) {
    cgp_plan *first = NULL;
    CGP_TRY(make(b, &b->options, base, NULL, &first));
    cgp_status status = b->search ? CGP_OK : reserve(b, first);
    if (status == CGP_OK) (void)keep_balance(b, first);
    if (status == CGP_OK && cgp__plan_excess(first) > 0) status = search_base(b, first, base);
    consider(b, first);
    return status;
}

/* Try another recomputation mode. If no plan can be made with this mode, ignore the mode. */
static cgp_status try_mode(budget *b, const cgp_plan_options *options, cgp_recompute mode) {
    cgp_plan *plan = NULL;
    const cgp_status status = make(b, options, mode, NULL, &plan);
    if (status == CGP_OK) consider(b, plan);
    return status == CGP_ENOMEM ? status : CGP_OK;
}

static cgp_status search(budget *b, const cgp_plan_options *options, bool all) {
    CGP_TRY(try_base(b, CGP_RECOMPUTE_NEVER));
    if (cgp__plan_excess(b->best) == INT64_MIN)
        return cgp_fail(CGP_EINVAL,
                        "recompute: budget needs a memory limit, got none (memory_limit "
                        "or --memory-limit, or a device such as cpu:0@2GiB)");
    if (!all) return CGP_OK;
    const bool ordered =
        options->table || !cgp__schedule_needs_costs(cgp__schedule_name_of(options));
    for (int mode = CGP_RECOMPUTE_ALWAYS; mode < CGP_RECOMPUTE_BUDGET; mode++) {
        if (!ordered || !fits(b->best) || is_recomputing(b->best))
            CGP_TRY(try_mode(b, options, (cgp_recompute)mode));
    }
    if (!options->balance && keep_balance(b, b->best)) CGP_TRY(try_base(b, CGP_RECOMPUTE_NEVER));
    if (options->table && cgp__has_kind(options->table, CGP_ACTION_R)) return CGP_OK;
    if (!fits(b->best)) CGP_TRY(try_base(b, CGP_RECOMPUTE_EXCEPT_LAST));
    return fits(b->best) ? CGP_OK : try_base(b, CGP_RECOMPUTE_ALWAYS);
}

cgp_status cgp__plan_budget(cgp_plan **out, const cgp_model *model, const cgp_plan_options *options,
                            bool all, double too_slow) {
    budget b = {.model = model, .options = *options, .too_slow = too_slow};
    const cgp_status status = search(&b, options, all);
    if (status == CGP_OK)
        *out = b.best;
    else
        cgp_plan_destroy(b.best);
    free(b.recomputed);
    free(b.search);
    free(b.balance);
    return status;
}

/* --- the least limit --- */

static cgp_status fits_within(const cgp_model *model, const cgp_plan_options *options,
                              int64_t limit, bool *yes, int64_t *bytes) {
    cgp_plan_options o = *options;
    cgp_plan *plan = NULL;
    o.memory_limit = limit;
    CGP_TRY(cgp__plan_budget(&plan, model, &o, true, INFINITY));
    *yes = fits(plan);
    *bytes = cgp__plan_fullest(plan);
    cgp_plan_destroy(plan);
    return CGP_OK;
}

cgp_status cgp__plan_budget_least(const cgp_model *model, const cgp_plan_options *options,
                                  int64_t *least) {
    int64_t refused = 1, fitting = 0, bytes = 0;
    bool yes = false;
    *least = 0;
    if (options->memory_limit == 0 || model->n_nodes > MOST_NODES) return CGP_OK;
    CGP_TRY(fits_within(model, options, refused, &yes, &fitting));
    for (int k = 0; k < MOST_RAISES && !yes; k++) {
        fitting += k > 0 ? fitting / 8 + 1 : 0;
        CGP_TRY(fits_within(model, options, fitting, &yes, &bytes));
        if (!yes) refused = cgp__max(refused, fitting);
    }
    while (yes && refused + 1 < fitting) {
        const int64_t middle = refused + (fitting - refused) / 2;
        bool fits_middle = false;
        CGP_TRY(fits_within(model, options, middle, &fits_middle, &bytes));
        *(fits_middle ? &fitting : &refused) = middle;
    }
    if (yes) *least = fitting;
    return CGP_OK;
}

cgp_status cgp__plan_budget_smaller(cgp_plan **plan, const cgp_plan_options *options,
                                    int64_t least) {
    const cgp_model *model = (*plan)->setup.model;
    cgp_plan_options o = *options;
    cgp_plan *smaller = NULL, *again = NULL;
    o.memory_limit = least;
    CGP_TRY(cgp__plan_budget(&smaller, model, &o, true, INFINITY));
    o.memory_limit = options->memory_limit;
    o.recompute = smaller->setup.recompute;
    o.balance = smaller->placement.balance;
    const cgp_status status = cgp__plan_make_with(&again, model, &o, smaller->setup.recomputed);
    cgp_plan_destroy(smaller);
    CGP_TRY(status);
    cgp_plan_destroy(*plan);
    *plan = again;
    return CGP_OK;
}
