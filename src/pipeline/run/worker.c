/* SPDX-License-Identifier: Apache-2.0 */
/* worker.c -- implements worker.h: waits for a worker's device, and copies between the device and
 * the host. */
#include "pipeline/run/worker.h"

#include "pipeline/run/landings.h"
#include "pipeline/run/ranks.h"
#include "pipeline/run/staging.h"

#include <time.h>

#define POLL_NS 20000
#define PROGRESS_NS 200000

void cgp__worker_progress(cgp__worker *worker) {
    const cgp__ranks *ranks = worker->ranks;
    if (!ranks->transport) return;
    const int64_t now = cgp__now_ns();
    if (now - worker->progress_ns < PROGRESS_NS) return;
    worker->progress_ns = now;
    ranks->transport->links.progress(ranks->communicator);
}

cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event) {
    const cgp_backend *backend = worker->backend;
    const cgp__ranks *ranks = worker->ranks;
    if (!ranks->transport) return backend->streams->event_sync(event);
    bool done = false;
    for (;;) {
        const cgp_status status = backend->streams->event_done(event, &done);
        if (status != CGP_OK || done || cgp__is_stopped(worker)) return status;
        cgp__landings_check(worker);
        ranks->transport->links.progress(ranks->communicator);
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
}

cgp_status cgp__worker_finish(cgp__worker *worker) {
    const cgp_backend *backend = worker->backend;
    const cgp_status status = backend->streams ? backend->streams->finish(worker->device) : CGP_OK;
    if (status == CGP_OK && !cgp__is_stopped(worker))
        cgp__staging_return(worker, cgp__staging_taken(worker));
    cgp__staging_drop(worker); /* after a failure, no data reaches the host */
    return status;
}

cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes) {
    const cgp_backend *backend = worker->backend;
    const cgp_place there = cgp__device_place(worker, (void *)(uintptr_t)from);
    const cgp_status status = backend->host_addressable
                                  ? backend->device.copy(worker->device, CGP_QUEUE_COMPUTE,
                                                         cgp__host_place(out), there, bytes)
                                  : cgp__staging_get(worker, out, from, bytes);
    if (status == CGP_OK && !cgp__is_stopped(worker)) return cgp__worker_finish(worker);
    cgp__staging_drop(worker);
    return status;
}

cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes) {
    const cgp_backend *backend = worker->backend;
    const cgp_place there = cgp__device_place(worker, to);
    CGP_TRY(backend->host_addressable ? backend->device.copy(worker->device, CGP_QUEUE_COMPUTE,
                                                             there, cgp__host_place(in), bytes)
                                      : cgp__staging_put(worker, to, in, bytes));
    return cgp__is_stopped(worker) ? CGP_OK : cgp__worker_finish(worker);
}

cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n) {
    if (worker->fetched == worker->words) return CGP_OK;
    return cgp__worker_read(worker, worker->fetched, worker->words, (size_t)n * sizeof(double));
}
