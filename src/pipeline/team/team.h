/* SPDX-License-Identifier: Apache-2.0 */
/* team.h -- a team of threads, one per device. The caller gives all threads the same job and waits.
 * The team does not depend on the plan.
 *
 *     assigned ──► busy ──► idle          stuck: still busy when the caller stops waiting
 *       (taken back by the caller if        (ends its job later, or never)
 *        the job has timed out) */
#ifndef CGP_SRC_PIPELINE_TEAM_H
#define CGP_SRC_PIPELINE_TEAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"

typedef struct cgp__team cgp__team;

/* The worker on which a job runs (run/worker.h). The team only passes the worker's address to the
 * job. */
typedef struct cgp__worker cgp__worker;

typedef cgp_status cgp__job(cgp__worker *worker, void *argument);

typedef struct cgp__thread {
    cgp__team *team;
    cgp__worker *worker;
    int number; /* number of the device whose worker runs on the thread */
    pthread_t thread;
    /* State of the thread's job, protected by the team's lock. assigned: the job has not started.
     * busy: the job runs. stuck: the job still ran when the caller stopped waiting. */
    bool assigned, busy, stuck;
    /* True if the thread's current job has a time limit. Set by the thread. */
    bool timed;
    /* Result of the last job. */
    cgp_status status;
    char message[1024];
} cgp__thread;

/* Callbacks for the time limit, called under the team's lock. */
typedef struct cgp__supervisor {
    /* End all waits of workers for other workers. */
    void (*stop)(void *self);
    /* Return the time at which the job times out if no action ends earlier. Called at least every
     * look_ns. */
    int64_t (*deadline)(const void *self);
    /* Report which action hangs, give up the run, and return true. If an action has ended since the
     * timeout was noticed, do nothing and return false. */
    bool (*time_out)(void *self);
    /* Return true if thread `number` runs an action that touches no other device's memory. */
    bool (*computes)(const void *self, int number);
} cgp__supervisor;

struct cgp__team {
    const cgp__supervisor *supervisor;
    void *self; /* argument of the callbacks */
    cgp__thread *threads;
    int n;

    pthread_mutex_t lock;
    pthread_cond_t work, done, released; /* work: wakes threads. done: wakes the caller. released:
                                          * ends injected faults. */
    cgp__job *job;
    void *argument;
    int remaining; /* number of threads that the caller waits for */
    bool quit, release;
    /* Set when a run has failed. Then no job with a time limit touches the plan or the caller's
     * memory. */
    atomic_bool stopped;
    /* Set if a stuck worker may touch memory of other devices. */
    bool stuck_shares_memory;

    bool timed;         /* set if the job has a time limit */
    int64_t timeout_ns; /* time limit, counted from the end of the last action; 0: none */
    /* Interval between calls of deadline(), equal to the interval between heartbeats. If 0,
     * deadline() is called only at the deadline. */
    int64_t look_ns;
    int64_t job_start_ns;
    /* The later of two times: a thread last ended its job, or the process last resumed. */
    int64_t last_end_ns;

    /* The first error of the run in progress. */
    cgp_status first_status;
    char first_message[1024];
    /* If true, the pipeline can only be destroyed; `failure` has the reason. */
    bool failed;
    char failure[1024];
};

void cgp__team_init(cgp__team *team, const cgp__supervisor *supervisor, void *self);
void cgp__team_deinit(cgp__team *team);

/* Call cgp__team_reserve() to reserve space for n threads. Then call cgp__team_add() to start a
 * thread for each worker. Messages name device `number`. */
cgp_status cgp__team_reserve(cgp__team *team, int n);
cgp_status cgp__team_add(cgp__team *team, cgp__worker *worker, int number);

/* These functions run a job on every thread and wait. A stuck thread may use the argument after the
 * call returns, so the argument must lie in the pipeline.
 *
 * run: the job has a time limit. At the first failure, or at the timeout, the run is given up. All
 * waits end, the call returns the status and message of this failure, and the team is marked as
 * failed. run_untimed: the job has no time limit, and no thread waits for another. If threads fail,
 * the call returns the failure of the lowest-numbered one. */
cgp_status cgp__team_run(cgp__team *team, cgp__job *job, void *argument);
cgp_status cgp__team_run_untimed(cgp__team *team, cgp__job *job, void *argument);

/* Run a job without a time limit only on thread `i`. `argument` must be valid until the call
 * returns. @retval CGP_ESTATE The thread is stuck. */
cgp_status cgp__team_run_one(cgp__team *team, int i, cgp__job *job, void *argument);

/* Mark the team as failed, and store cgp_message() as the reason. */
void cgp__team_fail(cgp__team *team);

/* Store cgp_message() as the run's error, unless there is an earlier error. End all waits for
 * messages. Call it with the team's lock held. */
void cgp__team_give_up(cgp__team *team, cgp_status status);

/* cgp__team_release() releases stalled workers, and returns false if a worker stays stuck. Call it
 * before cgp__team_stop(), which ends all threads. */
bool cgp__team_release(cgp__team *team);
void cgp__team_stop(cgp__team *team);

/* Sleep until the deadline or the destruction of the pipeline; used by injected faults. A failure
 * of the run does not end the sleep, because a slow kernel would not notice the failure either. */
void cgp__team_sleep_until(cgp__team *team, int64_t deadline_ns);

#endif
