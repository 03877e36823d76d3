/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- a running plan, of three parts; each knows those above it.
 *
 *     team    threads, jobs, time limit
 *     run     action lists bound to slots and kernels, and the workers that run them
 *     step    losses, counters, update, checkpoints
 *
 *     caller's thread                      worker of device d (one each)
 *     cgp_pipeline_step ── job ──────────► for each action of its list: wait for messages,
 *                       ◄─ all done ──     run the program's calls, send, record the times
 */
#ifndef CGP_SRC_PIPELINE_H
#define CGP_SRC_PIPELINE_H

#include <cgpipe/pipeline.h>

#include <sys/types.h>

#include "pipeline/run/run.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"

struct cgp_pipeline {
    pid_t process; /* that created it, and has its workers */
    const cgp_plan *plan;
    cgp__team team;
    cgp__executor executor;
    cgp__step step;
    int sharers; /* that were made, for their seeds */
};

/* Return CGP_ESTATE in a child that fork() made: it has no workers, and a lock may be held for
 * ever. */
cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function);

/* Return CGP_ESTATE if the pipeline has failed. */
cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline);

/* memory.c: compare what the ranks of each host need together with what it has, with one result on
 * all ranks; what this rank's devices need of other hardware with what that has. `shares`: less
 * what another pipeline has. @retval CGP_ELIMIT */
cgp_status cgp__memory_check_hosts(const cgp__ranks *ranks, const cgp_plan *plan, bool shares);
cgp_status cgp__memory_check_hardware(const cgp_plan *plan, int rank, bool shares);

/* sharing.c: return CGP_EINVAL if a pipeline of the plan cannot use the owner's parameters,
 * gradients, optimizer and states. */
cgp_status cgp__sharing_check(const cgp_plan *plan, const cgp_plan *owner);

/* times.c: bring the events of the last run to the workers of all ranks. Collective. Return event k
 * of a trace, then on the clock of rank 0. */
cgp_status cgp__pipeline_share_events(const cgp_pipeline *pipeline);
cgp__event cgp__pipeline_event(const cgp__worker *worker, int64_t k);

/* layer_times.c: bring the times of kernels to the workers of all ranks. Collective. Fails with
 * CGP_ESTATE where none was measured. */
cgp_status cgp__gather_times(const cgp_pipeline *pipeline);

/* The beginning of a public call. */
#define CGP__PIPELINE(pipeline)                                                                    \
    do {                                                                                           \
        CGP__NEED(pipeline);                                                                       \
        CGP_TRY(cgp__pipeline_check_process(pipeline, __func__));                                  \
    } while (0)
#define CGP__PIPELINE_OR(pipeline, result)                                                         \
    do {                                                                                           \
        CGP__NEED_OR(pipeline, result);                                                            \
        if (cgp__pipeline_check_process(pipeline, __func__) != CGP_OK) return result;              \
    } while (0)

#endif
