/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.h -- memory that processes share through a file descriptor (memfd_create), which replaces
 * CUDA IPC in the fake runtime. */
#ifndef CGP_TESTS_FAKES_CUDA_SHARING_H
#define CGP_TESTS_FAKES_CUDA_SHARING_H

#include "internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shared memory, mapped into this process. If all fields are zero, nothing is mapped. */
typedef struct cgp__shim_mapping {
    char *at;
    size_t bytes;
    struct cgp__shim_sharers *sharers; /* also in the shared memory */
    int file;                          /* descriptor; -1 if imported */
} cgp__shim_mapping;

/* Make shared memory, filled with zeros. */
cudaError_t cgp__shim_map(cgp__shim_mapping *mapping, size_t bytes);
/* Unmap shared memory. If the caller is the owner, and another process still has an import of the
 * memory, abort the caller's process. */
void cgp__shim_unmap(cgp__shim_mapping *mapping);

/* Write a handle [CUDA_IPC_HANDLE_SIZE] of shared memory. */
cudaError_t cgp__shim_write_handle(char *handle, const cgp__shim_mapping *mapping);
/* Map the memory of another process. If `broken`, writes do not reach that process. */
cudaError_t cgp__shim_map_handle(cgp__shim_mapping *mapping, const char *handle, bool broken);

#ifdef __cplusplus
}
#endif
#endif
