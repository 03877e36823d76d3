/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mma.cuh -- tiles of FlashAttention-2 (Dao 2023, arXiv:2307.08691) on tensor cores, for
 * bf16 and heads of up to 128 columns. attention_mma.cu and cached_attention.cu use these tiles.
 *
 * A thread block has four warps, and a warp has 16 rows of a tile of 64 x 64 scores. Rows of q, k,
 * v and dy lie in shared memory, padded with zeros to D = 64 or 128 columns. An mma multiplies a 16
 * x 16 block by a 16 x 8 block; its sums are f32. The scores of a warp lie in registers in the
 * layout of an operand of the next mma, and only need rounding to bf16.
 *
 * An mma never combines two rows. The products of a row are always added in the same order,
 * whatever the row's address, its tile and the number of rows. A masked score only adds zeros. */
#ifndef CGP_SRC_CUDA_ATTENTION_MMA_CUH
#define CGP_SRC_CUDA_ATTENTION_MMA_CUH

#include "backend/cuda/mma.cuh"
#include "backend/cuda/ops/attention.cuh"

enum { MMA_THREADS = 128, MMA_ROWS = 16 };

/* Elements from one row to the next in shared memory. This stride is 16 bytes longer than a row, so
 * that the eight rows that ldmatrix reads at once lie in different banks. */
template <int D> constexpr int ROW_STRIDE = D + CHUNK;
template <int D> constexpr int TILE_ELEMENTS = (D + CHUNK) * TILE;

/* Number of resident thread blocks per SM that the kernels for forward and for dq allow: ptxas
 * limits their registers accordingly. */
template <int D> constexpr int BLOCKS = D == NARROW ? 3 : 2;

/* Return the first row of this warp in a tile. */
__device__ static inline int warp_row() {
    return (int)threadIdx.x / WARP * MMA_ROWS;
}

/* --- shared memory --- */

/* Copy `left` elements, at most 8, to shared memory; the others are zeros. */
__device__ static inline void copy_elements(bf16 *to, const bf16 *from, int left) {
    eight elements;
#pragma unroll
    for (int i = 0; i < CHUNK; i++)
        elements.x[i] = i < left ? from[i] : (bf16)0;
    *(eight *)(void *)to = elements;
}

/* Start to load rows `first` .. `first` + ROWS - 1 of x. `vectors`: the rows are aligned for
 * cp.async. */
template <int D, int ROWS>
__device__ static inline void load_rows(bf16 *to, const matrix<bf16> &x, bool vectors,
                                        int first) {
    enum { CHUNKS = D / CHUNK, STEP = MMA_THREADS / CHUNKS };
    const int row = (int)threadIdx.x / CHUNKS, column = (int)threadIdx.x % CHUNKS * CHUNK;
    const bf16 *from = x.at + (first + row) * x.stride + column;
    bf16 *at = to + row * ROW_STRIDE<D> + column;
#pragma unroll
    for (int i = 0; i < ROWS / STEP; i++) {
        const int left = first + row + i * STEP < x.rows ? x.columns - column : 0;
        const bf16 *chunk = left > 0 ? from + i * STEP * x.stride : x.at;
        if (vectors)
            copy_async(at + i * STEP * ROW_STRIDE<D>, chunk,
                       left >= CHUNK ? 16
                       : left > 0    ? 2 * left
                                     : 0);
        else
            copy_elements(at + i * STEP * ROW_STRIDE<D>, chunk, left);
    }
}

/* --- operands of an mma --- */

/* The warp's 16 rows of a tile. If KEPT is true, the rows are kept in registers. Otherwise each use
 * reads them from shared memory. */
template <int D, bool KEPT> struct own_rows {
    uint32_t kept[KEPT ? D / MMA_K : 1][4];
    const bf16 *tile;

    __device__ void set(const bf16 *from) {
        tile = from;
#pragma unroll
        for (int k = 0; KEPT && k < D; k += MMA_K)
            load_a<ROW_STRIDE<D>>(kept[k / MMA_K], tile, warp_row(), k);
    }
    __device__ void get(uint32_t (&a)[4], int k) const {
#pragma unroll
        for (int i = 0; KEPT && i < 4; i++)
            a[i] = kept[k / MMA_K][i];
        if (!KEPT) load_a<ROW_STRIDE<D>>(a, tile, warp_row(), k);
    }
};

/* Compute s [16, 8 N] = x y^T, where x is the warp's rows and y is rows first .. first + 8 N - 1 of
 * a tile. */
template <int D, int N, bool KEPT>
__device__ static inline void score_rows(float (&s)[N][4], const own_rows<D, KEPT> &x,
                                         const bf16 *y, int first) {
    clear_sums(s);
#pragma unroll
    for (int k = 0; k < D; k += MMA_K) {
        uint32_t a[4], b[2][2];
        x.get(a, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            load_b<ROW_STRIDE<D>>(b, y, first + 8 * n, k);
            mma(s[n], a, b[0]);
            mma(s[n + 1], a, b[1]);
        }
    }
}

/* Compute sums [16, D] += p y, where p [16, 8 N] is rounded to bf16 and y is rows first .. first +
 * 8 N - 1 of a tile. */
