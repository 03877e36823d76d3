/* SPDX-License-Identifier: Apache-2.0 */
/* device.c -- a CUDA device with its streams and memory, and its failure messages. A failure
 * message names the failed call. hardware.c describes GPUs before a device exists. */
#include "backend/cuda/device.h"
#include "backend/cuda/gemm_lt.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

const cgp_host *cgp__cuda_host;

/* The ordinal that this thread has made current. */
static _Thread_local int current = -1;

/* The resources of the device on which this thread last called a function. */
static _Thread_local const cgp__cuda_resources *resources;

const cgp__cuda_resources *cgp__cuda_current(void) {
    return resources;
}

cudaError_t cgp__cuda_use(int ordinal) {
    if (current == ordinal) return cudaSuccess;
    const cudaError_t error = cudaSetDevice(ordinal);
    if (error == cudaSuccess)
        current = ordinal;
    else
        (void)cudaGetLastError(); /* clear the error, because the next launch would return it
                                   * otherwise */
    return error;
}

void cgp__cuda_forget_device(void) {
    current = -1;
}

cudaError_t cgp__cuda_use_any(int ordinal) {
    return current >= 0 ? cudaSuccess : cgp__cuda_use(ordinal);
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

cgp_status cgp__cuda_set_device(cgp_device *device) {
    CGP__TRY_STATUS(cgp__cuda_failure(device));
    resources = &device->resources;
    return cgp__cuda_check(device, cgp__cuda_use(device->ordinal), "cudaSetDevice");
}

void cgp__cuda_use_branch(const cgp_device *device) {
    resources = &device->branch_resources;
}

cgp_status cgp__cuda_check(cgp_device *device, cudaError_t error, const char *format, ...) {
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
        return cgp__cuda_check(device, error, "%s of %zu bytes", what, bytes);
    (void)cudaGetLastError();
    return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": device %d: %s of %zu bytes: %s",
                                device->ordinal, what, bytes, cudaGetErrorString(error));
}

/* --- memory outside the plan --- */

/* Bytes that devices of this process have allocated on each ordinal. */
static pthread_mutex_t allocated_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t allocated[CGP__CUDA_ORDINALS];

static void count_bytes(int ordinal, int64_t bytes) {
    pthread_mutex_lock(&allocated_lock);
    allocated[ordinal] += bytes;
    pthread_mutex_unlock(&allocated_lock);
}

cudaError_t cgp__cuda_allocate(int ordinal, void **memory, size_t bytes) {
    const cudaError_t error = cudaMalloc(memory, bytes);
    if (error == cudaSuccess) count_bytes(ordinal, (int64_t)bytes);
    return error;
}

cudaError_t cgp__cuda_free(int ordinal, void *memory, size_t bytes) {
    if (!memory) return cudaSuccess;
    count_bytes(ordinal, -(int64_t)bytes);
    return cudaFree(memory);
}

cgp_status cgp__cuda_driver_bytes(int ordinal, int64_t *bytes) {
    size_t available = 0, total = 0;
    CGP__TRY_STATUS(cgp__cuda_memory_info(ordinal, &available, &total));
    pthread_mutex_lock(&allocated_lock);
    *bytes = (int64_t)(total - available) - allocated[ordinal];
    pthread_mutex_unlock(&allocated_lock);
    return CGP_OK;
}

/* --- a device --- */

/* Sizes of the device's own memory: scratch memory of sums, then semaphores of COMPUTE and of the
 * branch. */
enum {
    PARTIAL_BYTES = CGP__CUDA_PARTIALS * sizeof(double),
    OWN_BYTES = PARTIAL_BYTES + 2 * CGP__CUDA_SEMAPHORES * sizeof(int)
};

/* Allocate the device's own memory and clear it. Semaphores are never cleared again: a launch that
 * completes leaves them 0, and a launch that fails is the device's last one. */
