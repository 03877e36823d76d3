/* workers.c -- one thread per device; the caller hands all of them the same job and waits until
 * all are done. */
#include "pipeline/pipeline.h"

#include <stdio.h>
#include <string.h>

static void *worker_main(void *argument) {
    cgp__worker *worker = argument;
    cgp_pipeline *pipeline = worker->pipeline;
    int seen = 0;
    pthread_mutex_lock(&pipeline->lock);
    for (;;) {
        while (pipeline->generation == seen && !pipeline->quit)
            pthread_cond_wait(&pipeline->work, &pipeline->lock);
        if (pipeline->generation == seen) break;
        seen = pipeline->generation;
        cgp__job *job = pipeline->job;
        void *given = pipeline->argument;
        pthread_mutex_unlock(&pipeline->lock);
        worker->status = job(worker, given);
        if (worker->status != CGP_OK)
            snprintf(worker->message, sizeof worker->message, "%s", cgp_message());
        pthread_mutex_lock(&pipeline->lock);
        if (--pipeline->pending == 0) pthread_cond_signal(&pipeline->done);
    }
    pthread_mutex_unlock(&pipeline->lock);
    return NULL;
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

cgp_status cgp__workers_all(cgp_pipeline *pipeline, cgp__job *job, void *argument) {
    const int n = pipeline->plan->n_devices;
    pthread_mutex_lock(&pipeline->lock);
    pipeline->job = job;
    pipeline->argument = argument;
    pipeline->pending = n;
    pipeline->generation++;
    pthread_cond_broadcast(&pipeline->work);
    while (pipeline->pending > 0)
        pthread_cond_wait(&pipeline->done, &pipeline->lock);
    pthread_mutex_unlock(&pipeline->lock);
    for (int d = 0; d < n; d++) {
        if (pipeline->workers[d].status != CGP_OK)
            return cgp_fail(pipeline->workers[d].status, "%s", pipeline->workers[d].message);
    }
    return CGP_OK;
}

void cgp__workers_stop(cgp_pipeline *pipeline) {
    pthread_mutex_lock(&pipeline->lock);
    pipeline->quit = true;
    pthread_cond_broadcast(&pipeline->work);
    pthread_mutex_unlock(&pipeline->lock);
    for (int d = 0; d < pipeline->plan->n_devices; d++) {
        if (pipeline->workers[d].started) pthread_join(pipeline->workers[d].thread, NULL);
    }
}
