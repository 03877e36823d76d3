/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h -- the nodes of a device as a chain, and the segments of the chain that backward may
 * run again. */
#ifndef CGP_SRC_PLAN_SEGMENTS_H
#define CGP_SRC_PLAN_SEGMENTS_H

#include "partition/segments.h"

typedef struct cgp_plan cgp_plan;

/* The nodes of a device's stages, ascending: a chain, and the choices for it. */
typedef struct cgp__device_chain {
    /* Two arrays [n] over the steps of the chain. They have the step's node, and the bytes that the
     * node's value takes, if kept, in all slots in use at one time. */
    int *nodes;
    int64_t *kept;
    int n;
    cgp__segment *segments;
    int n_segments, capacity;
    cgp__frontier frontier;
} cgp__device_chain;

/* List the segments of a device, and find the frontier of choices. The plan must recompute no value
 * within backward. */
cgp_status cgp__device_chain_create(cgp__device_chain *chain, const cgp_plan *plan, int device);
void cgp__device_chain_release(cgp__device_chain *chain);

/* Mark the nodes of a device whose values backward recomputes: recomputed [nodes]. */
void cgp__device_chain_mark(const cgp__device_chain *chain, const cgp_plan *plan, int point,
                            bool *recomputed);

#endif
