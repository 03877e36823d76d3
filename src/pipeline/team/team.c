/* SPDX-License-Identifier: Apache-2.0 */
/* team.c -- implements team.h: threads, their jobs, and the time limit of jobs.
 *
 * The time limit needs no separate thread: the caller waits for the job anyway. The caller wakes if
 * no worker has ended an action within the timeout.
 *
 * A thread that hangs in a kernel cannot be ended. cgp_pipeline_destroy() waits once more for the
 * thread (GRACE_NS), then detaches it. Memory that the thread may still touch is never freed: the
 * pipeline itself, its lists and channels, and the memory and kernels of the thread's device. The
 * memory of the other devices is kept too, unless the thread hangs in an action that only computes.
 * If the thread resumes, it reads `stopped` and ends. By then the plan, the caller's tensors and
 * the caller's stack frame may be gone, and the thread does not touch them; a job's argument lies
 * in the pipeline. The thread's device, however, may still read and write the tensors of that one
 * call: in the kernel that hangs and, if the device is asynchronous, in later actions. */
#include "pipeline/team/team.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_NS 300000000     /* time in ns that workers have to end their jobs after a failure */
#define OVERSLEPT_NS 500000000 /* in ns; longer than the delay with which a runnable thread wakes */

static void *thread_main(void *argument) {
    cgp__thread *thread = argument;
    cgp__team *team = thread->team;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (!thread->assigned && !team->quit)
            pthread_cond_wait(&team->work, &team->lock);
        if (!thread->assigned) break;
        cgp__job *job = team->job;
        void *job_argument = team->argument;
        const bool timed = thread->timed = team->timed;
        thread->assigned = false;
        thread->busy = true;
        pthread_mutex_unlock(&team->lock);
        thread->status = job(thread->worker, job_argument);
        if (thread->status != CGP_OK)
            snprintf(thread->message, sizeof thread->message, "%s", cgp_message());
        pthread_mutex_lock(&team->lock);
        if (thread->status != CGP_OK && timed && !thread->stuck)
            cgp__team_give_up(team, thread->status); /* other threads may wait for this thread, so
                                                      * end their waits */
        team->last_end_ns = cgp__now_ns();
        thread->busy = false;
        if (!thread->stuck) team->remaining--;
        if (thread->stuck || team->remaining == 0) pthread_cond_signal(&team->done);
        thread->stuck = false;
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

void cgp__team_init(cgp__team *team, const cgp__supervisor *supervisor, void *self) {
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->work, NULL);
    cgp__condition_init(&team->done);
    cgp__condition_init(&team->released);
    team->supervisor = supervisor;
    team->self = self;
}

void cgp__team_deinit(cgp__team *team) {
    pthread_cond_destroy(&team->released);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->work);
    pthread_mutex_destroy(&team->lock);
    free(team->threads);
}

cgp_status cgp__team_reserve(cgp__team *team, int n) {
    return CGP__NEW(team->threads, n, "pipeline");
}

cgp_status cgp__team_add(cgp__team *team, cgp__worker *worker, int number) {
    cgp__thread *thread = &team->threads[team->n];
    thread->team = team;
    thread->worker = worker;
    thread->number = number;
    const int error = pthread_create(&thread->thread, NULL, thread_main, thread);
    if (error)
        return cgp_fail(CGP_ENOMEM, "device %d: its thread could not be started (%s)", number,
                        strerror(error));
    team->n++;
    return CGP_OK;
}

void cgp__team_fail(cgp__team *team) {
    team->failed = true;
    snprintf(team->failure, sizeof team->failure, "%s", cgp_message());
}

void cgp__team_give_up(cgp__team *team, cgp_status status) {
    if (team->first_status == CGP_OK) {
        team->first_status = status;
        snprintf(team->first_message, sizeof team->first_message, "%s", cgp_message());
    }
    atomic_store(&team->stopped, true);
    team->supervisor->stop(team->self);
}

/* Assign the job to each of the threads begin .. end - 1 that is not stuck in an earlier job. */
static void assign(cgp__team *team, int begin, int end, cgp__job *job, void *argument, bool timed) {
    team->job = job;
    team->argument = argument;
    team->timed = timed;
    team->first_status = CGP_OK;
    team->job_start_ns = team->last_end_ns = cgp__now_ns();
    for (int i = begin; i < end; i++) {
        cgp__thread *thread = &team->threads[i];
        if (thread->busy) continue;
        thread->assigned = true;
        thread->status = CGP_OK;
        team->remaining++;
    }
    pthread_cond_broadcast(&team->work);
}

/* Wait GRACE_NS for threads to end their jobs; mark threads that do not end as stuck. */
static void leave_stuck(cgp__team *team) {
    const int64_t deadline = cgp__now_ns() + GRACE_NS;
    while (team->remaining > 0 && cgp__wait_until(&team->done, &team->lock, deadline)) {
    }
    for (int i = 0; i < team->n; i++) {
        cgp__thread *thread = &team->threads[i];
        thread->assigned = false;
        thread->stuck = thread->busy;
        if (thread->stuck && !team->supervisor->computes(team->self, thread->number))
            team->stuck_shares_memory = true;
    }
    team->remaining = 0;
}

