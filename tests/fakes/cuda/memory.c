/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c -- the fake CUDA runtime: device memory and pinned host memory. New memory is filled
 * with NaNs. A fixed number of bytes of a device counts as used by the driver. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

enum { ALIGNMENT = 256 };

typedef struct block {
    struct block *next;
    char *begin;
    size_t bytes;
    int owner;
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
        bytes += b->owner == owner ? (int64_t)b->bytes : 0;
    pthread_mutex_unlock(&lock);
    return bytes;
}

static cudaError_t allocate(void **memory, size_t bytes, int owner) {
    const size_t capacity = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    block *b = malloc(sizeof *b);
    if (!b) return cudaErrorMemoryAllocation;
    *b = (block){blocks, aligned_alloc(ALIGNMENT, capacity), bytes, owner};
    if (!b->begin) {
        free(b);
        return cudaErrorMemoryAllocation;
    }
    memset(b->begin, 0xff, capacity);
    pthread_mutex_lock(&lock);
    b->next = blocks;
    blocks = b;
    pthread_mutex_unlock(&lock);
    *memory = b->begin;
    cgp__shim_count_object(1);
    return cudaSuccess;
}

/* Remove the block at `memory`, which is pinned or belongs to a device, from the list and return
 * it; NULL: there is no such block. */
static block *take(const void *memory, bool pinned) {
    block *found = NULL;
    pthread_mutex_lock(&lock);
    for (block **at = &blocks; *at && !found; at = &(*at)->next) {
        if ((*at)->begin != memory || ((*at)->owner == CGP__SHIM_PINNED) != pinned) continue;
        found = *at;
        *at = found->next;
        break;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void give_back(block *b) {
    cgp__shim_count_object(-1);
    free(b->begin);
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

/* Like CUDA's cudaFree(), wait for the device's work first. */
cudaError_t cudaFree(void *memory) {
    if (!memory) return cudaSuccess;
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    block *b = take(memory, false);
    if (!b) return cgp__shim_leave(cudaErrorInvalidValue);
    cgp__shim_drain(b->owner);
    const cudaError_t error = cgp__shim_enter_on(b->owner);
    give_back(b);
    return cgp__shim_leave(error);
}

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
    block *b = take(memory, true);
    if (!b) return cgp__shim_leave(cudaErrorInvalidValue);
    give_back(b);
    return cgp__shim_leave(cgp__shim_enter());
}
