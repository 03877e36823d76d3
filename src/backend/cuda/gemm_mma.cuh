/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_mma.cuh -- bf16 GEMM on tensor cores, with a multistage pipeline of asynchronous copies and
 * serial split-K (CUTLASS, "Efficient GEMM in CUDA", cutlass/gemm/threadblock/mma_multistage.h). It
 * sets c [m, n] to a [m, k] b [k, n] + bias [n], or adds to c. The operands `a` and `b` are bf16; c
 * is bf16 or f32.
 *
 *               WN          a ring of STAGES panels of `a` and `b` in shared memory:
 *        +---+---+---+---+
 *     WM | 0 | 2 | 4 | 6 |      stage s      multiplied
 *        +---+---+---+---+      stage s + 1  copied
 *        | 1 | 3 | 5 | 7 |      stage s + 2  being copied
 *        +---+---+---+---+      stage s + 3  being copied, in place of stage s - 1
 *
 * A thread block computes a BM x BN tile of c, in steps of BK along k. A warp computes WM x WN
 * elements of the tile. A panel has the same layout in shared memory as in global memory: its rows
 * run along k or across k. ldmatrix transposes rows that run across k.
 *
 * An element of c depends only on its row of `a` and its column of `b`. The sum of a k range begins
 * at zero, and mma instructions add to it in ascending order of k. The bits do not depend on the
 * tile shape, the place of a row in its tile, addresses or split-K. Beyond the end of k, both
 * operands count as zeros.
 *
 * Totals over k ranges are kept in registers. With split-K, they are kept in c or, if c is bf16, in
 * the workspace.
 *
 * ptxas 13.0 reports no spills. Registers of the instances on sm_80, sm_90 and sm_100, and shared
 * memory in KiB (tests/cuda/test_cuda_nvcc.sh prints them):
 *
 *     128 x 128      211 .. 242     198 .. 255     204 .. 244     80
 *     64 x 64        132 .. 168     120 .. 162     124 .. 168     40 */
#ifndef CGP_SRC_CUDA_GEMM_MMA_CUH
#define CGP_SRC_CUDA_GEMM_MMA_CUH

#include "backend/cuda/gemm.cuh"
#include "backend/cuda/mma.cuh"

