/* SPDX-License-Identifier: Apache-2.0 */
/* events.c -- the fake CUDA runtime: events, including events that two processes share.
 *
 * The counters of an interprocess event are in memory that both processes map. Waits for such an
 * event poll the counters, because a killed process could leave a lock in shared memory locked. As
 * on a GPU, a wait for a record of a killed process never ends if the record has not run. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sharing.h"
#include "work.h"

/* `records`: number of records enqueued; `reached`: number of the last record that has run */
typedef struct counters {
    _Atomic uint64_t records, reached;
} counters;

struct CUevent_st {
    int device;
    bool timed, imported;
    cgp__shim_mapping mapping; /* holds an interprocess event's counters */
    counters own, *counters;
    cgp__shim_captured_record captured; /* the last record, if it was captured */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t time_ns;
    int users; /* number of records and waits enqueued but not run */
};

typedef struct mark {
    cudaEvent_t event;
    uint64_t record;
} mark;

/* Add `change` to the number of records and waits that use the event. A record or wait calls this
 * function last, and does not access the event afterwards. */
static void change_users(cudaEvent_t event, int change) {
    pthread_mutex_lock(&event->lock);
    event->users += change;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
}

static void reach(const mark *m) {
    struct timespec now;
    pthread_mutex_lock(&m->event->lock);
    clock_gettime(CLOCK_MONOTONIC, &now);
    m->event->time_ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    atomic_store(&m->event->counters->reached, m->record);
    pthread_cond_broadcast(&m->event->changed);
    pthread_mutex_unlock(&m->event->lock);
}

static void wait_for(const mark *m) {
    const counters *c = m->event->counters;
    const struct timespec pause = {0, 20000};
    if (m->event->mapping.at) {
        while (atomic_load(&c->reached) < m->record)
            nanosleep(&pause, NULL);
        return;
    }
    pthread_mutex_lock(&m->event->lock);
    while (atomic_load(&c->reached) < m->record)
        pthread_cond_wait(&m->event->changed, &m->event->lock);
    pthread_mutex_unlock(&m->event->lock);
}

static cudaError_t run_record(const void *payload) {
    const mark *m = payload;
    reach(m);
    change_users(m->event, -1);
    return cudaSuccess;
}

static cudaError_t run_wait(const void *payload) {
    const mark *m = payload;
    wait_for(m);
    change_users(m->event, -1);
    return cudaSuccess;
}

/* Enqueue a record or a wait, and count it in the event's `users`. */
static cudaError_t enqueue(cudaStream_t stream, cgp__shim_run *run, const mark *m) {
    cgp__shim_work *work = cgp__shim_make_work(run, true, m, sizeof *m);
    change_users(m->event, 1);
    const cudaError_t error = work ? cgp__shim_enqueue(stream, work) : cudaErrorMemoryAllocation;
    if (error != cudaSuccess) change_users(m->event, -1);
    return error;
}

static mark last_record(cudaEvent_t event, int more) {
    const uint64_t before = atomic_fetch_add(&event->counters->records, (uint64_t)more);
    return (mark){event, before + (uint64_t)more};
}

static cudaError_t new_event(cudaEvent_t *event, bool timed) {
    cudaEvent_t e = calloc(1, sizeof *e);
    if (!e) return cudaErrorMemoryAllocation;
    e->device = cgp__shim_current_device();
    e->timed = timed;
    e->counters = &e->own;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    *event = e;
    cgp__shim_count_object(1);
    return cudaSuccess;
}

static void free_event(cudaEvent_t event) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
    cgp__shim_count_object(-1);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    const bool shared = flags == (cudaEventInterprocess | cudaEventDisableTiming);
    cudaEvent_t e = NULL;
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != cudaEventDefault && flags != cudaEventDisableTiming && !shared)
        return cgp__shim_leave(cudaErrorInvalidValue);
    CGP__SHIM_TRY(new_event(&e, flags == cudaEventDefault));
    if (shared) {
        const cudaError_t error = cgp__shim_map(&e->mapping, sizeof(counters));
        if (error != cudaSuccess) {
            free_event(e);
            return cgp__shim_leave(error);
        }
        e->counters = (counters *)(void *)e->mapping.at;
    }
    *event = e;
    return cudaSuccess;
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    CGP__SHIM_TRY(cgp__shim_enter_on(event->device));
    if (!event->mapping.at || event->imported)
        return cgp__shim_leave(cudaErrorInvalidResourceHandle);
    return cgp__shim_leave(cgp__shim_write_handle(handle->reserved, &event->mapping));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
    cudaEvent_t e = NULL;
    CGP__SHIM_TRY(cgp__shim_enter());
    CGP__SHIM_TRY(new_event(&e, false));
    const cudaError_t error = cgp__shim_map_handle(&e->mapping, handle.reserved, false);
    if (error != cudaSuccess) {
        free_event(e);
        return cgp__shim_leave(error);
    }
    e->counters = (counters *)(void *)e->mapping.at;
    e->imported = true;
    *event = e;
    return cudaSuccess;
}

