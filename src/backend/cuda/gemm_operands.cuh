/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_operands.cuh -- the operands of a GEMM: matrices a, b and c, and the ranges of k.
 *
 * a and b are read as rows of contiguous elements, which belong to a matrix or to image windows
 * (windows.cuh). along_k and across_k are operands whose rows run along k or across it. */
#ifndef CGP_SRC_CUDA_GEMM_OPERANDS_CUH
#define CGP_SRC_CUDA_GEMM_OPERANDS_CUH

#include <type_traits>

#include "backend/cuda/cuda.cuh"

namespace gemm {

/* --- vectors --- */

/* Four elements in one load or store. */
template <class T> struct alignas(4 * sizeof(T)) four { T x[4]; };
typedef four<float> quad;

template <class T> static inline bool is_aligned(const T *at) {
    return (uintptr_t)at % sizeof(four<T>) == 0;
}

__device__ static inline quad load_four(const float *from) {
    return *(const quad *)(const void *)from;
}

__device__ static inline quad load_four(const bf16 *from) {
    const four<bf16> q = *(const four<bf16> *)(const void *)from;
    return {{load(q.x, 0), load(q.x, 1), load(q.x, 2), load(q.x, 3)}};
}

__device__ static inline void store_four(float *to, const quad &q) {
    *(quad *)(void *)to = q;
}

__device__ static inline void store_four(bf16 *to, const quad &q) {
    four<bf16> rounded;
    for (int i = 0; i < 4; i++)
        store(rounded.x, i, q.x[i]);
    *(four<bf16> *)(void *)to = rounded;
}

/* --- k ranges --- */

/* k is divided into segments, and each segment into ranges of `depth`. The last segment and the
 * last range of a segment may be shorter. */
struct k_ranges {
    int k, segment, depth;
    /* Number of ranges in a segment, and in total. */
    int per_segment, count;

    __device__ int begin(int range) const {
        return range / per_segment * segment + range % per_segment * depth;
    }
    __device__ int end(int range) const {
        const int end = begin(range) + depth, next = (range / per_segment + 1) * segment;
        const int limit = next < k ? next : k;
        return end < limit ? end : limit;
    }
};

k_ranges k_ranges_of(int64_t k, int64_t segment, int64_t depth);

/* Return the depth of equal ranges of k: a multiple of 16, at most 512. */
int64_t even_depth(int64_t k);
k_ranges even_k_ranges(int64_t k);

/* --- operands --- */

/* A matrix: rows of contiguous elements, `stride` elements apart. */
template <class T> struct matrix {
    const T *at;
    int64_t stride;
    int rows, columns;
    /* Elements 0, 4, 8 ... of every row are aligned for load_four(). */
    bool quads;

    /* Read elements column .. column + 3 of a row; elements outside the matrix are 0. `column` is a
     * multiple of 4. */
    __device__ quad read(int row, int column) const {
        quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
        const T *from = at + row * stride + column;
        if (row >= rows) return q;
        if (quads) return column < columns ? load_four(from) : q;
        for (int i = 0; i < 4; i++)
            if (column + i < columns) q.x[i] = load(from, i);
        return q;
    }
};

template <class T>
static inline matrix<T> matrix_of(const T *at, int64_t rows, int64_t columns, int64_t stride) {
    return {at, stride, (int)rows, (int)columns,
            columns % 4 == 0 && stride % 4 == 0 && is_aligned(at)};
}

template <class Rows> constexpr bool is_matrix = false;
template <class T> constexpr bool is_matrix<matrix<T>> = true;

/* A batch of matrices, `step` elements apart; enter() selects matrix blockIdx.z. */
template <class T> struct batched : matrix<T> { int64_t step; };
template <class T> constexpr bool is_matrix<batched<T>> = true;

template <class Rows> __device__ static inline void enter(Rows &) {
}

template <class T> __device__ static inline void enter(batched<T> &rows) {
    rows.at += blockIdx.z * rows.step;
}

/* Access to element (outer, k) of an operand, where `outer` is a row of a or a column of b. The
 * operand's stored rows run along k, or across it. */
template <class Rows> struct along_k {
    enum { ALONG_K = true };
    Rows rows;
    __device__ quad read(int outer, int k) const {
        return rows.read(outer, k);
    }
};

template <class Rows> struct across_k {
    enum { ALONG_K = false };
    Rows rows;
    __device__ quad read(int outer, int k) const {
        return rows.read(k, outer);
    }
};

template <class Operand>
constexpr bool is_f32_matrix = std::is_same<decltype(Operand::rows), matrix<float>>::value;

/* --- c --- */

struct plain_rows {
    int64_t stride;
    __device__ int64_t operator()(int row) const {
        return row * stride;
    }
};

/* Row offsets in matrix blockIdx.z. */
struct batched_rows {
    int64_t stride, step;
    __device__ int64_t operator()(int row) const {
        return blockIdx.z * step + row * stride;
    }
};

/* Operand c, with bias; `rows` returns the offset of a row. */
template <class Rows, class T> struct output {
    T *at;
    Rows rows;
    int m, n;
    /* NULL: no bias. */
    const float *bias;
    bool add;
    /* Elements 0, 4, 8 ... of every row are aligned for store_four(); set at the launch. */
    bool quads;
    /* [m, n] partial sums of a bf16 c after a k range; NULL: they stay in registers. */
    float *partials;
};

template <class T> static inline output<plain_rows, T> output_of(T *at, int64_t m, int64_t n) {
    return {at, {n}, (int)m, (int)n, NULL, false, false, NULL};
}

} // namespace gemm

#endif
