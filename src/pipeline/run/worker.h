/* SPDX-License-Identifier: Apache-2.0 */
/* worker.h -- workers. A worker has a device of this rank, and all data that only the device's
 * thread touches. The functions wait for the device, and copy between the device and the host.
 *
 * Each struct to which a worker points is defined in the source file of the same name. */
#ifndef CGP_SRC_PIPELINE_RUN_WORKER_H
#define CGP_SRC_PIPELINE_RUN_WORKER_H

#include <cgpipe/ext/backend.h>
#include <stdatomic.h>

#include <cgpipe/plan.h>

typedef struct cgp__exchange cgp__exchange;
typedef struct cgp__executor cgp__executor;
typedef struct cgp__measured cgp__measured;
typedef struct cgp__ranks cgp__ranks;
typedef struct cgp__worker cgp__worker;

/* Progress of a worker's current action. Written by its thread, read by any thread. */
typedef struct cgp__progress {
    atomic_int call;       /* index of the last call enqueued, in the running program */
    _Atomic int64_t begun; /* number of actions of the current list enqueued so far */
    atomic_bool syncs;     /* set while the thread waits for an event of another backend's device */
    /* exchanges: the thread waits for a buffer or a part of an exchange between replicas. part_ns:
     * the time at which the last part arrived. */
    atomic_bool exchanges;
    _Atomic int64_t part_ns;
} cgp__progress;

/* The number of changes of the parameters on a device. Written by the worker, and by the caller's
 * thread between jobs. */
typedef struct cgp__changes {
    int64_t own, *count; /* own: changes by this pipeline. *count: changes by all pipelines that
                          * share the parameters. */
    int64_t packed_at;   /* value of *count when the parameters were last packed; -1: never
                          * packed */
} cgp__changes;

struct cgp__worker {
    /* Set by the caller's thread before the first job. */
    cgp__executor *executor;
    const cgp_plan *plan;
    const cgp_model *model; /* the plan's model */
    const cgp__ranks *ranks;
    const cgp_backend *backend;
    cgp__measured *measured;
    int index; /* number of the device */
    /* *timed is set if the current job has a time limit; this worker's thread writes it. *stopped
     * is set if jobs with a time limit are given up; any thread may write it. */
    const bool *timed;
    const atomic_bool *stopped;

    /* Set by the worker when it creates the device (device.c). */
    cgp_device *device;
    char *memory;    /* the device's planned memory, without its first `skipped` bytes */
    int64_t skipped; /* bytes at the start of the planned memory that another pipeline owns */
    char *parameters, *gradients, *optimizer, *states;
    char *host;      /* planned host memory, for copies; NULL: none */
    double *words;   /* [step.n_words] results that kernels write, in device memory */
    double *fetched; /* [step.n_words] the host's copy of words */

    /* The worker creates these structs together with the device; before that, the pointers are
     * NULL. Only the worker reads or writes the structs. */
    struct cgp__kernels *kernels;
    struct cgp__captured_graphs *graphs;
    struct cgp__ring *ring; /* ring of staging.c; NULL: the device shares the host's memory */
    struct cgp__queues *queues;
    cgp__exchange *exchange;        /* NULL: there is one replica */
    struct cgp__landings *landings; /* messages whose copies are pending (landings.c); NULL: the
                                     * device needs no such list */

    cgp__progress progress;
    cgp__changes changes;
    int64_t progress_ns; /* time of the last call of the transport's progress() */
};

/* Return the address of an offset in the device's planned memory. The offset must be in the part
 * that is not shared. */
static inline char *cgp__worker_at(const cgp__worker *worker, int64_t offset) {
    return worker->memory + (offset - worker->skipped);
}

/* Return true if an address lies in memory of the backend's hardware, whether or not this library
 * allocated the memory. */
static inline bool cgp__is_device_memory(const cgp__worker *worker, const void *address) {
    const cgp_backend *backend = worker->backend;
    return backend->device.ordinal_of && backend->device.ordinal_of(worker->device, address) >= 0;
}

/* Return true if the worker's job has a time limit and the run was given up. The job must then not
 * touch the plan or the caller's memory, because the caller may have stopped waiting. For a job
 * without a time limit, such as a getter after a failure, the caller always waits until the job
 * ends. */
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

/* Wait for an event of the worker's device. During the wait, messages between ranks make
 * progress. */
cgp_status cgp__worker_wait(const cgp__worker *worker, cgp_event *event);

/* Wait until all enqueued work is complete. */
cgp_status cgp__worker_finish(cgp__worker *worker);

/* Copy between the host and memory of the worker's device; return when the copy is complete. */
cgp_status cgp__worker_read(cgp__worker *worker, void *out, const void *from, size_t bytes);
cgp_status cgp__worker_write(cgp__worker *worker, void *to, const void *in, size_t bytes);

/* Copy the first n result words from the device to `fetched`. */
cgp_status cgp__worker_fetch_words(cgp__worker *worker, int n);

#endif
