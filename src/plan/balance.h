/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h -- the balance of a plan for which the caller gives none. */
#ifndef CGP_SRC_PLAN_BALANCE_H
#define CGP_SRC_PLAN_BALANCE_H

#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;

/* Find the balance of a plan; see cgp_balance_for_plan(). `placed` has the stages and their devices
 * or, if the caller gives a table, its actions. */
cgp_status cgp__find_balance(const cgp__setup *setup, const cgp_plan_options *options,
                             const cgp_schedule *placed, cgp_balance_goal goal,
                             const cgp_layer_cost *costs, int *balance);

#endif
