/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h -- the plan's action lists for mini-batches of one size, bound to slots, samples and
 * kernels. */
#ifndef CGP_SRC_PIPELINE_RUN_BIND_H
#define CGP_SRC_PIPELINE_RUN_BIND_H

#include "plan/list.h"

typedef struct cgp__executor cgp__executor;

/* All lists for mini-batches of one size. On creation, the caller's thread writes everything but
 * the kernels; each worker writes its device's kernels. */
typedef struct cgp__run {
    cgp__minibatch minibatch;
    cgp_schedule *schedule;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* Find the lists for a mini-batch, or make them on first use. The lists depend on all fields of the
 * mini-batch but `chunks`. Collective. */
cgp_status cgp__run_find(cgp__executor *executor, cgp__minibatch minibatch, const cgp__run **out);

/* Free all lists. */
void cgp__runs_destroy(cgp__executor *executor);

#endif
