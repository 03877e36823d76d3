/* SPDX-License-Identifier: Apache-2.0 */
/* work.h -- what streams and graphs of the stand-in runtime share. */
#ifndef CGP_SRC_CUDA_HOST_WORK_H
#define CGP_SRC_CUDA_HOST_WORK_H

#include "backend/cuda/host/internal.h"

/* A piece of a stream's work: runs with a copy of its payload. */
typedef cudaError_t cgp__shim_run(const void *payload);

typedef struct cgp__shim_work {
    struct cgp__shim_work *next;
    cgp__shim_run *run;
    size_t bytes;
    bool always; /* also after a failure: events, or others would wait for ever */
    _Alignas(16) char payload[];
} cgp__shim_work;

/* NULL: out of memory. */
cgp__shim_work *cgp__shim_make_work(cgp__shim_run *run, bool always, const void *payload,
                                    size_t bytes);
/* Enqueue work that was made, of a stream of the current device; it is taken. */
cudaError_t cgp__shim_enqueue(cudaStream_t stream, cgp__shim_work *work);

/* Take work that a captured stream gets. */
cudaError_t cgp__shim_capture(cgp__shim_work *work);
#endif