template <int D, int N>
__device__ static inline void add_product(float (&sums)[D / MMA_N][4], const float (&p)[N][4],
                                          const bf16 *y, int first) {
#pragma unroll
    for (int k = 0; k < N; k += 2) {
        const uint32_t a[4] = {pack_bf16(p[k][0], p[k][1]), pack_bf16(p[k][2], p[k][3]),
                               pack_bf16(p[k + 1][0], p[k + 1][1]),
                               pack_bf16(p[k + 1][2], p[k + 1][3])};
        uint32_t b[2][2];
#pragma unroll
        for (int n = 0; n < D; n += 2 * MMA_N) {
            load_b_transposed<ROW_STRIDE<D>>(b, y, first + 8 * k, n);
            mma(sums[n / MMA_N], a, b[0]);
            mma(sums[n / MMA_N + 1], a, b[1]);
        }
    }
}

/* Set `to` to sums / divisors, or add the quotients. Lane l has columns t and t + 1 of rows g and
 * g + 8 of the warp. `pairs`: two elements are aligned to 4 bytes. */
template <int D>
__device__ static inline void
put_sums(bf16 *to, int64_t stride, int first, int rows, int columns, bool add, bool pairs,
         const float (&sums)[D / MMA_N][4], const float (&divisors)[2]) {
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        const int row = first + warp_row() + lane() / 4 + i / 2 * 8;
        bf16 *at = to + row * stride + lane() % 4 * 2;
        if (row >= rows) continue;
#pragma unroll
        for (int n = 0; n < D / MMA_N; n++) {
            const int left = columns - n * MMA_N - lane() % 4 * 2;
            two elements;
#pragma unroll
            for (int j = 0; j < 2; j++) {
                const float value = sums[n][i + j] / divisors[i / 2];
                store(elements.x, j, add && j < left ? load(at, n * MMA_N + j) + value : value);
            }
            if (pairs && left >= 2)
                *(two *)(void *)(at + n * MMA_N) = elements;
            else
                for (int j = 0; j < 2 && j < left; j++)
                    at[n * MMA_N + j] = elements.x[j];
        }
    }
}

/* --- forward --- */

/* Return the maximum over the four lanes of a row of scores. These lanes are neighbours. */
__device__ static inline float quad_max(float x) {
    for (int lanes = 2; lanes > 0; lanes /= 2)
        x = larger(__shfl_xor_sync(0xffffffffu, x, lanes), x);
    return x;
}

__device__ static inline float quad_sum(float x) {
    for (int lanes = 2; lanes > 0; lanes /= 2)
        x = x + __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

/* Set `factors` to this lane's dropout factors for eight keys; all are 1 if dropout is off. Rows g
 * and g + 8 are queries `query` and `query` + 8. A lane computes the random words of four keys for
 * one of these rows, and exchanges two words with its neighbour. */
template <class T>
__device__ static inline void factors_of(float (&factors)[4], const attention<T> &a,
                                         const head<T> &h, int query, int key) {
    const bool odd = lane() % 2 != 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        factors[i] = 1.0f;
    if (!a.dropout.on) return;
    const rng_words words =
        dropout_words(h.mask, (uint32_t)h.number * a.rows + query + (odd ? 8 : 0),
                      (uint32_t)(key + lane() % 4 * 2) / 4);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t own = odd ? words.at[2 + i] : words.at[i];
        const uint32_t given = odd ? words.at[i] : words.at[2 + i];
        const uint32_t got = __shfl_xor_sync(0xffffffffu, given, 1);
        factors[i] = dropout_factor(h.mask, odd ? got : own);
        factors[2 + i] = dropout_factor(h.mask, odd ? own : got);
    }
}

/* Return whether all queries `query` .. `query` + 15 attend to all keys `key` .. `key` + `keys` -
 * 1, so that no score is masked. All lanes get the same result. */
template <class T>
__device__ static inline bool is_interior(const attention<T> &a, int query, int key, int keys) {
    return seen_from(a, query, key).end >= keys &&
           seen_from(a, query + MMA_ROWS - 1, key).begin <= 0;
}

/* Set masked elements of a step of 8 N keys to a value. Rows g and g + 8 are queries `query` and
 * `query` + 8. Rows after the last query are not masked, because their results are not stored. */
template <int N, class T>
__device__ static inline void set_masked(float (&x)[N][4], const attention<T> &a, int query,
                                         int key, float value) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const seen sees = seen_from(a, query + i / 2 * 8, key);
#pragma unroll
        for (int n = 0; n < N; n++) {
            const int at = n * MMA_N + lane() % 4 * 2 + i % 2;
            if (at < sees.begin || at >= sees.end) x[n][i] = value;
        }
    }
}

/* Replace s by p in row `i` of the lane's two rows; a masked s is -inf. Return the factor that
 * rescales the results of earlier tiles. */
