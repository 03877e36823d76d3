/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- device memory, pinned host memory, copies, and memory that processes share (CUDA
 * IPC). */
#include "backend/cuda/device.h"

#include <string.h>

cgp_status cgp__cuda_memory_create(cgp_device *device, size_t bytes, void **out) {
    const cudaStream_t stream = device->streams[CGP_QUEUE_COMPUTE];
    const size_t least = bytes > 0 ? bytes : 1;
    void *memory = NULL;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    CGP__TRY_STATUS(cgp__cuda_no_memory(device, cgp__cuda_allocate(device->ordinal, &memory, least),
                                        "memory", bytes));
    cudaError_t error = cudaMemsetAsync(memory, 0, least, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error != cudaSuccess) (void)cgp__cuda_free(device->ordinal, memory, least);
    CGP__TRY_STATUS(cgp__cuda_check(device, error, "clear %zu bytes", bytes));
    *out = memory;
    return CGP_OK;
}

void cgp__cuda_memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)cgp__cuda_finish(device);
    (void)cgp__cuda_free(device->ordinal, memory, bytes > 0 ? bytes : 1);
    (void)cudaGetLastError();
}

cgp_status cgp__cuda_host_memory_create(cgp_device *device, size_t bytes, void **out) {
    const size_t least = bytes > 0 ? bytes : 1;
    void *memory = NULL;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    CGP__TRY_STATUS(cgp__cuda_no_memory(
        device, cudaHostAlloc(&memory, least, cudaHostAllocPortable), "pinned memory", bytes));
    *out = memset(memory, 0, least);
    return CGP_OK;
}

void cgp__cuda_host_memory_destroy(cgp_device *device, void *memory, size_t bytes) {
    (void)bytes;
    (void)cgp__cuda_finish(device); /* wait, because copies may still be running */
    (void)cudaFreeHost(memory);
    (void)cudaGetLastError();
}

/* Copy between two GPUs by peer access if possible. Otherwise the driver stages the copy through
 * the host. Memory that cgpipe did not allocate may be on a GPU other than the GPU that its
 * cgp_place names. In this case CUDA finds the right GPU from the address. */
static cudaError_t copy_between(cgp_place to, cgp_place from, size_t bytes, cgp_device *own,
                                cudaStream_t stream) {
    const int peer = to.device == own ? from.device->ordinal : to.device->ordinal;
    int direct = 0;
    if (peer == own->ordinal)
        return cudaMemcpyAsync(to.at, from.at, bytes, cudaMemcpyDefault, stream);
    if (!(own->asked[peer / 64] >> peer % 64 & 1)) {
        own->asked[peer / 64] |= UINT64_C(1) << peer % 64;
        const cudaError_t error = cudaDeviceCanAccessPeer(&direct, own->ordinal, peer);
        if (error != cudaSuccess) return error;
        /* This call may fail if a GPU has many peers. */
        if (direct) (void)cudaDeviceEnablePeerAccess(peer, 0);
        (void)cudaGetLastError();
    }
    return cudaMemcpyPeerAsync(to.at, to.device->ordinal, from.at, from.device->ordinal, bytes,
                               stream);
}

static cudaError_t enqueue_copy(cgp_device *device, cudaStream_t stream, cgp_place to,
                                cgp_place from, size_t bytes) {
    if (to.device && from.device) return copy_between(to, from, bytes, device, stream);
    return cudaMemcpyAsync(to.at, from.at, bytes,
                           to.device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream);
}

cgp_status cgp__cuda_copy(cgp_device *device, cgp_queue queue, cgp_place to, cgp_place from,
                          size_t bytes) {
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    if (to.device != device && from.device != device)
        return cgp__cuda_host->fail(CGP_EINVAL, CGP__CUDA_NAME
                                    ": copy: expected a place on the device, got none");
    if (bytes == 0) return CGP_OK;
    return cgp__cuda_check(device, enqueue_copy(device, device->streams[queue], to, from, bytes),
                           "copy of %zu bytes", bytes);
}

/* Return the ordinal of the GPU to which an address belongs, or -1. With unified addressing, CUDA
 * can find the GPU. */
int cgp__cuda_ordinal_of(const cgp_device *device, const void *address) {
    struct cudaPointerAttributes found;
    cudaError_t error = cgp__cuda_use_any(device->ordinal);
    if (error == cudaSuccess) error = cudaPointerGetAttributes(&found, address);
    (void)cudaGetLastError();
    return error == cudaSuccess && found.type == cudaMemoryTypeDevice ? found.device : -1;
}

/* --- memory of another process --- */

cgp_status cgp__cuda_memory_export(cgp_device *device, void *memory, cgp_shared_handle *out) {
    cudaIpcMemHandle_t handle;
    _Static_assert(sizeof handle == sizeof *out, "a handle fits");
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    const cudaError_t error = cudaIpcGetMemHandle(&handle, memory);
    if (error != cudaSuccess)
        return cgp__cuda_refused(device->ordinal, error, "export of its memory");
    memcpy(out, &handle, sizeof handle);
    return CGP_OK;
}

/* Import memory of another process. CUDA enables peer access to the exporter's GPU, or fails if
 * peer access is not possible. */
cgp_status cgp__cuda_memory_import(cgp_device *device, const cgp_shared_handle *handle,
                                   void **out) {
    cudaIpcMemHandle_t shared;
    CGP__TRY_STATUS(cgp__cuda_set_device(device));
    memcpy(&shared, handle, sizeof shared);
    const cudaError_t error = cudaIpcOpenMemHandle(out, shared, cudaIpcMemLazyEnablePeerAccess);
    return error == cudaSuccess ? CGP_OK
                                : cgp__cuda_refused(device->ordinal, error, "import of memory");
}

void cgp__cuda_memory_close(cgp_device *device, void *memory) {
    (void)cgp__cuda_use(device->ordinal);
    (void)cudaIpcCloseMemHandle(memory);
    (void)cudaGetLastError();
}
