/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_operands.cuh -- operands of a GEMM, k ranges, and serial split-K (CUTLASS, "Efficient GEMM
 * in CUDA" and cutlass/semaphore.h), for gemm.cuh and gemm_mma.cuh.
 *
 * Operands `a` and `b` are read as rows of contiguous elements. The rows belong to a matrix or to
 * image windows (windows.cuh). The stored rows of an operand run along k if its type is along_k,
 * and across k if its type is across_k.
 *
 * k is divided into ranges, which do not depend on m, n or the GPU. The sum of a range begins at
 * zero. The bias and c's previous value are added to range 0. Then the sums of the other ranges are
 * added in order:
 *
 *     c = range 2 + (range 1 + ((range 0 + bias) + previous))
 *
 * Serial split-K is used if one thread block per tile would leave SMs idle. A thread block then
 * computes one k range of a tile. The tile's semaphore keeps the additions to c in the order of k
 * ranges, so sums are unchanged. Each launch leaves the semaphores at 0 for the next launch. */
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

/* Return whether rows of n elements consist of aligned vectors of 16 bytes. */
template <class T> static inline bool are_vectors(const T *at, int64_t n) {
    return (uintptr_t)at % 16 == 0 && n % (16 / (int64_t)sizeof *at) == 0;
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
    /* True: rows consist of aligned vectors, of four elements for read(), or of 16 bytes for tensor
     * cores. */
    bool vectors;

    typedef T element;
    /* The places of a row and of a column, in the form that find() needs. */
    typedef const T *row_place;
    typedef int column_place;

    __device__ row_place row_of(int row) const {
        return row < rows ? at + row * stride : NULL;
    }
    __device__ column_place column_of(int column) const {
        return column;
    }
    /* Return the address of an element; NULL: it is outside the matrix. */
    __device__ const T *find(row_place row, column_place column) const {
        return row && column < columns ? row + column : NULL;
    }
    /* Return an address that can be read. It is aligned if vectors are aligned. */
    __device__ const T *first() const {
        return at;
    }

    /* Read elements column .. column + 3 of a row; elements outside the matrix are 0. `column` is a
     * multiple of 4. */
    __device__ quad read(int row, int column) const {
        quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
        const T *from = at + row * stride + column;
        if (row >= rows) return q;
        if (vectors) return column < columns ? load_four(from) : q;
        for (int i = 0; i < 4; i++)
            if (column + i < columns) q.x[i] = load(from, i);
        return q;
    }
};

template <class T>
static inline matrix<T> matrix_of(const T *at, int64_t rows, int64_t columns, int64_t stride) {
    return {at, stride, (int)rows, (int)columns,
            are_vectors(at, columns) && are_vectors(at, stride)};
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

/* Access to element (outer, k) of an operand, where `outer` is a row of `a` or a column of `b`. The
 * operand's stored rows run along k or across k. */
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
    /* True: every row is aligned for the stores of an epilogue. Set at the launch. */
    bool vectors;
    /* [m, n] If c is bf16, its partial sums after a k range. NULL: partial sums stay in
     * registers. */
    float *partials;
};

template <class T> static inline output<plain_rows, T> output_of(T *at, int64_t m, int64_t n) {
    return {at, {n}, (int)m, (int)n, NULL, false, false, NULL};
}

/* True if partial sums cannot be stored in c, because the type of c would round them. */
template <class T> constexpr bool is_rounded = sizeof(T) < sizeof(float);

/* Add the sum of a k range to an element. `before`: the element's previous value. */
template <class Rows, class T>
__device__ static inline float epilogue_element(const output<Rows, T> &c, bool first,
                                                int column, float before, float range) {
    float sum = range;
    if (first && c.bias) sum = sum + c.bias[column];
    if (!first || c.add) sum = sum + before;
    return sum;
}

/* --- serial split-K --- */

/* The first semaphore counts the thread blocks that have started. It is followed by one semaphore
 * per tile, which holds the number of the next k range to add. A thread block takes its number from
 * the counter when it starts. So all thread blocks with lower numbers have started, in whatever
 * order the GPU schedules thread blocks, and a wait cannot deadlock.
 *
 * All semaphores are 0 before and after a launch. The counter wraps around at the last number, and
 * the last k range of a tile resets the tile's semaphore. */
__device__ static inline int take_number(int *counter) {
    return (int)atomicInc((unsigned *)counter, gridDim.x - 1);
}

__device__ static inline void semaphore_wait(const int *semaphore, int range) {
    if (threadIdx.x == 0) {
        while (*(const volatile int *)semaphore != range)
            __nanosleep(20); /* leave the SM's issue slots to the other thread blocks */
        __threadfence();
    }
    __syncthreads();
}

__device__ static inline void semaphore_release(int *semaphore, int next) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *(volatile int *)semaphore = next;
    }
}

/* Row, column and number of a thread block's tile, and its first k range. Shared memory holds these
 * numbers, to keep registers free for the sums. */
struct tile_place {
    int row, column, tile, range;
};

/* Find the tile of this thread block. Tiles are numbered along the shorter side first, so that
 * concurrent tiles read few rows and columns. If `semaphores` is NULL, a thread block computes all
 * k ranges of its tile. Otherwise (serial split-K) it computes one k range. The numbers of thread
 * blocks cover range 0 of all tiles, then range 1, and so on. */
template <class S>
__device__ static inline void find_tile(tile_place *place, int m, int n, int *semaphores) {
    if (threadIdx.x == 0) {
        const int rows = (m + S::BM - 1) / S::BM, columns = (n + S::BN - 1) / S::BN;
        const int number = semaphores ? take_number(semaphores) : (int)blockIdx.x;
        const int tile = number % (rows * columns);
        const bool down = rows < columns;
        place->row = (down ? tile % rows : tile / columns) * S::BM;
        place->column = (down ? tile / rows : tile % columns) * S::BN;
        place->tile = tile;
        place->range = number / (rows * columns);
    }
    __syncthreads();
}

/* --- host --- */

template <class S> static inline int64_t tiles_of(int64_t m, int64_t n) {
    return ceil_div(m, S::BM) * ceil_div(n, S::BN);
}

/* Estimate the SM utilization of `blocks` equal thread blocks (wave quantization). With fewer than
 * two thread blocks per SM, memory latency is not hidden. */
static inline double sm_utilization(int64_t blocks) {
    const int64_t sms = cgp__cuda_current()->multiprocessors;
    const double all = (double)(ceil_div(blocks, sms) * sms);
    return (blocks < 2 * sms ? 0.75 : 1.0) * (double)blocks / all;
}

/* Limits of serial split-K: maximum number of tiles; if c is bf16, also maximum number of partial
 * sums. */
enum { MAX_SPLIT_K_TILES = CGP__CUDA_SEMAPHORES - 1, MAX_PARTIALS = 1 << 21 };

/* Return whether to use serial split-K, assuming that its overhead is 5 %. */
template <class S, class Rows, class T>
static inline bool uses_split_k(const output<Rows, T> &c, const k_ranges &k) {
    const int64_t tiles = tiles_of<S>(c.m, c.n);
    if (tiles > MAX_SPLIT_K_TILES || (is_rounded<T> && (int64_t)c.m * c.n > MAX_PARTIALS))
        return false;
    return 0.95 * sm_utilization(tiles * k.count) > sm_utilization(tiles);
}

/* Return whether an int can hold all indices of a dimension of this size, up to the end of its last
 * tile or k range. */
static inline bool fits(int64_t size) {
    return size <= INT32_MAX / 2;
}

} // namespace gemm

#endif
