/* SPDX-License-Identifier: Apache-2.0 */
/* outside.h -- memory that custom ops allocate by themselves, outside the plan. */
#ifndef CGP_SRC_PLAN_OUTSIDE_H
#define CGP_SRC_PLAN_OUTSIDE_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

/* Set `outside_bytes` of each device. The slots must be placed already. */
cgp_status cgp__count_outside(cgp__placement *placement, const cgp__setup *setup);

/* Return the number of a device's bytes that count towards the device's memory limit. */
static inline int64_t cgp__limited_bytes(const cgp_plan_device *device) {
    return device->planned_bytes + device->outside_bytes;
}

#endif
