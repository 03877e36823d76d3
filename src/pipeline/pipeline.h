/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- a pipeline, that is, a plan in execution. It has three parts; each part uses only
 * the parts listed above it.
 *
 *     team    threads, jobs, time limit
 *     run     action lists bound to slots and kernels, and the workers that run them
 *     step    losses, counters, update, checkpoints
 *
 *     caller's thread                      worker of device d (one each)
 *     cgp_pipeline_step ── job ──────────► for each action of its list: wait for messages,
 *                       ◄─ all done ──     run the program's calls, send, record the times */
#ifndef CGP_SRC_PIPELINE_H
#define CGP_SRC_PIPELINE_H

#include <cgpipe/pipeline.h>

#include <sys/types.h>

typedef struct cgp__crew cgp__crew;
typedef struct cgp__executor cgp__executor;
typedef struct cgp__measured cgp__measured;
typedef struct cgp__ranks cgp__ranks;
typedef struct cgp__replay cgp__replay;
typedef struct cgp__setup cgp__setup;
typedef struct cgp__step cgp__step;
typedef struct cgp__team cgp__team;

/* Only the caller's thread writes this struct. One allocation holds the struct and its parts
 * (pipeline.c). */
struct cgp_pipeline {
    pid_t process; /* process that created the pipeline and runs its workers */
    const cgp_plan *plan;
    const cgp__setup *setup; /* the plan's setup */
    const cgp_model *model;
    cgp__ranks *ranks;
    int rank, n_ranks; /* this process's rank, and the number of ranks; both count over all
                        * replicas */
    cgp__team *team;
    cgp__executor *executor;
    cgp__measured *measured; /* [devices] owned by the executor */
    cgp__step *step;
    cgp__crew *crew;     /* the replicas, if they are threads of this process and this is replica 0;
                      * otherwise NULL */
    cgp__replay *replay; /* NULL: no step was kept to be replayed */
    int sharers; /* number of pipelines created so far that share this pipeline's memory; each of
                  * them has a different seed */
};

#endif
