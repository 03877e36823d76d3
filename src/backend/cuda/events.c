/* SPDX-License-Identifier: Apache-2.0 */
/* events.c -- events, and their times on the host's clock.
 *
 * CUDA returns the time between two events as a float in milliseconds, which is accurate to 1 us
 * only up to 8 s. So the base event is recorded again from time to time. Events for which another
 * process waits have no time. */
#include "backend/cuda/device.h"

#include <stdlib.h>
#include <string.h>

struct cgp_event {
    cgp_device *device;
    cudaEvent_t cuda;
    uint64_t bases; /* value of the device's `bases` when the event was recorded */
};

cudaError_t cgp__cuda_set_base(cgp_device *device) {
    const cudaStream_t stream = device->streams[CGP_QUEUE_COMPUTE];
    cudaError_t error = cudaEventRecord(device->base, stream);
    if (error == cudaSuccess) error = cudaEventSynchronize(device->base);
    device->base_ns = cgp__cuda_host->now_ns();
    device->bases++;
    return error;
}

static cgp_status new_event(cgp_device *device, cgp_event **out) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    cgp_event *event = calloc(1, sizeof *event);
    if (!event) return cgp__cuda_host->fail(CGP_ENOMEM, CGP__CUDA_NAME ": event: out of memory");
    event->device = device;
    *out = event;
    return CGP_OK;
}

cgp_status cgp__cuda_event_create(cgp_device *device, cgp_event **out) {
    cgp_event *event = NULL;
    CGP__TRY_STATUS(new_event(device, &event));
    const cgp_status status = cgp__cuda_check(
        device, cudaEventCreateWithFlags(&event->cuda, cudaEventDefault), "an event");
    if (status == CGP_OK)
        *out = event;
    else
        free(event);
    return status;
}

cgp_status cgp__cuda_event_export(cgp_device *device, cgp_event **out, cgp_shared_handle *handle) {
    cgp_event *event = NULL;
    cudaIpcEventHandle_t shared;
    _Static_assert(sizeof shared == sizeof *handle, "a handle fits");
    CGP__TRY_STATUS(new_event(device, &event));
    cudaError_t error =
        cudaEventCreateWithFlags(&event->cuda, cudaEventInterprocess | cudaEventDisableTiming);
    if (error == cudaSuccess) error = cudaIpcGetEventHandle(&shared, event->cuda);
    if (error == cudaSuccess) {
        memcpy(handle, &shared, sizeof shared);
        *out = event;
        return CGP_OK;
    }
    if (event->cuda) (void)cudaEventDestroy(event->cuda);
    free(event);
    return cgp__cuda_refused(device->ordinal, error, "export of an event");
}

cgp_status cgp__cuda_event_import(cgp_device *device, const cgp_shared_handle *handle,
                                  cgp_event **out) {
    cgp_event *event = NULL;
    cudaIpcEventHandle_t shared;
    CGP__TRY_STATUS(new_event(device, &event));
    memcpy(&shared, handle, sizeof shared);
    const cudaError_t error = cudaIpcOpenEventHandle(&event->cuda, shared);
    if (error == cudaSuccess)
        *out = event;
    else
        free(event);
    return error == cudaSuccess ? CGP_OK
                                : cgp__cuda_refused(device->ordinal, error, "import of an event");
}

void cgp__cuda_event_destroy(cgp_event *event) {
    (void)cudaEventDestroy(event->cuda);
    (void)cudaGetLastError();
    free(event);
}

cgp_status cgp__cuda_event_record(cgp_device *device, cgp_queue queue, cgp_event *event) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    event->bases = device->bases;
    return cgp__cuda_check(device, cudaEventRecord(event->cuda, device->streams[queue]),
                           "record of an event");
}

cgp_status cgp__cuda_event_wait(cgp_device *device, cgp_queue queue, cgp_event *event) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    return cgp__cuda_check(device, cudaStreamWaitEvent(device->streams[queue], event->cuda, 0),
                           "wait for an event");
}

/* Make the stream `later` wait for all work that has been enqueued on the stream `earlier` of the
 * same device. */
static cgp_status order(cgp_device *device, cudaStream_t later, cudaEvent_t event,
                        cudaStream_t earlier) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    CGP__TRY_STATUS(cgp__cuda_check(device, cudaEventRecord(event, earlier), "record of an event"));
    return cgp__cuda_check(device, cudaStreamWaitEvent(later, event, 0), "wait for an event");
}

cgp_status cgp__cuda_fork(cgp_device *device) {
    device->open = true;
    return order(device, device->branch, device->forked, device->streams[CGP_QUEUE_COMPUTE]);
}

cgp_status cgp__cuda_join(cgp_device *device) {
    device->open = false;
    return order(device, device->streams[CGP_QUEUE_COMPUTE], device->joined, device->branch);
}

cgp_status cgp__cuda_event_done(cgp_event *event, bool *done) {
    const cudaError_t error = cudaEventQuery(event->cuda);
    *done = error != cudaErrorNotReady;
    if (!*done) {
        (void)cudaGetLastError();
        return CGP_OK;
    }
    CGP__TRY_STATUS(cgp__cuda_check(event->device, error, "work of a stream"));
    return cgp__cuda_failure(event->device);
}

/* Wait for an event. Threads of other devices may call this function too, because it does not
 * change their current ordinal. */
cgp_status cgp__cuda_event_sync(cgp_event *event) {
    cudaError_t error = cgp__cuda_use_any(event->device->ordinal);
    if (error == cudaSuccess) error = cudaEventSynchronize(event->cuda);
    CGP__TRY_STATUS(cgp__cuda_check(event->device, error, "work of a stream"));
    return cgp__cuda_failure(event->device);
}

int64_t cgp__cuda_event_time(cgp_event *event) {
    const cgp_device *device = event->device;
    const bool before = event->bases < device->bases;
    float ms = 0;
    if (cudaEventElapsedTime(&ms, before ? event->cuda : device->base,
                             before ? device->base : event->cuda) != cudaSuccess)
        (void)cudaGetLastError(); /* if the device has failed, the time is not used, so clear the
                                   * error */
    const int64_t ns = (int64_t)((double)ms * 1e6);
    return device->base_ns + (before ? -ns : ns);
}
