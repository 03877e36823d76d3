/* SPDX-License-Identifier: Apache-2.0 */
/* execute.h -- the job that runs a worker's action list, and the action that the job currently
 * executes. */
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
    /* Addresses that the next action reads first. They are prefetched, because kernels evict them
     * from the caches. */
    const void *next[4];
    /* True: the calls are being captured as a graph, which every action of the bound instance will
     * use. */
    bool captures;
} cgp__execution;

/* cgp__job_run() is the job that runs a worker's action list; its argument is a cgp__run_context.
 * cgp__run_range() sets *begin and *end: the context selects the actions *begin .. *end - 1 of a
 * device's list. */
cgp_status cgp__job_run(cgp__worker *worker, void *context);
void cgp__run_range(const cgp__run_context *context, int device, int *begin, int *end);

/* Return the address of the gradients on the worker's device or, with gradient groups, of a buffer
 * of partial sums. */
char *cgp__gradients_at(const cgp__worker *worker, int buffer);

/* Return the address of a replica's part of the log of statistics on the worker's device. */
char *cgp__log_of(const cgp__worker *worker, int replica);

/* Return the address of an operand; NULL: none. */
void *cgp__address(const cgp__execution *execution, cgp__location location);

/* Give up the run and return false. Prefix cgp_message() with the action's stage, micro-batch and
 * name, and with the layer and op of call number `call` of the action's program (-1: not known). */
bool cgp__fail_in_action(const cgp__worker *worker, const cgp__bound_action *bound,
                         const cgp__variant *variant, int call);

#endif
