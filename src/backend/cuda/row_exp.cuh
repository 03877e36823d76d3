/* SPDX-License-Identifier: Apache-2.0 */
/* row_exp.cuh -- the maximum of a row, and the sum of its exponentials. As in the cpu backend, 64
 * lanes add exponentials in float, which keeps each lane's sum short. The lanes' sums are added in
 * double. */
#ifndef CGP_SRC_CUDA_ROW_EXP_CUH
#define CGP_SRC_CUDA_ROW_EXP_CUH

#include "backend/cuda/math.cuh"

/* EXP_ROWS is the number of rows of a thread block. */
enum { ROW_LANES = 64, EXP_ROWS = BLOCK / ROW_LANES, WARP = 32 };

/* Return the maximum of a lane's elements, ignoring NaNs. */
template <class T> __device__ static inline float lane_max(const T *x, int64_t n, int lane) {
    float max = -INFINITY;
#pragma unroll 16
    for (int64_t c = lane; c < n; c += ROW_LANES)
        max = larger(load(x, c), max);
    return max;
}

/* Return a lane's sum of exp(x - max). After the last full group of 64 elements, lanes 0 to 15 add
 * full groups of 16, and lanes 16 to 31 add the rest. */
template <class T>
__device__ static inline float lane_exp_sum(const T *x, int64_t n, float max, int lane) {
    const int64_t whole = n / 64 * 64, sixteens = n / 16 * 16;
    float sum = 0.0f;
#pragma unroll 16
    for (int64_t c = lane; c < whole; c += ROW_LANES)
        sum += exp_or_zero(load(x, c) - max);
    for (int64_t c = whole + lane; lane < 16 && c < sixteens; c += 16)
        sum += exp_or_zero(load(x, c) - max);
    const int64_t last = sixteens + lane - 16;
    if (lane >= 16 && lane < 32 && last < n) sum += exp_or_zero(load(x, last) - max);
    return sum;
}

/* Shared memory for the rows of a thread block. */
struct exp_rows {
    float maxima[EXP_ROWS][ROW_LANES / WARP], sums[EXP_ROWS][ROW_LANES];
};

/* Return the maximum of this thread's row x of n elements, and set the sum of each lane of the row.
 * If the row does not exist, n is 0. All threads of the block must call this function, which ends
 * with a barrier. */
template <class T>
__device__ static inline float row_exp(exp_rows &tile, const T *x, int64_t n) {
    const int r = (int)threadIdx.x / ROW_LANES, lane = (int)threadIdx.x % ROW_LANES;
    float max = lane_max(x, n, lane);
    for (int apart = WARP / 2; apart > 0; apart /= 2)
        max = larger(__shfl_xor_sync(0xffffffffu, max, apart), max);
    if (lane % WARP == 0) tile.maxima[r][lane / WARP] = max;
    __syncthreads();
    max = larger(tile.maxima[r][0], tile.maxima[r][1]);
    tile.sums[r][lane] = lane_exp_sum(x, n, max, lane);
    __syncthreads();
    return max;
}

/* Return the sum of exp(x - max) of this thread's row. */
__device__ static inline double exp_sum(const exp_rows &tile) {
    const int r = (int)threadIdx.x / ROW_LANES;
    double sum = 0.0;
    for (int i = 0; i < ROW_LANES; i++)
        sum += (double)tile.sums[r][i];
    return sum;
}

#endif
