/* SPDX-License-Identifier: Apache-2.0 */
/* loss.cuh -- functions that all losses use: the scale of a loss, and the ordered sum of its
 * terms. */
#ifndef CGP_SRC_CUDA_LOSS_CUH
#define CGP_SRC_CUDA_LOSS_CUH

#include "backend/cuda/cuda.cuh"

/* Return the scale of a loss, like cgp_step_loss_scale(), on the device. */
__device__ static inline float loss_scale(const cgp_step_values *values, int loss) {
    return ((const float *)(const void *)(values + 1))[loss];
}

/* Add up the terms in order, in one thread block. All threads load a tile of terms together, and
 * then one thread adds up the tile. */
static __global__ void sum_losses(double *losses, const double *terms, int64_t n,
                                  const cgp_step_values *values, int loss) {
    __shared__ double tile[BLOCK];
    double sum = 0.0;
    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        const int64_t i = begin + threadIdx.x, left = n - begin;
        if (i < n) tile[threadIdx.x] = terms[i];
        __syncthreads();
#pragma unroll 16
        for (int k = 0; k < (left < BLOCK ? (int)left : (int)BLOCK); k++)
            if (threadIdx.x == 0) sum += tile[k];
        __syncthreads();
    }
    if (threadIdx.x == 0) losses[values->loss_word + loss] = sum;
}

/* Store the loss of a run, which is the ordered sum of n terms in the workspace. */
static inline cudaError_t set_loss(const cgp_kernel_args *args, int64_t n,
                                   cudaStream_t stream) {
    if (!args->losses) return cudaSuccess;
    return launch(sum_losses, dim3(1), dim3(BLOCK), stream, args->losses,
                  (const double *)args->workspace, n, args->values, args->loss);
}

#endif
