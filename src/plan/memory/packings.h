/* SPDX-License-Identifier: Apache-2.0 */
/* packings.h -- packed parameters: copies of them in the layout of a backend's kernels, beside
 * those in f32. */
#ifndef CGP_SRC_PLAN_PACKINGS_H
#define CGP_SRC_PLAN_PACKINGS_H

#include "plan/program/program.h"

typedef struct cgp__packing {
    int device, layout;
    /* of one of the kernels that read it */
    cgp_kernel_spec spec;
    cgp__location param[CGP_OP_MAX_PARAMETERS];
    /* in the device's packed parameters */
    int64_t offset, bytes;
} cgp__packing;

/* Find or place what a call's kernel on a device reads: call->packed, from call->param. */
cgp_status cgp__plan_packing(cgp_plan *plan, int device, cgp__call *call);

/* Place them behind all else in a device's memory; where its limit has no room and its kernels run
 * without, drop them. */
void cgp__plan_place_packings(cgp_plan *plan, int device);

#endif
