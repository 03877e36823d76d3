/* SPDX-License-Identifier: Apache-2.0 */
/* programs.h -- the state while one stage's programs are made: its items, and where each value
 * is. */
#ifndef CGP_SRC_PLAN_PROGRAMS_H
#define CGP_SRC_PLAN_PROGRAMS_H

#include "plan/plan.h"

/* A node of the stage that backward runs forward again, and when its output is read last. */
typedef struct cgp__redo {
    int node, moment, last;
} cgp__redo;

typedef struct cgp__stage_builder {
    cgp_plan *plan;
    const cgp_model *model;
    cgp__stage_plan *stage;
    int index;     /* of the stage */
    bool training; /* saves for backward */
    bool separate; /* stored results do not take over memory of what their op reads */

    cgp__item *items;
    int n_items, items_capacity;

    cgp__redo *redos; /* in order of execution; those before next_redo have their calls */
    int n_redos, redos_capacity, next_redo;

    int *values; /* that nodes of the stage make or read, ascending */
    int n_values;

    /* [model values] of those the entries are the stage's */
    bool *listed;      /* in `values` */
    int *last_read;    /* last moment of backward that reads it, -1: none */
    bool *redone;      /* backward makes it again: it is not stored */
    int *live;         /* while redos are found: the one that has made it again, -1: none */
    cgp__place *again; /* of what backward made again: ITEM */
    cgp__place *where; /* of the value in this stage: HOST, INPUT_SLOT or ITEM; NOWHERE if it is
                          not here */
    cgp__place *gradient; /* ITEM, or NOWHERE while no use has been met */
    bool *settled;        /* its gradient has been read for the last time */
    cgp__part **arriving; /* in which its gradient comes from a later stage; NULL: in none */
    int n_converts;       /* calls at the beginning of forward, before that of node 0 */
    bool *wanted;         /* [nodes] scratch */
    int *wanted_list;     /* [nodes] likewise */
    cgp__place *stats;    /* [nodes x MAX_SAVED] items of the nodes' own saved values */
} cgp__stage_builder;

/* Moments of a stage with n nodes, 0 <= i < n, in the order of execution:
 *
 *     forward of node i   i                  sends    n
 *     gradients arrive    n + 1
 *     backward of node i  n + 2 + 2(n-1-i) (weight half), one later (input half)
 *     sends               3n + 2
 *     W, if apart         3n + 3 + (n-1-i) (weight half)
 *     sends of B, then    4n + 3
 *
 * (A schedule with I and W may have B as well, which runs both and sends afterwards.) */
static inline int cgp__moment_forward_end(const cgp__stage_plan *stage) {
    return stage->n_nodes;
}

static inline int cgp__moment_arrival(const cgp__stage_plan *stage) {
    return stage->n_nodes + 1;
}

/* Of B, or of I. */
static inline int cgp__moment_end(const cgp__stage_plan *stage) {
    return 3 * stage->n_nodes + 2;
}

/* Of all: nothing has a later one. */
static inline int cgp__moment_last(const cgp__stage_plan *stage) {
    return 4 * stage->n_nodes + 3;
}

static inline int cgp__moment_backward(const cgp__stage_builder *builder, int i,
                                       cgp__direction direction) {
    const cgp__stage_plan *stage = builder->stage;
    const int after = stage->n_nodes - 1 - i;
    if (builder->plan->splits && direction == CGP__BACKWARD_WEIGHT)
        return cgp__moment_end(stage) + 1 + after;
    return stage->n_nodes + 2 + 2 * after + (direction == CGP__BACKWARD_INPUT);
}

/* Runs the halves of nodes' backward in order of time: all input halves before all weight halves if
 * they are apart. `half` 0 .. 2 n_nodes - 1. */
static inline int cgp__half_at(const cgp__stage_builder *builder, int half,
                               cgp__direction *direction) {
    const int n = builder->stage->n_nodes;
    const bool apart = builder->plan->splits;
    const bool weight = apart ? half >= n : half % 2 == 0;
    *direction = weight ? CGP__BACKWARD_WEIGHT : CGP__BACKWARD_INPUT;
    return n - 1 - (apart ? half % n : half / 2);
}

/* A new item, in use at `moment`; its index, or -1 if memory is short. */
int cgp__builder_item(cgp__stage_builder *builder, int64_t bytes, int moment);

/* Keep what is at a place, if it is an item, in use until `moment`. */
void cgp__builder_keep(cgp__stage_builder *builder, cgp__place place, int moment);

/* Append a call of a node to a program: parameters, state, workspace and saved values bound, the
 * rest NOWHERE. */
cgp_status cgp__builder_call(cgp__stage_builder *builder, cgp__program *program, int node,
                             cgp__direction direction, uint32_t add, int moment,
                             cgp__call **out);

/* programs_reads.c: fills last_read, redone and redos; emits the redos of a moment. */
cgp_status cgp__builder_reads(cgp__stage_builder *builder);
cgp_status cgp__builder_redo(cgp__stage_builder *builder, cgp__program *program, int moment);

/* Where backward finds a value. */
cgp__place cgp__builder_operand(const cgp__stage_builder *builder, int value);

/* programs_fuse.c: an ADD or a norm and the RELU behind it, in place, become one call. */
void cgp__program_fuse(const cgp_plan *plan, cgp__program *program);

/* programs_prefetch.c: what calls are told of those behind them. `saved`: saved values are from an earlier action. */
void cgp__program_prefetch(const cgp_plan *plan, cgp__program *program, bool saved);

/* programs_forward.c: fills `program` in order of the nodes. programs_backward.c: the other
 * way. */
cgp_status cgp__builder_forward(cgp__stage_builder *builder, cgp__program *program);
cgp_status cgp__builder_backward(cgp__stage_builder *builder, cgp__program *program);

#endif
