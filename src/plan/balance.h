/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h -- finds the balance of a plan if the caller gives no balance, and balances within caps
 * on memory. */
#ifndef CGP_SRC_PLAN_BALANCE_H
#define CGP_SRC_PLAN_BALANCE_H

#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;
typedef struct cgp__device_costs cgp__device_costs;

/* Find the balance of a plan; see cgp_balance_for_plan(). `placed` has the stages and their devices
 * or, if the caller gives a table, its actions.
 *
 * caps: [devices] estimated bytes that a device should not exceed; this has priority over the
 * makespan. All 0: the goal is CGP_BALANCE_MEMORY. NULL: the goal is CGP_BALANCE_MAKESPAN. costs:
 * the layers' costs on each device; NULL: the costs are FLOPs. bytes: [devices] set to the
 * estimated bytes with this balance; may be NULL. */
cgp_status cgp__find_balance(const cgp__setup *setup, const cgp_plan_options *options,
                             const cgp_schedule *placed, const int64_t *caps,
                             const cgp__device_costs *costs, int *balance, int64_t *bytes);

#endif
