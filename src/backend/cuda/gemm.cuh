/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.cuh -- exact f32 GEMM with serial split-K (CUTLASS, "Efficient GEMM in CUDA"). It sets c [m,
 * n] to a [m, k] b [k, n] + bias [n], or adds to c.
 *
 *             BK                BN
 *          +---+---+     +---+---+---+
 *       BM |   |   |     |   |   |   | BK
 *          +---+---+     |   |   |   |
 *                        +---+---+---+
 *
 * A thread block computes a BM x BN tile of c, in steps of BK along k. Shared memory is
 * double-buffered. The threads multiply the panels of `a` and `b` in one half. Meanwhile they move
 * the next panels from global memory through registers to the other half. The largest tiles have a
 * ring of stages instead (gemm_ring.cuh). A thread has TM x TN accumulators in registers, in groups
 * of 4 x 4.
 *
 * The sum of a k range is a chain of FMAs, in order of k. The k ranges are at most 512 deep. They
 * equal the blocks of k in the cpu backend, so the results of both backends are bit-identical
 * (gemm_operands.cuh). Between k ranges, partial sums are stored in c. */
#ifndef CGP_SRC_CUDA_GEMM_CUH
#define CGP_SRC_CUDA_GEMM_CUH

#include "backend/cuda/gemm_ring.cuh"

namespace gemm {

/* Return whether a panel that ends at `rows` and `columns` is interior and aligned, so that bounds
 * checks can be skipped. Return false if the operand is not a matrix. */
template <class Rows>
__device__ static inline bool is_interior(const Rows &x, int rows, int columns) {
    if constexpr (is_matrix<Rows>)
        return x.vectors && rows <= x.rows && columns <= x.columns;
    else
        return false;
}

/* --- tiles --- */

/* RESIDENT: minimum number of resident thread blocks per SM, which limits registers; 0: the
 * compiler chooses. ACROSS: number of threads of a warp along a row of the tile. UNROLLED: number
 * of unrolled steps of k. STAGES: number of stages of the ring; 0: double buffering. */
template <int BM_, int BN_, int BK_, int TM_, int TN_, int RESIDENT_ = 0, int ACROSS_ = 8,
          int UNROLLED_ = 16, int STAGES_ = 0>
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
        STAGES = STAGES_,
        BUFFERS = STAGES > 0 ? STAGES : 2,
        /* Number of floats from one k index to the next in shared memory. */
        A_STRIDE = BM + 4,
        B_STRIDE = BN + 4,
        /* Size of a panel, in quads. */
        A_QUADS = BK * A_STRIDE / 4,
        B_QUADS = BK * B_STRIDE / 4,
        QUADS = A_QUADS + B_QUADS
    };
    static_assert(BN / TN % ACROSS == 0 && 32 % ACROSS == 0 &&
                      THREADS % (32 * (BN / TN / ACROSS)) == 0,
                  "warps divide a tile");
};

/* Tile shape for matrices whose rows are aligned for load_four(). This shape requires the
 * alignment. */
typedef shape<128, 128, 8, 8, 8, 2, 8, 8, 4> wide;
typedef shape<128, 64, 16, 8, 8, 3> large;
typedef shape<64, 64, 16, 8, 4, 4> medium;
typedef shape<32, 64, 32, 4, 4, 4> small;
/* Tile shape for small M (at most 16 rows), as in generation. */
typedef shape<16, 64, 32, 4, 4, 4> small_m;

/* A thread's part of an OUTER x BK panel. It is kept in registers until it is written to shared
 * memory as [BK][OUTER + 4]. */
template <int THREADS, int OUTER, int BK, bool ALONG_K> struct panel {
    enum {
        COUNT = OUTER * BK / 4 / THREADS,
        STRIDE = OUTER + 4,
        /* QUADS: number of quads in a row of the panel. STEP: number of rows between consecutive
         * quads of a thread. */
        QUADS = ALONG_K ? BK / 4 : OUTER / 4,
        STEP = THREADS / QUADS
    };
    static_assert(COUNT * THREADS * 4 == OUTER * BK, "threads have equal parts");
    static_assert(STEP * QUADS == THREADS, "the quads of a thread lie in one column");
    quad fragment[COUNT];

    template <class Operand> __device__ void read(const Operand &from, int outer, int k) {
        const int row = ALONG_K ? outer : k, column = ALONG_K ? k : outer;
        if (is_interior(from.rows, row + (ALONG_K ? OUTER : BK), column + 4 * QUADS)) {
            read_interior(from.rows, row + threadIdx.x / QUADS, column + threadIdx.x % QUADS * 4);
            return;
        }
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int q = threadIdx.x + i * THREADS;
            fragment[i] = from.read(outer + (ALONG_K ? q / QUADS : q % QUADS * 4),
                                    k + (ALONG_K ? q % QUADS * 4 : q / QUADS));
        }
    }

    /* Read an interior panel, without bounds checks. */
    template <class Rows> __device__ void read_interior(const Rows &from, int row, int column) {
        if constexpr (is_matrix<Rows>) {
            const auto *at = from.at + row * from.stride + column;
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                fragment[i] = load_four(at + i * STEP * from.stride);
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
                    to[(k + j) * STRIDE + outer] = fragment[i].x[j];
            } else {
                const int outer = q % QUADS, k = q / QUADS;
                at[k * (STRIDE / 4) + outer] = fragment[i];
            }
        }
    }
};

