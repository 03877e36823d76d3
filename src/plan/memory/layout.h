/* SPDX-License-Identifier: Apache-2.0 */
/* layout.h -- live ranges of a stage's memory, and their locations. */
#ifndef CGP_SRC_PLAN_LAYOUT_H
#define CGP_SRC_PLAN_LAYOUT_H

#include <cgpipe/base.h>

#include "plan/location.h"

/* A block of a stage's memory, and the time in which the block is in use. program/builder.h defines
 * the times. */
typedef struct cgp__live_range {
    int64_t bytes;
    /* first and last time at which the block is in use */
    int start, end;
    /* set if the block lives from F into backward, or from I into W; it is then part of the saved
     * slot */
    bool saved;
    /* number of unread gradients in the block; used while programs are made */
    int gradients;
    cgp__location location;
} cgp__live_range;

/* Times at which backward begins: `input` is the time for B or I, `weight` the time for W. */
typedef struct cgp__layout_starts {
    int input, weight;
} cgp__layout_starts;

/* Assign a location to every live range. Saved ranges lie in the saved slot; gradients that do not
 * fit there lie in the gradient slot. Unsaved ranges lie in parts of the saved slot that are free
 * while these ranges live; if no such part is large enough, they lie in the workspace. The number
 * of loop iterations is added to *steps. The cost is O(n log n) if few unsaved ranges live at one
 * time. At worst, the cost is quadratic in the number of unsaved ranges. */
cgp_status cgp__layout_pack(cgp__live_range *ranges, int n, cgp__layout_starts starts,
                            int64_t *slot_bytes, int64_t *gradient_bytes, int64_t *workspace_bytes,
                            int64_t *steps);

#endif
