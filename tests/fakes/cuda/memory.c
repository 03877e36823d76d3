/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- the fake CUDA runtime: device memory and pinned host memory. New memory is filled
 * with NaNs. On each device, a fixed number of bytes counts as used by the driver. If
 * CGP_CUDA_HOST_IPC enables sharing, device memory can be shared between processes. Otherwise
 * device memory comes from the heap, where sanitizers check accesses. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "sharing.h"

enum { ALIGNMENT = 256 };

typedef struct block {
    struct block *next;
    char *begin;
    size_t bytes;
    int owner;
    cgp__shim_mapping mapping; /* used if the block is shared */
    bool imported;
} block;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static block *blocks;

int cgp__shim_owner(const void *at, size_t bytes) {
    const char *begin = at;
    int owner = CGP__SHIM_PAGEABLE;
    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b && owner == CGP__SHIM_PAGEABLE; b = b->next) {
        if (begin >= b->begin && begin + bytes <= b->begin + b->bytes) owner = b->owner;
    }
    pthread_mutex_unlock(&lock);
    return owner;
}

static int64_t used(int owner) {
    int64_t bytes = 0;
    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b; b = b->next)
        bytes += b->owner == owner && !b->imported ? (int64_t)b->bytes : 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static void list(block *b) {
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    cgp__shim_count_object(1);
}

static cudaError_t allocate(void **memory, size_t bytes, int owner) {
    const size_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const bool shares = owner >= 0 && cgp__shim_get_settings()->sharing != CGP__SHIM_SHARES_NOTHING;
    block *b = calloc(1, sizeof *b);
    if (!b) return cudaErrorMemoryAllocation;
    *b = (block){.bytes = bytes, .owner = owner};
    if (shares && cgp__shim_map(&b->mapping, capacity) == cudaSuccess) b->begin = b->mapping.at;
    if (!shares) b->begin = aligned_alloc(ALIGNMENT, capacity);
    if (!b->begin) {
        free(b);
        return cudaErrorMemoryAllocation;
    }
    memset(b->begin, 0xff, capacity);
    *memory = b->begin;
    list(b);
    return cudaSuccess;
}

/* Remove the block at `memory` from the list, and return the block; NULL if there is no such block.
 * If `pinned` is true, the block must be pinned host memory; otherwise it must belong to a
 * device. */
static block *take(const void *memory, bool pinned, bool imported) {
    block *found = NULL;
    pthread_mutex_lock(&lock);
    for (block **at = &blocks; *at && !found; at = &(*at)->next) {
        if ((*at)->begin != memory || ((*at)->owner == CGP__SHIM_PINNED) != pinned ||
            (*at)->imported != imported)
            continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_back(block *b) {
    cgp__shim_count_object(-1);
    if (!b->mapping.at) free(b->begin);
    cgp__shim_unmap(&b->mapping);
    free(b);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total) {
    const int device = cgp__shim_current_device();
    CGP__SHIM_TRY(cgp__shim_enter());
    const int64_t all = cgp__shim_get_settings()->memory,
                  left = all - used(device) - CGP__SHIM_CONTEXT_BYTES -
                         (cgp__shim_has_launched(device) ? CGP__SHIM_KERNELS_BYTES : 0);
    *total = (size_t)all;
    *available = left > 0 ? (size_t)left : 0;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes) {
    const int device = cgp__shim_current_device();
    size_t available, total;
    *memory = NULL;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cudaMemGetInfo(&available, &total));
    if (bytes == 0) return cudaSuccess;
    return cgp__shim_leave(bytes > available ? cudaErrorMemoryAllocation
                                             : allocate(memory, bytes, device));
}

/* Free device memory. As CUDA's cudaFree() does, wait for the device's work first. */
static cudaError_t free_memory(void *memory, bool imported) {
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    block *b = take(memory, false, imported);
    if (!b) return cgp__shim_leave(cudaErrorInvalidValue);
    cgp__shim_drain(b->owner);
    const cudaError_t error = cgp__shim_enter_on(b->owner);
    give_back(b);
    return cgp__shim_leave(error);
}

cudaError_t cudaFree(void *memory) {
    return memory ? free_memory(memory, false) : cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *pointer) {
    const int owner = cgp__shim_owner(pointer, 1);
    void *at = (void *)(uintptr_t)pointer;
    CGP__SHIM_TRY(cgp__shim_enter());
    *found = (struct cudaPointerAttributes){cudaMemoryTypeUnregistered, -2, NULL, NULL};
    if (owner >= 0) *found = (struct cudaPointerAttributes){cudaMemoryTypeDevice, owner, at, NULL};
    if (owner == CGP__SHIM_PINNED)
        *found = (struct cudaPointerAttributes){cudaMemoryTypeHost, 0, at, at};
    return cudaSuccess;
}

/* --- memory of another process --- */

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
    cudaError_t error = cudaErrorInvalidValue;
    CGP__SHIM_TRY(cgp__shim_enter());
    pthread_mutex_lock(&lock);
    for (const block *b = blocks; b; b = b->next) {
        if (b->begin != memory || b->owner < 0 || b->imported) continue;
        error = b->mapping.at ? cgp__shim_write_handle(handle->reserved, &b->mapping)
                              : cudaErrorNotSupported;
    }
    pthread_mutex_unlock(&lock);
    return cgp__shim_leave(error);
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned flags) {
    const bool broken = cgp__shim_get_settings()->sharing == CGP__SHIM_SHARES_BROKEN;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != cudaIpcMemLazyEnablePeerAccess) return cgp__shim_leave(cudaErrorInvalidValue);
    block *b = calloc(1, sizeof *b);
    if (!b) return cgp__shim_leave(cudaErrorMemoryAllocation);
    const cudaError_t error = cgp__shim_map_handle(&b->mapping, handle.reserved, broken);
    if (error != cudaSuccess) {
        free(b);
        return cgp__shim_leave(error);
    }
    b->begin = b->mapping.at;
    b->bytes = b->mapping.bytes;
    b->owner = cgp__shim_current_device();
    b->imported = true;
    *memory = b->begin;
    list(b);
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory) {
    return free_memory(memory, true);
}

/* --- host memory --- */

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags) {
    *memory = NULL;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != cudaHostAllocDefault && flags != cudaHostAllocPortable)
        return cgp__shim_leave(cudaErrorInvalidValue);
    if (bytes == 0) return cudaSuccess;
    return cgp__shim_leave(allocate(memory, bytes, CGP__SHIM_PINNED));
}

cudaError_t cudaFreeHost(void *memory) {
    if (!memory) return cudaSuccess;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    block *b = take(memory, true, false);
    if (!b) return cgp__shim_leave(cudaErrorInvalidValue);
    give_back(b);
    return cgp__shim_leave(cgp__shim_enter());
}
