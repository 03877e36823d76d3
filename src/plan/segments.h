/* SPDX-License-Identifier: Apache-2.0 */
/* segments.h -- the nodes of a device as a chain, and the segments of the chain that backward may
 * run again. */
#ifndef CGP_SRC_PLAN_SEGMENTS_H
#define CGP_SRC_PLAN_SEGMENTS_H

#include "partition/segments.h"

typedef struct cgp_plan cgp_plan;

/* A chain of the nodes of a device's stages, in ascending order, and the choices of recomputed
 * values for this chain. */
typedef struct cgp__device_chain {
    /* [n] The node of each step of the chain, and the bytes that its value takes if it is kept. The
     * bytes are the sum over all slots that are in use at one time. */
    int *nodes;
    int64_t *kept;
    int n;
    cgp__segment *segments;
    int n_segments, capacity;
    cgp__frontier frontier;
} cgp__device_chain;

/* List the segments of a device, and find the frontier of choices. In this plan, backward must not
 * recompute any value. */
cgp_status cgp__device_chain_create(cgp__device_chain *chain, const cgp_plan *plan, int device);
void cgp__device_chain_release(cgp__device_chain *chain);

/* For each node of the device, set recomputed[node] if backward recomputes the node's value at this
 * point of the frontier. */
void cgp__device_chain_mark(const cgp__device_chain *chain, const cgp_plan *plan, int point,
                            bool *recomputed);

#endif
