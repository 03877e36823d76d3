/* SPDX-License-Identifier: Apache-2.0 */
/* search.h -- declares the state of a search over plans. */
#ifndef CGP_SRC_PLAN_SEARCH_H
#define CGP_SRC_PLAN_SEARCH_H

#include <cgpipe/planner.h>

#include "partition/layer_sums.h"

typedef struct cgp__plan_search {
    const cgp_model *model;
    const cgp_search_options *options;
    /* The caller's options. While the search looks for the least limit, the memory limit differs
     * from the caller's limit. */
    cgp_plan_options given;
    /* costs: [rows][layers] costs for the current size of micro-batches; NULL: the costs are FLOPs.
     * by_device: these costs, and the index of each device's row. */
    cgp_layer_cost *costs;
    cgp__device_costs by_device;
    /* set if the search tries the other modes separately, so a plan of mode `budget` does not
     * consider them */
    bool alone;
    int64_t plans;
    /* Once options->most choices are kept: the time of the slowest of these choices. A slower plan
     * cannot be kept. INFINITY: any plan can be kept. */
    double slowest;
    /* time of the fastest mode so far for the current schedule; INFINITY: none */
    double to_beat;
    /* work: remaining work of the descents for the current schedule, in nodes and actions. modes:
     * number of recomputation modes left to try for this schedule. */
    int64_t work;
    int modes;
    /* set while the schedules are counted; no plans are made then */
    bool counting;
    int schedules;
    /* set if the search looks for the plan with the least memory, whether or not the plan fits */
    bool smallest;
    /* bytes of the smallest plan of earlier modes; used only if `smallest` is set */
    int64_t to_undercut;
    /* result to which tried plans are added; NULL: tried plans are not listed */
    cgp_search_result *result;
    int tried_capacity;
    /* while the search looks for the least limit: the smallest plan of each mode, from the search
     * with a limit of one byte; otherwise NULL */
    const cgp_search_result *first;
    /* the smallest plan so far, by the bytes of its fullest device; the search owns this plan's
     * balance */
    cgp_search_choice least;
    /* status and message of the first plan that could not be made; CGP_OK: no plan has failed */
    cgp_status refused;
    char *reason;
} cgp__plan_search;

/* The balance with which a mode's plan fits: the fastest balance, a slower balance, or none. */
typedef enum cgp__fit {
    CGP__FITS_NOT,
    CGP__FITS_SLOWER,
    CGP__FITS_FASTEST,
    CGP__TOO_SLOW, /* the mode's fastest balance does not fit, and its step is slower than all kept
                    * choices */
} cgp__fit;

/* Make plans with these options until a plan fits. The options' balance is ignored unless it is
 * fixed. The search tries first the fastest balance, then the fastest balances within the limits,
 * then the balance with the least memory, then descents. If a plan fits, *choice is set to that
 * plan, and the caller owns choice->balance. */
cgp_status cgp__search_balances(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice, cgp__fit *fit);

/* Move single layers of the options' balance or, if `widely`, descend from it. Set *fits, and
 * *choice if a plan fits. The caller owns choice->balance, also after a failure. */
cgp_status cgp__search_from(cgp__plan_search *search, const cgp_plan_options *options, bool widely,
                            cgp_search_choice *choice, bool *fits);

/* Set `least` to the plan whose fullest device needs the fewest bytes. `least.bytes` is the minimum
 * feasible limit: with this limit a search finds a plan, with one byte less it finds none. */
cgp_status cgp__search_least(cgp__plan_search *search);

/* Try all combinations that the search options allow; keep the best choices. */
cgp_status cgp__search_all(cgp__plan_search *search, cgp_search_result *out);

/* Replace a choice of mode `budget`, which was made without the other modes as candidates. The new
 * plan is the plan of cgp_plan_create(), which is at least as fast. */
cgp_status cgp__search_complete(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice);

/* Return true if descents are unlikely to reduce a plan of `bytes` bytes to the limit. */
static inline bool cgp__is_far(int64_t bytes, int64_t limit) {
    return bytes - limit > limit / 8;
}

/* Return the time of a step: makespan, exchange and update. */
static inline double cgp__choice_time(const cgp_search_choice *choice) {
    return choice->makespan + choice->exchange + choice->update;
}

/* Return true if choice `a` is better than `b`: its step takes less time. If the times are equal,
 * f32 is better than another precision, and fewer bytes are better. */
bool cgp__choice_better(const cgp_search_choice *a, const cgp_search_choice *b);

#endif
