/* SPDX-License-Identifier: Apache-2.0 */
/* builder.h -- the stage builder, which makes the programs of a stage. Its state has the stage's
 * live ranges, and the location of each value. */
#ifndef CGP_SRC_PLAN_BUILDER_H
#define CGP_SRC_PLAN_BUILDER_H

#include "model/model.h"
#include "plan/memory/layout.h"
#include "plan/messages.h"
#include "plan/precision.h"
#include "plan/program/program.h"
#include "plan/setup.h"

typedef struct cgp__device_plan cgp__device_plan;

/* A node that backward recomputes at `time`, and the time of the last read of its output. */
typedef struct cgp__recomputation {
    int node, time, last;
    /* set if backward itself reads the output at `time` or later; clear if only other
     * recomputations read the output */
    bool kept;
} cgp__recomputation;

/* Uses and locations of a value of the model in the current stage. */
typedef struct cgp__stage_value {
    /* set if the builder's list `values` contains this value */
    bool listed;
    /* set if the value is not stored, so backward recomputes it */
    bool recomputed;
    /* set when the value's gradient has been read for the last time */
    bool gradient_dead;
    /* index of the value's last recomputation, set while recomputations are listed; -1: none */
    int recomputation;
    /* location of the value's recomputed copy, in the arena LIVE_RANGE */
    cgp__location recomputed_location;
    /* made_by: index of the recomputation that made the recomputed copy. read_by: among the
     * recomputations at one time, the index of the last one that reads the value. */
    int made_by, read_by;
    /* location of the value in this stage, in arena HOST, INPUT_SLOT or LIVE_RANGE; NOWHERE: the
     * value is not in this stage */
    cgp__location location;
    /* location of the value's gradient, in arena LIVE_RANGE; NOWHERE before the first use of the
     * gradient */
    cgp__location gradient;
    /* for an output of the model that ops also read: location of the copy of the caller's
     * gradient */
    cgp__location external;
    /* the part of a message that brings the value's gradient from a later stage; NULL: no later
     * stage sends this gradient */
    cgp__part *arriving;
} cgp__stage_value;

typedef struct cgp__stage_builder {
    const cgp__program_parts *parts;
    const cgp__setup *setup;
    const cgp_model *model;
    const cgp__device_plan *device;
    cgp__stage_plan *stage;
    /* index of the stage */
    int index;
    /* set if forward saves values for backward */
    bool training;
    /* set if stored results must not take over the memory of their op's inputs */
    bool separate;
    /* set if weight backward runs on the device's branch (backward.c) */
    bool branches;

    cgp__live_range *ranges;
    int n_ranges, ranges_capacity;

    /* the recomputations in order of execution; entries before next_recomputation already have
     * their calls */
    cgp__recomputation *recomputations;
    int n_recomputations, recomputations_capacity, next_recomputation;

    /* values that the stage's nodes make or read, ascending */
    int *values;
    int n_values;
    /* [model values] uses and locations of each value; set only for the values in the list
     * `values` */
    cgp__stage_value *of;
    /* [model values] time of the value's last read in backward; -1: none; set only for the values
     * in the list `values` */
    int *last_read;

    /* [nodes] last time at which weight backward of the node uses its operands (reads.c) */
    int *weight_end;
    /* index of the value whose gradient is read by the last call on the branch; -1: none */
    int branch_reads;

    /* number of calls of forward before the call of the stage's first node */
    int n_converts;
    /* [nodes] scratch */
    bool *required;
    int *required_list;
    /* [nodes x MAX_SAVED] live ranges of the nodes' own saved values */
    cgp__location *stats;
    /* workspaces of kernels, by spec (programs.c) */
    struct cgp__workspaces *workspaces;
} cgp__stage_builder;

/* Times of a stage with n nodes, 0 <= i < n, in the order of execution:
 *
 *     forward of node i          i
 *     forward sends              n
 *     gradients arrive           n + 1
 *     backward of node i         n + 2 + 2(n-1-i) (weight), one later (input)
 *     backward sends             3n + 2
 *     W of node i, if split      3n + 3 + (n-1-i)
 *     B sends, if split          4n + 3
 *
 * (A schedule with I and W may also have B. B then runs the calls of I and of W, and sends at the
 * end.) */
static inline int cgp__time_forward_end(const cgp__stage_plan *stage) {
    return stage->n_nodes;
}

static inline int cgp__time_arrival(const cgp__stage_plan *stage) {
    return stage->n_nodes + 1;
}

/* Return the time at which B or I sends its results. */
static inline int cgp__time_backward_end(const cgp__stage_plan *stage) {
    return 3 * stage->n_nodes + 2;
}

