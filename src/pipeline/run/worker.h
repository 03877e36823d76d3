/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h -- a device of this rank, with all data that only its thread touches, and copies between
 * the device and the host.
 *
 * The structs that a worker points to belong to the sources named after them. */
#ifndef CGP_SRC_PIPELINE_RUN_WORKER_H
#define CGP_SRC_PIPELINE_RUN_WORKER_H

#include <cgpipe/ext/backend.h>
#include <stdatomic.h>

#include <cgpipe/plan.h>

typedef struct cgp__executor cgp__executor;
typedef struct cgp__measured cgp__measured;
typedef struct cgp__ranks cgp__ranks;
typedef struct cgp__worker cgp__worker;

/* Progress of a worker's current action. Written by its thread, read by any thread. */
typedef struct cgp__progress {
    atomic_int call;       /* index of the last call enqueued, in the running program */
    _Atomic int64_t begun; /* number of the list's actions enqueued so far */
    atomic_bool syncs;     /* the thread waits for an event of another backend's device */
} cgp__progress;

/* The number of changes of the parameters on a device. Written by the worker, and by the caller's
 * thread between jobs. */
typedef struct cgp__changes {
    int64_t own, *count; /* *count: changes by all pipelines that share the parameters */
    int64_t packed_at;   /* *count when parameters were last packed; -1: never */
} cgp__changes;

struct cgp__worker {
    /* Set by the caller's thread before the first job. */
    cgp__executor *executor;
    const cgp_plan *plan;
    const cgp_model *model; /* the plan's */
    const cgp__ranks *ranks;
    const cgp_backend *backend;
    cgp__measured *measured;
    int index; /* number of the device */
    /* *timed: the current job has a time limit; written by this thread. *stopped: jobs with a time
     * limit are given up; written by any thread. */
    const bool *timed;
    const atomic_bool *stopped;

    /* Set by the worker when it creates the device (device.c). */
    cgp_device *device;
    char *memory;    /* the planned memory, starting at byte `skipped` */
    int64_t skipped; /* bytes of the plan's memory that another pipeline owns */
    char *parameters, *gradients, *optimizer, *states;
    char *host;      /* planned host memory, for copies; NULL: none */
    double *words;   /* [step.n_words] results that kernels write, in device memory */
    double *fetched; /* [step.n_words] the host's copy of words */

    /* The worker makes these together with the device; before that they are NULL. Only the worker
     * reads or writes them. */
    struct cgp__kernels *kernels;
    struct cgp__captured_graphs *graphs;
    struct cgp__ring *ring; /* ring of staging.c; NULL: the device shares the host's memory */
    struct cgp__queues *queues;
    struct cgp__landings *landings; /* NULL: no message waits for a copy */

    cgp__progress progress;
    cgp__changes changes;
    int64_t progress_ns; /* time of the last call of the transport's progress() */
};

/* Return the address of an offset in the device's planned memory, in the part that is not
 * shared. */
static inline char *cgp__worker_at(const cgp__worker *worker, int64_t offset) {
    return worker->memory + (offset - worker->skipped);
}

/* Return whether an address lies in memory of the backend's hardware, whoever allocated it. */
static inline bool cgp__is_device_memory(const cgp__worker *worker, const void *address) {
    const cgp_backend *backend = worker->backend;
    return backend->device.ordinal_of && backend->device.ordinal_of(worker->device, address) >= 0;
}

/* Return whether the worker's job has a time limit and the caller has stopped waiting for it. Then
 * the job must not touch the plan or the caller's memory. A job without a limit, such as a getter
 * after a failure, keeps its caller waiting until it ends. */
static inline bool cgp__is_stopped(const cgp__worker *worker) {
    return *worker->timed && atomic_load_explicit(worker->stopped, memory_order_acquire);
}

static inline cgp_place cgp__device_place(const cgp__worker *worker, void *at) {
    return (cgp_place){worker->device, at};
}

static inline cgp_place cgp__host_place(const void *at) {
    return (cgp_place){NULL, (void *)at};
}

/* Let messages between ranks make progress, at most once per 200 us. */
void cgp__worker_progress(cgp__worker *worker);

/* Wait for an event of the worker's device. Messages between ranks make progress meanwhile. */
cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event);

/* Wait until all enqueued work is complete. */
cgp_status cgp__worker_finish(cgp__worker *worker);

/* Copy between the host and memory of the worker's device; return when the copy is complete. */
cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes);
cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes);

/* Copy the first n words to `fetched`. */
cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n);

#endif
