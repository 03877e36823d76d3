/* SPDX-License-Identifier: Apache-2.0 */
/* program.h -- the programs of stages. A program is a list of kernel calls, whose operands are
 * locations.
 *
 *     program         runs for                         results that backward needs go to
 *     forward_nosave  F of a recomputed micro-batch,   nowhere: all in the workspace
 *                     evaluation, inference
 *     forward_saved   F of other micro-batches         its saved slot
 *     recompute       R: the calls of forward_saved    its saved slot
 *                     that backward needs
 *     backward        B; if backward is split, the     (reads the saved slot)
 *                     first `n_input` calls are I
 *                     and the other calls are W
 *
 * Forward programs collect statistics in accumulators; recomputation collects none. Op state
 * changes only at the end of a step, when the accumulators update it.
 *
 * Gradients of values live in the workspace, and in parts of the saved slot that hold no saved
 * value at that time. Gradients that I leaves for W may also live in the gradient slot. */
#ifndef CGP_SRC_PLAN_PROGRAM_H
#define CGP_SRC_PLAN_PROGRAM_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/plan.h>

#include "plan/location.h"

typedef struct cgp__messages cgp__messages;
typedef struct cgp__node cgp__node;
typedef struct cgp__packings cgp__packings;
typedef struct cgp__parameters cgp__parameters;
typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__states cgp__states;

/* Indices of a stage's programs. */
enum { CGP__FORWARD_NOSAVE, CGP__FORWARD_SAVED, CGP__RECOMPUTE, CGP__BACKWARD, CGP__PROGRAMS };

/* One kernel run. If `node` is -1, the call runs no op: if `sums`, it adds dx[0] += dy; otherwise
 * it copies dx[0] = dy. Both have `copy_count` elements per sample. A copy may convert the type of
 * the elements. If a copy has a workspace, it first copies the caller's data to the workspace and
 * then converts them. */
typedef struct cgp__call {
    int node;
    /* RELU that is fused into the call (fuse.c); NULL: none */
    const cgp__node *relu;
    cgp_op_direction direction;
    uint32_t add;
    bool sums;
    /* set if the call runs on the device's branch, concurrently with the calls after it; see
     * backward.c */
    bool branch;
    int64_t copy_count;
    cgp_dtype from_type, to_type;
    cgp__location x[CGP_OP_MAX_INPUTS], y, saved[CGP_OP_MAX_SAVED], param[CGP_OP_MAX_PARAMETERS],
        packed;
    /* `accumulator` is NOWHERE in a call that collects no statistics */
    cgp__location state[CGP_OP_MAX_STATE], accumulator, log;
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

/* A gradient buffer that a call of backward writes. */
typedef struct cgp__written_gradient {
    /* offset and size of the buffer in the device's section of gradients; the size includes
     * padding */
    int64_t offset, bytes;
    int call;
} cgp__written_gradient;

typedef struct cgp__stage_plan {
    cgp_plan_stage info;
    /* Index of the stage among the stages of its device, and the range of the stage's nodes. Set by
     * placement.c. The loss is a node of the last stage. */
    int number, first_node, n_nodes;
    cgp__program programs[CGP__PROGRAMS];
    /* set if I, W or R reads the input slot, respectively */
    bool input_reads_slot, weight_reads_slot, recompute_reads_slot;
    int64_t workspace_bytes;
    /* bytes of a gradient slot; it holds gradients that I leaves for W and that do not fit into the
     * saved slot (layout.c) */
    int64_t gradient_slot_bytes;
    /* the gradient buffers that backward writes, by ascending offset */
    cgp__written_gradient *gradients;
    int n_gradients, gradients_capacity;
    /* numbers of elements in the buffers that I writes, and in the buffers that W writes; B writes
     * both */
    int64_t input_gradients, weight_gradients;
} cgp__stage_plan;

/* One of the model's outputs. */
typedef struct cgp__output_plan {
    int stage;
    /* Location of the output: at[0] after program forward_nosave, at[1] after program
     * forward_saved. */
    cgp__location at[2];
} cgp__output_plan;

/* The gradient of a model input. B or I of the first stage that makes a part of the gradient
 * completes the gradient. */
typedef struct cgp__input_gradient {
    /* The stage that completes the gradient; -1: the input has no gradient. Set by messages.c. */
    int stage;
    cgp__location at;
} cgp__input_gradient;

/* Outputs and gradients of inputs that stages write for the caller. */
typedef struct cgp__results {
    /* [model outputs] */
    cgp__output_plan *outputs;
    /* [model inputs] */
    cgp__input_gradient *input_gradients;
} cgp__results;

/* The parts of a plan that are used to make programs. Making the programs also completes some of
 * these parts: stages, locations of the messages' values, packed parameters, and results. */
typedef struct cgp__program_parts {
    const cgp__setup *setup;
    const cgp__parameters *parameters;
    const cgp__states *states;
    cgp__placement *placement;
    cgp__messages *messages;
    cgp__packings *packings;
    cgp__results *results;
    /* total iterations of the loops whose cost could grow faster than the model */
    int64_t *steps;
} cgp__program_parts;

/* Fill the programs of all stages. */
cgp_status cgp__make_programs(const cgp__program_parts *parts);

/* Return the spec of a call's kernel for n samples. */
cgp_kernel_spec cgp__call_spec(const cgp__setup *setup, const cgp__call *call, int64_t n);

/* These functions return a stage of a plan, and the results of a plan. */
const cgp__stage_plan *cgp__plan_stage(const cgp_plan *plan, int stage);
const cgp__results *cgp__plan_results(const cgp_plan *plan);

#endif
