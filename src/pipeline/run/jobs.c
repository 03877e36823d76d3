/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.c -- implements jobs.h. */
#include "pipeline/run/jobs.h"

#include "pipeline/run/agreements.h"
#include "pipeline/run/executor.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/worker.h"
#include "pipeline/team/team.h"

cgp__worker *cgp__executor_worker(const cgp__executor *executor, int device) {
    return &executor->workers[device];
}

cgp_status cgp__executor_run_all(const cgp__executor *executor, cgp__job *job, void *argument) {
    return cgp__team_run(executor->team, job, argument);
}

cgp_status cgp__executor_run_one(const cgp__executor *executor, int device, cgp__job *job,
                                 void *argument) {
    return cgp__team_run_one(executor->team, device - executor->ranks->first, job, argument);
}

cgp_status cgp__executor_exchanged(cgp__executor *executor, cgp_status status) {
    if (status != CGP_OK) cgp__team_fail(executor->team);
    return status;
}

cgp_status cgp__executor_job(cgp__executor *executor, cgp__job *job, void *argument) {
    const cgp_status status = cgp__team_run(executor->team, job, argument);
    return cgp__executor_exchanged(executor, cgp__ranks_agree(executor->ranks, status));
}