/* Return the last time of the stage's programs. No live range ends later. */
static inline int cgp__time_last(const cgp__stage_plan *stage) {
    return 4 * stage->n_nodes + 3;
}

static inline int cgp__time_backward(const cgp__stage_builder *builder, int i,
                                     cgp_op_direction direction) {
    const cgp__stage_plan *stage = builder->stage;
    const int after = stage->n_nodes - 1 - i;
    if (builder->setup->splits && direction == CGP_OP_BACKWARD_WEIGHT)
        return cgp__time_backward_end(stage) + 1 + after;
    return stage->n_nodes + 2 + 2 * after + (direction == CGP_OP_BACKWARD_INPUT);
}

/* Return the last time at which backward of a node uses its operands. */
static inline int cgp__time_backward_last(const cgp__stage_builder *builder, int i,
                                          cgp_op_direction direction) {
    return builder->branches && direction == CGP_OP_BACKWARD_WEIGHT
               ? builder->weight_end[i]
               : cgp__time_backward(builder, i, direction);
}

/* Return the node and the direction of a step of backward. Steps are numbered 0 .. 2 n_nodes - 1 in
 * order of time. For each node, weight backward comes before input backward; in a split backward,
 * all input backward comes first. */
static inline int cgp__backward_at(const cgp__stage_builder *builder, int step,
                                   cgp_op_direction *direction) {
    const int n = builder->stage->n_nodes;
    const bool split = builder->setup->splits;
    const bool weight = split ? step >= n : step % 2 == 0;
    *direction = weight ? CGP_OP_BACKWARD_WEIGHT : CGP_OP_BACKWARD_INPUT;
    return n - 1 - (split ? step % n : step / 2);
}

/* Add a live range that is in use at `time`. Set *out to its location. */
cgp_status cgp__builder_range(cgp__stage_builder *builder, int64_t bytes, int time,
                              cgp__location *out);

/* Extend a live range to `time`. Do nothing if the location is not a live range. */
void cgp__builder_extend(cgp__stage_builder *builder, cgp__location location, int time);

/* Append a node's call to a program. Set the call's operands for parameters, state, workspace and
 * saved values; all other operands are NOWHERE. */
cgp_status cgp__builder_call(cgp__stage_builder *builder, cgp__program *program, int node,
                             cgp_op_direction direction, uint32_t add, int time, cgp__call **out);

/* Return true if the stage's device reads and writes the caller's memory. */
bool cgp__builder_shares_host(const cgp__stage_builder *builder);

/* Append a call that copies a value or its gradient from the caller's memory to device memory. */
cgp_status cgp__builder_copy(cgp__stage_builder *builder, cgp__program *program,
                             cgp_op_direction direction, int time, int value, cgp__location from,
                             cgp__location to);

/* forward.c: set *at to the location from which the caller gets a value or gradient at `time`. If
 * the device cannot write the caller's memory, append a call that converts the data to the caller's
 * type. */
cgp_status cgp__builder_for_caller(cgp__stage_builder *builder, cgp__program *program,
                                   cgp_op_direction direction, int time, int value,
                                   cgp__location from, cgp__location *at);

/* reads.c: the first function sets the fields last_read, recomputed and recomputations. The second
 * function appends the calls of the recomputations at `time`. */
cgp_status cgp__builder_find_reads(cgp__stage_builder *builder);
cgp_status cgp__builder_recompute(cgp__stage_builder *builder, cgp__program *program, int time);

/* Return the location at which backward finds a value. */
cgp__location cgp__builder_operand(const cgp__stage_builder *builder, int value);

/* These functions fill programs. The first function makes forward, in the order of the nodes
 * (forward.c). The second makes backward, in descending order of the nodes (backward.c). The third
 * makes the program of R from the calls of forward (recompute.c). */
cgp_status cgp__builder_forward(cgp__stage_builder *builder, cgp__program *program);
cgp_status cgp__builder_backward(cgp__stage_builder *builder, cgp__program *program);
cgp_status cgp__builder_recompute_program(cgp__stage_builder *builder);

/* Compare two ints, ascending, for qsort(). */
int cgp__builder_ascending(const void *a, const void *b);

/* fuse.c: merge an ADD or a norm with the in-place RELU after it into one call. */
void cgp__program_fuse(const cgp_model *model, cgp__program *program);

/* gradients.c: list the gradient buffers that backward writes. All programs must be complete. */
cgp_status cgp__list_gradients(const cgp_model *model, cgp__stage_plan *stage);

/* prefetch.c: fill the calls' prefetch lists. If `saved`, an earlier action wrote the saved values
 * that the calls read, so the lists include these values. */
void cgp__program_prefetch(const cgp__setup *setup, cgp__program *program, bool saved);

#endif
