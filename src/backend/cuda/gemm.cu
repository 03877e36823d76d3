/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cu -- computes the k ranges and the workspace size of GEMMs, and sums over the rows of a
 * matrix. */
#include "backend/cuda/gemm_mma.cuh"
#include "backend/cuda/rows.cuh"

namespace gemm {

enum { MAX_DEPTH = 512, MAX_RANGES = 32 };

k_ranges k_ranges_of(int64_t k, int64_t segment, int64_t depth) {
    const int64_t per_segment = ceil_div(segment, depth), segments = ceil_div(k, segment);
    const int64_t last = k - (segments - 1) * segment;
    return {(int)k, (int)segment, (int)depth, (int)per_segment,
            (int)((segments - 1) * per_segment + ceil_div(last, depth))};
}

int64_t even_depth(int64_t k) {
    const int64_t even = ceil_div(k, ceil_div(k, MAX_DEPTH));
    return ceil_div(even, 16) * 16;
}

k_ranges even_k_ranges(int64_t k) {
    return k_ranges_of(k, k, even_depth(k));
}

static k_ranges mma_k_ranges_of(int64_t k, int64_t count) {
    const int64_t step = mma_large::BK;
    return k_ranges_of(k, k, ceil_div(ceil_div(k, count), step) * step);
}

k_ranges mma_k_ranges(int64_t k) {
    return mma_k_ranges_of(k, ceil_div(k, MAX_DEPTH));
}

k_ranges mma_k_ranges_of_rows(int64_t rows) {
    const int64_t count = ceil_div(rows, MAX_DEPTH);
    return mma_k_ranges_of(rows, count < MAX_RANGES ? count : (int64_t)MAX_RANGES);
}

/* Return the bytes for the partial sums of a bf16 c. */
int64_t workspace_bytes(int64_t m, int64_t n, int ranges, cgp_dtype type) {
    const int64_t most = MAX_PARTIALS, partials = m * n < most ? m * n : most;
    return ranges > 1 && type == CGP_BF16 ? partials * (int64_t)sizeof(float) : 0;
}

} // namespace gemm

/* --- sums of rows --- */

/* A thread block sums COLUMNS columns of AT_ONCE blocks of rows together. A thread has LOADS loads
 * in flight. TILE block sums are loaded at a time. */
enum { COLUMNS = 32, AT_ONCE = BLOCK / COLUMNS, LOADS = 32, TILE = 16 * AT_ONCE };

/* The destination of n sums. The first `width` sums go to `first`, the others to `second`. If a
 * destination is NULL, its sums are discarded. */
struct sums_to {
    float *first, *second;
    int64_t width;
    bool add;
};

__device__ static inline void put_sum(const sums_to &to, int64_t i, float sum) {
    float *at = i < to.width ? to.first : to.second;
    if (at) put(at, i < to.width ? i : i - to.width, to.add, sum);
}

/* Sum blocks of 64 rows. Each sum starts at zero and adds the rows in order. A thread block sums 32
 * columns of 8 blocks. If the matrix has at most 8 blocks of rows, the thread block also adds their
 * sums. */
template <class T>
__global__ static void sum_blocks(float *sums, const T *x, int64_t rows, int64_t width,
                                  int64_t blocks, sums_to to) {
    __shared__ float block_sums[AT_ONCE][COLUMNS];
    const int64_t columns = (width + COLUMNS - 1) / COLUMNS;
    const int thread = (int)threadIdx.x / COLUMNS, lane = (int)threadIdx.x % COLUMNS;
    const int64_t column = blockIdx.x % columns * COLUMNS + lane;
    const int64_t block = blockIdx.x / columns * AT_ONCE + thread;
    const int64_t begin = block * ROW_BLOCK, left = rows - begin;
    const int count = column >= width || left < 0 ? 0
                      : left < ROW_BLOCK          ? (int)left
                                                  : (int)ROW_BLOCK;
    float sum = 0.0f;
    for (int row = 0; row < count; row += LOADS) {
        float loaded[LOADS];
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            loaded[i] = row + i < count ? load(x, (begin + row + i) * width + column) : 0.0f;
#pragma unroll
        for (int i = 0; i < LOADS; i++)
            if (row + i < count) sum = sum + loaded[i];
    }
    if (blocks > AT_ONCE) {
        if (column < width && block < blocks) sums[block * width + column] = sum;
        return;
    }
    block_sums[thread][lane] = sum;
    __syncthreads();
    for (int i = 1; thread == 0 && i < blocks; i++)
        sum = sum + block_sums[i][lane];
    if (thread == 0 && column < width) put_sum(to, column, sum);
}

/* Add the blocks' sums [blocks, n] in order. All threads load a tile together, to overlap their
 * loads; 32 threads then add up the tile. */
__global__ static void add_blocks(const float *sums, int64_t blocks, int64_t n, sums_to to) {
    __shared__ float tile[TILE][COLUMNS];
    const int thread = (int)threadIdx.x / COLUMNS, lane = (int)threadIdx.x % COLUMNS;
    const int64_t column = (int64_t)blockIdx.x * COLUMNS + lane;
    float sum = 0.0f;
    for (int64_t begin = 0; begin < blocks; begin += TILE) {
        const int left = blocks - begin < TILE ? (int)(blocks - begin) : (int)TILE;
#pragma unroll
        for (int k = 0; k < TILE / AT_ONCE; k++) {
            const int i = k * AT_ONCE + thread;
            if (i < left && column < n) tile[i][lane] = sums[(begin + i) * n + column];
        }
        __syncthreads();
        if (thread == 0 && column < n) {
            if (begin == 0) sum = tile[0][lane];
#pragma unroll 16
            for (int i = begin == 0; i < left; i++)
                sum = sum + tile[i][lane];
        }
        __syncthreads();
    }
    if (thread == 0 && column < n) put_sum(to, column, sum);
}

int64_t cgp__cuda_sum_rows_workspace(int64_t rows, int64_t width) {
    const int64_t blocks = ceil_div(rows, ROW_BLOCK);
    return blocks <= AT_ONCE ? 0 : blocks * width * (int64_t)sizeof(float);
}

cudaError_t cgp__cuda_add_blocks(float *first, float *second, const float *sums, int64_t blocks,
                                 int64_t width, int64_t n, bool add, cudaStream_t stream) {
    return launch(add_blocks, dim3((unsigned)ceil_div(n, COLUMNS)), dim3(BLOCK), stream, sums,
                  blocks, n, sums_to{first, second, width, add});
}

template <class T>
cudaError_t cgp__cuda_sum_rows(float *sum, const T *x, int64_t rows, int64_t width, bool add,
                               void *workspace, cudaStream_t stream) {
    const int64_t blocks = ceil_div(rows, ROW_BLOCK);
    const int64_t grid = ceil_div(width, COLUMNS) * ceil_div(blocks, AT_ONCE);
    float *sums = (float *)workspace;
    CGP__TRY_CUDA_ERROR(launch(sum_blocks<T>, dim3((unsigned)grid), dim3(BLOCK), stream, sums,
                               x, rows, width, blocks, sums_to{sum, NULL, width, add}));
    if (blocks <= AT_ONCE) return cudaSuccess;
    return cgp__cuda_add_blocks(sum, NULL, sums, blocks, width, width, add, stream);
}

template cudaError_t cgp__cuda_sum_rows(float *, const float *, int64_t, int64_t, bool, void *,
                                        cudaStream_t);
template cudaError_t cgp__cuda_sum_rows(float *, const bf16 *, int64_t, int64_t, bool, void *,
                                        cudaStream_t);
