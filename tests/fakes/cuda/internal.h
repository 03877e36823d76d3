/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h -- functions that the files of the fake runtime share. */
#ifndef CGP_TESTS_FAKES_CUDA_INTERNAL_H
#define CGP_TESTS_FAKES_CUDA_INTERNAL_H

#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each runtime call begins with this function. Return an injected failure, or the current device's
 * failure, if any. */
cudaError_t cgp__shim_enter(void);
/* Do the same as cgp__shim_enter() for a given device. */
cudaError_t cgp__shim_enter_on(int device);
/* Each runtime call ends with this function. Keep the call's error for cudaGetLastError(), and
 * return it. */
cudaError_t cgp__shim_leave(cudaError_t error);

/* Return the failure of a device: the failure of its first failed work item. */
cudaError_t cgp__shim_failure(int device);
void cgp__shim_fail_device(int device, cudaError_t error);
/* Return the failure that is injected for the next work item, if any. */
cudaError_t cgp__shim_next_work(void);
/* Return whether the next captured node must be dropped (setting `drop_node`). */
bool cgp__shim_drops_node(void);

int cgp__shim_current_device(void);

/* Count an object: 1 when it is created, -1 when it is destroyed. */
void cgp__shim_count_object(int change);

/* The first function records a kernel launch on a device. The second function returns whether any
 * kernel was launched on the device. */
void cgp__shim_note_launch(int device);
bool cgp__shim_has_launched(int device);

/* cgp__shim_owner() returns the device that owns memory. It returns PINNED for host memory of
 * cudaHostAlloc(), and PAGEABLE for other memory. */
enum { CGP__SHIM_PINNED = -1, CGP__SHIM_PAGEABLE = -2 };
int cgp__shim_owner(const void *at, size_t bytes);

/* Wait for all work of a device. */
void cgp__shim_drain(int device);

uint64_t cgp__shim_random(uint64_t *state);

/* Abort with a message that names the running block. */
void cgp__shim_die(const char *why) __attribute__((noreturn));
/* Return the number of the running CUDA thread in its block. */
int cgp__shim_thread_number(void);

/* shared.c: create the dynamic shared memory for this host thread's next grid. Fill this memory
 * before a block. Check its guards after a block. */
void cgp__shim_shared_create(size_t bytes);
void cgp__shim_shared_begin(void);
void cgp__shim_shared_end(void);
/* This function is called when a CUDA thread ends. Abort unless the thread has waited for its
 * asynchronous copies. */
void cgp__shim_copy_end(void);
/* Return whether a launch of `function` on the current device may have `bytes` bytes of dynamic
 * shared memory. */
bool cgp__shim_shared_allowed(const void *function, size_t bytes);

/* graphs.c: return whether this thread captures the stream. */
bool cgp__shim_captures(cudaStream_t stream);
/* Fail a call that is illegal while this thread captures, and invalidate the capture. */
cudaError_t cgp__shim_refuse_capture(void);
/* Drop the capture, if any, of a stream that is being destroyed. */
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
