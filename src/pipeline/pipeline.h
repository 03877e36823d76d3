/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.h -- a plan in execution. It has three parts; each uses only the parts above it.
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

#include "pipeline/run/run.h"
#include "pipeline/step/step.h"
#include "pipeline/team/team.h"

struct cgp_pipeline {
    pid_t process; /* that created it and runs its workers */
    const cgp_plan *plan;
    cgp__team team;
    cgp__executor executor;
    cgp__step step;
    int sharers; /* created so far; each gets its own seed */
};

/* Return CGP_ESTATE in a child process made by fork(): it has no workers, and its locks may stay
 * held for ever. */
cgp_status cgp__pipeline_check_process(const cgp_pipeline *pipeline, const char *function);

/* Return CGP_ESTATE if the pipeline has failed. */
cgp_status cgp__pipeline_check_alive(const cgp_pipeline *pipeline);

/* memory.c: compare the memory that the ranks of each host need together with what the host has.
 * The result is the same on all ranks. Then compare what this rank's devices need on other hardware
 * with what that has. `shares`: without the sections that another pipeline owns. @retval
 * CGP_ELIMIT */
cgp_status cgp__memory_check_hosts(const cgp__ranks *ranks, const cgp_plan *plan, bool shares);
cgp_status cgp__memory_check_hardware(const cgp_plan *plan, int rank, bool shares);

/* sharing.c: return CGP_EINVAL if a pipeline of the plan cannot use the owner's parameters,
 * gradients, optimizer and states. */
cgp_status cgp__sharing_check(const cgp_plan *plan, const cgp_plan *owner);

/* times.c: broadcast the events of the last run to all ranks. Collective. Afterwards return event k
 * of a trace, on the clock of rank 0. */
cgp_status cgp__pipeline_share_events(const cgp_pipeline *pipeline);
cgp__event cgp__pipeline_event(const cgp__worker *worker, int64_t k);

/* layer_times.c: broadcast the measured times of kernels to all ranks. Collective. @retval
 * CGP_ESTATE None was measured. */
cgp_status cgp__gather_times(const cgp_pipeline *pipeline);

/* Check the handle and the process at the start of a public call. */
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