__device__ static inline float softmax_row(float (&s)[TILE / MMA_N][4], int i, float scale,
                                           float *max, float *sum) {
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < TILE / MMA_N; n++)
#pragma unroll
        for (int j = 0; j < 2; j++)
            most = larger(s[n][2 * i + j], most);
    most = larger(quad_max(most), *max);
    /* `most` is -inf if the window of this query begins after all keys so far */
    const bool sees = most > -INFINITY;
    const float factor = sees ? exp_or_zero(scale * (*max - most)) : 1.0f;
    const float base = sees ? most : 0.0f;
    float part = 0.0f;
#pragma unroll
    for (int n = 0; n < TILE / MMA_N; n++)
#pragma unroll
        for (int j = 0; j < 2; j++) {
            s[n][2 * i + j] = exp_or_zero(scale * (s[n][2 * i + j] - base));
            part = part + s[n][2 * i + j];
        }
    *max = most;
    *sum = *sum * factor + quad_sum(part);
    return factor;
}

/* Results of the lane's two rows. */
template <int D> struct forward_rows { float y[D / MMA_N][4], max[2], sum[2]; };

/* Replace s by p * keep in the tile whose first key is `key`, and rescale y. The factor `keep` is
 * the dropout factor. */
template <int D>
__device__ static inline void softmax_tile(const attention<bf16> &a, const head<bf16> &h,
                                           int key, float (&s)[TILE / MMA_N][4],
                                           forward_rows<D> *rows) {
    const int query = h.first + warp_row() + lane() / 4;
    float factors[4];
    if (!is_interior(a, h.first + warp_row(), key, TILE))
        set_masked(s, a, query, key, -INFINITY);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const float factor = softmax_row(s, i, a.scale, rows->max + i, rows->sum + i);
#pragma unroll
        for (int n = 0; n < D / MMA_N; n++)
#pragma unroll
            for (int j = 0; j < 2; j++)
                rows->y[n][2 * i + j] = rows->y[n][2 * i + j] * factor;
    }
    if (!a.dropout.on) return;
#pragma unroll
    for (int n = 0; n < TILE / MMA_N; n++) {
        factors_of(factors, a, h, query, key + n * MMA_N);
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = s[n][i] * factors[i];
    }
}

/* A double buffer. Each half holds a tile of k and a tile of v. */
template <int D> struct two_tiles {
    bf16 *first;
    __device__ bf16 *k(int half) const {
        return first + 2 * half * TILE_ELEMENTS<D>;
    }
    __device__ bf16 *v(int half) const {
        return k(half) + TILE_ELEMENTS<D>;
    }
};

template <int D>
__device__ static inline void load_keys(const two_tiles<D> &tiles, int half,
                                        const attention<bf16> &a, const head<bf16> &h,
                                        int key) {
    load_rows<D, TILE>(tiles.k(half), h.k, a.k.vectors, key);
    load_rows<D, TILE>(tiles.v(half), h.v, a.v.vectors, key);
    commit_copies();
}

/* Compute the rows of a tile over all keys before `end`. In each step, the next tile of keys is
 * loaded into the other half of shared memory; all warps have read this half before the barrier. */
template <int D>
__device__ static inline void attend(const attention<bf16> &a, const head<bf16> &h, int end,
                                     bf16 *shared, forward_rows<D> *rows) {
    const two_tiles<D> tiles = {shared};
    own_rows<D, true> q;
    int half = 0, key = begin_key(a, h.first);
    clear_sums(rows->y);
    for (int i = 0; i < 2; i++) {
        rows->max[i] = -INFINITY;
        rows->sum[i] = 0.0f;
    }
    load_rows<D, TILE>(tiles.k(1), h.q, a.q.vectors, h.first);
    load_keys(tiles, 0, a, h, key);
    wait_for_copies<0>();
    __syncthreads();
    q.set(tiles.k(1));
    for (; key < end; key += TILE, half ^= 1) {
        float s[TILE / MMA_N][4];
        wait_for_copies<0>();
        __syncthreads();
        if (key + TILE < end) load_keys(tiles, half ^ 1, a, h, key + TILE);
        score_rows<D>(s, q, tiles.k(half), 0);
        softmax_tile(a, h, key, s, rows);
        add_product<D>(rows->y, s, tiles.v(half), 0);
    }
}

/* --- host --- */

/* Return the bytes of shared memory for two halves of two tiles. */
template <int D> constexpr int64_t bytes_of_tiles() {
    return 4 * TILE_ELEMENTS<D> * (int64_t)sizeof(bf16);
}

/* Return whether tensor cores compute the attention: they compute heads of up to WIDE columns. */
static inline bool uses_mma(const attention<bf16> &a) {
    return a.q.columns <= WIDE && a.v.columns <= WIDE;
}

static inline bool uses_mma(const attention<float> &) {
    return false;
}

static inline bool is_narrow(const attention<bf16> &a) {
    return a.q.columns <= NARROW && a.v.columns <= NARROW;
}

/* attention_mma.cu: attention on tensor cores, if uses_mma() is true. Backward needs delta. */
cudaError_t cgp__cuda_attention_forward(const attention<bf16> &a, cudaStream_t stream);
cudaError_t cgp__cuda_attention_backward(const attention<bf16> &a, cudaStream_t stream);

#endif
