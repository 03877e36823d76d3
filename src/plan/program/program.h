/* SPDX-License-Identifier: Apache-2.0 */
/* program.h -- a program: kernel calls, with locations as operands. */
#ifndef CGP_SRC_PLAN_PROGRAM_H
#define CGP_SRC_PLAN_PROGRAM_H

#include <cgpipe/plan.h>

#include "backend/backend.h"
#include "model/model.h"
#include "plan/location.h"

/* One kernel run. If node is -1, it is the sum dx[0] += dy (`sums`), or the copy dx[0] = dy of
 * `copy_count` elements per sample, which may convert their type. If a copy has a workspace, it
 * copies the caller's data there first, then converts it. */
typedef struct cgp__call {
    int node;
    /* RELU fused into the call, NULL: none (fuse.c) */
    const cgp__node *relu;
    cgp_op_direction direction;
    uint32_t add;
    bool sums;
    int64_t copy_count;
    cgp_dtype from_type, to_type;
    cgp__location x[CGP_OP_MAX_INPUTS], y, saved[CGP_OP_MAX_SAVED], param[CGP_OP_MAX_PARAMETERS],
        packed;
    /* accumulator: NOWHERE in a call that collects no statistics */
    cgp__location state[CGP_OP_MAX_STATE], accumulator;
    cgp__location dy, dx[CGP_OP_MAX_INPUTS], dparam[CGP_OP_MAX_PARAMETERS], workspace;
    int64_t workspace_bytes;
    /* operands of later calls (prefetch.c) */
    cgp__operand prefetch[CGP_MAX_PREFETCH];
    int n_prefetch;
} cgp__call;

typedef struct cgp__program {
    cgp__call *calls;
    int n, capacity;
    /* in a split backward, the first n_input calls are I, the rest are W */
    int n_input;
    /* The first n_caller calls copy the caller's data. On a device with its own memory, no other
     * call has an operand in the caller's memory. */
    int n_caller;
} cgp__program;

/* Fill the programs of all stages. */
cgp_status cgp__plan_programs(cgp_plan *plan);

/* Return the kernel of a call for n samples. */
cgp_kernel_spec cgp__call_spec(const cgp_plan *plan, const cgp__call *call, int64_t n);

#endif