/* Add the product of `a` and `b`^T to `sums`, for one k index. Groups of 4 are A_STEP quads apart
 * in `a`, and B_STEP quads apart in `b`. */
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

/* Return a thread's first row or first column in a tile, in quads. */
template <class S> __device__ static inline int first_row() {
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    if (warps == 1) return threadIdx.x / S::ACROSS;
    return threadIdx.x / 32 / warps * (32 / S::ACROSS) + threadIdx.x % 32 / S::ACROSS;
}

template <class S> __device__ static inline int first_column() {
    constexpr int warps = S::BN / S::TN / S::ACROSS;
    return threadIdx.x / 32 % warps * S::ACROSS + threadIdx.x % S::ACROSS;
}

/* Return the row of the tile that is row i of this thread. */
template <class S> __device__ static inline int row_of(int i) {
    return i / 4 * (4 * S::BM / S::TM) + 4 * first_row<S>() + i % 4;
}

/* Add to `sums` the products for the next min(`left`, S::BK) k indices. */
template <class S>
__device__ static inline void multiply_panels(float (*sums)[S::TN], const quad *panels, int left) {
    const quad *x = panels + first_row<S>(), *y = panels + S::A_QUADS + first_column<S>();
    auto multiply = [&](int q) {
        multiply_add<S::TM, S::TN, S::BM / S::TM, S::BN / S::TN>(sums, x + q * (S::A_STRIDE / 4),
                                                                 y + q * (S::B_STRIDE / 4));
    };
    if (left >= S::BK) {
#pragma unroll S::UNROLLED
        for (int q = 0; q < S::BK; q++)
            multiply(q);
    } else {
#pragma unroll 1
        for (int q = 0; q < left; q++)
            multiply(q);
    }
}

/* Set sums to the chains of FMAs over the k range from `begin` to `end`. `shared` has S::BUFFERS
 * buffers of S::QUADS quads. Without a ring, `half` is the next half to write, and all threads must
 * have finished reading it. */
template <class S, class A, class B>
__device__ static inline void mainloop(float (*sums)[S::TN], const A &a, const B &b, int row,
                                       int column, int begin, int end, quad *shared, int *half) {
#pragma unroll
    for (int i = 0; i < S::TM * S::TN; i++)
        sums[i / S::TN][i % S::TN] = 0.0f;
    if constexpr (S::STAGES > 0) {
        ring<S>(a, b, row, column, begin, end, shared,
                [&](const quad *panels, int left) { multiply_panels<S>(sums, panels, left); });
    } else {
        panel<S::THREADS, S::BM, S::BK, A::ALONG_K> of_a;
        panel<S::THREADS, S::BN, S::BK, B::ALONG_K> of_b;
        of_a.read(a, row, begin);
        of_b.read(b, column, begin);
        for (int k = begin; k < end; k += S::BK, *half ^= 1) {
            quad *panels = shared + *half * S::QUADS;
            of_a.write(panels);
            of_b.write(panels + S::A_QUADS);
            __syncthreads();
            if (k + S::BK < end) {
                of_a.read(a, row, k + S::BK);
                of_b.read(b, column, k + S::BK);
            }
            multiply_panels<S>(sums, panels, end - k);
        }
    }
}

/* --- kernels --- */

/* Add the sums of a k range to four columns of a row. INTERIOR: interior tile, 128-bit aligned;
 * skip bounds checks. */
template <bool INTERIOR, class Rows>
__device__ static inline void epilogue_quad(const output<Rows, float> &c, bool first, int row,
                                            int column, const float *sums) {
    float *to = c.at + c.rows(row) + column;
    const bool reads = !first || c.add, quads = INTERIOR || c.vectors;
    quad q = {{0.0f, 0.0f, 0.0f, 0.0f}};
    if (reads && quads) q = load_four(to);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        if (!INTERIOR && column + j >= c.n) continue;
        if (reads && !quads) q.x[j] = to[j];
        q.x[j] = epilogue_element(c, first, column + j, q.x[j], sums[j]);
        if (!quads) to[j] = q.x[j];
    }
    if (quads) store_four(to, q);
}

/* Add the sums of a k range to a thread's part of the tile at [row, column]. */
template <class S, bool INTERIOR, class Rows>
__device__ static inline void epilogue_tile(const output<Rows, float> &c, bool first, int row,
                                            int column, const float (*sums)[S::TN]) {
#pragma unroll
    for (int i = 0; i < S::TM; i++)
#pragma unroll
        for (int j = 0; j < S::TN; j += 4) {
            const int at_row = row + row_of<S>(i);
            const int at_column = column + j / 4 * (4 * S::BN / S::TN) + 4 * first_column<S>();
            if (!INTERIOR && (at_row >= c.m || at_column >= c.n)) continue;
            epilogue_quad<INTERIOR>(c, first, at_row, at_column, sums[i] + j);
        }
}