namespace gemm {

/* --- tiles --- */

/* DOWN x ACROSS: arrangement of the warps of a thread block. RESIDENT: minimum number of resident
 * thread blocks per SM, which limits registers. */
template <int BM_, int BN_, int DOWN_, int ACROSS_, int RESIDENT_> struct mma_shape {
    enum {
        BM = BM_,
        BN = BN_,
        BK = 32,
        DOWN = DOWN_,
        RESIDENT = RESIDENT_,
        STAGES = 4,
        THREADS = MMA_WARP * DOWN * ACROSS_,
        WM = BM / DOWN,
        WN = BN / ACROSS_,
        /* Numbers of mma instructions in a column and in a row of a warp's part. */
        M = WM / MMA_M,
        N = WN / MMA_N,
        /* Numbers of elements of a panel of `a` and of a panel of `b`. Each number is for the
         * larger of the two layouts of a panel. */
        PANEL_A = BM * (BK + CHUNK),
        PANEL_B = BN * (BK + CHUNK),
        STAGE = PANEL_A + PANEL_B,
        BYTES = STAGES * STAGE * sizeof(bf16)
    };
};

typedef mma_shape<128, 128, 2, 4, 1> mma_large;
typedef mma_shape<64, 64, 2, 2, 3> mma_small;

static_assert(mma_large::BYTES == 81920,
              "dynamic shared memory of gemm::mma_tiles<gemm::mma_shape<128, 128, 2, 4, 1>");
static_assert(mma_small::BYTES == 40960,
              "dynamic shared memory of gemm::mma_tiles<gemm::mma_shape<64, 64, 2, 2, 3>");

/* --- panels --- */

/* Copies panels of OUTER x BK elements of an operand to shared memory. A row of a panel in shared
 * memory is 16 bytes longer than in the operand, so that the eight rows that ldmatrix reads at once
 * lie in different banks. */
template <class S, int OUTER, class Operand> struct mma_panel {
    enum {
        ALONG_K = Operand::ALONG_K,
        ROWS = ALONG_K ? OUTER : S::BK,
        COLUMNS = ALONG_K ? S::BK : OUTER,
        STRIDE = COLUMNS + CHUNK,
        /* Number of chunks (16 bytes) in a row, number of rows between a thread's chunks, and
         * number of chunks of a thread. */
        CHUNKS = COLUMNS / CHUNK,
        STEP = S::THREADS / CHUNKS,
        COUNT = ROWS / STEP
    };
    static_assert(COUNT * STEP == ROWS && STEP * CHUNKS == S::THREADS,
                  "threads have equal parts");
    static_assert(ROWS * STRIDE <= OUTER * (S::BK + CHUNK), "a stage has room for the panel");

    typedef decltype(Operand::rows) Rows;

    /* These functions return this thread's first row and first column of a panel. */
    __device__ static int row() {
        return (int)threadIdx.x / CHUNKS;
    }
    __device__ static int column() {
        return (int)threadIdx.x % CHUNKS * CHUNK;
    }

    /* These values are the same for all k: the places of a thread's rows along k, or the place of
     * its column across k. */
    typename Rows::row_place rows[ALONG_K ? COUNT : 1];
    typename Rows::column_place across;
    int outer;

    __device__ void begin(const Operand &x, int first) {
        outer = first;
        if (!ALONG_K) across = x.rows.column_of(first + column());
#pragma unroll
        for (int i = 0; ALONG_K && i < COUNT; i++)
            rows[i] = x.rows.row_of(first + row() + i * STEP);
    }

    /* Return this thread's row i of the panel at k. */
    __device__ typename Rows::row_place row_at(const Operand &x, int k, int i) const {
        if (ALONG_K) return rows[i % (ALONG_K ? COUNT : 1)];
        return x.rows.row_of(k + row() + i * STEP);
    }

    /* Start to copy the panel at k. */
    __device__ void load(bf16 *to, const Operand &x, int k) const {
        const typename Rows::column_place of_column =
            ALONG_K ? x.rows.column_of(k + column()) : across;
        bf16 *at = to + row() * STRIDE + column();
        if (!x.rows.vectors) {
            load_elements(at, x, k);
            return;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const bf16 *from = x.rows.find(row_at(x, k, i), of_column);
            copy_async(at + i * STEP * STRIDE, from ? from : x.rows.first(), from ? 16 : 0);
        }
    }

    /* Load a panel of an operand whose vectors are not aligned, element by element. */
    __device__ void load_elements(bf16 *at, const Operand &x, int k) const {
        int first = (ALONG_K ? k : outer) + column();
        /* Stop the compiler from holding the column offsets of all k in registers. */
        asm volatile("" : "+r"(first));
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const typename Rows::row_place of_row = row_at(x, k, i);
            eight elements;
#pragma unroll
            for (int j = 0; j < CHUNK; j++) {
                const bf16 *from = x.rows.find(of_row, x.rows.column_of(first + j));
                elements.x[j] = from ? *from : (bf16)0;
            }
            *(eight *)(void *)(at + i * STEP * STRIDE) = elements;
        }
    }
};

/* These functions return the first row and the first column of this warp's part of the tile. */
template <class S> __device__ static inline int warp_down() {
    return (int)threadIdx.x / MMA_WARP % S::DOWN * S::WM;
}
template <class S> __device__ static inline int warp_across() {
    return (int)threadIdx.x / MMA_WARP / S::DOWN * S::WN;
}

/* Add the products of a stage to the warp's sums. */
template <class S, class A, class B>
__device__ static inline void multiply_stage(float (&sums)[S::M][S::N][4], const bf16 *a,
                                             const bf16 *b) {
    enum {
        A_STRIDE = mma_panel<S, S::BM, A>::STRIDE,
        B_STRIDE = mma_panel<S, S::BN, B>::STRIDE
    };
#pragma unroll
    for (int k = 0; k < S::BK; k += MMA_K) {
        uint32_t x[S::M][4], y[S::N / 2][2][2];
#pragma unroll
        for (int m = 0; m < S::M; m++) {
            const int row = warp_down<S>() + m * MMA_M;
            if (A::ALONG_K)
                load_a<A_STRIDE>(x[m], a, row, k);
            else
                load_a_transposed<A_STRIDE>(x[m], a, row, k);
        }
#pragma unroll
        for (int n = 0; n < S::N / 2; n++) {
            const int column = warp_across<S>() + n * 2 * MMA_N;
            if (B::ALONG_K)
                load_b<B_STRIDE>(y[n], b, column, k);
            else
                load_b_transposed<B_STRIDE>(y[n], b, k, column);
        }
#pragma unroll
        for (int m = 0; m < S::M; m++)
#pragma unroll
            for (int n = 0; n < S::N; n++)
                mma(sums[m][n], x[m], y[n / 2][n % 2]);
    }
}

/* --- epilogue --- */

/* The place of a k range in its tile. `first` and `last` say that it is the tile's first or last
 * range. `split` says that each range of a tile has its own thread block (split-K). */
struct range_state {
    bool first, last, split;
};

template <class T> struct alignas(2 * sizeof(T)) pair { T x[2]; };

