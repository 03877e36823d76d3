/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cuh -- c [m, n] = or += a [m, k] b [k, n] + bias [n] in exact f32; a, b and c of f32 or
 *bf16.
 *
 *            BK                BN
 *         +---+---+     +---+---+---+      A thread block makes a tile BM x BN of c. Tile by tile of BK of k, panels of a and b
 *      BM |   |   |     |   |   |   | BK   go from global memory through registers to one half of shared memory, while the
 *         +---+---+     |   |   |   |      threads multiply what lies in the other. A thread has TM x TN sums in registers,
 *                       +---+---+---+      in groups of 4 x 4.
 *
 * An element of c is a chain of FMAs over the k of a block, in order, from zero; the bias and c's
 * previous value are added to the chain of block 0, and the other blocks' are added in their order:
 *
 *     c = chain 2 + (chain 1 + ((chain 0 + bias) + previous))
 *
 * The blocks (`cuts`) are a function of k alone, at most 512 deep: those of the cpu backend, with
 * its bits. Where a tile for each thread block would leave multiprocessors idle, thread blocks make
 * one block of k each, and add it to c in turns: the same chains and sums. bf16 is widened when it
 * is read; c is rounded once, at the end: until then it lies in registers, or in the workspace.
 *
 * a and b are read by rows of contiguous elements, of a matrix or of windows of an image
 * (windows.cuh); along_k and across_k say how a row lies in the GEMM. */
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

template <class Rows> constexpr bool is_matrix = false;
template <class T> constexpr bool is_matrix<matrix<T>> = true;

/* One of several matrices, `step` elements apart: that of the thread block's blockIdx.z, once it
 * has entered it. */
template <class T> struct batched : matrix<T> { int64_t step; };
template <class T> constexpr bool is_matrix<batched<T>> = true;

template <class Rows> __device__ static inline void enter(Rows &) {
}

template <class T> __device__ static inline void enter(batched<T> &rows) {
    rows.at += blockIdx.z * rows.step;
}

/* Return whether rows and columns before these are all there, in quads; of a matrix alone. */
template <class Rows>
__device__ static inline bool holds(const Rows &x, int rows, int columns) {
    if constexpr (is_matrix<Rows>)
        return x.quads && rows <= x.rows && columns <= x.columns;
    else
        return false;
}

/* An operand's element (outer, k): outer is a row of a or a column of b. Its rows lie along k, or
 * across. */
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
    /* Set where it is launched: every fourth element of a row is aligned for four. */
    bool quads;
    /* [m, n]: where sums of a rounded c lie between blocks of k; NULL: in registers. */
    float *between;
};

template <class T> static inline output<plain_rows, T> output_of(T *at, int64_t m, int64_t n) {
    return {at, {n}, (int)m, (int)n, NULL, false, false, NULL};
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

/* RESIDENT: thread blocks on a multiprocessor, a limit of their registers; 0: the compiler's
 * choice. ACROSS: threads of a warp along a row of the tile. UNROLLED: steps of k. */
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
        /* Floats from one k to the next in shared memory, of a and b. */
        A_STRIDE = BM + 4,
        B_STRIDE = BN + 4,
        /* Of the panels of BK. */
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
/* Of a rounded c, which takes registers for sums twice. */
typedef shape<64, 64, 16, 4, 4, 2> rounding;

/* A thread's part of a panel of OUTER x BK, on its way to [BK][OUTER + 4] in shared memory. */
template <int THREADS, int OUTER, int BK, bool ALONG_K> struct panel {
    enum {
        COUNT = OUTER * BK / 4 / THREADS,
        STRIDE = OUTER + 4,
        /* Of a row of the operand, and rows from one quad of a thread to its next. */
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

    /* The panel has no edge of the matrix in it. */
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
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    if (warps == 1) return threadIdx.x / S::ACROSS;
    return threadIdx.x / 32 / warps * (32 / S::ACROSS) + threadIdx.x % 32 / S::ACROSS;
}

template <class S> __device__ static inline int first_column() {
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    return threadIdx.x / 32 % warps * S::ACROSS + threadIdx.x % S::ACROSS;
}

/* Row i of a thread, of its tile. */
template <class S> __device__ static inline int row_of(int i) {
    return i / 4 * (4 * S::BM / S::TM) + 4 * first_row<S>() + i % 4;
}

/* sums = the chains over k from `begin` to `end`. `shared` has two halves of S::QUADS; `half` is
 * the next to be written: no thread reads it any more. */
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

/* Four columns of a row of a tile after a block. Between blocks they lie in c; if c is rounded, in
 * c.between or in `held`. WHOLE: the tile has no edge of c in it, and quads. */
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

/* A thread's part of a tile at [row, column] after a block. */
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

/* Turns: the number of the next thread block, and for each tile that of its next block of k. A
 * thread block takes its number when it begins, so those before it have begun, in whatever order a
 * GPU begins them: nothing waits for what may never run. */
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

/* Tiles are numbered along the shorter side first, so that those of one time read little. `turns`
 * NULL: a thread block makes all blocks of k of a tile; otherwise one: numbers run through all
 * tiles for block 0, then for block 1, and so on. */
template <class S, class A, class B, class Rows, class T>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    tiles(A a, B b, output<Rows, T> c, cuts k, int *turns) {
    enum { HOLDS = is_rounded<T> };
    __shared__ quad shared[2 * S::QUADS];
    /* Row and column of the tile, its number, its first block. Read again for each block of k:
     * addresses in c must not take registers from the sums. */
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

/* Of the GPU that shapes are chosen for, which changes no bit. */
enum { MULTIPROCESSORS = 132 };

template <class S> static inline int64_t tiles_of(int64_t m, int64_t n) {
    return ceil_div(m, S::BM) * ceil_div(n, S::BN);
}

/* The part of their time in which multiprocessors multiply, with so many equal thread blocks: some
 * are done before others, and with less than two each they wait for memory. */
static inline double busy(int64_t blocks) {
    const double all = (double)(ceil_div(blocks, MULTIPROCESSORS) * MULTIPROCESSORS);
    return (blocks < 2 * MULTIPROCESSORS ? 0.75 : 1.0) * (double)blocks / all;
}

/* Tiles that take turns, at most; floats between blocks of k of a rounded c, at most. */
enum { MOST_TILES = 4095, MOST_BETWEEN = 1 << 21 };

/* Return whether thread blocks make one block of k each: to take turns costs a twentieth. */
template <class S, class Rows, class T>
static inline bool in_turns(const output<Rows, T> &c, const cuts &k) {
    const int64_t tiles = tiles_of<S>(c.m, c.n);
    if (tiles > MOST_TILES || (is_rounded<T> && (int64_t)c.m * c.n > MOST_BETWEEN))
        return false;
    return 0.95 * busy(tiles * k.count) > busy(tiles);
}

/* Bytes of workspace: for this m and k and all smaller ones, and a c of this type. */
int64_t workspace_bytes(int64_t m, int64_t n, int blocks, cgp_dtype type);

/* With a tile's shape, in turns or not. */
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

/* Rows, columns and k are numbered by int, the end of the last tile or block too. */
static inline bool fits(int64_t size) {
    return size <= INT32_MAX / 2;
}

template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_shape(const A &a, const B &b, const output<Rows, T> &c,
                                    const cuts &k, void *workspace, cudaStream_t stream) {
    return run_as<S>(a, b, c, k, in_turns<S>(c, k), workspace, stream);
}

/* The larger the tiles, the less is read; smaller ones where larger ones would leave
 * multiprocessors idle. */
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
