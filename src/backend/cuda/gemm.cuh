/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cuh -- c [m, n] = or += a [m, k] b [k, n] + bias [n] in exact f32; a, b and c of f32 or bf16.
 *
 *            BK                BN
 *         +---+---+     +---+---+---+      A thread block makes a tile BM x BN of c. Tile by tile of BK of k, panels of a and b
 *      BM |   |   |     |   |   |   | BK   go from global memory through registers to one half of shared memory, while the
 *         +---+---+     |   |   |   |      threads multiply what lies in the other. A thread has TM x TN sums in registers,
 *                       +---+---+---+      in groups of 4 x 4.
 *
 * An element of c is a chain of FMAs over the k of a block, in order, from zero; the bias and c's previous value are added to the
 * chain of block 0, and the other blocks' are added in their order:
 *
 *     c = chain 2 + (chain 1 + ((chain 0 + bias) + previous))
 *
 * The blocks (`cuts`) are a function of k alone, at most 512 deep: those of the cpu backend, with its bits. Where c has few tiles,
 * thread blocks make one block of k each, a kernel of its own adds them: the same chains and sums. bf16 is widened when it is read;
 * c is rounded once, at the end: until then it lies in registers, or in parts that are added all at once.
 *
 * a and b are read by rows of contiguous elements, of a matrix or of windows of an image (windows.cuh); along_k and across_k say
 * how a row lies in the GEMM. */
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

/* --- blocks of k --- */

/* k is made of spans, a span of parts; the last of either may be shorter. A part is a block. */
struct cuts {
    int k, span, part;
    /* Parts of a span; blocks. */
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

/* Equal parts of at most 512, multiples of 16 but for the last. */
int64_t part_of(int64_t k);
cuts even_cuts(int64_t k);

/* --- operands --- */

/* Rows of contiguous elements, `stride` apart. */
template <class T> struct matrix {
    const T *at;
    int64_t stride;
    int rows, columns;
    /* Every fourth element of a row is aligned for four. */
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

/* One of several matrices, `step` elements apart: that of the thread block's blockIdx.z, once it has entered it. */
template <class T> struct batched : matrix<T> { int64_t step; };

template <class Rows> __device__ static inline void enter(Rows &) {}

template <class T> __device__ static inline void enter(batched<T> &rows) {
    rows.at += blockIdx.z * rows.step;
}

/* An operand's element (outer, k): outer is a row of a or a column of b. Its rows lie along k, or across. */
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

/* Of the matrix of blockIdx.z. */
struct batched_rows {
    int64_t stride, step;
    __device__ int64_t operator()(int row) const {
        return blockIdx.z * step + row * stride;
    }
};

/* `rows` gives the place of a row. */
template <class Rows, class T> struct output {
    T *at;
    Rows rows;
    int m, n;
    /* NULL: none. */
    const float *bias;
    bool add;
    /* Set by run(): every fourth element of a row, here and in the workspace, is aligned for four. */
    bool quads;
};

template <class T> static inline output<plain_rows, T> output_of(T *at, int64_t m, int64_t n) {
    return {at, {n}, (int)m, (int)n, NULL, false, false};
}

/* Sums of blocks cannot lie in c before they are complete. */
template <class T> constexpr bool is_rounded = sizeof(T) < sizeof(float);

/* An element after a block's chain: `before` is what it was. */
template <class Rows, class T>
__device__ static inline float end_block(const output<Rows, T> &c, bool first, int column,
                                         float before, float chain) {
    float sum = chain;
    if (first && c.bias) sum = sum + c.bias[column];
    if (!first || c.add) sum = sum + before;
    return sum;
}

/* --- tiles --- */

/* RESIDENT: thread blocks on a multiprocessor, a limit of their registers; 0: the compiler's choice. */
template <int BM_, int BN_, int BK_, int TM_, int TN_, int RESIDENT_ = 0> struct shape {
    enum {
        BM = BM_,
        BN = BN_,
        BK = BK_,
        TM = TM_,
        TN = TN_,
        RESIDENT = RESIDENT_,
        THREADS = BM / TM * (BN / TN),
        /* Floats from one k to the next in shared memory, of a and b. */
        A_STRIDE = BM + 4,
        B_STRIDE = BN + 4,
        /* Of the panels of BK. */
        A_QUADS = BK * A_STRIDE / 4,
        B_QUADS = BK * B_STRIDE / 4,
        QUADS = A_QUADS + B_QUADS
    };
};

typedef shape<128, 64, 16, 8, 8> large;
typedef shape<64, 64, 16, 8, 4> medium;
typedef shape<32, 64, 32, 4, 4, 4> small;
typedef shape<16, 64, 32, 4, 4, 4> few;
/* Of a rounded c, which takes registers for sums twice. */
typedef shape<64, 64, 16, 4, 4> rounding;

/* A thread's part of a panel of OUTER x BK, on its way to [BK][OUTER + 4] in shared memory. */
template <int THREADS, int OUTER, int BK, bool ALONG_K> struct panel {
    enum { COUNT = OUTER * BK / 4 / THREADS, STRIDE = OUTER + 4 };
    static_assert(COUNT * THREADS * 4 == OUTER * BK, "threads have equal parts");
    quad held[COUNT];

    template <class Operand> __device__ void read(const Operand &from, int outer, int k) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int q = threadIdx.x + i * THREADS;
            held[i] = ALONG_K ? from.read(outer + q / (BK / 4), k + q % (BK / 4) * 4)
                              : from.read(outer + q % (OUTER / 4) * 4, k + q / (OUTER / 4));
        }
    }