/* Return the time at which the job times out if no action ends earlier; INT64_MAX: the job never
 * times out. */
static int64_t deadline_of(const cgp__team *team) {
    if (team->timeout_ns == 0 || !team->timed) return INT64_MAX;
    return team->supervisor->deadline(team->self);
}

/* Wait until `deadline_ns`, or for look_ns if that is shorter. If the caller wakes much later, the
 * whole process was suspended (Ctrl-Z, a sleeping machine), so the time limit starts again. */
static void wait_for_some(cgp__team *team, int64_t deadline_ns) {
    const int64_t next_ns = cgp__now_ns() + team->look_ns;
    const int64_t wake_ns =
        deadline_ns < INT64_MAX && team->look_ns > 0 ? cgp__min(deadline_ns, next_ns) : deadline_ns;
    (void)cgp__wait_until(&team->done, &team->lock, wake_ns);
    const int64_t now = cgp__now_ns();
    if (wake_ns < INT64_MAX - OVERSLEPT_NS && now > wake_ns + OVERSLEPT_NS) team->last_end_ns = now;
}

/* Wait until the job ends or has timed out. */
static void wait_for_all(cgp__team *team) {
    while (team->remaining > 0) {
        const int64_t deadline = deadline_of(team);
        if (cgp__now_ns() < deadline)
            wait_for_some(team, deadline);
        else if (team->supervisor->time_out(team->self))
            leave_stuck(team);
    }
}

/* Run a job and wait for its end. If a job with a time limit fails, the team fails too, because
 * buffers may still be held and sums may be incomplete. */
static cgp_status run(cgp__team *team, int begin, int end, cgp__job *job, void *argument,
                      bool timed) {
    pthread_mutex_lock(&team->lock);
    assign(team, begin, end, job, argument, timed);
    wait_for_all(team);
    cgp_status status = team->first_status;
    if (status != CGP_OK) (void)cgp_fail(status, "%s", team->first_message);
    pthread_mutex_unlock(&team->lock);
    for (int i = begin; i < end && status == CGP_OK; i++) {
        const cgp__thread *thread = &team->threads[i];
        if (!thread->stuck && thread->status != CGP_OK)
            status = cgp_fail(thread->status, "%s", thread->message);
    }
    if (timed && status != CGP_OK) cgp__team_fail(team);
    return status;
}

cgp_status cgp__team_run(cgp__team *team, cgp__job *job, void *argument) {
    return run(team, 0, team->n, job, argument, true);
}

cgp_status cgp__team_run_untimed(cgp__team *team, cgp__job *job, void *argument) {
    return run(team, 0, team->n, job, argument, false);
}

cgp_status cgp__team_run_one(cgp__team *team, int i, cgp__job *job, void *argument) {
    pthread_mutex_lock(&team->lock);
    const bool stuck = team->threads[i].stuck;
    pthread_mutex_unlock(&team->lock);
    if (stuck)
        return cgp_fail(CGP_ESTATE, "device %d: hangs, what it has cannot be read or written",
                        team->threads[i].number);
    return run(team, i, i + 1, job, argument, false);
}

static int count_stuck(const cgp__team *team) {
    int n = 0;
    for (int i = 0; i < team->n; i++)
        n += team->threads[i].stuck;
    return n;
}

bool cgp__team_release(cgp__team *team) {
    const int64_t deadline = cgp__now_ns() + GRACE_NS;
    pthread_mutex_lock(&team->lock);
    team->release = true;
    pthread_cond_broadcast(&team->released);
    while (count_stuck(team) > 0 && cgp__wait_until(&team->done, &team->lock, deadline)) {
    }
    const int stuck = count_stuck(team);
    pthread_mutex_unlock(&team->lock);
    if (stuck > 0)
        cgp_log(CGP_LOG_WARN, "pipeline",
                "%d of %d workers hang and are left behind with what they may still touch "
                "(memory of %s included)",
                stuck, team->n, team->stuck_shares_memory ? "all devices" : "their devices");
    return stuck == 0;
}

void cgp__team_stop(cgp__team *team) {
    pthread_mutex_lock(&team->lock);
    team->quit = true;
    pthread_cond_broadcast(&team->work);
    pthread_mutex_unlock(&team->lock);
    for (int i = 0; i < team->n; i++) {
        cgp__thread *thread = &team->threads[i];
        pthread_mutex_lock(&team->lock);
        const bool stuck = thread->stuck;
        pthread_mutex_unlock(&team->lock);
        if (stuck)
            pthread_detach(thread->thread);
        else
            pthread_join(thread->thread, NULL);
    }
}

void cgp__team_sleep_until(cgp__team *team, int64_t deadline_ns) {
    pthread_mutex_lock(&team->lock);
    while (!team->release && cgp__wait_until(&team->released, &team->lock, deadline_ns)) {
    }
    pthread_mutex_unlock(&team->lock);
}
