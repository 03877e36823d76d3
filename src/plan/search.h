/* SPDX-License-Identifier: Apache-2.0 */
/* search.h -- declares the state of a search over plans. */
#ifndef CGP_SRC_PLAN_SEARCH_H
#define CGP_SRC_PLAN_SEARCH_H

#include <cgpipe/planner.h>

#include "partition/layer_sums.h"

typedef struct cgp__plan_search {
    const cgp_model *model;
    const cgp_search_options *options;
    /* the caller's options, with another memory limit while the least limit is searched */
    cgp_plan_options given;
    /* costs: [rows][layers] costs for the current size of micro-batches; NULL: the costs are FLOPs.
     * The next field has these costs and the index of each device's row. */
    cgp_layer_cost *costs;
    cgp__device_costs by_device;
    /* the other modes are tried separately, and are not candidates within the mode `budget` */
    bool alone;
    int64_t plans;
    /* time of the slowest kept choice, if as many choices are kept as the caller wants; a slower
     * plan cannot be kept. INFINITY: any plan can be kept. */
    double slowest;
    /* the time of the fastest mode so far with the same schedule; INFINITY: none */
    double to_beat;
    /* the work left to the descents for the current schedule, counted in nodes and actions, and the
     * number of the schedule's recomputation modes that are still to be tried */
    int64_t work;
    int modes;
    /* the schedules are only counted */
    bool counting;
    int schedules;
    /* search the plan with the least memory, whether it fits or not */
    bool smallest;
    /* bytes of the smallest plan of the modes before; only with `smallest` */
    int64_t to_undercut;
    /* gets what is tried; NULL: not while the least memory is searched */
    cgp_search_result *result;
    int tried_capacity;
    /* the result of the search with the caller's limits, set while the least memory is searched;
     * otherwise NULL */
    const cgp_search_result *first;
    /* the smallest plan so far, by the bytes of its fullest device; the search owns this plan's
     * balance */
    cgp_search_choice least;
    /* why the first plan could not be made; CGP_OK: all plans could be made */
    cgp_status refused;
    char *reason;
} cgp__plan_search;

/* The balance with which a mode's plan fits: its fastest one, a slower one, or none. */
typedef enum cgp__fit {
    CGP__FITS_NOT,
    CGP__FITS_SLOWER,
    CGP__FITS_FASTEST,
    CGP__TOO_SLOW, /* the mode's fastest balance does not fit, and is slower than all kept
                    * choices */
} cgp__fit;

/* Make plans with these options, whose balance is ignored unless it is fixed, until a plan fits.
 * The fastest balance is the first, then come the fastest ones within the limits, then the one with
 * the least memory, then descents. If a plan fits, *choice is that plan, and its balance is owned
 * by the caller. */
cgp_status cgp__search_balances(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice, cgp__fit *fit);

/* Move single layers of the options' balance or, if `widely`, descend from it. Set *fits, and
 * *choice if a plan fits. The caller owns choice->balance, also after a failure. */
cgp_status cgp__search_from(cgp__plan_search *search, const cgp_plan_options *options, bool widely,
                            cgp_search_choice *choice, bool *fits);

/* Set `least` to the plan with the smallest fullest device. Its bytes are the limit with which a
 * search finds a plan, but not with a byte less. */
cgp_status cgp__search_least(cgp__plan_search *search);

/* Try all that the options let vary; keep the best choices. */
cgp_status cgp__search_all(cgp__plan_search *search, cgp_search_result *out);

/* Replace a choice by budget, which was made without the other modes as candidates, by the plan of
 * cgp_plan_create(), which is at least as fast. */
cgp_status cgp__search_complete(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice);

/* Return whether descents hardly lead from so many bytes to a limit. */
static inline bool cgp__is_far(int64_t bytes, int64_t limit) {
    return bytes - limit > limit / 8;
}

/* Return whether a is better than b: its step takes less time or, if equal, it is in f32 or has
 * fewer bytes. */
bool cgp__choice_better(const cgp_search_choice *a, const cgp_search_choice *b);

#endif
