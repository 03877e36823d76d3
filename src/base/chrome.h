/* SPDX-License-Identifier: Apache-2.0 */
/* chrome.h -- writes trace events as JSON, for ui.perfetto.dev and chrome://tracing.
 *
 *     {"displayTimeUnit":"ms","traceEvents":[
 *     {"ph":"M","pid":0,"tid":0,"name":"process_name","args":{"name":"device 0"}},
 *     {"ph":"X","pid":0,"tid":0,"ts":0.0,"dur":1000.0,"name":"0F0","cat":"F","args":{...}},
 *     ...
 *     ]}
 *
 * Each line has one event; times are in microseconds. After a failure, further calls write no
 * events, and cgp__chrome_end() returns the failure.
 *
 * Source: "Trace Event Format", the Chromium project. */
#ifndef CGP_SRC_BASE_CHROME_H
#define CGP_SRC_BASE_CHROME_H

#include "base/base.h"

typedef struct cgp__chrome {
    FILE *file; /* borrowed */
    bool begun;
    cgp_status status;
} cgp__chrome;

void cgp__chrome_begin(cgp__chrome *trace, FILE *file);

/* Give process `pid` a name. Viewers sort processes by pid. */
void cgp__chrome_process(cgp__chrome *trace, int pid, const char *name);

/* Write a slice of thread `tid` in process `pid`. Viewers show the arguments when the user clicks
 * the slice. */
void cgp__chrome_slice(cgp__chrome *trace, int pid, int tid, const char *name, const char *category,
                       double start, double duration, int stage, int microbatch, bool critical);

/* Write a flow event: an arrow from a slice of one process to a slice of another process. `from`
 * and `to` are times within these slices. */
void cgp__chrome_flow(cgp__chrome *trace, int id, int from_pid, double from, int to_pid, double to);

/* Write the value that a counter of process `pid` takes at `time`. */
void cgp__chrome_counter(cgp__chrome *trace, int pid, const char *name, double time, int value);

/* End the JSON text. If `key` is not NULL, add `key` with the value `json` to the outermost object;
 * viewers ignore unknown keys. Return the first failure of all calls. */
cgp_status cgp__chrome_end(cgp__chrome *trace, const char *key, const char *json);

#endif