/* Add the sums of a k range to two columns of a row, and to their totals. `to` and `partials` are
 * the addresses of the columns. */
template <class Rows, class T>
__device__ static inline void epilogue_pair(const output<Rows, T> &c, const range_state &range,
                                            T *to, float *partials, int column,
                                            const float *sums, float *totals) {
    const bool in_c = range.first ? c.add : range.split && !is_rounded<T>;
    const bool paired = c.vectors && column + 2 <= c.n;
    pair<T> p = {};
    if (in_c && paired) p = *(const pair<T> *)(const void *)to;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if (column + j >= c.n) continue;
        if (in_c && !paired) p.x[j] = to[j];
        float before = totals[j];
        if (in_c)
            before = load(p.x, j);
        else if (range.split && !range.first)
            before = partials[j];
        totals[j] = epilogue_element(c, range.first, column + j, before, sums[j]);
        store(p.x, j, totals[j]);
        if (range.split && !range.last && is_rounded<T>)
            partials[j] = totals[j];
        else if ((range.split || range.last) && !paired)
            to[j] = p.x[j];
    }
    if (paired && (range.last || (range.split && !is_rounded<T>))) *(pair<T> *)(void *)to = p;
}

/* Add the sums of a k range to the warp's part of the tile at [row, column]. */
template <class S, class Rows, class T>
__device__ static inline void epilogue(const output<Rows, T> &c, const range_state &range,
                                       int row, int column, const float (&sums)[S::M][S::N][4],
                                       float (&totals)[S::M][S::N][4]) {
#pragma unroll
    for (int i = 0; i < 2 * S::M; i++) {
        const int at_row = row + warp_down<S>() + i * (MMA_M / 2) + lane() / 4;
        if (at_row >= c.m) continue;
        T *to = c.at + c.rows(at_row);
        float *partials = c.partials ? c.partials + (int64_t)at_row * c.n : NULL;
#pragma unroll
        for (int n = 0; n < S::N; n++) {
            const int at_column = column + warp_across<S>() + n * MMA_N + lane() % 4 * 2;
            if (at_column >= c.n) continue;
            epilogue_pair(c, range, to + at_column, partials ? partials + at_column : NULL,
                          at_column, &sums[i / 2][n][i % 2 * 2], &totals[i / 2][n][i % 2 * 2]);
        }
    }
}

/* --- kernel --- */

template <class S> __device__ static inline void clear_tile(float (&sums)[S::M][S::N][4]) {
#pragma unroll
    for (int m = 0; m < S::M; m++)
        clear_sums(sums[m]);
}

template <class S, class A, class B, class Rows, class T>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    mma_tiles(A a, B b, output<Rows, T> c, k_ranges k, int *semaphores) {
    DYNAMIC_SHARED(bf16, shared);
    __shared__ tile_place place;
    find_tile<S>(&place, c.m, c.n, semaphores);
    enter(a.rows);
    enter(b.rows);
    mma_panel<S, S::BM, A> of_a;
    mma_panel<S, S::BN, B> of_b;
    of_a.begin(a, place.row);
    of_b.begin(b, place.column);
    float sums[S::M][S::N][4], totals[S::M][S::N][4];
    clear_tile<S>(sums);
    clear_tile<S>(totals);
    int range = place.range, stage = 0;
    int range_end = k.end(range);
    const int begin = k.begin(range), end = semaphores ? range_end : k.k;
    const bool has_part =
        place.row + warp_down<S>() < c.m && place.column + warp_across<S>() < c.n;
    for (int s = 0; s + 1 < S::STAGES; s++) {
        bf16 *to = shared + s * S::STAGE;
        if (begin + s * S::BK < end) {
            of_a.load(to, a, begin + s * S::BK);
            of_b.load(to + S::PANEL_A, b, begin + s * S::BK);
        }
        commit_copies();
    }
    for (int at = begin; at < end; at += S::BK) {
        wait_for_copies<S::STAGES - 2>();
        __syncthreads();
        const int next = at + (S::STAGES - 1) * S::BK;
        if (next < end) {
            bf16 *to = shared + (stage + S::STAGES - 1) % S::STAGES * S::STAGE;
            of_a.load(to, a, next);
            of_b.load(to + S::PANEL_A, b, next);
        }
        commit_copies();
        const bf16 *panel = shared + stage * S::STAGE;
        if (has_part) multiply_stage<S, A, B>(sums, panel, panel + S::PANEL_A);
        stage = (stage + 1) % S::STAGES;
        if (at + S::BK < range_end) continue;
        const range_state state = {range == 0, range + 1 == k.count, semaphores != NULL};
        if (semaphores && range > 0) semaphore_wait(semaphores + 1 + place.tile, range);
        epilogue<S>(c, state, place.row, place.column, sums, totals);
        if (semaphores)
            semaphore_release(semaphores + 1 + place.tile, state.last ? 0 : range + 1);
        clear_tile<S>(sums);
        range_end = k.end(++range);
    }
}

