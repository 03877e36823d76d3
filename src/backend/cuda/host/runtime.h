/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.h -- what kernels' launches need of the stand-in runtime beside cuda_runtime_api.h. */
#ifndef CGP_SRC_CUDA_HOST_RUNTIME_H
#define CGP_SRC_CUDA_HOST_RUNTIME_H

#include "backend/cuda/host/fibers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueue a grid; `arguments` are copied. */
cudaError_t cgp__shim_launch(cudaStream_t stream, dim3 grid, dim3 block,
                             cgp__shim_thread *thread, const void *arguments, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
