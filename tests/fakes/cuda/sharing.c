/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.c -- the fake CUDA runtime: memory that two processes share, in place of CUDA IPC.
 *
 *     file     [page: number of imports][bytes]
 *
 * A handle contains the exporting process's ID and the number of the file descriptor in that
 * process. */
#define _GNU_SOURCE
#include "sharing.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, MAGIC = 0x43475049 };

struct cgp__shim_sharers {
    _Atomic int imports;
};

typedef struct handle {
    uint32_t magic;
    int32_t process, file;
    uint64_t bytes;
} handle;

_Static_assert(sizeof(handle) <= CUDA_IPC_HANDLE_SIZE, "a handle fits");

/* Map a file. If this fails, return false and leave nothing mapped. */
static bool map(cgp__shim_mapping *m, int file, size_t bytes, int flags) {
    void *sharers = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, PAGE);
    if (sharers == MAP_FAILED || at == MAP_FAILED) {
        if (sharers != MAP_FAILED) munmap(sharers, PAGE);
        if (at != MAP_FAILED) munmap(at, bytes);
        return false;
    }
    *m = (cgp__shim_mapping){at, bytes, sharers, -1};
    return true;
}

cudaError_t cgp__shim_map(cgp__shim_mapping *mapping, size_t bytes) {
    const int file = memfd_create("cuda-host", MFD_CLOEXEC);
    if (file < 0) return cudaErrorMemoryAllocation;
    if (ftruncate(file, (off_t)(PAGE + bytes)) != 0 || !map(mapping, file, bytes, MAP_SHARED)) {
        close(file);
        return cudaErrorMemoryAllocation;
    }
    mapping->file = file;
    return cudaSuccess;
}

void cgp__shim_unmap(cgp__shim_mapping *mapping) {
    if (!mapping->at) return;
    if (mapping->file < 0) {
        atomic_fetch_sub(&mapping->sharers->imports, 1);
    } else if (atomic_load(&mapping->sharers->imports) > 0) {
        fprintf(stderr, "cuda-host: memory or an event was freed that another process has "
                        "imported\n");
        abort();
    }
    munmap(mapping->at, mapping->bytes);
    munmap(mapping->sharers, PAGE);
    if (mapping->file >= 0) close(mapping->file);
    *mapping = (cgp__shim_mapping){.file = -1};
}

cudaError_t cgp__shim_write_handle(char *out, const cgp__shim_mapping *mapping) {
    const handle h = {MAGIC, getpid(), mapping->file, mapping->bytes};
    memset(out, 0, CUDA_IPC_HANDLE_SIZE);
    memcpy(out, &h, sizeof h);
    return cudaSuccess;
}

cudaError_t cgp__shim_map_handle(cgp__shim_mapping *mapping, const char *from, bool broken) {
    handle h;
    char path[64];
    memcpy(&h, from, sizeof h);
    if (h.magic != MAGIC) return cudaErrorInvalidValue;
    if (h.process == getpid()) return cudaErrorDeviceUninitialized; /* as CUDA does */
    snprintf(path, sizeof path, "/proc/%d/fd/%d", h.process, h.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return cudaErrorInvalidResourceHandle;
    const bool mapped = map(mapping, file, h.bytes, broken ? MAP_PRIVATE : MAP_SHARED);
    close(file);
    if (!mapped) return cudaErrorMemoryAllocation;
    atomic_fetch_add(&mapping->sharers->imports, 1);
    return cudaSuccess;
}
