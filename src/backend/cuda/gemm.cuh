/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cuh -- exact f32 GEMM with serial split-K (CUTLASS): c [m, n] = or += a [m, k] b [k, n] +
 * bias [n], where a, b and c are f32 or bf16.
 *
 *             BK                BN
 *          +---+---+     +---+---+---+
 *       BM |   |   |     |   |   |   | BK
 *          +---+---+     |   |   |   |
 *                        +---+---+---+
 *
 * A thread block computes a BM x BN tile of c, in steps of BK along k. Shared memory is
 * double-buffered: while the threads multiply the panels of a and b in one half, the next panels go
 * from global memory through registers to the other. A thread has TM x TN accumulators in
 * registers, in groups of 4 x 4.
 *
 * The range of k is divided into blocks. In each block an element of c is a chain of FMAs, in order
 * of k, from zero. The bias and c's previous value are added to the chain of block 0. The chains of
 * the other blocks are added in order:
 *
 *     c = chain 2 + (chain 1 + ((chain 0 + bias) + previous))
 *
 * The blocks (`cuts`) are at most 512 deep and do not depend on m, n or the GPU. They equal those
 * of the cpu backend, and so do the bits. Serial split-K is used if one thread block per tile would
 * leave SMs idle. A thread block then computes one block of k, and a semaphore per tile orders its
 * addition to c. Chains and sums stay the same. bf16 is widened when it is read. c is rounded once,
 * at the end; until then its sums are in registers or in the workspace.
 *
 * a and b are read as rows of contiguous elements, of a matrix or of image windows (windows.cuh).
 * along_k and across_k give a row's direction in the GEMM. */
#ifndef CGP_SRC_CUDA_GEMM_CUH
#define CGP_SRC_CUDA_GEMM_CUH

#include "backend/cuda/cuda.cuh"

namespace gemm {

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
    four<bf16> held;
    for (int i = 0; i < 4; i++)
        store(held.x, i, q.x[i]);
    *(four<bf16> *)(void *)to = held;
}

/* --- k ranges --- */

/* k is divided into spans, and a span into parts; the last of either may be shorter. A part is one
 * block of k. */
struct cuts {
    int k, span, part;
    /* Parts in a span; blocks in total. */
    int parts, count;

    __device__ int begin(int block) const {
        return block / parts * span + block % parts * part;
    }
    __device__ int end(int block) const {
        const int end = begin(block) + part, span_end = (block / parts + 1) * span;
        const int limit = span_end < k ? span_end : k;
        return end < limit ? end : limit;
    }
};

cuts cuts_of(int64_t k, int64_t span, int64_t part);

/* Depth of equal parts of k: at most 512, a multiple of 16. */
int64_t part_of(int64_t k);
cuts even_cuts(int64_t k);

/* --- operands --- */

