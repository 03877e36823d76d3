/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu -- FlashAttention (Dao et al. 2022, arXiv:2205.14135) with online softmax (Milakov
 * and Gimelshein 2018, arXiv:1805.02867): y = softmax(scale q k^T) v per head. Scores exist only in
 * tiles of 64 queries by 64 keys, never as a whole matrix. A key/value head serves a group of query
 * heads.
 *
 *                keys
 *             [#\          ]      # a tile of scores, 4 x 4 per thread
 *     queries [####\       ]      \ a masked tile: the diagonal, or the start of a window
 *             [  \####\    ]
 *
 *     forward, dq    a thread block has a tile of queries and loops over their keys
 *     dk, dv         a thread block has a tile of keys and loops over the group's heads and queries
 *
 * If this gives too few thread blocks for the GPU, each thread block gets only 16 queries, or 16
 * keys, of a tile.
 *
 * Forward, for each tile of keys in order:
 *
 *     s = q k^T               m' = max(m, s)              f = exp(scale (m - m'))
 *     p = exp(scale (s - m')) sum = sum f + rowsum(p)     y = y f + (p keep) v
 *
 * At the end y is divided by sum; m and log(sum) are saved. Backward:
 *
 *     p = exp(scale (s - m) - log(sum))      dp = dy v^T      delta = rowsum(dy y)
 *     ds = scale p (keep dp - delta)
 *     dv = (p keep)^T dy                     dk = ds^T q      dq = ds k
 *
 * Scores are recomputed twice, once for dk and dv and once for dq, so that one thread block owns
 * each gradient element. If several inputs are the same value, dv is written to its gradient first;
 * then dk and dq are added to the gradient, in this order.
 *
 * GEMMs are chains of FMAs in ascending order. A chain runs over the depth for scores, over the
 * keys for y and dq, and over the heads and their queries for dk and dv. The sum rowsum(p) of a
 * tile adds groups of four keys in order, then the 16 sums as a tree. The sum delta adds 32 chains
 * as a tree. These orders depend only on the indices of query and key, because tiles start at
 * multiples of 64 and a fully masked tile changes nothing. */
#include "backend/cuda/ops/attention_mma.cuh"

/* --- forward --- */

template <int COLUMNS, class S, class T>
__global__ void __launch_bounds__(S::THREADS) forward_tile(attention<T> a) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head<T> h;
    find_head(&h, a, a.rows, 1, COLUMNS, true, S::BM);
    float y[4][COLUMNS / 16], max[4], sum[4];
    int half = 0;
    clear<COLUMNS>(y);
    for (int i = 0; i < 4; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (int key = begin_key(a, h.first); key < end_key(a, h.first); key += TILE) {
        float s[4][4];
        multiply_rows<S>(s, h.q, h.k, h.first, key, shared, &half);
        softmax_tile<COLUMNS, S>(a, h, key, s, y, max, sum);
        store_transposed<S>(tile, s);
        add_gemm<COLUMNS, S>(y, tile, h.v, key, h.column, shared, &half);
    }
    put_rows<COLUMNS, S>(h, a.y + h.y_at, a.y_stride, a.rows, a.v.columns, false, y, sum);
    for (int i = 0; i < 4; i++) {
        const int row = h.first + row_of<S>(i);
        if (blockIdx.y > 0 || first_column<S>() > 0 || row >= a.rows) continue;
        a.max[h.saved + row] = max[i];
        a.log_sum[h.saved + row] = (float)log_of((double)sum[i]);
    }
}

/* --- backward --- */

/* Compute delta. One warp computes the delta of one row of a head. */
template <class T> __global__ static void rows_delta(attention<T> a) {
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    const int64_t line = i / a.rows, row = i % a.rows;
    const int64_t at =
        (line / a.heads * a.rows + row) * a.y_stride + line % a.heads * a.v.columns;
    float sum = 0.0f;
    if (i >= a.n * a.heads * a.rows) return;
    for (int d = threadIdx.x % WARP; d < a.v.columns; d += WARP)
        sum = fmaf(load(a.dy, at + d), load(a.y, at + d), sum);
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % WARP == 0) a.delta[i] = sum;
}

/* Replace s by exp(scale (s - m) - log(sum)) in the tile whose first query is `query`, even for
 * masked keys. This step is separate from softmax_backward() because fewer registers are in use
 * before dp is computed. */
template <class S, class T>
__device__ static inline void probabilities(const attention<T> &a, const head<T> &h, int query,
                                            float (*s)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = query + row_of<S>(i);
        const bool inside = row < a.rows;
        const float max = inside ? a.max[h.saved + row] : 0.0f;
        const float log_sum = inside ? a.log_sum[h.saved + row] : 0.0f;
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = exp_or_zero(a.scale * (s[i][j] - max) - log_sum);
    }
}

/* Replace s by p * keep (probabilities after dropout), and dp by ds. Call probabilities() first. */
template <class S, class T>
__device__ static inline void softmax_backward(const attention<T> &a, const head<T> &h,
                                               int query, int key, float (*s)[4],
                                               float (*dp)[4]) {
    key += 4 * first_column<S>();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = query + row_of<S>(i);
        const bool inside = row < a.rows;
        const float delta = inside ? a.delta[h.saved + row] : 0.0f;
        const quad keep = keep_of(a, h, row, key);
        const seen sees = seen_from(a, row, key);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool visible = inside && j >= sees.begin && j < sees.end;
            const float p = visible ? s[i][j] : 0.0f;
            const float slope = a.scale * p * (keep.x[j] * dp[i][j] - delta);
            s[i][j] = p * keep.x[j];
            dp[i][j] = visible ? slope : 0.0f;
        }
    }
}

