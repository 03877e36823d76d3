/* SPDX-License-Identifier: Apache-2.0 */
/* team.c -- one thread per device; the caller hands all of them the same job and waits until
 * all are done, or until none of them gets on (watchdog.c).
 *
 *     handed ──► busy ──► back            stuck: still busy when the caller stops waiting
 *       (taken back by the caller if       (comes back in its own time, or never)
 *        the job has timed out)
 *
 * A thread that hangs in a kernel cannot be ended. cgp_pipeline_destroy() waits for it once more,
 * for a moment; then the thread is detached and all that it may still touch is left behind, never
 * freed: the pipeline itself, its lists and channels, the memory and kernels of its device; those
 * of the other devices too, unless it hangs in an action that only computes. If it wakes up one
 * day, it sees `stopped` and ends without a look at the plan, the caller's tensors or frame, which
 * are gone by then (what a job is given lies in the pipeline). (The kernel that it hangs in may read the tensors of that one call.) */
#include "pipeline/pipeline.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define GRACE_NS 300000000     /* for workers to come back once a run was given up */
#define OVERSLEPT_NS 500000000 /* a thread that may run is not kept waiting so long */

static void *worker_main(void *argument) {
    cgp__worker *worker = argument;
    cgp_pipeline *pipeline = worker->pipeline;
    pthread_mutex_lock(&pipeline->lock);
    for (;;) {
        while (!worker->handed && !pipeline->quit)
            pthread_cond_wait(&pipeline->work, &pipeline->lock);
        if (!worker->handed) break;
        cgp__job *job = pipeline->job;
        void *given = pipeline->argument;
        worker->handed = false;
        worker->busy = true;
        pthread_mutex_unlock(&pipeline->lock);
        worker->status = job(worker, given);
        if (worker->status != CGP_OK)
            snprintf(worker->message, sizeof worker->message, "%s", cgp_message());
        pthread_mutex_lock(&pipeline->lock);
        pipeline->back_ns = cgp__now_ns();
        worker->busy = false;
        if (!worker->stuck) pipeline->accumulator--;
        if (worker->stuck || pipeline->accumulator == 0) pthread_cond_signal(&pipeline->done);
        worker->stuck = false;
    }
    pthread_mutex_unlock(&pipeline->lock);
    return NULL;
}

void cgp__workers_init(cgp_pipeline *pipeline) {
    pthread_condattr_t monotonic; /* the clock of deadlines: cgp__now_ns() */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&pipeline->lock, NULL);
    pthread_cond_init(&pipeline->work, NULL);
    pthread_cond_init(&pipeline->done, &monotonic);
    pthread_cond_init(&pipeline->released, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void cgp__workers_deinit(cgp_pipeline *pipeline) {
    pthread_cond_destroy(&pipeline->released);
    pthread_cond_destroy(&pipeline->done);
    pthread_cond_destroy(&pipeline->work);
    pthread_mutex_destroy(&pipeline->lock);
}

cgp_status cgp__workers_start(cgp_pipeline *pipeline) {
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        cgp__worker *worker = &pipeline->workers[d];
        worker->pipeline = pipeline;
        worker->index = d;
        const int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error)
            return cgp_fail(CGP_ENOMEM, "device %d: its thread could not be started (%s)", d,
                            strerror(error));
        worker->started = true;
    }
    return CGP_OK;
}

void cgp__workers_give_up(cgp_pipeline *pipeline, cgp_status status) {
    if (pipeline->first_status == CGP_OK) {
        pipeline->first_status = status;
        snprintf(pipeline->first_message, sizeof pipeline->first_message, "%s", cgp_message());
    }
    atomic_store(&pipeline->stopped, true);
    for (int e = 0; e < pipeline->plan->n_edges; e++)
        cgp__channel_stop(pipeline->channels[e]);
}

bool cgp__wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns) {
    if (deadline_ns == INT64_MAX) return pthread_cond_wait(condition, lock) == 0;
    const struct timespec deadline = {deadline_ns / 1000000000, deadline_ns % 1000000000};
    return pthread_cond_timedwait(condition, lock, &deadline) != ETIMEDOUT;
}

