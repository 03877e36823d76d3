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
    /* records what is tried; NULL while the least memory is searched */
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

/* Whether a mode's plan fits with its fastest balance, only with a slower balance, or with no
 * balance. */
typedef enum cgp__fit {
    CGP__FITS_NOT,
    CGP__FITS_SLOWER,
    CGP__FITS_FASTEST,
    CGP__TOO_SLOW, /* the mode's fastest balance does not fit, and is slower than all kept
                    * choices */
} cgp__fit;

/* Make plans with these options until a plan fits. The options' balance is ignored unless it is
 * fixed. The first plan has the fastest balance, the next plans have the fastest balances within
 * the limits, and the last plan has the balance with the least memory. If a plan fits, *choice is
 * that plan, and the caller owns its balance. */
cgp_status cgp__search_balances(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice, cgp__fit *fit);

/* Replace a choice of mode `budget` with the plan of cgp_plan_create(). The choice was made without
 * the other modes as candidates, so the new plan is at least as fast. */
cgp_status cgp__search_complete(cgp__plan_search *search, const cgp_plan_options *options,
                                cgp_search_choice *choice);

/* Return whether a is better than b: its step takes less time or, if the times are equal, it is in
 * f32 or has fewer bytes. */
bool cgp__choice_better(const cgp_search_choice *a, const cgp_search_choice *b);

#endif
