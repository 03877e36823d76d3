/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h -- what the files of the stand-in runtime share. */
#ifndef CGP_SRC_CUDA_HOST_INTERNAL_H
#define CGP_SRC_CUDA_HOST_INTERNAL_H

#include "backend/cuda/host/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CGP__SHIM_MAX_DEVICES = 64 };

/* Begin of a call: the failure that is due, or that of the current device, which sticks. */
cudaError_t cgp__shim_enter(void);
/* The same, of another device. */
cudaError_t cgp__shim_enter_on(int device);
/* End of a call: keep its error for cudaGetLastError(). */
cudaError_t cgp__shim_leave(cudaError_t error);

/* The failure of a device; that of its first piece of work that failed. */
cudaError_t cgp__shim_failure(int device);
void cgp__shim_fail_device(int device, cudaError_t error);
/* The failure of a piece of work that is due. */
cudaError_t cgp__shim_next_work(void);
/* Return whether the next node of a graph is to be missing. */
bool cgp__shim_drops_node(void);

int cgp__shim_current_device(void);

/* An object is made, 1, or goes, -1. */
void cgp__shim_count_object(int change);

/* A kernel has been launched on the device, now or ever. */
void cgp__shim_note_launch(int device);
bool cgp__shim_has_launched(int device);

/* The device that memory belongs to; PINNED: of the host, by cudaHostAlloc(); PAGEABLE: other
 * memory. */
enum { CGP__SHIM_PINNED = -1, CGP__SHIM_PAGEABLE = -2 };
int cgp__shim_owner(const void *at, size_t bytes);

/* Wait for all work of a device. */
void cgp__shim_drain(int device);

uint64_t cgp__shim_random(uint64_t *state);

/* graphs.c: return whether this thread captures the stream. */
bool cgp__shim_captures(cudaStream_t stream);
/* A call that is not allowed while this thread captures, and then makes the capture void. */
cudaError_t cgp__shim_refuse_capture(void);
/* A stream goes. */
void cgp__shim_drop_capture(cudaStream_t stream);

#define CGP__SHIM_TRY(call)                                                                        \
    do {                                                                                           \
        const cudaError_t error_ = (call);                                                         \
        if (error_ != cudaSuccess) return cgp__shim_leave(error_);                                 \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