template <class S, class A, class B, class Rows>
__global__ void __launch_bounds__(S::THREADS, S::RESIDENT)
    tiles(A a, B b, output<Rows, float> c, k_ranges k, int *semaphores) {
    __shared__ quad shared[S::BUFFERS * S::QUADS];
    __shared__ tile_place place;
    find_tile<S>(&place, c.m, c.n, semaphores);
    enter(a.rows);
    enter(b.rows);
    const int end = semaphores ? place.range + 1 : k.count;
    int half = 0;
    for (int range = place.range; range < end; range++) {
        float sums[S::TM][S::TN];
        mainloop<S>(sums, a, b, place.row, place.column, k.begin(range), k.end(range), shared,
                    &half);
        const int row = place.row, column = place.column;
        const bool first = range == 0;
        if (semaphores && !first) semaphore_wait(semaphores + 1 + place.tile, range);
        if (c.vectors && row + S::BM <= c.m && column + S::BN <= c.n)
            epilogue_tile<S, true>(c, first, row, column, sums);
        else
            epilogue_tile<S, false>(c, first, row, column, sums);
        if (semaphores)
            semaphore_release(semaphores + 1 + place.tile, range + 1 < k.count ? range + 1 : 0);
    }
}

/* --- host --- */

/* Launch `count` GEMMs with tile shape S. If `semaphores` is not NULL, launch one GEMM with serial
 * split-K. */
template <class S, class A, class B, class Rows>
static inline cudaError_t run_as(const A &a, const B &b, output<Rows, float> c, const k_ranges &k,
                                 int *semaphores, int64_t count, cudaStream_t stream) {
    const int64_t tiles_ = tiles_of<S>(c.m, c.n) * (semaphores ? k.count : 1);
    c.vectors = c.n % 4 == 0 && is_aligned(c.at);
    return launch(tiles<S, A, B, Rows>, dim3((unsigned)tiles_, 1, (unsigned)count),
                  dim3(S::THREADS), stream, a, b, c, k, semaphores);
}

template <class S, class A, class B, class Rows>
static inline cudaError_t run_shape(const A &a, const B &b, const output<Rows, float> &c,
                                    const k_ranges &k, cudaStream_t stream) {
    int *semaphores = uses_split_k<S>(c, k) ? cgp__cuda_current()->semaphores : NULL;
    return run_as<S>(a, b, c, k, semaphores, 1, stream);
}

/* Choose the tile shape. Larger tiles read less memory; smaller tiles are used if larger tiles
 * would leave SMs idle. */
template <class A, class B, class Rows>
static inline cudaError_t run_fma(const A &a, const B &b, const output<Rows, float> &c,
                                  const k_ranges &k, cudaStream_t stream) {
    const int64_t sms = cgp__cuda_current()->multiprocessors;
    if (c.m <= small_m::BM) return run_shape<small_m>(a, b, c, k, stream);
    if constexpr (is_f32_matrix<A> && is_f32_matrix<B>)
        if (a.rows.vectors && b.rows.vectors && tiles_of<wide>(c.m, c.n) * k.count >= 4 * sms)
            return run_shape<wide>(a, b, c, k, stream);
    if (tiles_of<large>(c.m, c.n) * k.count >= 5 * sms) return run_shape<large>(a, b, c, k, stream);
    if (tiles_of<medium>(c.m, c.n) * k.count >= 2 * sms)
        return run_shape<medium>(a, b, c, k, stream);
    return run_shape<small>(a, b, c, k, stream);
}

/* Launch a batch of `count` GEMMs. Each thread block computes all k ranges of a tile. */
template <class A, class B, class Rows>
static inline cudaError_t run_fma_batch(const A &a, const B &b, const output<Rows, float> &c,
                                        const k_ranges &k, int64_t count, cudaStream_t stream) {
    const int64_t sms = cgp__cuda_current()->multiprocessors;
    if (c.m <= small_m::BM) return run_as<small_m>(a, b, c, k, NULL, count, stream);
    if (count * tiles_of<large>(c.m, c.n) >= 2 * sms)
        return run_as<large>(a, b, c, k, NULL, count, stream);
    if (count * tiles_of<medium>(c.m, c.n) >= 2 * sms)
        return run_as<medium>(a, b, c, k, NULL, count, stream);
    return run_as<small>(a, b, c, k, NULL, count, stream);
}

} // namespace gemm

/* Set sum [width] to the sum of the rows of x [rows, width], or add that sum to `sum`. Rows are
 * added in blocks of 64, in order. */
int64_t cgp__cuda_sum_rows_workspace(int64_t rows, int64_t width);
template <class T>
cudaError_t cgp__cuda_sum_rows(float *sum, const T *x, int64_t rows, int64_t width, bool add,
                               void *workspace, cudaStream_t stream);

#endif
