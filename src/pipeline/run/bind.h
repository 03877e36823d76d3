/* SPDX-License-Identifier: Apache-2.0 */
/* bind.h -- a plan's action lists, bound to slots, samples and kernels for mini-batches of one
 * size. */
#ifndef CGP_SRC_PIPELINE_RUN_BIND_H
#define CGP_SRC_PIPELINE_RUN_BIND_H

#include "plan/list.h"

typedef struct cgp__executor cgp__executor;

/* The action lists of all devices for mini-batches of one size. The caller's thread creates and
 * writes all fields. Exception: each worker writes the kernels of its device. */
typedef struct cgp__run {
    cgp__minibatch minibatch;
    cgp_schedule *schedule;
    cgp__list *lists; /* [devices] */
} cgp__run;

/* Find the lists for a mini-batch, or make them on first use. The lists depend on all fields of
 * `minibatch` except `chunks`. If a replica's share has no micro-batches, its lists are empty.
 * Collective. */
cgp_status cgp__run_find(cgp__executor *executor, cgp__minibatch minibatch, const cgp__run **out);

/* Free all action lists. */
void cgp__runs_destroy(cgp__executor *executor);

#endif
