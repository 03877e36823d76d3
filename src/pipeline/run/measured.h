/* SPDX-License-Identifier: Apache-2.0 */
/* measured.h -- measurements of a device: its memory, the events of its trace and the times of its
 * kernels. Each rank measures its own devices, and exchanges the results with other ranks. */
#ifndef CGP_SRC_PIPELINE_RUN_MEASURED_H
#define CGP_SRC_PIPELINE_RUN_MEASURED_H

#include "base/trace.h"

/* The total time of a node's kernel for one direction, over full micro-batches. */
typedef struct cgp__node_time {
    int64_t ns, runs;
} cgp__node_time;

typedef struct cgp__measured {
    /* Bytes allocated on the device. The device's worker writes this field when it creates the
     * device. For a device of another rank, the caller's thread writes it. */
    int64_t bytes;
    /* Events of the device's actions. The worker writes this trace; for a device of another rank,
     * the caller's thread does. Any thread may read it. */
    cgp__trace trace;
    int64_t trace_start;     /* value of trace.written when the last run began */
    int64_t exchange_end_ns; /* end of the last exchange of gradients with other replicas; 0: there
                              * was none. Written by the worker. */
    /* [nodes x directions] Times of kernels, allocated by the caller's thread between runs; the
     * worker adds to them. NULL: times are not measured (layer_times.c). */
    cgp__node_time *node_times;
} cgp__measured;

/* Return the number of events of the last run. */
static inline int64_t cgp__measured_events(const cgp__measured *measured) {
    return cgp__trace_written(&measured->trace) - measured->trace_start;
}

/* Free the memory to which the struct points. A second call has no effect. */
void cgp__measured_release(cgp__measured *measured);

#endif