    __device__ void write(quad *at) const {
        float *to = (float *)(void *)at;
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int q = threadIdx.x + i * THREADS;
            if (ALONG_K) {
                const int outer = q / (BK / 4), k = q % (BK / 4) * 4;
#pragma unroll
                for (int j = 0; j < 4; j++)
                    to[(k + j) * STRIDE + outer] = held[i].x[j];
            } else {
                const int outer = q % (OUTER / 4), k = q / (OUTER / 4);
                at[k * (STRIDE / 4) + outer] = held[i];
            }
        }
    }
};

/* sums += a b^T for one k: a's groups of 4 are A_STEP quads apart, b's B_STEP. */
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

/* A thread's place in a tile: the first of its rows and columns, in quads. */
template <class S> __device__ static inline int first_row() {
    return threadIdx.x / (S::BN / S::TN);
}

template <class S> __device__ static inline int first_column() {
    return threadIdx.x % (S::BN / S::TN);
}

/* Row i of a thread, of its tile. */
template <class S> __device__ static inline int row_of(int i) {
    return i / 4 * (4 * S::BM / S::TM) + 4 * first_row<S>() + i % 4;
}

/* sums = the chains over k from `begin` to `end`. `shared` has two halves of S::QUADS; `half` is the next to be written: no thread
 * reads it any more. */
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
#pragma unroll 4
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

/* Four columns of a row of a tile, to `part` [m, n]. */
__device__ static inline void store_part(float *part, int n, bool quads, int row, int column,
                                         const float *sums) {
    float *to = part + (int64_t)row * n + column;
    if (quads) {
        store_four(to, {{sums[0], sums[1], sums[2], sums[3]}});
        return;
    }
    for (int j = 0; j < 4 && column + j < n; j++)
        to[j] = sums[j];
}

/* Four columns of a row of a tile after a block. Between blocks they lie in c, or in `held` if c is rounded. */
template <class Rows, class T>
__device__ static inline void end_four(const output<Rows, T> &c, bool first, bool last, int row,
                                       int column, const float *sums, float *held) {
    constexpr bool HOLDS = is_rounded<T>;
    T *to = c.at + c.rows(row) + column;
    const bool reads = first ? c.add : !HOLDS;
    const bool writes = last || !HOLDS;
    quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (reads && c.quads) q = load_four(to);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (column + j >= c.n) continue;
        if (reads && !c.quads) q.x[j] = load(to, j);
        if (HOLDS && !first) q.x[j] = held[j];
        q.x[j] = end_block(c, first, column + j, q.x[j], sums[j]);
        if (HOLDS) held[j] = q.x[j];
        if (writes && !c.quads) store(to, j, q.x[j]);
    }
    if (writes && c.quads) store_four(to, q);
}

/* Tiles are numbered by blockIdx.x, along the shorter side first, so that those of one time read little. parts == NULL: all blocks
 * of k, to c; otherwise block `first` + blockIdx.y to its parts [m, n]. */
template <class S, class A, class B, class Rows, class T>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    tiles(A a, B b, output<Rows, T> c, cuts k, int first, float *parts) {
    enum { HOLDS = is_rounded<T> };
    __shared__ quad shared[2 * S::QUADS];
    /* Of the tile. Read again for each block of k: addresses in c must not take registers from the sums. */
    __shared__ int place[2];
    const int rows = (c.m + S::BM - 1) / S::BM, columns = (c.n + S::BN - 1) / S::BN;
    const bool down = rows < columns;
    const int row = (down ? blockIdx.x % rows : blockIdx.x / columns) * S::BM;
    const int column = (down ? blockIdx.x / rows : blockIdx.x % columns) * S::BN;
    if (threadIdx.x == 0) {
        place[0] = row;
        place[1] = column;
    }
    enter(a.rows);
    enter(b.rows);
    const int begin = parts ? first + (int)blockIdx.y : 0;
    const int end = parts ? begin + 1 : k.count;
    float *part = parts ? parts + (int64_t)blockIdx.y * c.m * c.n : NULL;
    float held[HOLDS ? S::TM : 1][HOLDS ? S::TN : 4];
    int half = 0;
    for (int block = begin; block < end; block++) {
        float sums[S::TM][S::TN];
        sum_block<S>(sums, a, b, row, column, k.begin(block), k.end(block), shared, &half);
#pragma unroll
        for (int i = 0; i < S::TM; i++)
#pragma unroll
            for (int j = 0; j < S::TN; j += 4) {
                const int at_row = place[0] + row_of<S>(i);
                const int at_column =
                    place[1] + j / 4 * (4 * S::BN / S::TN) + 4 * first_column<S>();
                if (at_row >= c.m || at_column >= c.n) continue;
                if (part)
                    store_part(part, c.n, c.quads, at_row, at_column, sums[i] + j);
                else
                    end_four(c, block == 0, block + 1 == end, at_row, at_column, sums[i] + j,
                             HOLDS ? held[i] + j : NULL);
            }
    }
}