template <int COLUMNS, class S, class T>
__global__ void __launch_bounds__(S::THREADS) queries_tile(attention<T> a) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head<T> h;
    find_head(&h, a, a.rows, 1, COLUMNS, true, S::BM);
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float dq[4][COLUMNS / 16];
    int half = 0;
    clear<COLUMNS>(dq);
    for (int key = begin_key(a, h.first); key < end_key(a, h.first); key += TILE) {
        float s[4][4], dp[4][4];
        multiply_rows<S>(s, h.q, h.k, h.first, key, shared, &half);
        probabilities<S>(a, h, h.first, s);
        multiply_rows<S>(dp, h.dy, h.v, h.first, key, shared, &half);
        softmax_backward<S>(a, h, h.first, key, s, dp);
        store_transposed<S>(tile, dp);
        add_gemm<COLUMNS, S>(dq, tile, h.k, key, h.column, shared, &half);
    }
    put_rows<COLUMNS, S>(h, a.q.dx + h.q_at, a.q.stride, a.rows, a.q.columns, a.q.add, dq, one);
}

/* Compute dv and dk. A thread computes the same elements of both. If dv and dk are the same
 * gradient, dv is written first. R is the shape of the rows of dv and dk. */
template <int COLUMNS, class S, class R, class T>
__global__ void __launch_bounds__(S::THREADS) keys_tile(attention<T> a) {
    static_assert((int)S::THREADS == (int)R::THREADS && (int)S::BN == (int)R::BM, "one tile");
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head<T> h;
    find_head(&h, a, a.keys, a.group, COLUMNS, false, R::BM);
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float dk[4][COLUMNS / 16], dv[4][COLUMNS / 16];
    int half = 0;
    clear<COLUMNS>(dk);
    clear<COLUMNS>(dv);
    for (int head_of_group = 0; head_of_group < a.group; head_of_group++) {
        for (int query = begin_query(a, h.first); query < end_query(a, h.first);
             query += TILE) {
            float s[4][4], dp[4][4];
            multiply_rows<S>(s, h.q, h.k, query, h.first, shared, &half);
            probabilities<S>(a, h, query, s);
            multiply_rows<S>(dp, h.dy, h.v, query, h.first, shared, &half);
            softmax_backward<S>(a, h, query, h.first, s, dp);
            store_tile<S>(tile, s);
            add_gemm<COLUMNS, R>(dv, tile, h.dy, query, h.column, shared, &half);
            __syncthreads(); /* wait until all threads have read the tile */
            store_tile<S>(tile, dp);
            add_gemm<COLUMNS, R>(dk, tile, h.q, query, h.column, shared, &half);
        }
        if (head_of_group + 1 == a.group) break;
        __syncthreads(); /* wait until all threads have read h */
        if (threadIdx.x == 0) {
            h.number++;
            h.q.at += a.q.columns;
            h.dy.at += a.v.columns;
            h.saved += a.rows;
        }
        __syncthreads();
    }
    if (a.v.dx)
        put_rows<COLUMNS, R>(h, a.v.dx + h.v_at, a.v.stride, a.keys, a.v.columns, a.v.add, dv,
                             one);
    if (a.k.dx)
        put_rows<COLUMNS, R>(h, a.k.dx + h.k_at, a.k.stride, a.keys, a.k.columns, a.k.add, dk,
                             one);
}

