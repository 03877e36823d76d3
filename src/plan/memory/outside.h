/* SPDX-License-Identifier: Apache-2.0 */
/* outside.h -- memory that custom ops allocate by themselves, outside the plan. */
#ifndef CGP_SRC_PLAN_OUTSIDE_H
#define CGP_SRC_PLAN_OUTSIDE_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

/* Set `outside_bytes` of each device, after the slots were placed. */
cgp_status cgp__count_outside(cgp__placement *placement, const cgp__setup *setup);

/* Return the bytes of a device that its memory limit counts. */
static inline int64_t cgp__limited_bytes(const cgp_plan_device *device) {
    return device->planned_bytes + device->outside_bytes;
}

#endif
