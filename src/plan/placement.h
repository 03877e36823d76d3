/* SPDX-License-Identifier: Apache-2.0 */
/* placement.h -- places nodes on stages, stages on devices, and devices on ranks. */
#ifndef CGP_SRC_PLAN_PLACEMENT_H
#define CGP_SRC_PLAN_PLACEMENT_H

#include <cgpipe/plan.h>

typedef struct cgp__device_plan cgp__device_plan;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__stage_plan cgp__stage_plan;

typedef struct cgp__placement {
    int n_stages, n_devices;
    /* [stages] number of layers of each stage */
    int *balance;
    /* [nodes] stage of each node */
    int *node_stage;
    cgp__stage_plan *stages;
    /* [stages] indices of the stages of device 0, then of device 1 .. */
    int *device_stages;
    cgp__device_plan *devices;
} cgp__placement;

/* Place the nodes of the model. `table` gives the device of each stage. */
cgp_status cgp__place_nodes(cgp__placement *placement, const cgp__setup *setup,
                            const cgp_plan_options *options, const cgp_schedule *table);
void cgp__placement_release(cgp__placement *placement);

/* Return the device of a node. */
int cgp__device_of(const cgp__placement *placement, int node);

#endif
