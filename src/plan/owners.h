/* SPDX-License-Identifier: Apache-2.0 */
/* owners.h -- looks up the device of a node and the rank of a device, for the modules that run a
 * plan. */
#ifndef CGP_SRC_PLAN_OWNERS_H
#define CGP_SRC_PLAN_OWNERS_H

#include <cgpipe/plan.h>

/* Return the device of a node. */
int cgp__plan_device_of(const cgp_plan *plan, int node);

/* Return true if the device belongs to the rank. If the plan has replicas, return true if the
 * counterpart of the device in the rank's replica belongs to the rank. */
bool cgp__plan_is_on(const cgp_plan *plan, int device, int rank);

#endif
