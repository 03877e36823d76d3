/* SPDX-License-Identifier: Apache-2.0 */
/* device.h -- internals shared by the C files of the backend. */
#ifndef CGP_SRC_CUDA_DEVICE_H
#define CGP_SRC_CUDA_DEVICE_H

#include <pthread.h>

#include "backend/cuda/cuda.h"

#ifdef CGP_CUDA_HOST
#define CGP__CUDA_NAME "cuda-host"
#else
#define CGP__CUDA_NAME "cuda"
#endif

/* Return from the function if a cgp_status is not CGP_OK. This is a copy of the library's CGP_TRY,
 * which plug-ins cannot use. For a cudaError_t, use CGP__TRY_CUDA_ERROR. */
#define CGP__TRY_STATUS(call)                                                                      \
    do {                                                                                           \
        const cgp_status status_ = (call);                                                         \
        if (status_ != CGP_OK) return status_;                                                     \
    } while (0)

enum { CGP__CUDA_ORDINALS = 1024 };

struct cgp_device {
    int ordinal;
    cudaStream_t streams[CGP_QUEUES], branch;
    cudaEvent_t forked, joined; /* forked: last event of COMPUTE for which the branch waits. joined:
                                 * last event of the branch for which COMPUTE waits. */
    bool open;                  /* true: no join has followed the last fork */
    void *partials;             /* scratch memory of sums and searches; the semaphores follow it */
    cgp__cuda_resources resources, branch_resources; /* resources for kernels of COMPUTE, and for
                                                      * kernels of the branch */
    struct cgp__cuda_lt *lt;                         /* cuBLASLt; NULL: not opened yet, or absent */
    /* Event times are relative to the last record of `base`, which completed at base_ns on the
     * host's clock. */
    cudaEvent_t base;
    int64_t base_ns;
    uint64_t bases;                          /* number of records of `base` */
    uint64_t asked[CGP__CUDA_ORDINALS / 64]; /* one bit per ordinal, set if peer access to it was
                                              * tried */
    /* The thread's counts of launches and library calls when the current capture began. */
    int64_t launches, libraries;
    /* The lock guards the device's first failure, because other threads may call event_sync(). */
    pthread_mutex_t lock;
    cgp_status failed;
    char message[256];
};

struct cgp_kernel {
    cgp_device *device;
    cgp_kernel_spec spec;
    cgp__cuda_run *run;
    struct cgp__cuda_lt_gemm *gemm; /* GEMM of cuBLASLt; NULL: `run` computes the op */
};

/* Make an ordinal current in this thread. */
cudaError_t cgp__cuda_use(int ordinal);
/* Forget the current ordinal, because the application may have changed it. */
void cgp__cuda_forget_device(void);
/* Make an ordinal current if this thread has no current ordinal. Otherwise CUDA would create a
 * context on the first GPU. */
cudaError_t cgp__cuda_use_any(int ordinal);

/* Return the device's first failure and set its message. */
cgp_status cgp__cuda_failure(cgp_device *device);

/* Make the resources of the branch current, until the next cgp__cuda_set_device(). */
void cgp__cuda_use_branch(const cgp_device *device);

/* Functions of the backend call this function first. If the device has failed, return its failure.
 * Otherwise make the device's ordinal current in this thread. */
cgp_status cgp__cuda_set_device(cgp_device *device);

/* Check the result of a CUDA call. An error becomes the device's failure, with a message from
 * `format`, unless the device has already failed. */
cgp_status cgp__cuda_check(cgp_device *device, cudaError_t error, const char *format, ...)
    CGP_PRINTF(3, 4);

/* Call cudaMalloc() or cudaFree() on an ordinal, and count the bytes for
 * cgp__cuda_driver_bytes(). */
cudaError_t cgp__cuda_allocate(int ordinal, void **memory, size_t bytes);
cudaError_t cgp__cuda_free(int ordinal, void *memory, size_t bytes);

/* Report a failed allocation. Running out of memory is not kept as the device's failure. */
cgp_status cgp__cuda_no_memory(cgp_device *device, cudaError_t error, const char *what,
                               size_t bytes);

