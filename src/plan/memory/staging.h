/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h -- host memory through which a device with its own memory exchanges data with the
 * caller. */
#ifndef CGP_SRC_PLAN_STAGING_H
#define CGP_SRC_PLAN_STAGING_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__results cgp__results;
typedef struct cgp__setup cgp__setup;

/* Staging memory: a ring buffer of pieces, at an offset in the device's host memory. The ring has
 * room for the inputs and gradients of all actions in flight, and for the rows of per-step
 * constants. Large outputs, which callers rarely need, pass through the ring piece by piece. */
typedef struct cgp__staging {
    int64_t offset, piece_bytes;
    /* number of pieces; 0 for a device that shares the host's memory */
    int pieces;
} cgp__staging;

/* Compute the size of every device's staging memory, and place this memory before the links'
 * buffers. */
void cgp__size_staging(cgp__placement *placement, const cgp__setup *setup,
                       const cgp__results *results);

#endif
