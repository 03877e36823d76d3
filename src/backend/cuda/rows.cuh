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
    ROW_BLOCK = 64, /* number of rows in a partial sum of a parameter's gradient */
    LANES = 16,     /* number of lanes that add up a row or a part */
    SUM_ROWS = 4,   /* number of rows of a thread block if there are many rows; otherwise a thread
                     * block has one row */
    LOADED = 8,     /* number of elements that a thread loads before it stores or adds them */
    PART = 16384,
    PART_TILE = 4096
};

/* Add up the lanes of a row; every lane gets the sum. */
__device__ static inline float sum_lanes(float sum) {
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, apart);
    return sum;
}

/* If there are few rows, launch `one`, whose thread blocks have one row each, so that more SMs have
 * work. Otherwise launch `several`, whose thread blocks have SUM_ROWS rows each. */
template <class... P, class... A>
static inline cudaError_t launch_rows(void (*several)(P...), void (*one)(P...), int64_t rows,
                                      cudaStream_t stream, A... arguments) {
    const int64_t blocks = ceil_div(rows, SUM_ROWS);
    const bool few = blocks < 2 * cgp__cuda_current()->multiprocessors;
    return launch(few ? one : several, dim3((unsigned)(few ? rows : blocks)), dim3(BLOCK),
                  stream, arguments...);
}

/* Return the index of the row that this thread helps to add. If the index is ROWS or more, the
 * thread adds no row. */
__device__ static inline int sum_row(void) {
    return (int)threadIdx.x / LANES;
}

/* A tile in shared memory: `arrays` values for each column of ROWS rows. Rows are padded by LANES
 * floats, so that two rows that are read together lie in different banks. */
template <int arrays, int ROWS> struct row_tile {
    static constexpr int columns = 4096 / ROWS;
    float at[arrays][ROWS][columns + LANES];
};

/* Access to the rows of a thread block through a tile. The tile holds some columns of these rows.
 * If it can hold all columns, they are loaded only once. load(v, r, c) sets v to the values of
 * column c of row r. */
template <int arrays, int ROWS, class Load> struct held_rows {
    row_tile<arrays, ROWS> &tile;
    int64_t width;
    Load load;
    /* The first column that the tile holds; -1: the tile is empty. */
    int64_t held;

    /* Load `columns` columns, with several loads in flight per thread. */
    __device__ void fill(int64_t begin, int columns) {
        constexpr int AT_ONCE = LOADED / ROWS;
        for (int first = (int)threadIdx.x; first < columns; first += AT_ONCE * BLOCK) {
            float v[AT_ONCE][ROWS][arrays] = {};
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                for (int r = 0; r < ROWS; r++)
                    if (first + i * BLOCK < columns)
                        load(v[i][r], r, begin + first + i * BLOCK);
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                for (int r = 0; r < ROWS; r++)
                    for (int k = 0; k < arrays; k++)
                        if (first + i * BLOCK < columns)
                            tile.at[k][r][first + i * BLOCK] = v[i][r][k];
        }
    }

    /* Load as many columns as the tile can hold, starting at column `begin`. Load nothing if the
     * tile already holds these columns. Return their number. All threads must call this
     * function. */
    __device__ int hold(int64_t begin) {
        const int64_t left = width - begin;
        const int columns = left < tile.columns ? (int)left : (int)tile.columns;
        if (held == begin) return columns;
        __syncthreads(); /* wait until all threads have read the previous columns */
        fill(begin, columns);
        __syncthreads();
        held = begin;
        return columns;
    }

    /* Set sum[], in all lanes of a row, to the row's sums. term(sum, v) adds a column's terms.
     * A lane loads several columns before it adds their terms. */
    template <int sums, class Term> __device__ void add_up(float (&sum)[sums], Term term) {
        const int row = sum_row();
        for (int k = 0; k < sums; k++)
            sum[k] = 0.0f;
        for (int64_t begin = 0; begin < width; begin += tile.columns) {
            const int columns = hold(begin);
            for (int first = (int)threadIdx.x % LANES; row < ROWS && first < columns;
                 first += LOADED * LANES) {
                float v[LOADED][arrays];
#pragma unroll
                for (int i = 0; i < LOADED; i++)
                    for (int k = 0; k < arrays; k++)
                        v[i][k] = first + i * LANES < columns
                                      ? tile.at[k][row][first + i * LANES]
                                      : 0.0f;
#pragma unroll
                for (int i = 0; i < LOADED; i++)
                    if (first + i * LANES < columns) term(sum, v[i]);
            }
        }
        /* Number of threads, rounded up to a full warp. */
        constexpr int adding = ROWS * LANES < 32 ? 32 : ROWS * LANES;
        for (int k = 0; (int)threadIdx.x < adding && k < sums; k++)
            sum[k] = sum_lanes(sum[k]);
    }

    /* Call f(c, v) for each column c, with the values v[ROWS][arrays] of all rows. */
    template <class F> __device__ void each(F f) {
        for (int64_t begin = 0; begin < width; begin += tile.columns) {
            const int columns = hold(begin);
            for (int c = (int)threadIdx.x; c < columns; c += BLOCK) {
                float v[ROWS][arrays];
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    for (int k = 0; k < arrays; k++)
                        v[r][k] = tile.at[k][r][c];
                f(begin + c, v);
            }
        }
    }
};

template <int arrays, int ROWS, class Load>
__device__ static inline held_rows<arrays, ROWS, Load> hold_rows(row_tile<arrays, ROWS> &tile,
                                                                 int64_t width, Load load) {
    return {tile, width, load, -1};
}

/* Add up the sums [blocks, n] in the order of blocks. The totals of each block's first `width` sums
 * go to `first` [width], and the other totals to `second` [n - width]. If `add` is set, the totals
 * are added to `first` and `second`. If `first` or `second` is NULL, its totals are not
 * computed. */
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