/* Rows of contiguous elements, `stride` elements apart. */
template <class T> struct matrix {
    const T *at;
    int64_t stride;
    int rows, columns;
    /* Elements 0, 4, 8 ... of every row are aligned for load_four(). */
    bool quads;

    /* Elements column .. column + 3 of a row, column a multiple of 4; 0 outside. */
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

/* Matrices `step` elements apart; enter() selects matrix blockIdx.z. */
template <class T> struct batched : matrix<T> { int64_t step; };
template <class T> constexpr bool is_matrix<batched<T>> = true;

template <class Rows> __device__ static inline void enter(Rows &) {
}

template <class T> __device__ static inline void enter(batched<T> &rows) {
    rows.at += blockIdx.z * rows.step;
}

/* Return whether a panel that ends at `rows` and `columns` is interior and aligned, so that bounds
 * checks can be skipped; false for operands other than a matrix. */
template <class Rows>
__device__ static inline bool holds(const Rows &x, int rows, int columns) {
    if constexpr (is_matrix<Rows>)
        return x.quads && rows <= x.rows && columns <= x.columns;
    else
        return false;
}

/* Element (outer, k) of an operand: outer is a row of a or a column of b. The operand's stored rows
 * run along k, or across it. */
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

/* --- c --- */

struct plain_rows {
    int64_t stride;
    __device__ int64_t operator()(int row) const {
        return row * stride;
    }
};

/* Rows of matrix blockIdx.z. */
struct batched_rows {
    int64_t stride, step;
    __device__ int64_t operator()(int row) const {
        return blockIdx.z * step + row * stride;
    }
};

/* `rows` gives the offset of a row. */
template <class Rows, class T> struct output {
    T *at;
    Rows rows;
    int m, n;
    /* NULL: none. */
    const float *bias;
    bool add;
    /* Elements 0, 4, 8 ... of every row are aligned for store_four(); set at the launch. */
    bool quads;
    /* [m, n]: partial sums of a bf16 c between blocks of k; NULL: in registers. */
    float *between;
};

template <class T> static inline output<plain_rows, T> output_of(T *at, int64_t m, int64_t n) {
    return {at, {n}, (int)m, (int)n, NULL, false, false, NULL};
}

/* Partial sums cannot be stored in c, which would round them. */
template <class T> constexpr bool is_rounded = sizeof(T) < sizeof(float);

/* Add a block's chain to an element; `before` is its previous value. */
template <class Rows, class T>
__device__ static inline float end_block(const output<Rows, T> &c, bool first, int column,
                                         float before, float chain) {
    float sum = chain;
    if (first && c.bias) sum = sum + c.bias[column];
    if (!first || c.add) sum = sum + before;
    return sum;
}

/* --- tiles --- */

/* RESIDENT: minimum thread blocks per SM, which limits registers; 0: the compiler's choice. ACROSS:
 * threads of a warp along a row of the tile. UNROLLED: unrolled steps of k. */
template <int BM_, int BN_, int BK_, int TM_, int TN_, int RESIDENT_ = 0, int ACROSS_ = 8,
          int UNROLLED_ = 16>
struct shape {
    enum {
        BM = BM_,
        BN = BN_,
        BK = BK_,
        TM = TM_,
        TN = TN_,
        RESIDENT = RESIDENT_,
        THREADS = BM / TM * (BN / TN),
        ACROSS = ACROSS_,
        UNROLLED = UNROLLED_,
        /* Floats between consecutive k in shared memory. */
        A_STRIDE = BM + 4,
        B_STRIDE = BN + 4,
        /* Size of a panel. */
        A_QUADS = BK * A_STRIDE / 4,
        B_QUADS = BK * B_STRIDE / 4,
        QUADS = A_QUADS + B_QUADS
    };
    static_assert(BN / TN % ACROSS == 0 && 32 % ACROSS == 0 &&
                      THREADS % (32 * (BN / TN / ACROSS)) == 0,
                  "warps divide a tile");
};

typedef shape<128, 64, 16, 8, 8, 3> large;
typedef shape<64, 64, 16, 8, 4, 4> medium;
typedef shape<32, 64, 32, 4, 4, 4> small;
typedef shape<16, 64, 32, 4, 4, 4> few;
/* For a bf16 c, which needs two sets of accumulators. */
typedef shape<64, 64, 16, 4, 4, 2> rounding;

/* A thread's part of an OUTER x BK panel, kept in registers until it is written to shared memory as
 * [BK][OUTER + 4]. */
template <int THREADS, int OUTER, int BK, bool ALONG_K> struct panel {
    enum {
        COUNT = OUTER * BK / 4 / THREADS,
        STRIDE = OUTER + 4,
        /* Quads in a row of the operand; rows between consecutive quads of a thread. */
        QUADS = ALONG_K ? BK / 4 : OUTER / 4,
        STEP = THREADS / QUADS
    };
    static_assert(COUNT * THREADS * 4 == OUTER * BK, "threads have equal parts");
    static_assert(STEP * QUADS == THREADS, "the quads of a thread lie in one column");
    quad held[COUNT];

    template <class Operand> __device__ void read(const Operand &from, int outer, int k) {
        const int row = ALONG_K ? outer : k, column = ALONG_K ? k : outer;
        if (holds(from.rows, row + (ALONG_K ? OUTER : BK), column + 4 * QUADS)) {
            read_whole(from.rows, row + threadIdx.x / QUADS, column + threadIdx.x % QUADS * 4);
            return;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int q = threadIdx.x + i * THREADS;
            held[i] = from.read(outer + (ALONG_K ? q / QUADS : q % QUADS * 4),
                                k + (ALONG_K ? q % QUADS * 4 : q / QUADS));
        }
    }

    /* Read an interior panel, without bounds checks. */
    template <class Rows> __device__ void read_whole(const Rows &from, int row, int column) {
        if constexpr (is_matrix<Rows>) {
            const auto *at = from.at + row * from.stride + column;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                held[i] = load_four(at + i * STEP * from.stride);
        }
    }

    __device__ void write(quad *at) const {
        float *to = (float *)(void *)at;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int q = threadIdx.x + i * THREADS;
            if (ALONG_K) {
                const int outer = q / QUADS, k = q % QUADS * 4;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    to[(k + j) * STRIDE + outer] = held[i].x[j];
            } else {
                const int outer = q % QUADS, k = q / QUADS;
                at[k * (STRIDE / 4) + outer] = held[i];
            }
        }
    }
};

