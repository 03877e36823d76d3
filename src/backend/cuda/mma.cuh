/* SPDX-License-Identifier: Apache-2.0 */
/* mma.cuh -- tensor cores of sm_80 and later: mma.sync, ldmatrix and cp.async of the PTX ISA
 * (sections "Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async").
 *
 * Lane l has these elements of a [16, 16], b [16, 8] and d [16, 8], with g = l / 4 and
 * t = 2 (l % 4). A register of `a` or `b` has two elements of bf16, the lower index in the lower
 * half:
 *
 *     a[0]  a(g, t) a(g, t + 1)              b[0]  b(t, g) b(t + 1, g)
 *     a[1]  a(g + 8, t) ..                   b[1]  b(t + 8, g) b(t + 9, g)
 *     a[2]  a(g, t + 8) ..                   d[0], d[1]  d(g, t), d(g, t + 1)
 *     a[3]  a(g + 8, t + 8) ..               d[2], d[3]  d(g + 8, t), d(g + 8, t + 1)
 *
 * So if d(g, ..) is converted to two registers of bf16, these registers are half of operand `a` of
 * the next product, and no shuffle is needed.
 *
 * The hardware chooses the order in which the products of an mma are added to d, and how they are
 * rounded. An element of d depends only on its row of `a`, its column of `b` and its own previous
 * value. */
#ifndef CGP_SRC_CUDA_MMA_CUH
#define CGP_SRC_CUDA_MMA_CUH

#include "backend/cuda/cuda.cuh"

enum { MMA_M = 16, MMA_N = 8, MMA_K = 16 };

/* Compute d += a b. All 32 lanes of the warp must call this function. */
__device__ static inline void mma(float (&d)[4], const uint32_t (&a)[4],
                                  const uint32_t (&b)[2]) {
#ifdef CGP_CUDA_HOST
    cgp__shim_mma(d, a, b);
#else
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

#ifndef CGP_CUDA_HOST
__device__ static inline uint32_t shared_address(const void *at) {
    return (uint32_t)__cvta_generic_to_shared(at);
}
#endif

/* Load four matrices of 8 x 8 bf16 from shared memory. Lane 8 i + r passes the address of row r of
 * matrix i. The address must be a multiple of 16 bytes. Lane l gets elements t and t + 1 of row g
 * of matrix i in to[i]. Before another thread overwrites the rows, a barrier is needed. */
__device__ static inline void ldmatrix(uint32_t (&to)[4], const bf16 *row) {
#ifdef CGP_CUDA_HOST
    cgp__shim_ldmatrix(to, row, false);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

/* Like ldmatrix(), but transpose each matrix: lane l gets rows t and t + 1 of column g. */
__device__ static inline void ldmatrix_transposed(uint32_t (&to)[4], const bf16 *row) {
#ifdef CGP_CUDA_HOST
    cgp__shim_ldmatrix(to, row, true);
#else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row))
                 : "memory");
#endif
}

/* Start to copy 16 bytes to shared memory. Only the first `bytes` bytes are read; the others are
 * set to zero. Both addresses are multiples of 16. */
__device__ static inline void copy_async(void *to, const void *from, int bytes) {
#ifdef CGP_CUDA_HOST
    cgp__shim_copy_async(to, from, 16, bytes);
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
#endif
}

/* Start to copy a float to shared memory. If `inside` is false, write a zero instead. */
__device__ static inline void copy_float_async(float *to, const float *from, bool inside) {
#ifdef CGP_CUDA_HOST
    cgp__shim_copy_async(to, from, 4, inside ? 4 : 0);
#else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)),
                   "r"(inside ? 4 : 0)
                 : "memory");
#endif
}

/* Put all copies that this thread has started since its last group into a new group. */
__device__ static inline void commit_copies() {
#ifdef CGP_CUDA_HOST
    cgp__shim_copy_commit();
#else
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

/* Wait for this thread's copies, except the latest GROUPS groups. The copies of other threads are
 * complete after a barrier that follows the waits of these threads. */
template <int GROUPS> __device__ static inline void wait_for_copies() {
#ifdef CGP_CUDA_HOST
    cgp__shim_copy_wait(GROUPS);
#else
    asm volatile("cp.async.wait_group %0;" ::"n"(GROUPS) : "memory");
#endif
}

/* Return two values as a register of bf16, with `low` in the lower half. */
__device__ static inline uint32_t pack_bf16(float low, float high) {
    bf16 pair[2];
    store(pair, 0, low);
    store(pair, 1, high);
    return (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
}

/* --- operands in shared memory --- */

enum { CHUNK = 8, MMA_WARP = 32 };

/* Elements that one instruction stores. */
struct __align__(16) eight {
    bf16 x[CHUNK];
};
struct __align__(4) two {
    bf16 x[2];
};

__device__ static inline int lane() {
    return (int)threadIdx.x % MMA_WARP;
}

/* Return the address that this lane passes to ldmatrix to load the block of 16 x 16 at (row,
 * column) of a tile. Rows of the tile are STRIDE elements apart. If DOWN is true, matrix 1 is the
 * lower left quarter of the block, otherwise the upper right quarter. */
template <int STRIDE, bool DOWN>
__device__ static inline const bf16 *matrix_row(const bf16 *tile, int row, int column) {
    const int odd = lane() / 8 % 2 * 8, high = lane() / 16 * 8;
    return tile + (row + (DOWN ? odd : high) + lane() % 8) * STRIDE + column +
           (DOWN ? high : odd);
}

/* Load operand `a` from rows `row` .. `row` + 15 and columns k .. k + 15 of a tile. */
template <int STRIDE>
__device__ static inline void load_a(uint32_t (&a)[4], const bf16 *tile, int row, int k) {
    ldmatrix(a, matrix_row<STRIDE, true>(tile, row, k));
}

/* Load operand `a` from columns `column` .. `column` + 15 and rows k .. k + 15 of a tile. */
template <int STRIDE>
__device__ static inline void load_a_transposed(uint32_t (&a)[4], const bf16 *tile, int column,
                                                int k) {
    ldmatrix_transposed(a, matrix_row<STRIDE, false>(tile, k, column));
}

/* Load two operands `b`: columns k .. k + 15 of rows `row` .. `row` + 7, and of the next eight
 * rows. */
template <int STRIDE>
__device__ static inline void load_b(uint32_t (&b)[2][2], const bf16 *tile, int row, int k) {
    uint32_t x[4];
    ldmatrix(x, matrix_row<STRIDE, false>(tile, row, k));
    b[0][0] = x[0], b[0][1] = x[1];
    b[1][0] = x[2], b[1][1] = x[3];
}

/* Load two operands `b`: rows k .. k + 15 of columns n .. n + 7, and of the next eight columns. */
template <int STRIDE>
__device__ static inline void load_b_transposed(uint32_t (&b)[2][2], const bf16 *tile, int k,
                                                int n) {
    uint32_t x[4];
    ldmatrix_transposed(x, matrix_row<STRIDE, true>(tile, k, n));
    b[0][0] = x[0], b[0][1] = x[1];
    b[1][0] = x[2], b[1][1] = x[3];
}

template <int N> __device__ static inline void clear_sums(float (&sums)[N][4]) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            sums[n][i] = 0.0f;
}

#endif
