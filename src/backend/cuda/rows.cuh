/* SPDX-License-Identifier: Apache-2.0 */
/* rows.cuh -- sums of rows, which are added in the same order as in the cpu backend.
 *
 *     a row        16 lanes: lane l adds elements l, l + 16, l + 32 ... in order;
 *                  then lanes l and l + 8, l + 4, l + 2, l + 1
 *     all rows     blocks of 64 rows in order, then the blocks in order
 *     a buffer     in double: parts of 16384 elements, with 16 lanes as above, added in order;
 *                  then the parts in order */
#ifndef CGP_SRC_CUDA_ROWS_CUH
#define CGP_SRC_CUDA_ROWS_CUH

#include "backend/cuda/cuda.cuh"

enum {
    ROW_BLOCK = 64, /* rows in a partial sum of a parameter's gradient */
    LANES = 16,     /* lanes that add a row or a part */
    SUM_ROWS = 8,   /* rows of a thread block */
    LOADED_TERMS = 8,
    PART = 16384,
    PART_TILE = 4096
};

/* Reduce a row's lanes; every lane gets the sum. */
__device__ static inline float sum_lanes(float sum) {
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

/* The terms of `sums` sums per row, in shared memory. Rows are padded by LANES floats, so that two
 * rows that are read together lie in different banks. */
template <int sums> struct terms {
    static constexpr int columns = 1024 / sums;
    float at[sums][SUM_ROWS][columns + LANES];
};

/* Return the row that this thread helps to add; SUM_ROWS or more: no row. */
__device__ static inline int sum_row(void) {
    return (int)threadIdx.x / LANES;
}

/* Each lane of a row adds up its part of `columns` columns of a tile. A lane loads several terms
 * before it adds them. */
template <int sums>
__device__ static inline void add_terms(float (&sum)[sums], const terms<sums> &tile, int row,
                                        int columns) {
    for (int begin = (int)threadIdx.x % LANES; begin < columns; begin += LOADED_TERMS * LANES) {
        float term[LOADED_TERMS][sums];
#pragma unroll
        for (int i = 0; i < LOADED_TERMS; i++)
            for (int k = 0; k < sums; k++)
                term[i][k] =
                    begin + i * LANES < columns ? tile.at[k][row][begin + i * LANES] : 0.0f;
#pragma unroll
        for (int i = 0; i < LOADED_TERMS; i++)
            for (int k = 0; k < sums; k++)
                if (begin + i * LANES < columns) sum[k] += term[i][k];
    }
}

/* Set sum[], in all lanes of a row, to the row's sums over the columns. f(terms, c) makes the terms
 * of column c for all rows of the block. All threads fill a tile with terms, so that their loads
 * overlap; then 16 lanes per row add the terms. */
template <int sums, class F>
__device__ static inline void row_sums(float (&sum)[sums], terms<sums> &tile, int64_t width,
                                       F f) {
    const int row = sum_row();
    for (int k = 0; k < sums; k++)
        sum[k] = 0.0f;
    for (int64_t begin = 0; begin < width; begin += tile.columns) {
        const int64_t left = width - begin;
        const int columns = left < tile.columns ? (int)left : (int)tile.columns;
        for (int c = (int)threadIdx.x; c < columns; c += BLOCK) {
            float term[SUM_ROWS][sums];
            f(term, begin + c);
#pragma unroll
            for (int r = 0; r < SUM_ROWS; r++)
                for (int k = 0; k < sums; k++)
                    tile.at[k][r][c] = term[r][k];
        }
        __syncthreads();
        if (row < SUM_ROWS) add_terms(sum, tile, row, columns);
        __syncthreads();
    }
    for (int k = 0; row < SUM_ROWS && k < sums; k++)
        sum[k] = sum_lanes(sum[k]);
}

/* Add up the sums [blocks, n] in the order of blocks, to first [width] and second [n - width]. If
 * `add`, add to the values of first and second. A block's first `width` sums belong to `first`. A
 * NULL result is not computed. */
cudaError_t cgp__cuda_add_blocks(float *first, float *second, const float *sums, int64_t blocks,
                                 int64_t width, int64_t n, bool add, cudaStream_t stream);

/* Return, in thread 0, the sum of widened(term(i)) over the n elements of a part. All threads
 * compute float terms, and each lane adds its own terms. */
template <class Term, class Widened>
__device__ static inline double part_sum(int n, Term term, Widened widened) {
    __shared__ float tile[PART_TILE];
    __shared__ double lanes[LANES];
    const int thread = (int)threadIdx.x;
    double sum = 0.0;
    for (int begin = 0; begin < n; begin += PART_TILE) {
        const int count = n - begin < PART_TILE ? n - begin : (int)PART_TILE;
        for (int i = thread; i < count; i += BLOCK)
            tile[i] = term(begin + i);
        __syncthreads();
        for (int i = thread; thread < LANES && i < count; i += LANES)
            sum += widened(tile[i]);
        __syncthreads();
    }
    if (thread < LANES) lanes[thread] = sum;
    __syncthreads();
    sum = 0.0;
    for (int i = 0; thread == 0 && i < LANES; i++)
        sum += lanes[i];
    return sum;
}

#endif