/* c, after blocks `first` .. `first` + count - 1; all of them, if c is rounded. */
template <class Rows, class T>
__global__ void add_parts(output<Rows, T> c, int first, int count, const float *parts) {
    const int size = c.m * c.n;
    FOR_EACH(i, size) {
        const int row = (int)i / c.n, column = (int)i % c.n;
        T *to = c.at + c.rows(row) + column;
        float sum = first > 0 || c.add ? load(to, 0) : 0.0f;
        for (int part = 0; part < count; part++)
            sum = end_block(c, first + part == 0, column, sum, parts[(int64_t)part * size + i]);
        store(to, 0, sum);
    }
}

/* --- host --- */

/* Of the GPU that shapes are chosen for, which changes no bit. */
enum { MULTIPROCESSORS = 132 };

/* Thread blocks that keep it busy. */
template <class S> constexpr int64_t busy() {
    return MULTIPROCESSORS * 1024 / S::THREADS;
}

template <class S> static inline int64_t tiles_of(int64_t m, int64_t n) {
    return ceil_div(m, S::BM) * ceil_div(n, S::BN);
}

/* Blocks of k at a time, in even runs: 1: each thread block makes all. */
template <class S, class Rows, class T>
static inline int at_a_time(const output<Rows, T> &c, const cuts &k) {
    const int64_t most = busy<S>() / tiles_of<S>(c.m, c.n);
    if (most <= 1 || (is_rounded<T> && most < k.count)) return 1;
    return (int)ceil_div(k.count, ceil_div(k.count, most));
}

/* Bytes of workspace: for this m and k and all smaller ones. */
int64_t workspace_bytes(int64_t m, int64_t n, int blocks);

/* With a tile's shape, `together` blocks of k at a time: 1 or all, if c is rounded. */
template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_as(const A &a, const B &b, output<Rows, T> c, const cuts &k,
                                 int together, void *workspace, cudaStream_t stream) {
    const unsigned grid = (unsigned)tiles_of<S>(c.m, c.n);
    float *parts = (float *)workspace;
    c.quads = c.n % 4 == 0 && is_aligned(c.at) && is_aligned(parts);
    if (together == 1)
        return launch(tiles<S, A, B, Rows, T>, dim3(grid), dim3(S::THREADS), stream, a, b, c, k,
                      0, (float *)NULL);
    for (int first = 0; first < k.count; first += together) {
        const int left = k.count - first, count = left < together ? left : together;
        CGP__TRY_CUDA(launch(tiles<S, A, B, Rows, T>, dim3(grid, (unsigned)count),
                             dim3(S::THREADS), stream, a, b, c, k, first, parts));
        CGP__TRY_CUDA(launch(add_parts<Rows, T>, blocks_for((int64_t)c.m * c.n), dim3(BLOCK),
                             stream, c, first, count, parts));
    }
    return cudaSuccess;
}

/* Rows, columns and k are numbered by int, the end of the last tile or block too. */
static inline bool fits(int64_t size) {
    return size <= INT32_MAX / 2;
}

/* The larger the tiles, the less is read; smaller ones where larger ones would leave multiprocessors idle. */
template <class A, class B, class Rows, class T>
static inline cudaError_t run(const A &a, const B &b, const output<Rows, T> &c, const cuts &k,
                              void *workspace, cudaStream_t stream) {
    if (c.m <= few::BM) return run_as<few>(a, b, c, k, at_a_time<few>(c, k), workspace, stream);
    if constexpr (is_rounded<T>) {
        return run_as<rounding>(a, b, c, k, at_a_time<rounding>(c, k), workspace, stream);
    } else {
        if (tiles_of<large>(c.m, c.n) >= 2 * MULTIPROCESSORS)
            return run_as<large>(a, b, c, k, 1, workspace, stream);
        if (tiles_of<medium>(c.m, c.n) * k.count >= 2 * MULTIPROCESSORS)
            return run_as<medium>(a, b, c, k, at_a_time<medium>(c, k), workspace, stream);
        return run_as<small>(a, b, c, k, at_a_time<small>(c, k), workspace, stream);
    }
}

} // namespace gemm

/* sum [width] = or += the rows of x [rows, width], in blocks of 64 in order. */
int64_t cgp__cuda_sum_rows_workspace(int64_t rows, int64_t width);
template <class T>
cudaError_t cgp__cuda_sum_rows(float *sum, const T *x, int64_t rows, int64_t width, bool add,
                               void *workspace, cudaStream_t stream);

#endif
