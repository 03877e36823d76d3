/* SPDX-License-Identifier: Apache-2.0 */
/* measured.h -- measurements of a device: its memory, the events of its trace and the times of its
 * kernels. Each rank measures its own devices, and exchanges bring the results of other ranks. */
#ifndef CGP_SRC_PIPELINE_RUN_MEASURED_H
#define CGP_SRC_PIPELINE_RUN_MEASURED_H

#include "base/trace.h"

/* Total time of one of a node's kernels, over full micro-batches. */
typedef struct cgp__node_time {
    int64_t ns, runs;
} cgp__node_time;

typedef struct cgp__measured {
    /* Bytes allocated on the device. Written by the device's worker when it creates the device; for
     * a device of another rank, by the caller's thread. */
    int64_t bytes;
    /* Written by the worker, read by any thread; for a device of another rank, written by the
     * caller's thread. */
    cgp__trace trace;
    int64_t trace_start; /* trace.written when the last run began */
    /* [nodes x directions] The caller's thread allocates it between runs, and the worker adds to
     * it; NULL: times are not measured (layer_times.c) */
    cgp__node_time *node_times;
} cgp__measured;

/* Return the number of events of the last run. */
static inline int64_t cgp__measured_events(const cgp__measured *measured) {
    return cgp__trace_written(&measured->trace) - measured->trace_start;
}

/* Free what the struct refers to. A second call has no effect. */
void cgp__measured_release(cgp__measured *measured);

#endif
