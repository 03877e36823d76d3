/* SPDX-License-Identifier: Apache-2.0 */
/* states.h -- state of ops across steps. */
#ifndef CGP_SRC_PLAN_STATES_H
#define CGP_SRC_PLAN_STATES_H

#include <cgpipe/plan.h>

typedef struct cgp__placement cgp__placement;
typedef struct cgp__setup cgp__setup;

typedef struct cgp__states {
    /* [model states] offset in the state of its node's device */
    int64_t *state;
    /* [nodes] offsets of the node's accumulator and of its cache, in the same memory; -1: none */
    int64_t *accumulator, *cache;
} cgp__states;

/* Place the ops' states, the accumulators of training, and caches. */
cgp_status cgp__place_states(cgp__states *states, const cgp__setup *setup,
                             cgp__placement *placement);

/* Return the states of a plan. */
const cgp__states *cgp__plan_states(const cgp_plan *plan);

#endif
