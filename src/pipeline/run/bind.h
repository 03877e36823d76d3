/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h -- the plan's action lists for mini-batches of one size, bound to slots, samples and
 * kernels. */
#ifndef CGP_SRC_PIPELINE_RUN_BIND_H
#define CGP_SRC_PIPELINE_RUN_BIND_H

#include "plan/list.h"

typedef struct cgp__executor cgp__executor;

/* The action lists of all devices for mini-batches of one size. The caller's thread creates and
 * writes everything but the kernels, and each worker writes the kernels of its device. */
typedef struct cgp__run {
    cgp__minibatch minibatch;
    cgp_schedule *schedule;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* Find the lists for a mini-batch, or make them on first use; they depend on all fields but
 * `chunks`. The share of a replica without micro-batches has no lists. Collective. */
cgp_status cgp__run_find(cgp__executor *executor, cgp__minibatch minibatch, const cgp__run **out);

/* Free all action lists. */
void cgp__runs_destroy(cgp__executor *executor);

#endif
