/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c -- the stand-in runtime: errors, launches. */
#include "backend/cuda/host/runtime.h"

static __thread cudaError_t last_error;

static cudaError_t note(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

/* The limits of all devices since sm_30. */
static bool launchable(dim3 grid, dim3 block) {
    return block.x >= 1 && block.y >= 1 && block.z >= 1 && block.x <= CGP__SHIM_MAX_BLOCK &&
           block.y <= CGP__SHIM_MAX_BLOCK && block.z <= 64 &&
           (uint64_t)block.x * block.y * block.z <= CGP__SHIM_MAX_BLOCK && grid.x >= 1 &&
           grid.y >= 1 && grid.z >= 1 && grid.x <= 0x7fffffffu && grid.y <= 65535 &&
           grid.z <= 65535;
}

cudaError_t cgp__shim_launch(cudaStream_t stream, dim3 grid, dim3 block,
                             cgp__shim_thread *thread, const void *arguments, size_t bytes) {
    (void)stream;
    (void)bytes;
    if (!launchable(grid, block)) return note(cudaErrorInvalidConfiguration);
    cgp__shim_run_grid(grid, block, cgp__shim_environment_order(), 1, thread, arguments);
    return cudaSuccess;
}
