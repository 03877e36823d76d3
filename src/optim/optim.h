/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h -- constants of an optimizer's updates. */
#ifndef CGP_SRC_OPTIM_H
#define CGP_SRC_OPTIM_H

#include <cgpipe/optim.h>

#include "backend/backend.h"

/* Fill the constants of update number `step` (from 1): rule and decay; lr and corrections. Leaves pointers, n and gradient_scale
 * unchanged. */
void cgp__optim_constants(const cgp_optim *optim, int64_t step, cgp_update *update,
                          cgp_update_values *values);

/* lr_schedule.c: check the schedule, for cgp_optim_check(). */
cgp_status cgp__lr_check(const cgp_lr_schedule *schedule);

#endif
