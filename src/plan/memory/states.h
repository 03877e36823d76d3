/* SPDX-License-Identifier: Apache-2.0 */
/* states.h -- state of ops across steps. */
#ifndef CGP_SRC_PLAN_STATES_H
#define CGP_SRC_PLAN_STATES_H

#include <cgpipe/plan.h>

/* Place the ops' states, the accumulators of training, and caches. */
void cgp__plan_states(cgp_plan *plan);

#endif
