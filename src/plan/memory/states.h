/* SPDX-License-Identifier: Apache-2.0 */
/* states.h -- memory for the state that ops keep from step to step. */
#ifndef CGP_SRC_PLAN_STATES_H
#define CGP_SRC_PLAN_STATES_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

typedef struct cgp__states {
    /* [model states] offset of each state in the section of states of its node's device */
    int64_t *state;
    /* [nodes] offsets of each node's accumulator and cache in the section of states of its device;
     * -1: none */
    int64_t *accumulator, *cache;
    /* [nodes] offset of each node's statistics among the statistics of one micro-batch; -1: the log
     * has no statistics of the node */
    int64_t *log;
} cgp__states;

/* Place the ops' states, the accumulators for training, and the caches for inference. */
cgp_status cgp__place_states(cgp__states *states, const cgp__setup *setup,
                             cgp__placement *placement);

/* Return the states of a plan. */
const cgp__states *cgp__plan_states(const cgp_plan *plan);

#endif