/* sums += a b^T for one k. The groups of 4 are A_STEP quads apart in a, B_STEP in b. */
template <int TM, int TN, int A_STEP, int B_STEP>
__device__ static inline void multiply_add(float (*sums)[TN], const quad *a, const quad *b) {
    quad x[TM / 4], y[TN / 4];
#pragma unroll
    for (int i = 0; i < TM / 4; i++)
        x[i] = a[i * A_STEP];
#pragma unroll
    for (int j = 0; j < TN / 4; j++)
        y[j] = b[j * B_STEP];
#pragma unroll
    for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++)
            sums[i][j] = fmaf(x[i / 4].x[i % 4], y[j / 4].x[j % 4], sums[i][j]);
}

/* A thread's first row and first column in a tile, in quads. */
template <class S> __device__ static inline int first_row() {
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    if (warps == 1) return threadIdx.x / S::ACROSS;
    return threadIdx.x / 32 / warps * (32 / S::ACROSS) + threadIdx.x % 32 / S::ACROSS;
}

template <class S> __device__ static inline int first_column() {
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    return threadIdx.x / 32 % warps * S::ACROSS + threadIdx.x % S::ACROSS;
}

/* Row in the tile of a thread's row i. */
template <class S> __device__ static inline int row_of(int i) {
    return i / 4 * (4 * S::BM / S::TM) + 4 * first_row<S>() + i % 4;
}

/* sums = the chains over k from `begin` to `end`. `shared` has two halves of S::QUADS; `half` is
 * written next, and no thread still reads it. */
template <class S, class A, class B>
__device__ static inline void sum_block(float (*sums)[S::TN], const A &a, const B &b, int row,
                                        int column, int begin, int end, quad *shared,
                                        int *half) {
    panel<S::THREADS, S::BM, S::BK, A::ALONG_K> of_a;
    panel<S::THREADS, S::BN, S::BK, B::ALONG_K> of_b;
#pragma unroll
    for (int i = 0; i < S::TM; i++)
#pragma unroll
        for (int j = 0; j < S::TN; j++)
            sums[i][j] = 0.0f;
    of_a.read(a, row, begin);
    of_b.read(b, column, begin);
    for (int k = begin; k < end; k += S::BK, *half ^= 1) {
        quad *panel_a = shared + *half * S::QUADS, *panel_b = panel_a + S::A_QUADS;
        of_a.write(panel_a);
        of_b.write(panel_b);
        __syncthreads();
        if (k + S::BK < end) {
            of_a.read(a, row, k + S::BK);
            of_b.read(b, column, k + S::BK);
        }
        const quad *x = panel_a + first_row<S>(), *y = panel_b + first_column<S>();
        const int left = end - k;
        if (left >= S::BK) {
#pragma unroll S::UNROLLED
            for (int q = 0; q < S::BK; q++)
                multiply_add<S::TM, S::TN, S::BM / S::TM, S::BN / S::TN>(
                    sums, x + q * (S::A_STRIDE / 4), y + q * (S::B_STRIDE / 4));
        } else {
#pragma unroll 1
            for (int q = 0; q < left; q++)
                multiply_add<S::TM, S::TN, S::BM / S::TM, S::BN / S::TN>(
                    sums, x + q * (S::A_STRIDE / 4), y + q * (S::B_STRIDE / 4));
        }
    }
}

/* --- kernels --- */

/* Add a block's sums to four columns of a row. Between blocks, partial sums are in c; for a bf16 c,
 * in c.between or `held`. WHOLE: interior tile, aligned; skip bounds checks. */
