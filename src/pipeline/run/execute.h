/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h -- the job that runs a worker's action list. Also the execution, which describes the
 * current action of this job. */
#ifndef CGP_SRC_PIPELINE_RUN_EXECUTE_H
#define CGP_SRC_PIPELINE_RUN_EXECUTE_H

#include "plan/list.h"
#include "plan/location.h"

typedef struct cgp__run_context cgp__run_context;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__stage_plan cgp__stage_plan;
typedef struct cgp__worker cgp__worker;

/* The action that a worker executes, and the address of each arena. Written by the worker. */
typedef struct cgp__execution {
    cgp__worker *worker;
    const cgp_plan *plan;
    const cgp__setup *setup;
    const cgp__run_context *context;
    const cgp__list *list;
    const cgp__bound_action *bound;
    const cgp__variant *variant;
    const cgp__stage_plan *stage;
    const cgp_step_values *values;
    char *base[CGP__ARENAS];
    /* Addresses that the next action reads first. They are prefetched, because the kernels of this
     * action evict the data at these addresses from the caches. */
    const void *next[4];
    /* Set while the calls are captured as a graph, which every action of the bound instance will
     * use. */
    bool captures;
} cgp__execution;

/* cgp__job_run() is the job that runs a worker's action list; its argument is a cgp__run_context.
 * If a replica has no micro-batches, cgp__job_exchange() takes the place of this job.
 * cgp__run_range() sets *begin and *end. The job runs the actions *begin .. *end - 1 of a device's
 * list. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
cgp_status cgp__job_exchange(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* Return the address of the gradients on the worker's device if `buffer` is 0. For `buffer` > 0,
 * return the address of that buffer of partial sums (plans with gradient groups). */
char *cgp__gradients_at(const cgp__worker *worker, int buffer);

/* Return the address of a replica's part of the log of statistics on the worker's device. */
char *cgp__log_of(const cgp__worker *worker, int replica);

/* Return the address of an operand, or NULL if the location is NOWHERE or the caller passed no
 * tensor. */
void *cgp__address(const cgp__execution *execution, cgp__location location);

/* Give up the run and return false. Prefix cgp_message() with the action's stage, micro-batch and
 * name. If `call` >= 0, also prefix the layer and op of that call of the action's program. */
bool cgp__fail_in_action(const cgp__worker *worker, const cgp__bound_action *bound,
                         const cgp__variant *variant, int call);

#endif
