/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h -- a plan. One source file of this folder fills each part of a plan. Other modules read a
 * part through the header that defines the part. A device has one allocation, with these sections:
 *
 *     pipelines may share    parameters | gradients | optimizer | states
 *     each has its own       scratch | slots ... | workspace | step | transfer, receive | packed
 *     with `replay`          more for replays | kept state (memory/replays.h) */
#ifndef CGP_SRC_PLAN_H
#define CGP_SRC_PLAN_H

#include "partition/layer_sums.h"
#include "plan/actions.h"
#include "plan/links.h"
#include "plan/memory/packings.h"
#include "plan/memory/parameters.h"
#include "plan/memory/replays.h"
#include "plan/memory/states.h"
#include "plan/messages.h"
#include "plan/placement.h"
#include "plan/program/program.h"
#include "plan/setup.h"

struct cgp_plan {
    cgp__setup setup;
    cgp__placement placement;
    cgp__parameters parameters;
    cgp__states states;
    cgp__messages messages;
    cgp__packings packings;
    cgp__results results;
    cgp__actions actions;
    cgp__links links;
    cgp__replays replays;
    /* Total iterations of the loops whose cost could grow faster than the model. A test reads this
     * count. */
    int64_t steps;
};

/* Create a plan; devices may exceed their memory limits. */
cgp_status cgp__plan_make(cgp_plan **out, const cgp_model *model, const cgp_plan_options *options);

/* Create a plan as cgp__plan_make() does; the mode must not be CGP_RECOMPUTE_BUDGET. `recomputed`
 * [nodes]: true if backward recomputes the node's value. If `recomputed` is NULL, the options' mode
 * decides. */
cgp_status cgp__plan_make_with(cgp_plan **out, const cgp_model *model,
                               const cgp_plan_options *options, const bool *recomputed);

/* Write the memory needs of a device to `text`: "device cpu:0: needs 53.58 MiB (parameters, ..)".
 * Return `text`. */
char *cgp__device_needs_text(const cgp_plan_device *device, char *text, size_t size);

/* Return the bytes of the fullest device. They include everything that a memory limit counts. */
int64_t cgp__plan_fullest(const cgp_plan *plan);

/* Return the largest excess of any device over its memory limit, in bytes. If this is 0 or less,
 * the plan fits. Return INT64_MIN if no device has a limit. */
int64_t cgp__plan_excess(const cgp_plan *plan);

/* Return CGP_ELIMIT if a device exceeds its memory limit. */
cgp_status cgp__plan_check_limits(const cgp_plan *plan);

/* Return the number of devices of a plan with these options. */
int cgp__options_devices(const cgp_plan_options *options);

/* Return CGP_EINVAL if a device has no row of costs. `row_of` [devices] holds the index of each
 * device's row; may be NULL. */
cgp_status cgp__check_row_of(const int *row_of, int devices);

/* Find a balance within caps on memory for a plan with these options; see cgp__find_balance(). */
cgp_status cgp__plan_balance(const cgp_model *model, const cgp_plan_options *options,
                             const int64_t *caps, const cgp__device_costs *costs, int *balance,
                             int64_t *bytes);

#endif