template <bool WHOLE, class Rows, class T>
__device__ static inline void end_four(const output<Rows, T> &c, bool first, bool last, int row,
                                       int column, const float *sums, float *held) {
    constexpr bool HOLDS = is_rounded<T>;
    T *to = c.at + c.rows(row) + column;
    const bool reads = first ? c.add : !HOLDS, writes = last || !HOLDS;
    const bool quads = WHOLE || c.quads;
    float *between = HOLDS && c.between ? c.between + (int64_t)row * c.n + column : NULL;
    quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (reads && quads) q = load_four(to);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!WHOLE && column + j >= c.n) continue;
        if (reads && !quads) q.x[j] = load(to, j);
        if (HOLDS && !first) q.x[j] = between ? between[j] : held[j];
        q.x[j] = end_block(c, first, column + j, q.x[j], sums[j]);
        if (HOLDS && !between) held[j] = q.x[j];
        if (HOLDS && between) between[j] = q.x[j];
        if (writes && !quads) store(to, j, q.x[j]);
    }
    if (writes && quads) store_four(to, q);
}

/* Add a block's sums to a thread's part of the tile at [row, column]. */
template <class S, bool WHOLE, class Rows, class T>
__device__ static inline void end_tile(const output<Rows, T> &c, bool first, bool last, int row,
                                       int column, const float (*sums)[S::TN],
                                       float (*held)[is_rounded<T> ? S::TN : 4]) {
#pragma unroll
    for (int i = 0; i < S::TM; i++)
#pragma unroll
        for (int j = 0; j < S::TN; j += 4) {
            const int at_row = row + row_of<S>(i);
            const int at_column = column + j / 4 * (4 * S::BN / S::TN) + 4 * first_column<S>();
            if (!WHOLE && (at_row >= c.m || at_column >= c.n)) continue;
            end_four<WHOLE>(c, first, last, at_row, at_column, sums[i] + j,
                            is_rounded<T> ? held[i] + j : NULL);
        }
}

/* Semaphores of serial split-K: a counter of started thread blocks, then for each tile the next
 * block of k to add. A thread block takes its number when it starts. All lower numbers have then
 * started, in whatever order the GPU schedules thread blocks, so a wait cannot deadlock. */
__device__ static inline void wait_for_turn(const int *turn, int block) {
    if (threadIdx.x == 0) {
        while (*(const volatile int *)turn != block)
            ;
        __threadfence();
    }
    __syncthreads();
}

__device__ static inline void pass_turn(int *turn, int block) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        *(volatile int *)turn = block + 1;
    }
}

/* Tiles are numbered along the shorter side first, so that concurrent ones read few rows and
 * columns. If `turns` is NULL, a thread block computes all blocks of k of its tile. Otherwise
 * (serial split-K) it computes one block: numbers cover block 0 of all tiles, then block 1, and so
 * on. */
template <class S, class A, class B, class Rows, class T>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    tiles(A a, B b, output<Rows, T> c, cuts k, int *turns) {
    enum { HOLDS = is_rounded<T> };
    __shared__ quad shared[2 * S::QUADS];
    /* Row, column and number of the tile; its first block of k. They are in shared memory, to leave
     * registers to the sums. */
    __shared__ int place[4];
    if (threadIdx.x == 0) {
        const int rows = (c.m + S::BM - 1) / S::BM, columns = (c.n + S::BN - 1) / S::BN;
        const int number = turns ? atomicAdd(turns, 1) : (int)blockIdx.x;
        const int tile = number % (rows * columns);
        const bool down = rows < columns;
        place[0] = (down ? tile % rows : tile / columns) * S::BM;
        place[1] = (down ? tile / rows : tile % columns) * S::BN;
        place[2] = tile;
        place[3] = number / (rows * columns);
    }
    __syncthreads();
    enter(a.rows);
    enter(b.rows);
    const int end = turns ? place[3] + 1 : k.count;
    float held[HOLDS ? S::TM : 1][HOLDS ? S::TN : 4];
    int half = 0;
    for (int block = place[3]; block < end; block++) {
        float sums[S::TM][S::TN];
        sum_block<S>(sums, a, b, place[0], place[1], k.begin(block), k.end(block), shared,
                     &half);
        const int row = place[0], column = place[1];
        const bool first = block == 0, last = block + 1 == k.count;
        if (turns && !first) wait_for_turn(turns + 1 + place[2], block);
        if (c.quads && row + S::BM <= c.m && column + S::BN <= c.n)
            end_tile<S, true>(c, first, last, row, column, sums, held);
        else
            end_tile<S, false>(c, first, last, row, column, sums, held);
        if (turns && !last) pass_turn(turns + 1 + place[2], block);
    }
}

