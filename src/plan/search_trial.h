/* SPDX-License-Identifier: Apache-2.0 */
/* search_trial.h -- balances of one schedule and recomputation mode, planned one by one. */
#ifndef CGP_SRC_PLAN_SEARCH_TRIAL_H
#define CGP_SRC_PLAN_SEARCH_TRIAL_H

#include "plan/search.h"

enum { CGP__MOST_STARTS = 3 };

typedef struct cgp__trial {
    cgp_plan_options options;
    int stages, devices;
    /* [stages] the balance that is tried, and the one before */
    int *balance, *before;
    /* [n_starts][stages] balances from which descents begin */
    int *starts;
    int n_starts;
    /* [devices] caps, estimates of bytes, memory limits, and zeros */
    int64_t *caps, *bytes, *limits, *zeros;
    /* the largest and the second largest excess of a device over its limit in the last plan;
     * INT64_MIN: there is none */
    int64_t excess, second;
    /* the other modes are no candidates of a plan by budget */
    bool quick;
    /* an estimate of the shortest step of all balances */
    double bound;
} cgp__trial;

/* Plan and describe the trial's balance; choice->balance is owned by the caller. Set *fits, and set
 * caps unless it fits; *room says whether they are positive. */
cgp_status cgp__trial_plan(cgp__plan_search *search, cgp__trial *trial, cgp_search_choice *choice,
                           bool *fits, bool *room);

/* Set *time to that of the step, with its update, if the trial's balance recomputes nothing. */
cgp_status cgp__trial_unrecomputed(cgp__plan_search *search, const cgp__trial *trial, double *time);

/* Descend from the starts, if the search's work allows it. *best: the best choice that fits, or all
 * 0; it is replaced if a better one is found. While the least memory is searched, *best stays. */
cgp_status cgp__search_descend(cgp__plan_search *search, cgp__trial *trial,
                               cgp_search_choice *best);

/* Move single layers of the first start, if plans are small, until no move is a gain. */
cgp_status cgp__search_settle(cgp__plan_search *search, cgp__trial *trial, cgp_search_choice *best);

#endif
