/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.cu -- kernels for tests of barriers, shuffles and streams (see blocks.h). */
#include "blocks.h"

#include "backend/cuda/cuda.cuh"

__global__ void order(int *seen, int *next) {
    for (int barrier = 0; barrier < 3; barrier++) {
        /* not a race: one host thread runs all threads of the block */
        seen[3 * threadIdx.x + barrier] = next[0]++;
        __syncthreads();
    }
}

cudaError_t blocks_order(int *seen, int threads, cudaStream_t stream) {
    static int next;
    next = 0;
    return launch(order, dim3(1), dim3(threads), stream, seen, &next);
}

__global__ void sum(const float *x, float *sums) {
    __shared__ float of_warp[32];
    float s = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int apart = 16; apart > 0; apart /= 2)
        s += __shfl_xor_sync(0xffffffffu, s, apart);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = s;
    __syncthreads();
    if (threadIdx.x >= 32) return;
    s = threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0f;
    for (int apart = 16; apart > 0; apart /= 2)
        s += __shfl_down_sync(0xffffffffu, s, apart);
    if (threadIdx.x == 0) sums[blockIdx.x] = s;
}

cudaError_t blocks_sum(const float *x, float *sums, int blocks, int threads,
                       cudaStream_t stream) {
    return launch(sum, dim3(blocks), dim3(threads), stream, x, sums);
}

__global__ void shuffle(int *out) {
    const int i = threadIdx.x;
    out[i] = __shfl_sync(0xffffffffu, i, 5);
    out[64 + i] = __shfl_xor_sync(0xffffffffu, i, 3);
    out[128 + i] = (int)__shfl_down_sync(0xffffffffu, (long long)i, 30);
}

cudaError_t blocks_shuffle(int *out, cudaStream_t stream) {
    return launch(shuffle, dim3(1), dim3(64), stream, out);
}

__global__ void numbers(int64_t *out) {
    const int64_t block =
        blockIdx.x + (int64_t)gridDim.x * (blockIdx.y + (int64_t)gridDim.y * blockIdx.z);
    const int64_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int64_t i = block * (blockDim.x * blockDim.y * blockDim.z) + thread;
    out[i] = i;
}

cudaError_t blocks_numbers(int64_t *out, dim3 grid, dim3 block, cudaStream_t stream) {
    return launch(numbers, grid, block, stream, out);
}

__global__ void miss(int missing, bool warp) {
    if ((int)threadIdx.x < missing) return;
    if (warp)
        __syncwarp();
    else
        __syncthreads();
}

cudaError_t blocks_miss(int threads, int missing, bool warp, cudaStream_t stream) {
    return launch(miss, dim3(1), dim3(threads), stream, missing, warp);
}

__global__ void empty() {
}

cudaError_t blocks_empty(dim3 grid, dim3 block, cudaStream_t stream) {
    return launch(empty, grid, block, stream);
}

__global__ void step(float *x, int n, int times) {
    FOR_EACH(i, n) {
        for (int k = 0; k < times; k++)
            x[i] = 2.0f * x[i] + 1.0f;
    }
}

cudaError_t blocks_step(float *x, int n, int times, cudaStream_t stream) {
    return launch(step, blocks_for(n), dim3(BLOCK), stream, x, n, times);
}
