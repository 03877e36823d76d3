/* SPDX-License-Identifier: Apache-2.0 */
/* sharing.h -- memory that processes share through a file descriptor (memfd_create), which stands
 * for CUDA IPC in the fake runtime. */
#ifndef CGP_TESTS_FAKES_CUDA_SHARING_H
#define CGP_TESTS_FAKES_CUDA_SHARING_H

#include "internal.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Shared memory, mapped into this process. All zero: none. */
typedef struct cgp__shim_mapping {
    char *at;
    size_t bytes;
    struct cgp__shim_sharers *sharers; /* in shared memory, too */
    int file;                          /* -1: imported */
} cgp__shim_mapping;

/* Make shared memory, filled with zeros. */
cudaError_t cgp__shim_map(cgp__shim_mapping *mapping, size_t bytes);
/* Unmap it. The owner ends the process if another process still has it imported. */
void cgp__shim_unmap(cgp__shim_mapping *mapping);

/* Write a handle [CUDA_IPC_HANDLE_SIZE] of shared memory. */
cudaError_t cgp__shim_write_handle(char *handle, const cgp__shim_mapping *mapping);
/* Map the memory of another process. `broken`: writes do not reach that process. */
cudaError_t cgp__shim_map_handle(cgp__shim_mapping *mapping, const char *handle, bool broken);

#ifdef __cplusplus
}
#endif
#endif