/* Give the job to every worker that is not stuck in another one. */
static void hand_out(cgp_pipeline *pipeline, cgp__job *job, void *argument) {
    pipeline->job = job;
    pipeline->argument = argument;
    pipeline->job_start_ns = pipeline->back_ns = cgp__now_ns();
    if (job == cgp__job_run) pipeline->run_start_ns = pipeline->job_start_ns;
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        cgp__worker *worker = &pipeline->workers[d];
        if (worker->busy) continue;
        worker->handed = true;
        worker->status = CGP_OK;
        if (job == cgp__job_run) worker->trace_start = cgp__trace_written(&worker->trace);
        pipeline->accumulator++;
    }
    pthread_cond_broadcast(&pipeline->work);
}

/* Wait for those who come back of themselves, and go on without the others. */
static void leave_stuck(cgp_pipeline *pipeline) {
    const int64_t deadline = cgp__now_ns() + GRACE_NS;
    while (pipeline->accumulator > 0 &&
           cgp__wait_until(&pipeline->done, &pipeline->lock, deadline)) {
    }
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        cgp__worker *worker = &pipeline->workers[d];
        worker->handed = false;
        worker->stuck = worker->busy;
        if (worker->stuck && !cgp__watchdog_computes(pipeline, worker))
            pipeline->shares_stuck = true;
    }
    pipeline->accumulator = 0;
}

/* false if the job has timed out. Who wakes up long after the deadline was asleep with the whole
 * process (Ctrl-Z, a suspended machine): the workers get their time anew. */
static bool wait_for_all(cgp_pipeline *pipeline) {
    while (pipeline->accumulator > 0) {
        const int64_t deadline = cgp__watchdog_deadline(pipeline);
        if (cgp__now_ns() < deadline) {
            (void)cgp__wait_until(&pipeline->done, &pipeline->lock, deadline);
            const int64_t now = cgp__now_ns();
            if (deadline < INT64_MAX - OVERSLEPT_NS && now > deadline + OVERSLEPT_NS)
                pipeline->back_ns = now;
        } else if (cgp__watchdog_bark(pipeline)) {
            leave_stuck(pipeline);
            return false;
        }
    }
    return true;
}

cgp_status cgp__workers_all(cgp_pipeline *pipeline, cgp__job *job, void *argument) {
    pthread_mutex_lock(&pipeline->lock);
    hand_out(pipeline, job, argument);
    const bool in_time = wait_for_all(pipeline);
    pthread_mutex_unlock(&pipeline->lock);
    if (!in_time) {
        pipeline->failed = true;
        snprintf(pipeline->failure, sizeof pipeline->failure, "%s", pipeline->first_message);
        return cgp_fail(pipeline->first_status, "%s", pipeline->first_message);
    }
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        const cgp__worker *worker = &pipeline->workers[d];
        if (!worker->stuck && worker->status != CGP_OK)
            return cgp_fail(worker->status, "%s", worker->message);
    }
    return CGP_OK;
}

static int count_stuck(const cgp_pipeline *pipeline) {
    int n = 0;
    for (int d = 0; pipeline->workers && d < pipeline->plan->n_devices; d++)
        n += pipeline->workers[d].stuck;
    return n;
}

bool cgp__workers_release(cgp_pipeline *pipeline) {
    const int64_t deadline = cgp__now_ns() + GRACE_NS;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->release = true;
    pthread_cond_broadcast(&pipeline->released);
    while (count_stuck(pipeline) > 0 &&
           cgp__wait_until(&pipeline->done, &pipeline->lock, deadline)) {
    }
    const int stuck = count_stuck(pipeline);
    pthread_mutex_unlock(&pipeline->lock);
    if (stuck > 0)
        cgp__log(CGP_LOG_WARN, "pipeline",
                 "%d of %d workers hang and are left behind with what they may still touch "
                 "(memory of %s included)",
                 stuck, pipeline->plan->n_devices,
                 pipeline->shares_stuck ? "all devices" : "their devices");
    return stuck == 0;
}

void cgp__workers_stop(cgp_pipeline *pipeline) {
    pthread_mutex_lock(&pipeline->lock);
    pipeline->quit = true;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        cgp__worker *worker = &pipeline->workers[d];
        if (!worker->started) continue;
        pthread_mutex_lock(&pipeline->lock);
        const bool stuck = worker->stuck;
        pthread_mutex_unlock(&pipeline->lock);
        if (stuck)
            pthread_detach(worker->thread);
        else
            pthread_join(worker->thread, NULL);
    }
}