/* hardware.c: check that an ordinal exists and that its compute capability runs the kernels. */
cgp_status cgp__cuda_check_usable(int ordinal);
cgp_status cgp__cuda_memory_info(int ordinal, size_t *available, size_t *total);

/* Report an error that is not kept as the device's failure. Such an error comes from a query about
 * an ordinal, or from sharing memory with another process. If memory cannot be shared, messages
 * take another path. */
cgp_status cgp__cuda_refused(int ordinal, cudaError_t error, const char *what);

/* --- functions of the backend's table --- */

cgp_status cgp__cuda_count(int *count);
cgp_status cgp__cuda_memory(int ordinal, int64_t *bytes);
cgp_status cgp__cuda_driver_bytes(int ordinal, int64_t *bytes);
cgp_status cgp__cuda_identity(int ordinal, char *text, size_t size);
cgp_status cgp__cuda_numerics(int ordinal, cgp_dtype type, bool tf32, char *text, size_t size);
cgp_status cgp__cuda_device_create(cgp_device **out, const cgp_device_options *options);
void cgp__cuda_device_destroy(cgp_device *device);
cgp_status cgp__cuda_finish(cgp_device *device);

cgp_status cgp__cuda_memory_create(cgp_device *device, size_t bytes, void **out);
void cgp__cuda_memory_destroy(cgp_device *device, void *memory, size_t bytes);
cgp_status cgp__cuda_host_memory_create(cgp_device *device, size_t bytes, void **out);
void cgp__cuda_host_memory_destroy(cgp_device *device, void *memory, size_t bytes);
cgp_status cgp__cuda_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                          size_t bytes);
int cgp__cuda_ordinal_of(const cgp_device *device, const void *address);

cgp_status cgp__cuda_memory_export(cgp_device *device, void *memory, cgp_shared_handle *out);
cgp_status cgp__cuda_memory_import(cgp_device *device, const cgp_shared_handle *handle, void **out);
void cgp__cuda_memory_close(cgp_device *device, void *memory);
cgp_status cgp__cuda_event_export(cgp_device *device, cgp_event **out, cgp_shared_handle *handle);
cgp_status cgp__cuda_event_import(cgp_device *device, const cgp_shared_handle *handle,
                                  cgp_event **out);

cgp_status cgp__cuda_event_create(cgp_device *device, cgp_event **out);
void cgp__cuda_event_destroy(cgp_event *event);
cgp_status cgp__cuda_event_record(cgp_device *device, cgp_queue queue, cgp_event *event);
cgp_status cgp__cuda_event_wait(cgp_device *device, cgp_queue queue, cgp_event *event);
cgp_status cgp__cuda_fork(cgp_device *device);
cgp_status cgp__cuda_join(cgp_device *device);
cgp_status cgp__cuda_event_done(cgp_event *event, bool *done);
cgp_status cgp__cuda_event_sync(cgp_event *event);
int64_t cgp__cuda_event_time(cgp_event *event);
/* Record `base` again; the device must be idle. */
cudaError_t cgp__cuda_set_base(cgp_device *device);

cgp_status cgp__cuda_workspace(const cgp_device_options *options, const cgp_kernel_spec *spec,
                               int64_t *bytes);
cgp_status cgp__cuda_prepare(cgp_device *device, const cgp_kernel_spec *specs, int n, int n_own);
cgp_status cgp__cuda_kernel_create(cgp_device *device, const cgp_kernel_spec *spec,
                                   cgp_kernel **out);
cgp_status cgp__cuda_kernel_run(cgp_kernel *kernel, const cgp_kernel_args *args);
void cgp__cuda_kernel_destroy(cgp_kernel *kernel);

cgp_status cgp__cuda_capture_begin(cgp_device *device);
cgp_status cgp__cuda_capture_end(cgp_device *device, cgp_captured_graph **out);
cgp_status cgp__cuda_graph_launch(cgp_captured_graph *graph, int64_t tag);
void cgp__cuda_graph_destroy(cgp_captured_graph *graph);
int64_t cgp__cuda_launches(const cgp_device *device);

#endif