/* --- host --- */

/* These functions return k ranges of equal depth, which is a multiple of BK. mma_k_ranges_of_rows()
 * is for a weight's gradient, in which k is the number of rows. It returns at most MAX_RANGES
 * ranges, because a tile adds them one after the other. */
k_ranges mma_k_ranges(int64_t k);
k_ranges mma_k_ranges_of_rows(int64_t rows);

/* Return the workspace size in bytes; a smaller m or k never needs more. */
int64_t workspace_bytes(int64_t m, int64_t n, int ranges, cgp_dtype type);

/* Launch `count` GEMMs with tile shape S. If `semaphores` is not NULL, launch one GEMM with serial
 * split-K. */
template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_mma_as(const A &a, const B &b, output<Rows, T> c,
                                     const k_ranges &k, int *semaphores, int64_t count,
                                     void *workspace, cudaStream_t stream) {
    const int64_t tiles_ = tiles_of<S>(c.m, c.n) * (semaphores ? k.count : 1);
    c.vectors = c.n % 2 == 0 && (uintptr_t)c.at % sizeof(pair<T>) == 0;
    c.partials = semaphores && is_rounded<T> ? (float *)workspace : NULL;
    return launch_shared(mma_tiles<S, A, B, Rows, T>,
                         dim3((unsigned)tiles_, 1, (unsigned)count), dim3(S::THREADS), S::BYTES,
                         stream, a, b, c, k, semaphores);
}

template <class S, class A, class B, class Rows, class T>
static inline cudaError_t run_mma_shape(const A &a, const B &b, const output<Rows, T> &c,
                                        const k_ranges &k, void *workspace,
                                        cudaStream_t stream) {
    int *semaphores = uses_split_k<S>(c, k) ? cgp__cuda_current()->semaphores : NULL;
    return run_mma_as<S>(a, b, c, k, semaphores, 1, workspace, stream);
}

/* Return whether large tiles would occupy all SMs and not extend far beyond c. */
template <class Rows, class T>
static inline bool uses_large(const output<Rows, T> &c, int64_t count) {
    const int64_t sms = cgp__cuda_current()->multiprocessors;
    return c.m > mma_small::BM && c.n > mma_small::BN &&
           count * tiles_of<mma_large>(c.m, c.n) >= sms;
}

template <class Operand>
constexpr bool is_bf16 = sizeof(typename decltype(Operand::rows)::element) == sizeof(bf16);

/* --- GEMMs of either type --- */

/* Return equal k ranges. */
template <class T> static inline k_ranges k_ranges_for(int64_t k) {
    return is_rounded<T> ? mma_k_ranges(k) : even_k_ranges(k);
}

template <class T> static inline k_ranges k_ranges_of_rows(int64_t rows) {
    return is_rounded<T> ? mma_k_ranges_of_rows(rows) : even_k_ranges(rows);
}

/* Return a kernel's weight in type T; in bf16, it is prepacked. */
template <class T> static inline const T *weight_of(const cgp_kernel_args *args) {
    return (const T *)(is_rounded<T> ? args->packed : (const void *)args->param[0]);
}

/* Enqueue a GEMM. In bf16, `k` comes from mma_k_ranges() or mma_k_ranges_of_rows(). */
template <class A, class B, class Rows, class T>
static inline cudaError_t run(const A &a, const B &b, const output<Rows, T> &c,
                              const k_ranges &k, void *workspace, cudaStream_t stream) {
    if constexpr (is_bf16<A>)
        return uses_large(c, k.count) ? run_mma_shape<mma_large>(a, b, c, k, workspace, stream)
                                      : run_mma_shape<mma_small>(a, b, c, k, workspace, stream);
    else
        return run_fma(a, b, c, k, stream);
}

/* Enqueue a batch of `count` GEMMs; a thread block computes all k ranges of a tile. */
template <class A, class B, class Rows, class T>
static inline cudaError_t run_batch(const A &a, const B &b, const output<Rows, T> &c,
                                    const k_ranges &k, int64_t count, cudaStream_t stream) {
    if constexpr (is_bf16<A>)
        return uses_large(c, count)
                   ? run_mma_as<mma_large>(a, b, c, k, NULL, count, NULL, stream)
                   : run_mma_as<mma_small>(a, b, c, k, NULL, count, NULL, stream);
    else
        return run_fma_batch(a, b, c, k, count, stream);
}

} // namespace gemm

#endif
