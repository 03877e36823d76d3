/* SPDX-License-Identifier: Apache-2.0 */
/* work.h -- work items, shared by streams and graphs of the fake runtime. */
#ifndef CGP_TESTS_FAKES_CUDA_WORK_H
#define CGP_TESTS_FAKES_CUDA_WORK_H

#include "internal.h"

/* Run a work item with a copy of its payload. */
typedef cudaError_t cgp__shim_run(const void *payload);

typedef struct cgp__shim_work {
    struct cgp__shim_work *next;
    cgp__shim_run *run;
    size_t bytes;
    bool always; /* run even after a failure, as events must, or waits for them would not end */
    _Alignas(16) char payload[];
} cgp__shim_work;

/* Create a work item. NULL: out of memory. */
cgp__shim_work *cgp__shim_make_work(cgp__shim_run *run, bool always, const void *payload,
                                    size_t bytes);
/* Enqueue work on a stream of the current device. `work` is taken. */
cudaError_t cgp__shim_enqueue(cudaStream_t stream, cgp__shim_work *work);

/* Enqueue or capture work, with a copy of its payload. With `always`, enqueue it even during a
 * capture: events cannot be captured. */
cudaError_t cgp__shim_add(cudaStream_t stream, cgp__shim_run *run, bool always, const void *payload,
                          size_t bytes);

/* Return the device of a stream; NULL: the current device. */
int cgp__shim_device_of(cudaStream_t stream);
/* Return the stream that runs branch i of the graphs launched in a stream, which is branch 0. It is
 * created at first use. NULL: out of memory. */
enum { CGP__SHIM_BRANCHES = 3 };
cudaStream_t cgp__shim_branch_of(cudaStream_t stream, int i);

/* events.c: enqueue a record of an event, and a wait for its last record, even during a capture. */
cudaError_t cgp__shim_enqueue_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t cgp__shim_enqueue_wait(cudaStream_t stream, cudaEvent_t event);
cudaError_t cgp__shim_new_event(cudaEvent_t *event);

/* A record that a capture has taken; capture 0: none. */
typedef struct cgp__shim_captured_record {
    uint64_t capture;
    int number;
} cgp__shim_captured_record;

/* graphs.c: add work of a stream to its capture; `work` is taken. */
cudaError_t cgp__shim_capture(cudaStream_t stream, cgp__shim_work *work);
/* Add a record of an event, and a wait for such a record. A stream that waits for a record of a
 * capture is captured too. */
cudaError_t cgp__shim_capture_record(cudaStream_t stream, cgp__shim_captured_record *record);
cudaError_t cgp__shim_capture_wait(cudaStream_t stream, const cgp__shim_captured_record *record);

#endif