/* --- host --- */

/* Divide the `rows` rows of each of `heads` heads into tiles, and the columns into groups of `each`
 * columns. Launch one thread block for each tile and group. If there would be few thread blocks,
 * launch `few` instead, whose tiles have 16 rows. */
template <class T>
static cudaError_t launch_tiles(void (*kernel)(attention<T>), void (*few)(attention<T>),
                                int64_t rows, int64_t heads, int columns, int each,
                                const attention<T> &a, cudaStream_t stream) {
    const int64_t lines = a.n * heads, across = ceil_div(columns, each);
    const bool is_few =
        ceil_div(rows, TILE) * lines * across < 2 * cgp__cuda_current()->multiprocessors;
    const int64_t tiles = ceil_div(rows, is_few ? (int)few_queries::BM : (int)TILE) * lines;
    return launch(is_few ? few : kernel, dim3((unsigned)tiles, (unsigned)across),
                  dim3(is_few ? (int)few_queries::THREADS : (int)scores::THREADS), stream, a);
}

template <int COLUMNS, class T>
static cudaError_t run_forward(const attention<T> &a, cudaStream_t stream) {
    return launch_tiles(forward_tile<COLUMNS, scores, T>, forward_tile<COLUMNS, few_queries, T>,
                        a.rows, a.heads, a.v.columns, COLUMNS, a, stream);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const attention<T> a = attention_of<T>(spec, args);
    if constexpr (is_rounded<T>)
        if (uses_mma(a)) return cgp__cuda_attention_forward(a, stream);
    return a.v.columns <= NARROW ? run_forward<NARROW>(a, stream)
                                 : run_forward<WIDE>(a, stream);
}

/* Compute dk and dv. A thread block computes the same columns of a head in both. */
template <int COLUMNS, class T>
static cudaError_t run_backward(const attention<T> &a, int columns, cudaStream_t stream) {
    if (a.k.dx || a.v.dx)
        CGP__TRY_CUDA_ERROR(launch_tiles(keys_tile<COLUMNS, scores, scores, T>,
                                         keys_tile<COLUMNS, few_keys, few_queries, T>, a.keys,
                                         a.heads / a.group, columns, COLUMNS, a, stream));
    if (!a.q.dx) return cudaSuccess;
    return launch_tiles(queries_tile<COLUMNS, scores, T>, queries_tile<COLUMNS, few_queries, T>,
                        a.rows, a.heads, a.q.columns, COLUMNS, a, stream);
}

template <class T>
static cudaError_t backward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            cudaStream_t stream) {
    const attention<T> a = attention_of<T>(spec, args);
    const int64_t lines = a.n * a.heads * a.rows;
    const int columns = a.q.columns > a.v.columns ? a.q.columns : a.v.columns;
    if (!a.q.dx && !a.k.dx && !a.v.dx) return cudaSuccess;
    CGP__TRY_CUDA_ERROR(launch(rows_delta<T>, dim3((unsigned)ceil_div(lines, BLOCK / WARP)),
                               dim3(BLOCK), stream, a));
    if constexpr (is_rounded<T>)
        if (uses_mma(a)) return cgp__cuda_attention_backward(a, stream);
    return columns <= NARROW ? run_backward<NARROW>(a, columns, stream)
                             : run_backward<WIDE>(a, columns, stream);
}

/* Return the size in bytes of the workspace, which holds delta. */
static int64_t workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    if (spec->direction == CGP_OP_FORWARD) return 0;
    return spec->n * g->heads * g->rows * (int64_t)sizeof(float);
}

const cgp__cuda_op cgp__cuda_attention = {{BY_TYPE(forward), BY_TYPE(backward), NULL},
                                          workspace};
