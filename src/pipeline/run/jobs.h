/* SPDX-License-Identifier: Apache-2.0 */
/* jobs.h -- runs jobs on an executor's workers. (executor.h runs action lists.) */
#ifndef CGP_SRC_PIPELINE_RUN_JOBS_H
#define CGP_SRC_PIPELINE_RUN_JOBS_H

#include "base/base.h"

typedef struct cgp__executor cgp__executor;
typedef struct cgp__worker cgp__worker;

typedef cgp_status cgp__job(cgp__worker *worker, void *argument); /* same type as in team.h */

/* Return the worker of a device. */
cgp__worker *cgp__executor_worker(const cgp__executor *executor, int device);

/* Run a job on the worker of one of this rank's devices. `argument` must be valid until the call
 * returns. */
cgp_status cgp__executor_run_one(const cgp__executor *executor, int device, cgp__job *job,
                                 void *argument);

/* Run a job on all workers of this rank, within the time limit. The caller must exchange the result
 * with all ranks immediately. */
cgp_status cgp__executor_run_all(const cgp__executor *executor, cgp__job *job, void *argument);

/* Run a job on all workers of all ranks, within the time limit. A rank that fails notifies the
 * other ranks. This ends the waits and exchanges of the other ranks. After a failure, the team is
 * marked as failed. Collective. */
cgp_status cgp__executor_job(cgp__executor *executor, cgp__job *job, void *argument);

/* `status` is the result of an exchange within a step. If it is a failure, mark the team as failed.
 * Return `status`. */
cgp_status cgp__executor_exchanged(cgp__executor *executor, cgp_status status);

#endif