static cgp_status create_own_memory(cgp_device *device) {
    CGP__TRY_STATUS(cgp__cuda_no_memory(
        device, cgp__cuda_allocate(device->ordinal, &device->partials, OWN_BYTES),
        "memory for sums and semaphores", OWN_BYTES));
    device->resources.semaphores = (int *)(void *)((char *)device->partials + PARTIAL_BYTES);
    device->branch_resources.semaphores = device->resources.semaphores + CGP__CUDA_SEMAPHORES;
    return cgp__cuda_check(
        device, cudaMemsetAsync(device->partials, 0, OWN_BYTES, device->streams[CGP_QUEUE_COMPUTE]),
        "clear %zu bytes", (size_t)OWN_BYTES);
}

static cgp_status create_stream(cgp_device *device, cudaStream_t *out) {
    return cgp__cuda_check(device, cudaStreamCreateWithFlags(out, cudaStreamNonBlocking),
                           "a stream");
}

static cgp_status create_event(cgp_device *device, cudaEvent_t *out, unsigned flags) {
    return cgp__cuda_check(device, cudaEventCreateWithFlags(out, flags), "an event");
}

static cgp_status create_parts(cgp_device *device) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    for (int q = 0; q < CGP_QUEUES; q++)
        CGP__TRY_STATUS(create_stream(device, &device->streams[q]));
    CGP__TRY_STATUS(create_stream(device, &device->branch));
    CGP__TRY_STATUS(create_event(device, &device->forked, cudaEventDisableTiming));
    CGP__TRY_STATUS(create_event(device, &device->joined, cudaEventDisableTiming));
    CGP__TRY_STATUS(create_own_memory(device));
    CGP__TRY_STATUS(
        cgp__cuda_check(device,
                        cudaDeviceGetAttribute(&device->resources.multiprocessors,
                                               cudaDevAttrMultiProcessorCount, device->ordinal),
                        "its multiprocessors"));
    device->branch_resources.multiprocessors = device->resources.multiprocessors;
    CGP__TRY_STATUS(create_event(device, &device->base, cudaEventDefault));
    return cgp__cuda_check(device, cgp__cuda_set_base(device), "its clock");
}

cgp_status cgp__cuda_device_create(cgp_device **out, const cgp_device_options *options) {
    CGP__TRY_STATUS(cgp__cuda_check_usable(options->ordinal));
    cgp_device *device = calloc(1, sizeof *device);
    if (!device) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": device: out of memory");
    device->ordinal = options->ordinal;
    pthread_mutex_init(&device->lock, NULL);
    const cgp_status status = create_parts(device);
    if (status == CGP_OK)
        *out = device;
    else
        cgp__cuda_device_destroy(device);
    return status;
}

static void destroy_stream(cudaStream_t stream) {
    if (!stream) return;
    (void)cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
}

static void destroy_event(cudaEvent_t event) {
    if (event) (void)cudaEventDestroy(event);
}

void cgp__cuda_device_destroy(cgp_device *device) {
    (void)cgp__cuda_use(device->ordinal);
    for (int q = 0; q < CGP_QUEUES; q++)
        destroy_stream(device->streams[q]);
    destroy_stream(device->branch);
    cgp__cuda_lt_destroy(device->lt);
    destroy_event(device->forked);
    destroy_event(device->joined);
    destroy_event(device->base);
    (void)cgp__cuda_free(device->ordinal, device->partials, OWN_BYTES);
    (void)cudaGetLastError();
    pthread_mutex_destroy(&device->lock);
    free(device);
}

/* Wait for all enqueued work. When this function returns, even after a failure, no such work
 * accesses memory. */
cgp_status cgp__cuda_finish(cgp_device *device) {
    enum { BASE_NS = 1000000000 }; /* 1 s; near 1000 ms, a float has a resolution of 60 ns */
    cudaError_t first = cgp__cuda_use(device->ordinal);
    for (int q = 0; q <= CGP_QUEUES; q++) {
        const cudaError_t error =
            cudaStreamSynchronize(q < CGP_QUEUES ? device->streams[q] : device->branch);
        if (first == cudaSuccess) first = error;
    }
    device->open = false;
    CGP__TRY_STATUS(cgp__cuda_check(device, first, "work of its streams"));
    CGP__TRY_STATUS(cgp__cuda_failure(device));
    if (cgp__cuda_host->now_ns() - device->base_ns < BASE_NS) return CGP_OK;
    return cgp__cuda_check(device, cgp__cuda_set_base(device), "its clock");
}
