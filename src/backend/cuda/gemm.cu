/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cu -- operands and workspace of GEMMs; sums of a matrix' rows. */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/rows.cuh"

namespace gemm {

enum { MAX_DEPTH = 512 };

cuts cuts_of(int64_t k, int64_t span, int64_t part) {
    const int64_t parts = ceil_div(span, part), spans = ceil_div(k, span);
    const int64_t last = k - (spans - 1) * span;
    return {(int)k, (int)span, (int)part, (int)parts,
            (int)((spans - 1) * parts + ceil_div(last, part))};
}

int64_t part_of(int64_t k) {
    const int64_t even = ceil_div(k, ceil_div(k, MAX_DEPTH));
    return ceil_div(even, 16) * 16;
}

cuts even_cuts(int64_t k) {
    return cuts_of(k, k, part_of(k));
}

/* Floats of the parts of one time, at most. */
template <class S> constexpr int64_t most_of() {
    return busy<S>() * S::BM * S::BN;
}

/* Parts are at most `busy` tiles, and at most `blocks` times c. */
int64_t workspace_bytes(int64_t m, int64_t n, int blocks) {
    constexpr int64_t most = most_of<medium>();
    const int64_t all = blocks * m * n;
    static_assert(most >= most_of<few>() && most >= most_of<small>() &&
                      most >= most_of<rounding>(),
                  "the parts of medium tiles are the largest");
    if (blocks == 1) return 0;
    return (all < most ? all : most) * (int64_t)sizeof(float);
}

} // namespace gemm

/* --- sums of rows --- */

/* Columns of a thread block; loads on their way. */
enum { COLUMNS = 32, AT_ONCE = 32 };

/* Sums of 64 rows, in order, from zero. A thread block has 32 columns of BLOCK / 32 of them. */
template <class T>
__global__ static void sum_blocks(float *sums, const T *x, int64_t rows, int64_t width,
                                  int64_t blocks) {
    const int64_t columns = (width + COLUMNS - 1) / COLUMNS;
    const int64_t column = blockIdx.x % columns * COLUMNS + threadIdx.x % COLUMNS;
    const int64_t block = blockIdx.x / columns * (BLOCK / COLUMNS) + threadIdx.x / COLUMNS;
    if (column >= width || block >= blocks) return;
    const int64_t begin = block * ROW_BLOCK,
                  end = begin + ROW_BLOCK < rows ? begin + ROW_BLOCK : rows;
    float sum = 0.0f;
#pragma unroll 8
    for (int64_t row = begin; row < end; row++)
        sum = sum + load(x, row * width + column);
    sums[block * width + column] = sum;
}

/* sum = or += the blocks' sums, in order. A thread has several on their way. */
__global__ static void add_blocks(float *sum, const float *sums, int64_t blocks, int64_t width,
                                  bool add) {
    FOR_EACH(column, width) {
        float whole = sums[column];
        for (int64_t first = 1; first < blocks; first += AT_ONCE) {
            float held[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                held[i] = first + i < blocks ? sums[(first + i) * width + column] : 0.0f;
#pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (first + i < blocks) whole = whole + held[i];
        }
        sum[column] = add ? sum[column] + whole : whole;
    }
}

int64_t cgp__cuda_sum_rows_workspace(int64_t rows, int64_t width) {
    return ceil_div(rows, ROW_BLOCK) * width * (int64_t)sizeof(float);
}

template <class T>
cudaError_t cgp__cuda_sum_rows(float *sum, const T *x, int64_t rows, int64_t width, bool add,
                               void *workspace, cudaStream_t stream) {
    const int64_t blocks = ceil_div(rows, ROW_BLOCK);
    const int64_t grid = ceil_div(width, COLUMNS) * ceil_div(blocks, BLOCK / COLUMNS);
    float *sums = (float *)workspace;
    CGP__TRY_CUDA(launch(sum_blocks<T>, dim3((unsigned)grid), dim3(BLOCK), stream, sums, x,
                         rows, width, blocks));
    return launch(add_blocks, blocks_for(width), dim3(BLOCK), stream, sum, sums, blocks, width,
                  add);
}

template cudaError_t cgp__cuda_sum_rows(float *, const float *, int64_t, int64_t, bool, void *,
                                        cudaStream_t);
template cudaError_t cgp__cuda_sum_rows(float *, const bf16 *, int64_t, int64_t, bool, void *,
                                        cudaStream_t);
