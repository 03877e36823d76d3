/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- a GPU of CUDA: its streams, and failures with names. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const cgp_host *cgp__cuda_host;

/* The ordinal that this thread has made current. */
static _Thread_local int current = -1;

cudaError_t cgp__cuda_use(int ordinal) {
    if (current == ordinal) return cudaSuccess;
    const cudaError_t error = cudaSetDevice(ordinal);
    if (error == cudaSuccess)
        current = ordinal;
    else
        (void)cudaGetLastError(); /* said here, not by the next launch */
    return error;
}

/* --- failures --- */

cgp_status cgp__cuda_failure(cgp_device *device) {
    char message[sizeof device->message];
    pthread_mutex_lock(&device->lock);
    const cgp_status status = device->failed;
    if (status != CGP_OK) snprintf(message, sizeof message, "%s", device->message);
    pthread_mutex_unlock(&device->lock);
    return status == CGP_OK ? status : cgp__cuda_host->fail(status, "%s", message);
}

cgp_status cgp__cuda_begin(cgp_device *device) {
    CGP__CUDA_TRY(cgp__cuda_failure(device));
    return cgp__cuda_end(device, cgp__cuda_use(device->ordinal), "cudaSetDevice");
}

cgp_status cgp__cuda_end(cgp_device *device, cudaError_t error, const char *format, ...) {
    if (error == cudaSuccess) return CGP_OK;
    (void)cudaGetLastError();
    pthread_mutex_lock(&device->lock);
    if (device->failed == CGP_OK) {
        char what[128];
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(what, sizeof what, format, arguments);
        va_end(arguments);
        device->failed = CGP_EDEVICE;
        snprintf(device->message, sizeof device->message, CGP__CUDA_NAME ": device %d: %s: %s",
                 device->ordinal, what, cudaGetErrorString(error));
    }
    pthread_mutex_unlock(&device->lock);
    return cgp__cuda_failure(device);
}

cgp_status cgp__cuda_no_memory(cgp_device *device, cudaError_t error, const char *what,
                               size_t bytes) {
    if (error != cudaErrorMemoryAllocation)
        return cgp__cuda_end(device, error, "%s of %zu bytes", what, bytes);
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": device %d: %s of %zu bytes: %s",
                                device->ordinal, what, bytes, cudaGetErrorString(error));
}

/* --- devices --- */

cgp_status cgp__cuda_count(int *count) {
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaSuccess && *count == 0) error = cudaErrorNoDevice;
    if (error == cudaSuccess) return CGP_OK;
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_EDEVICE, CGP__CUDA_NAME ": no GPU: %s",
                                cudaGetErrorString(error));
}

static cgp_status check_ordinal(int ordinal) {
    int n = 0;
    CGP__CUDA_TRY(cgp__cuda_count(&n));
    if (ordinal >= 0 && ordinal < n) return CGP_OK;
    return cgp__cuda_host->fail(CGP_EINVAL, CGP__CUDA_NAME ": expected ordinal 0 to %d, got %d",
                                n - 1, ordinal);
}

cgp_status cgp__cuda_memory(int ordinal, int64_t *bytes) {
    size_t available = 0, total = 0;
    CGP__CUDA_TRY(check_ordinal(ordinal));
    cudaError_t error = cgp__cuda_use(ordinal);
    if (error == cudaSuccess) error = cudaMemGetInfo(&available, &total);
    *bytes = (int64_t)available;
    if (error == cudaSuccess) return CGP_OK;
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_EDEVICE, CGP__CUDA_NAME ": device %d: its memory: %s",
                                ordinal, cudaGetErrorString(error));
}

static cgp_status create_parts(cgp_device *device) {
    const size_t bytes = CGP__CUDA_PARTIALS * sizeof(double);
    CGP__CUDA_TRY(cgp__cuda_begin(device));
    for (int q = 0; q < CGP_QUEUES; q++)
        CGP__CUDA_TRY(cgp__cuda_end(
            device, cudaStreamCreateWithFlags(&device->streams[q], cudaStreamNonBlocking),
            "a stream"));
    CGP__CUDA_TRY(cgp__cuda_no_memory(device, cudaMalloc(&device->partials, bytes),
                                      "memory for sums", bytes));
    CGP__CUDA_TRY(cgp__cuda_end(
        device, cudaEventCreateWithFlags(&device->base, cudaEventDefault), "an event"));
    return cgp__cuda_end(device, cgp__cuda_set_base(device), "its clock");
}

cgp_status cgp__cuda_device_create(cgp_device **out, const cgp_device_options *options) {
    CGP__CUDA_TRY(check_ordinal(options->ordinal));
    cgp_device *device = calloc(1, sizeof *device);
    if (!device)
        return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": device: out of memory");
    device->ordinal = options->ordinal;
    pthread_mutex_init(&device->lock, NULL);
    const cgp_status status = create_parts(device);
    if (status == CGP_OK)
        *out = device;
    else
        cgp__cuda_device_destroy(device);
    return status;
}

void cgp__cuda_device_destroy(cgp_device *device) {
    (void)cgp__cuda_use(device->ordinal);
    for (int q = 0; q < CGP_QUEUES; q++) {
        if (!device->streams[q]) continue;
        (void)cudaStreamSynchronize(device->streams[q]);
        (void)cudaStreamDestroy(device->streams[q]);
    }
    cgp__cuda_lt_destroy(device->lt);
    if (device->base) (void)cudaEventDestroy(device->base);
    (void)cudaFree(device->partials);
    (void)cudaGetLastError();
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* After a failure, too: nothing touches memory any more when it returns. */
cgp_status cgp__cuda_finish(cgp_device *device) {
    enum { BASE_NS = 1000000000 }; /* a float of milliseconds has 60 ns then */
    cudaError_t first = cgp__cuda_use(device->ordinal);
    for (int q = 0; q < CGP_QUEUES; q++) {
        const cudaError_t error = cudaStreamSynchronize(device->streams[q]);
        if (first == cudaSuccess) first = error;
    }
    CGP__CUDA_TRY(cgp__cuda_end(device, first, "work of its streams"));
    CGP__CUDA_TRY(cgp__cuda_failure(device));
    if (cgp__cuda_host->now_ns() - device->base_ns < BASE_NS) return CGP_OK;
    return cgp__cuda_end(device, cgp__cuda_set_base(device), "its clock");
}
