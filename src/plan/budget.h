/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h -- plans that recompute as little as their memory limits allow. */
#ifndef CGP_SRC_PLAN_BUDGET_H
#define CGP_SRC_PLAN_BUDGET_H

#include <cgpipe/plan.h>

/* Make the plan for CGP_RECOMPUTE_BUDGET; if no plan fits, make the plan that exceeds its limits
 * the least. If `all`, plans of the other modes and plans with R are candidates too. `too_slow`:
 * give up when a plan does not fit and its step takes at least this many FLOPs; INFINITY: never
 * give up. */
cgp_status cgp__plan_budget(cgp_plan **out, const cgp_model *model, const cgp_plan_options *options,
                            bool all, double too_slow);

/* Find the least memory_limit: cgp__plan_budget() finds a plan that fits with this limit, but finds
 * no such plan with a limit one byte smaller. The value of the options' own limit does not matter.
 * *least is 0 in three cases: the options have no limit, a limit in a device's name is too small,
 * or the model is too large for this search. */
cgp_status cgp__plan_budget_least(const cgp_model *model, const cgp_plan_options *options,
                                  int64_t *least);

/* Replace *plan with the plan that the search finds for the smaller memory_limit `least`. */
cgp_status cgp__plan_budget_smaller(cgp_plan **plan, const cgp_plan_options *options,
                                    int64_t least);

#endif
