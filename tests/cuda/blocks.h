/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.h -- kernels with barriers, for tests of the runtime that runs kernels. */
#ifndef CGP_TESTS_CUDA_BLOCKS_H
#define CGP_TESTS_CUDA_BLOCKS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Record the order in which threads pass each of three barriers. `seen[3 t + barrier]` is the
 * number of arrivals at barriers before thread t arrives at that barrier. */
cudaError_t blocks_order(int *seen, int threads, cudaStream_t stream);
/* Compute the sum of each row of x [blocks, threads], by shuffles and shared memory. */
cudaError_t blocks_sum(const float *x, float *sums, int blocks, int threads, cudaStream_t stream);
/* Exchange the lane numbers of 64 threads by three kinds of shuffle. `out` is [3, 64]. */
cudaError_t blocks_shuffle(int *out, cudaStream_t stream);
/* Each thread computes its linear number i from its block index and thread index, and sets `out[i]`
 * to i. */
cudaError_t blocks_numbers(int64_t *out, dim3 grid, dim3 block, cudaStream_t stream);
/* The first `missing` threads skip a barrier. All other threads of the block (or warp) wait at
 * it. */
cudaError_t blocks_miss(int threads, int missing, bool warp, cudaStream_t stream);
cudaError_t blocks_empty(dim3 grid, dim3 block, cudaStream_t stream);
/* Compute x[i] = 2 x[i] + 1 for all i, `times` times. */
cudaError_t blocks_step(float *x, int n, int times, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
