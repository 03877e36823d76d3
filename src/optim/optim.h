/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h -- what the pipeline needs of an optimizer. */
#ifndef CGP_SRC_OPTIM_H
#define CGP_SRC_OPTIM_H

#include <cgpipe/optim.h>

#include "backend/backend.h"

/* Fill the constants of update number `step` (from 1): rule, rate, decay, corrections. Pointers,
 * n and gradient_scale stay as they are. */
void cgp__optim_constants(const cgp_optim *optim, int64_t step, cgp__update *update);

/* lr_schedule.c: the part of cgp_optim_check() that is the schedule's. */
cgp_status cgp__lr_check(const cgp_lr_schedule *schedule);

#endif
