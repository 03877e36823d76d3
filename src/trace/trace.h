/* trace.h -- what ran when: a ring of events per worker, written without a lock by its owner,
 * read when it is idle. */
#ifndef CGP_SRC_TRACE_H
#define CGP_SRC_TRACE_H

#include "base/base.h"

typedef struct cgp__event {
    int64_t start_ns, end_ns; /* cgp__now_ns() */
    int kind, stage, microbatch;
} cgp__event;

typedef struct cgp__trace {
    cgp__event *events;
    int64_t capacity; /* a power of two; older events are overwritten */
    int64_t written;  /* since creation: event k is events[k % capacity] */
} cgp__trace;

/* Room for at least `capacity` events. Grows only: events already there are lost. */
cgp_status cgp__trace_reserve(cgp__trace *trace, int64_t capacity);
void cgp__trace_release(cgp__trace *trace);

static inline void cgp__trace_add(cgp__trace *trace, cgp__event event) {
    trace->events[trace->written++ & (trace->capacity - 1)] = event;
}

#endif
