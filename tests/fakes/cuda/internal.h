/* SPDX-License-Identifier: Apache-2.0 */
/* internal.h -- functions that the files of the fake runtime share. */
#ifndef CGP_TESTS_FAKES_CUDA_INTERNAL_H
#define CGP_TESTS_FAKES_CUDA_INTERNAL_H

#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Call at the start of a runtime call: return an injected failure, or the current device's failure,
 * if any. */
cudaError_t cgp__shim_enter(void);
/* Do the same as cgp__shim_enter(), for another device. */
cudaError_t cgp__shim_enter_on(int device);
/* Call at the end of a runtime call: keep its error for cudaGetLastError(). */
cudaError_t cgp__shim_leave(cudaError_t error);

/* Return the failure of a device, which its first failed work item set. */
cudaError_t cgp__shim_failure(int device);
void cgp__shim_fail_device(int device, cudaError_t error);
/* Return the failure injected for this work item, if any. */
cudaError_t cgp__shim_next_work(void);
/* Return whether to drop the next captured node. */
bool cgp__shim_drops_node(void);

int cgp__shim_current_device(void);

/* Count an object: 1 when it is created, -1 when it is destroyed. */
void cgp__shim_count_object(int change);

/* Note a kernel launch on a device. The second function returns whether there ever was a launch. */
void cgp__shim_note_launch(int device);
bool cgp__shim_has_launched(int device);

/* Return the device that owns memory. PINNED: host memory of cudaHostAlloc(); PAGEABLE: other
 * memory. */
enum { CGP__SHIM_PINNED = -1, CGP__SHIM_PAGEABLE = -2 };
int cgp__shim_owner(const void *at, size_t bytes);

/* Wait for all work of a device. */
void cgp__shim_drain(int device);

uint64_t cgp__shim_random(uint64_t *state);

/* Abort with a message that names the running block. */
void cgp__shim_die(const char *why) __attribute__((noreturn));
/* Return the number of the running CUDA thread in its block. */
int cgp__shim_thread_number(void);

/* shared.c: create the dynamic shared memory of this host thread's next grid; fill it before a
 * block; check its guards after a block. */
void cgp__shim_shared_create(size_t bytes);
void cgp__shim_shared_begin(void);
void cgp__shim_shared_end(void);
/* Abort unless the CUDA thread that ends has waited for its asynchronous copies. */
void cgp__shim_copy_end(void);
/* Return whether a launch of the function on the current device may have so many bytes. */
bool cgp__shim_shared_allowed(const void *function, size_t bytes);

/* graphs.c: return whether this thread captures the stream. */
bool cgp__shim_captures(cudaStream_t stream);
/* Fail a call that is illegal while this thread captures, and invalidate the capture. */
cudaError_t cgp__shim_refuse_capture(void);
/* Drop the capture of a stream that is destroyed. */
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
