/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h -- traces, which hold the times of actions. A trace is a ring buffer of events; each
 * worker writes its own trace without a lock. Other threads may read all events while the worker is
 * idle. At any other time they may read events below `written`, but must not use an event that was
 * overwritten meanwhile. */
#ifndef CGP_SRC_BASE_TRACE_H
#define CGP_SRC_BASE_TRACE_H

#include <stdatomic.h>

#include "base/base.h"

typedef struct cgp__event {
    int64_t start_ns, end_ns; /* times of cgp__now_ns() */
    /* For a transfer: the time at which the other side released the buffer (0: the buffer was never
     * in use), and the time at which this side had the buffer. For any other action: 0 and
     * start_ns or, on an asynchronous device, the time at which the device began. */
    int64_t released_ns, ready_ns;
    int kind, stage, microbatch;
} cgp__event;

typedef struct cgp__trace {
    cgp__event *events;
    int64_t capacity;        /* number of events that the ring holds, a power of two; new events
                              * overwrite the oldest */
    _Atomic int64_t written; /* number of events since creation; event k is events[k % capacity] */
} cgp__trace;

/* Let the ring hold at least `capacity` events. The ring never shrinks. When it grows, its events
 * are lost, but `written` still counts them. */
cgp_status cgp__trace_reserve(cgp__trace *trace, int64_t capacity);
void cgp__trace_release(cgp__trace *trace);

/* Return the number of events so far, all of which are complete. */
static inline int64_t cgp__trace_written(const cgp__trace *trace) {
    return atomic_load_explicit(&trace->written, memory_order_acquire);
}

static inline const cgp__event *cgp__trace_event(const cgp__trace *trace, int64_t k) {
    return &trace->events[k & (trace->capacity - 1)];
}

static inline void cgp__trace_add(cgp__trace *trace, cgp__event event) {
    const int64_t k = atomic_load_explicit(&trace->written, memory_order_relaxed);
    trace->events[k & (trace->capacity - 1)] = event;
    atomic_store_explicit(&trace->written, k + 1, memory_order_release);
}

#endif