/* As in CUDA, an event must exist until the records and waits that use it have run, so this
 * function waits for them. An interprocess event may be pending for ever, and its memory is then
 * not freed. */
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const int device = event->device;
    pthread_mutex_lock(&event->lock);
    while (event->users > 0 && !event->mapping.at)
        pthread_cond_wait(&event->changed, &event->lock);
    const bool pending = event->users > 0;
    pthread_mutex_unlock(&event->lock);
    if (pending) return cgp__shim_leave(cgp__shim_enter_on(device));
    cgp__shim_unmap(&event->mapping);
    free_event(event);
    return cgp__shim_leave(cgp__shim_enter_on(device));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    CGP__SHIM_TRY(cgp__shim_enter_on(event->device));
    if (cgp__shim_device_of(stream) != event->device)
        return cgp__shim_leave(cudaErrorInvalidResourceHandle);
    if (cgp__shim_captures(stream) && !event->mapping.at)
        return cgp__shim_leave(cgp__shim_capture_record(stream, &event->captured));
    if (!stream || cgp__shim_captures(stream)) CGP__SHIM_TRY(cgp__shim_refuse_capture());
    event->captured.capture = 0;
    return cgp__shim_leave(cgp__shim_enqueue_record(stream, event));
}

cudaError_t cgp__shim_enqueue_record(cudaStream_t stream, cudaEvent_t event) {
    const mark m = last_record(event, 1);
    const cudaError_t error = enqueue(stream, run_record, &m);
    if (error != cudaSuccess) reach(&m); /* otherwise a wait for it could block for ever */
    return error;
}

cudaError_t cgp__shim_enqueue_wait(cudaStream_t stream, cudaEvent_t event) {
    const mark m = last_record(event, 0);
    return enqueue(stream, run_wait, &m);
}

cudaError_t cgp__shim_new_event(cudaEvent_t *event) {
    return new_event(event, false);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != 0) return cgp__shim_leave(cudaErrorInvalidValue);
    if (event->imported && cgp__shim_get_settings()->sharing == CGP__SHIM_SHARES_UNORDERED)
        return cudaSuccess;
    if (event->captured.capture > 0 || cgp__shim_captures(stream))
        return cgp__shim_leave(cgp__shim_capture_wait(stream, &event->captured));
    if (!stream) CGP__SHIM_TRY(cgp__shim_refuse_capture());
    return cgp__shim_leave(cgp__shim_enqueue_wait(stream, event));
}

/* Return an error if the event's last record was captured, because the host can neither query such
 * a record nor wait for it. */
static cudaError_t refuse_captured(cudaEvent_t event) {
    return event->captured.capture > 0 ? cudaErrorCapturedEvent : cudaSuccess;
}

static bool is_done(cudaEvent_t event) {
    const counters *c = event->counters;
    return atomic_load(&c->reached) >= atomic_load(&c->records);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter_on(event->device));
    CGP__SHIM_TRY(refuse_captured(event));
    if (!is_done(event)) return cudaErrorNotReady;
    return cgp__shim_leave(cgp__shim_failure(event->device));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter_on(event->device));
    CGP__SHIM_TRY(refuse_captured(event));
    const mark m = last_record(event, 0);
    wait_for(&m);
    return cgp__shim_leave(cgp__shim_failure(event->device));
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    CGP__SHIM_TRY(cgp__shim_enter_on(begin->device));
    if (begin->device != end->device || !begin->timed || !end->timed ||
        atomic_load(&begin->counters->records) == 0 || atomic_load(&end->counters->records) == 0)
        return cgp__shim_leave(cudaErrorInvalidResourceHandle);
    if (cudaEventQuery(begin) == cudaErrorNotReady || cudaEventQuery(end) == cudaErrorNotReady)
        return cudaErrorNotReady;
    *milliseconds = (float)((double)(end->time_ns - begin->time_ns) / 1e6);
    return cudaSuccess;
}
