/* SPDX-License-Identifier: Apache-2.0 */
/* work.h -- work items, which streams and graphs of the fake runtime use. */
#ifndef CGP_TESTS_FAKES_CUDA_WORK_H
#define CGP_TESTS_FAKES_CUDA_WORK_H

#include "internal.h"

/* A function that runs a work item. `payload` is the item's copy of the payload. */
typedef cudaError_t cgp__shim_run(const void *payload);

typedef struct cgp__shim_work {
    struct cgp__shim_work *next;
    cgp__shim_run *run;
    size_t bytes;
    bool always; /* run after a failure too, as events must so that waits for them end */
    _Alignas(16) char payload[];
} cgp__shim_work;

/* Create a work item with a copy of the payload. Return NULL if out of memory. */
cgp__shim_work *cgp__shim_make_work(cgp__shim_run *run, bool always, const void *payload,
                                    size_t bytes);
/* Enqueue work on a stream of the current device. The stream takes ownership of `work`. */
cudaError_t cgp__shim_enqueue(cudaStream_t stream, cgp__shim_work *work);

/* Enqueue or capture work, with a copy of its payload. If `always` is true, enqueue the work even
 * during a capture, because records and waits are not captured as nodes. */
cudaError_t cgp__shim_add(cudaStream_t stream, cgp__shim_run *run, bool always, const void *payload,
                          size_t bytes);

/* Return the device of a stream; for stream NULL, the current device. */
int cgp__shim_device_of(cudaStream_t stream);
/* cgp__shim_branch_of() returns the stream that runs branch `i` of graphs launched in `stream`.
 * `stream` itself runs branch 0. Other streams are created at first use. Return NULL if out of
 * memory. */
enum { CGP__SHIM_BRANCHES = 3 };
cudaStream_t cgp__shim_branch_of(cudaStream_t stream, int i);

/* events.c: enqueue a record of an event, or a wait for the event's last record, even during a
 * capture. */
cudaError_t cgp__shim_enqueue_record(cudaStream_t stream, cudaEvent_t event);
cudaError_t cgp__shim_enqueue_wait(cudaStream_t stream, cudaEvent_t event);
cudaError_t cgp__shim_new_event(cudaEvent_t *event);

/* A record that was captured. `capture` is the number of the capture; 0 means that there is no such
 * record. */
typedef struct cgp__shim_captured_record {
    uint64_t capture;
    int number;
} cgp__shim_captured_record;

/* graphs.c: add work of a stream to the capture of that stream. The capture takes ownership of
 * `work`. */
cudaError_t cgp__shim_capture(cudaStream_t stream, cgp__shim_work *work);
/* Add a record of an event, or a wait for such a record, to a capture. A stream that waits for a
 * captured record is captured from then on. */
cudaError_t cgp__shim_capture_record(cudaStream_t stream, cgp__shim_captured_record *record);
cudaError_t cgp__shim_capture_wait(cudaStream_t stream, const cgp__shim_captured_record *record);

#endif
