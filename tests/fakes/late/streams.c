/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c -- the queues and events of `late`. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "device.h"

struct cgp_event {
    cgp_device *device;
    uint64_t records; /* number of records enqueued; used by the device's owner */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t reached; /* number of records that have run */
    int64_t time_ns;
    bool failed;
};

static cgp_status event_create(cgp_device *device, cgp_event **out) {
    cgp_event *event = cgp__calloc(1, sizeof *event);
    if (!event) return cgp__no_memory("late: event", sizeof *event);
    event->device = device;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    *out = event;
    return CGP_OK;
}

static void event_destroy(cgp_event *event) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
}

/* A record of an event, or a wait for an event. */
typedef struct mark {
    cgp_event *event;
    uint64_t record;
} mark;

static cgp_status run_record(void *device, const void *payload) {
    const mark *m = payload;
    cgp_event *event = m->event;
    pthread_mutex_lock(&event->lock);
    event->reached = m->record;
    event->time_ns = cgp__now_ns();
    event->failed = atomic_load_explicit(&((cgp_device *)device)->failure.status,
                                         memory_order_relaxed) != CGP_OK;
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->lock);
    return CGP_OK;
}

static cgp_status run_wait(void *device, const void *payload) {
    const mark *m = payload;
    (void)device;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->reached < m->record)
        pthread_cond_wait(&m->event->changed, &m->event->lock);
    pthread_mutex_unlock(&m->event->lock);
    return CGP_OK;
}

cgp_status cgp__late_check_not_capturing(const cgp_device *device, const char *what) {
    if (!device->capture) return CGP_OK;
    return cgp_fail(CGP_EINVAL, "late: %s: expected capture_end() first, got none", what);
}

static cgp_status event_record(cgp_device *device, cgp_queue queue, cgp_event *event) {
    CGP_TRY(cgp__late_check_not_capturing(device, "record of an event"));
    const mark m = {event, ++event->records};
    return cgp__late_queue_add(&device->queues[queue], run_record, &m, sizeof m, true);
}

static cgp_status event_wait(cgp_device *device, cgp_queue queue, cgp_event *event) {
    const mark m = {event, event->records};
    CGP_TRY(cgp__late_check_not_capturing(device, "wait for an event"));
    return cgp__late_queue_add(&device->queues[queue], run_wait, &m, sizeof m, true);
}

static cgp_status outcome(cgp_event *event) {
    return event->failed ? cgp__late_failure_of(&event->device->failure) : CGP_OK;
}

static cgp_status event_done(cgp_event *event, bool *done) {
    pthread_mutex_lock(&event->lock);
    *done = event->reached >= event->records;
    pthread_mutex_unlock(&event->lock);
    return *done ? outcome(event) : CGP_OK;
}

static cgp_status event_sync(cgp_event *event) {
    const mark m = {event, event->records};
    (void)run_wait(NULL, &m);
    return outcome(event);
}

static int64_t event_time(cgp_event *event) {
    return event->time_ns;
}

static cgp_status finish(cgp_device *device) {
    cgp_event *event = NULL;
    CGP_TRY(event_create(device, &event));
    for (int q = 0; q < CGP_QUEUES; q++) {
        (void)event_record(device, (cgp_queue)q, event);
        (void)event_sync(event);
    }
    event_destroy(event);
    return cgp__late_failure_of(&device->failure);
}

typedef struct span {
    void *at;
    size_t bytes;
} span;

static cgp_status run_discard(void *device, const void *payload) {
    const span *c = payload;
    (void)device;
    memset(c->at, 0xff, c->bytes); /* NaN */
    return CGP_OK;
}

static cgp_status discard(cgp_device *device, cgp_queue queue, void *at, size_t bytes) {
    const span c = {at, bytes};
    CGP_TRY(cgp__late_check_not_capturing(device, "discard"));
    CGP_TRY(cgp__late_check_place("discard", (cgp_place){device, at}, bytes));
    return cgp__late_queue_add(&device->queues[queue], run_discard, &c, sizeof c, false);
}

static int64_t tag_in_progress(const cgp_device *device, bool *failed) {
    const int64_t tag = atomic_load_explicit(&device->failed_tag, memory_order_relaxed);
    *failed = tag >= 0;
    return *failed ? tag : atomic_load_explicit(&device->tag, memory_order_relaxed);
}

const cgp_backend_streams cgp__late_streams = {
    .struct_size = sizeof cgp__late_streams,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .event_time = event_time,
    .tag_in_progress = tag_in_progress,
    .finish = finish,
    .discard = discard,
};
