/* SPDX-License-Identifier: Apache-2.0 */
/* actions.h -- placement of stages on devices, and the schedule of a plan. */
#ifndef CGP_SRC_PLAN_ACTIONS_H
#define CGP_SRC_PLAN_ACTIONS_H

#include <cgpipe/plan.h>

typedef struct cgp__setup cgp__setup;

typedef struct cgp__actions {
    /* compute actions of a full mini-batch */
    cgp_schedule *table;
    cgp_schedule *schedule;
    cgp_schedule_timeline timeline;
} cgp__actions;

/* Make a table with the placement of stages on devices. */
cgp_status cgp__place_stages(cgp_plan *plan, const cgp_plan_options *options);

/* Return the name of the plan's schedule. If the options name no schedule, return the default. */
const char *cgp__schedule_name_of(const cgp_plan_options *options);

/* Generate the compute actions of a full mini-batch. `costs` [4][stages]: FLOPs of F, I, W and R.
 * If `costs` is NULL, each action costs 1. */
cgp_status cgp__generate_table(const cgp__setup *setup, const cgp_plan_options *options,
                               const double *costs, cgp_schedule **out);

/* Make the table and the schedule, and count the slots and buffers that the schedule needs. The
 * stages' programs must exist already. */
cgp_status cgp__make_actions(cgp_plan *plan, const cgp_plan_options *options);

/* Make a lowered, checked schedule for `chunks` micro-batches. If `forward_only`, the schedule runs
 * only forward. Otherwise it is the plan's schedule, and `chunks` is at most the plan's number of
 * micro-batches. */
cgp_status cgp__plan_make_schedule(const cgp_plan *plan, int chunks, bool forward_only,
                                   cgp_schedule **out);

#endif
