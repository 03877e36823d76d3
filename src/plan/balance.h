/* SPDX-License-Identifier: Apache-2.0 */
/* balance.h -- finds the balance of a plan if the caller gives no balance. Also finds balances
 * within caps on memory. */
#ifndef CGP_SRC_PLAN_BALANCE_H
#define CGP_SRC_PLAN_BALANCE_H

#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;
typedef struct cgp__device_costs cgp__device_costs;

/* Find the balance of a plan; see cgp_balance_for_plan(). `placed` is a schedule that places the
 * stages on devices. If the caller gives a table, `placed` also has the table's actions.
 *
 * `caps` [devices]: estimated bytes that a device should not exceed; the caps have priority over
 * the makespan. If all caps are 0, the goal is CGP_BALANCE_MEMORY. If `caps` is NULL, the goal is
 * CGP_BALANCE_MAKESPAN. `costs`: the layers' costs on each device; if NULL, the costs are FLOPs.
 * `bytes` [devices]: set to the estimated bytes of each device with the balance found; may be
 * NULL. */
cgp_status cgp__find_balance(const cgp__setup *setup, const cgp_plan_options *options,
                             const cgp_schedule *placed, const int64_t *caps,
                             const cgp__device_costs *costs, int *balance, int64_t *bytes);

#endif
