/* SPDX-License-Identifier: Apache-2.0 */
/* search_trial.h -- a trial makes plans for balances of one schedule and recomputation mode, one
 * balance at a time. */
#ifndef CGP_SRC_PLAN_SEARCH_TRIAL_H
#define CGP_SRC_PLAN_SEARCH_TRIAL_H

#include "plan/search.h"

enum { CGP__MOST_STARTS = 3 };

typedef struct cgp__trial {
    cgp_plan_options options;
    int stages, devices;
    /* [stages] the current balance, and the previous balance */
    int *balance, *before;
    /* [n_starts][stages] balances from which descents begin */
    int *starts;
    int n_starts;
    /* [devices] caps, estimates of bytes, memory limits, and zeros */
    int64_t *caps, *bytes, *limits, *zeros;
    /* largest and second largest excess of a device over its limit in the last plan; INT64_MIN:
     * there is no such device */
    int64_t excess, second;
    /* set if a plan of mode `budget` does not consider the other modes */
    bool quick;
    /* an estimate of the time of the shortest step over all balances */
    double bound;
} cgp__trial;

/* Make a plan for the trial's balance and describe the plan in *choice; the caller owns
 * choice->balance. Set *fits if the plan fits; otherwise set the trial's caps. Set *room to false
 * if a cap is not positive. */
cgp_status cgp__trial_plan(cgp__plan_search *search, cgp__trial *trial, cgp_search_choice *choice,
                           bool *fits, bool *room);

/* Set the times in *choice to those of a step with the trial's balance and without
 * recomputation. */
cgp_status cgp__trial_unrecomputed(cgp__plan_search *search, const cgp__trial *trial,
                                   cgp_search_choice *choice);

/* Descend from the starts, if enough of the search's work remains. *best is the best choice that
 * fits, or all 0; a better choice replaces it. If the search looks for the plan with the least
 * memory, no plan fits, so *best does not change. */
cgp_status cgp__search_descend(cgp__plan_search *search, cgp__trial *trial,
                               cgp_search_choice *best);

/* If plans are small, move single layers of the first start until no move improves the plan. */
cgp_status cgp__search_settle(cgp__plan_search *search, cgp__trial *trial, cgp_search_choice *best);

#endif
