/* SPDX-License-Identifier: Apache-2.0 */
/* packings.h -- prepacked weights: copies of the f32 parameters in the layout that a backend's
 * kernels read. */
#ifndef CGP_SRC_PLAN_PACKINGS_H
#define CGP_SRC_PLAN_PACKINGS_H

#include <cgpipe/ext/ops.h>
#include <cgpipe/plan.h>

#include "base/base.h"
#include "plan/location.h"

typedef struct cgp__call cgp__call;
typedef struct cgp__placement cgp__placement;
typedef struct cgp__program_parts cgp__program_parts;

typedef struct cgp__packing {
    int device, layout;
    /* spec of one of the kernels that read this prepacked copy */
    cgp_kernel_spec spec;
    cgp__location param[CGP_OP_MAX_PARAMETERS];
    /* offset and size in the device's packed parameters */
    int64_t offset, bytes;
} cgp__packing;

typedef struct cgp__packings {
    cgp__packing *list;
    int n, capacity;
    cgp__index index;
} cgp__packings;

/* A call's kernel reads a packed copy of the parameters call->param. Find this copy on a device, or
 * place it. Set call->packed to the location of the copy. */
cgp_status cgp__find_packing(const cgp__program_parts *parts, int device, cgp__call *call);

/* Place packed parameters at the end of a device's memory. Drop them if they exceed the device's
 * limit and the device's kernels can run without packed parameters. */
void cgp__place_packings(cgp__packings *packings, cgp__placement *placement, int device);

/* Return the packed parameters of a plan. */
const cgp__packings *cgp__plan_packings(const cgp_plan *plan);

#endif
