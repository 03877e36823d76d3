/* SPDX-License-Identifier: Apache-2.0 */
/* trace.c -- the event ring. */
#include "trace/trace.h"

#include <stdlib.h>

cgp_status cgp__trace_reserve(cgp__trace *trace, int64_t capacity) {
    int64_t room = 256;
    while (room < capacity)
        room *= 2;
    if (room <= trace->capacity) return CGP_OK;
    cgp__event *events = cgp__calloc((size_t)room, sizeof *events);
    if (!events) return cgp__no_memory("trace", (size_t)room * sizeof *events);
    free(trace->events);
    *trace = (cgp__trace){events, room, 0};
    return CGP_OK;
}

void cgp__trace_release(cgp__trace *trace) {
    free(trace->events);
    *trace = (cgp__trace){NULL, 0, 0};
}
