/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ring.cuh -- passes panels of f32 matrices through a ring of stages in shared memory, for
 * gemm.cuh. Asynchronous copies fill the stages (CUTLASS, "Efficient GEMM in CUDA" and
 * cutlass/gemm/threadblock/mma_multistage.h).
 *
 *     stage        0         1         2         3
 *                k + 0     k + 8     k + 16    k + 24
 *              multiplied  ------- being copied -----
 *
 * While the threads multiply the panels of one stage, the panels of the next STAGES - 1 steps of k
 * are being copied from global memory, without passing through registers. A stage is filled again
 * after all threads have multiplied its panels. The barrier at the start of the next step ensures
 * this.
 *
 * In shared memory a panel is [BK][OUTER + 4]. If the rows of its matrix run across k, each copy
 * has 16 bytes. If they run along k, each copy has one float, and a warp copies 8 values along k of
 * each of 4 rows. These are full sectors of 32 bytes, and go to 32 different banks. Elements
 * outside the matrix are copied as zeros. */
#ifndef CGP_SRC_CUDA_GEMM_RING_CUH
#define CGP_SRC_CUDA_GEMM_RING_CUH

#include "backend/cuda/gemm_operands.cuh"
#include "backend/cuda/mma.cuh"

namespace gemm {

/* Start a thread's copies of an OUTER x BK panel. */
template <int THREADS, int OUTER, int BK, class Operand>
__device__ static inline void copy_panel(float *to, const Operand &from, int outer, int k) {
    constexpr int stride = OUTER + 4, thread_columns = Operand::ALONG_K ? BK : OUTER / 4;
    constexpr int step = THREADS / thread_columns;
    const auto &x = from.rows;
    const int column = (int)threadIdx.x % thread_columns;
    const int row = (int)threadIdx.x / thread_columns;
    if constexpr (Operand::ALONG_K) {
        const float *at = x.at + (outer + row) * x.stride + k + column;
#pragma unroll 1 /* unrolled copies would take registers from the sums */
        for (int i = 0; i < OUTER; i += step, at += step * x.stride)
            copy_float_async(to + column * stride + row + i, at,
                             outer + row + i < x.rows && k + column < x.columns);
    } else {
        const float *at = x.at + (k + row) * x.stride + outer + 4 * column;
#pragma unroll 1 /* unrolled copies would take registers from the sums */
        for (int i = 0; i < BK; i += step, at += step * x.stride)
            copy_async(to + (row + i) * stride + 4 * column, at,
                       k + row + i < x.rows && outer + 4 * column < x.columns ? 16 : 0);
    }
}

/* If k < end, start the copies of both panels of the step that begins at k. Each step has one group
 * of copies; the group is empty if k >= end. */
template <class S, class A, class B>
__device__ static inline void copy_step(const A &a, const B &b, int row, int column, int k,
                                        int end, quad *stage) {
    if (k < end) {
        copy_panel<S::THREADS, S::BM, S::BK>((float *)(void *)stage, a, row, k);
        copy_panel<S::THREADS, S::BN, S::BK>((float *)(void *)(stage + S::A_QUADS), b, column,
                                             k);
    }
    commit_copies();
}

/* For each step of k from `begin` to `end`, call multiply(panels, left) when the panels are in
 * shared memory; `left` is the number of remaining k. `shared` has S::STAGES stages of S::QUADS
 * quads. */
template <class S, class A, class B, class Multiply>
__device__ static inline void ring(const A &a, const B &b, int row, int column, int begin,
                                   int end, quad *shared, Multiply multiply) {
    enum { STAGE = S::QUADS, AHEAD = S::STAGES - 1 };
    __syncthreads(); /* wait until all threads have multiplied the previous range's panels */
    for (int i = 0; i < AHEAD; i++)
        copy_step<S>(a, b, row, column, begin + i * S::BK, end, shared + i * STAGE);
    int stage = 0;
    for (int k = begin; k < end; k += S::BK) {
        wait_for_copies<AHEAD - 1>();
        __syncthreads();
        copy_step<S>(a, b, row, column, k + AHEAD * S::BK, end,
                     shared + (stage == 0 ? AHEAD : stage - 1) * STAGE);
        multiply(shared + stage * STAGE, end - k);
        stage = stage == AHEAD ? 0 : stage + 1;
    }
}

} // namespace gemm

#endif
