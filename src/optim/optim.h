/* SPDX-License-Identifier: Apache-2.0 */
/* optim.h -- declares the constants of an optimizer's updates. */
#ifndef CGP_SRC_OPTIM_H
#define CGP_SRC_OPTIM_H

#include <cgpipe/ext/backend.h>
#include <cgpipe/optim.h>

/* Set the constants that all updates share: rule, weight decay, momentum, nesterov, betas, eps and
 * alpha. Pointers, n and values do not change. */
void cgp__optim_constants(const cgp_optim *optim, cgp_update *update);

/* Return the constants of update `step`, counted from 1: lr and corrections, with a gradient_scale
 * of 1. */
cgp_update_values cgp__optim_values(const cgp_optim *optim, int64_t step);

/* Return the number of times that an update reads or writes an array of the parameter's size. */
int cgp__update_passes(const cgp_optim *optim);

/* lr_schedule.c: return the factor by which update `update`, counted from 1, multiplies learning
 * rates. */
double cgp__lr_factor(const cgp_lr_schedule *schedule, int64_t update);

/* lr_schedule.c: check the schedule, for cgp_optim_check(). */
cgp_status cgp__lr_check(const cgp_lr_schedule *schedule);

#endif