/* --- host --- */

/* SMs of the GPU that tile shapes are tuned for; no bit depends on it. */
enum { MULTIPROCESSORS = 132 };

template <class S> static inline int64_t tiles_of(int64_t m, int64_t n) {
    return ceil_div(m, S::BM) * ceil_div(n, S::BN);
}

/* Estimated SM utilization for `blocks` equal thread blocks (wave quantization). Fewer than two
 * thread blocks per SM expose memory latency. */
static inline double busy(int64_t blocks) {
    const double all = (double)(ceil_div(blocks, MULTIPROCESSORS) * MULTIPROCESSORS);
    return (blocks < 2 * MULTIPROCESSORS ? 0.75 : 1.0) * (double)blocks / all;
}

/* Limits of serial split-K: tiles; floats of partial sums of a bf16 c. */
enum { MOST_TILES = 4095, MOST_BETWEEN = 1 << 21 };

/* Return whether to use serial split-K. Its overhead is taken as 5 %. */
template <class S, class Rows, class T>
static inline bool in_turns(const output<Rows, T> &c, const cuts &k) {
    const int64_t tiles = tiles_of<S>(c.m, c.n);
    if (tiles > MOST_TILES || (is_rounded<T> && (int64_t)c.m * c.n > MOST_BETWEEN))
        return false;
    return 0.95 * busy(tiles * k.count) > busy(tiles);
}

/* Bytes of workspace; a smaller m or k never needs more. */
int64_t workspace_bytes(int64_t m, int64_t n, int blocks, cgp_dtype type);

/* Launch with tile shape S, with or without serial split-K. */
template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_as(const A &a, const B &b, output<Rows, T> c, const cuts &k,
                                 bool turns, void *workspace, cudaStream_t stream) {
    const int64_t tiles_ = tiles_of<S>(c.m, c.n), count = turns ? tiles_ * k.count : tiles_;
    c.quads = c.n % 4 == 0 && is_aligned(c.at);
    if (turns)
        CGP__TRY_CUDA(clear_bytes(workspace, (1 + tiles_) * (int64_t)sizeof(int), stream));
    if (turns && is_rounded<T>) c.between = (float *)workspace + 1 + MOST_TILES;
    return launch(tiles<S, A, B, Rows, T>, dim3((unsigned)count), dim3(S::THREADS), stream, a,
                  b, c, k, turns ? (int *)workspace : (int *)NULL);
}

/* Return whether int can index a size, up to the end of the last tile or block. */
static inline bool fits(int64_t size) {
    return size <= INT32_MAX / 2;
}

template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_shape(const A &a, const B &b, const output<Rows, T> &c,
                                    const cuts &k, void *workspace, cudaStream_t stream) {
    return run_as<S>(a, b, c, k, in_turns<S>(c, k), workspace, stream);
}

/* Choose the tile shape. Larger tiles read less memory; smaller ones are used if larger ones would
 * leave SMs idle. */
template <class A, class B, class Rows, class T>
static inline cudaError_t run(const A &a, const B &b, const output<Rows, T> &c, const cuts &k,
                              void *workspace, cudaStream_t stream) {
    if (c.m <= few::BM) return run_shape<few>(a, b, c, k, workspace, stream);
    if constexpr (is_rounded<T>) {
        return run_shape<rounding>(a, b, c, k, workspace, stream);
    } else {
        if (tiles_of<large>(c.m, c.n) * k.count >= 5 * MULTIPROCESSORS)
            return run_shape<large>(a, b, c, k, workspace, stream);
        if (tiles_of<medium>(c.m, c.n) * k.count >= 2 * MULTIPROCESSORS)
            return run_shape<medium>(a, b, c, k, workspace, stream);
        return run_shape<small>(a, b, c, k, workspace, stream);
    }
}

} // namespace gemm

/* sum [width] = or += the rows of x [rows, width], in blocks of 64 in order. */
int64_t cgp__cuda_sum_rows_workspace(int64_t rows, int64_t width);
template <class T>
cudaError_t cgp__cuda_sum_rows(float *sum, const T *x, int64_t rows, int64_t width, bool add,
                               void *workspace, cudaStream_t stream);

#endif
