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

/* Add work to the current capture. `work` is taken. */
cudaError_t cgp__shim_capture(cgp__shim_work *work);
#endif
