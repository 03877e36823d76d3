/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h -- memory of the host through which the caller's data come to a device that does not
 * share the host's memory, and go. */
#ifndef CGP_SRC_PLAN_STAGING_H
#define CGP_SRC_PLAN_STAGING_H

#include <cgpipe/plan.h>

/* A ring of pieces, at an offset of the device's memory of the host: for the inputs, the gradient
 * and the output of as many actions as may be in flight, and the rows of step values. A large
 * output goes piece by piece; it is wanted rarely. */
typedef struct cgp__staging {
    int64_t offset, piece_bytes;
    /* 0: the device shares the host's memory */
    int pieces;
} cgp__staging;

/* Size the staging of every device, and place it in front of the links' buffers. */
void cgp__plan_staging(cgp_plan *plan);

#endif
