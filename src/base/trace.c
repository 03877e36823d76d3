/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c -- implements trace.h: allocates a worker's ring of events. */
#include "base/trace.h"

#include <stdlib.h>

cgp_status cgp__trace_reserve(cgp__trace *trace, int64_t capacity) {
    int64_t rounded = 256;
    while (rounded < capacity)
        rounded *= 2;
    if (rounded <= trace->capacity) return CGP_OK;
    cgp__event *events = cgp__calloc((size_t)rounded, sizeof *events);
    if (!events) return cgp__no_memory("trace", (size_t)rounded * sizeof *events);
    free(trace->events);
    trace->events = events;
    trace->capacity = rounded;
    return CGP_OK;
}

void cgp__trace_release(cgp__trace *trace) {
    free(trace->events);
    *trace = (cgp__trace){NULL, 0, 0};
}
