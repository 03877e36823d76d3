/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cu -- causal attention, y = softmax(scale q k^T) v per head, in tiles of 64 queries by 64 keys, never R x R.
 *
 *               keys                       forward, dq: a thread block has a tile of queries and walks along its keys
 *            [#\          ]                dk, dv: it has a tile of keys and walks down its queries
 *    queries [####\       ]                # scores of a tile, 4 x 4 a thread
 *            [#######\    ]                \ the last tile of its queries, masked
 *
 * Forward     s = q k^T     of each tile of keys, in order: m' = max(m, s), f = exp(scale (m - m')), p = exp(scale (s - m'))
 *             sum = sum f + rowsum(p)       y = y f + (p keep) v          at the end y / sum, lse = scale m + log(sum)
 * Backward    p = exp(scale s - lse)        dp = dy v^T                   delta = rowsum(dy y)
 *             ds = scale p (keep dp - delta)
 *             dq = ds k                     dk = ds^T q                   dv = (p keep)^T dy
 *
 * Scores are recomputed for dq, and again for dk and dv, so that each has one owner. GEMMs are chains of FMAs: scores over the
 * depth, y and dq over the keys, dk and dv over the queries, ascending. rowsum(p) of a tile adds four keys in order, then the 16
 * fours as a tree; delta 32 chains as a tree. All of that is a function of the query's and the key's index alone. */
#include "backend/cuda/gemm.cuh"
#include "backend/cuda/math.cuh"
#include "backend/cuda/rng.cuh"
#include "backend/cuda/rows.cuh"

using namespace gemm;

typedef shape<64, 64, 16, 4, 4> scores;

enum {
    TILE = 64,
    /* Quads from row to row of a tile in shared memory, with padding; of a tile. */
    TILE_STRIDE = TILE / 4 + 1,
    TILE_QUADS = TILE * TILE_STRIDE,
    /* Elements of q, k and v at a time, of more or less deep heads. */
    NARROW = 64,
    WIDE = 128,
    WARP = 32
};

/* --- operands --- */

/* A launch. */
template <class T> struct attention {
    const T *qkv, *dy;
    T *y, *dqkv;
    float *lse, *delta;
    bool add, quads;
    int heads, rows, depth;
    int64_t n;
    float scale;
    dropout_rule dropout;
};

/* One head of one sample, and a thread block's tile and columns of it; in shared memory, where it takes no registers. */
struct head {
    int number, first, column;
    /* Of row 0: elements of y, of qkv, of lse. */
    int64_t y, qkv, lse;
    dropout_mask mask;
};

template <class T> __device__ static inline int width_of(const attention<T> &a) {
    return a.heads * a.depth;
}

/* `reversed`: the last tiles first, where they are the longest. */
template <class T>
__device__ static inline void find_head(head *h, const attention<T> &a, int columns,
                                        bool reversed) {
    const int64_t all = a.n * a.heads, tile = blockIdx.x / all, index = blockIdx.x % all;
    const int64_t tiles = (a.rows + TILE - 1) / TILE, width = width_of(a);
    const int64_t sample = index / a.heads;
    if (threadIdx.x == 0) {
        h->number = (int)(index % a.heads);
        h->first = (int)(reversed ? tiles - 1 - tile : tile) * TILE;
        h->column = (int)blockIdx.y * columns;
        h->y = sample * a.rows * width + h->number * a.depth;
        h->qkv = 3 * sample * a.rows * width + h->number * a.depth;
        h->lse = index * a.rows;
        if (a.dropout.on) h->mask = dropout_mask_of(a.dropout, sample);
    }
    __syncthreads();
}

/* Rows of q, k or v (part 0, 1, 2), of dy. */
template <class T>
__device__ static inline matrix<T> rows_of(const attention<T> &a, const head &h, int part) {
    const int64_t width = width_of(a);
    return {a.qkv + h.qkv + part * width, 3 * width, a.rows, a.depth, a.quads};
}

template <class T>
__device__ static inline matrix<T> rows_of_dy(const attention<T> &a, const head &h) {
    return {a.dy + h.y, width_of(a), a.rows, a.depth, a.quads};
}

/* --- tiles --- */

/* s = x y^T for queries and keys of a tile. */
template <class T>
__device__ static inline void multiply_rows(float (*s)[4], const matrix<T> &x,
                                            const matrix<T> &y, int query, int key,
                                            quad *shared, int *half) {
    sum_block<scores>(s, along_k<matrix<T>>{x}, along_k<matrix<T>>{y}, query, key, 0, x.columns,
                      shared, half);
}

/* To shared memory, as [query][key]. */
__device__ static inline void store_tile(quad *tile, const float (*s)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        tile[row_of<scores>(i) * TILE_STRIDE + first_column<scores>()] = {
            {s[i][0], s[i][1], s[i][2], s[i][3]}};
}

/* As [key][query]. */
__device__ static inline void store_transposed(quad *tile, const float (*s)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        tile[(4 * first_column<scores>() + j) * TILE_STRIDE + first_row<scores>()] = {
            {s[0][j], s[1][j], s[2][j], s[3][j]}};
}

/* sums += tile^T x, of rows `first` .. first + 63 of x and COLUMNS of its columns. The tile was written by this thread block since
 * its last barrier. */
template <int COLUMNS, class T>
__device__ static inline void add_gemm(float (*sums)[COLUMNS / 16], const quad *tile,
                                       const matrix<T> &x, int first, int column, quad *shared,
                                       int *half) {
    enum { BK = scores::BK, STRIDE = (COLUMNS + 4) / 4 };
    static_assert(BK * STRIDE <= scores::QUADS, "shared memory is made for scores");
    panel<scores::THREADS, COLUMNS, BK, false> of_x;
    of_x.read(across_k<matrix<T>>{x}, column, first);
#pragma unroll 1
    for (int k = 0; k < TILE; k += BK, *half ^= 1) {
        quad *to = shared + *half * scores::QUADS;
        of_x.write(to);
        __syncthreads();
        if (k + BK < TILE) of_x.read(across_k<matrix<T>>{x}, column, first + k + BK);
        const quad *a = tile + k * TILE_STRIDE + first_row<scores>();
        const quad *b = to + first_column<scores>();
#pragma unroll 4
        for (int q = 0; q < BK; q++)
            multiply_add<4, COLUMNS / 16, 1, 16>(sums, a + q * TILE_STRIDE, b + q * STRIDE);
    }
}

template <int COLUMNS> __device__ static inline void clear(float (*sums)[COLUMNS / 16]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++)
            sums[i][j] = 0.0f;
}

/* Rows `stride` apart from row 0 on = or += sums / divisors. */
template <int COLUMNS, class T>
__device__ static inline void
put_rows(const attention<T> &a, const head &h, T *to, int64_t stride, bool add,
         const float (*sums)[COLUMNS / 16], const float *divisors) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = h.first + row_of<scores>(i);
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            const int column = h.column + j / 4 * 64 + 4 * first_column<scores>() + j % 4;
            if (row < a.rows && column < a.depth)
                put(to, row * stride + column, add, sums[i][j] / divisors[i]);
        }
    }
}

/* Factors of the four keys of a query. */
template <class T>
__device__ static inline quad keep_of(const attention<T> &a, const head &h, int query,
                                      int key) {
    if (!a.dropout.on) return {{1.0f, 1.0f, 1.0f, 1.0f}};
    const dropout_mask &mask = h.mask;
    const rng_words words =
        dropout_words(mask, (uint32_t)(h.number * a.rows + query), (uint32_t)key / 4);
    return {{dropout_factor(mask, words.at[0]), dropout_factor(mask, words.at[1]),
             dropout_factor(mask, words.at[2]), dropout_factor(mask, words.at[3])}};
}

/* --- forward --- */

/* Over the 16 threads of a row of scores. */
__device__ static inline float row_max(float x) {
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
        x = larger(__shfl_xor_sync(0xffffffffu, x, lanes), x);
    return x;
}

/* s := p of a row of a tile; returns the factor of what came before. */
__device__ static inline float softmax_row(float *s, int visible, float scale, float *max,
                                           float *sum) {
    float most = -INFINITY;
    for (int j = 0; j < 4; j++)
        most = larger(j < visible ? s[j] : -INFINITY, most);
    most = larger(row_max(most), *max);
    const float factor = exp_or_zero(scale * (*max - most));
    float part = 0.0f;
    for (int j = 0; j < 4; j++) {
        s[j] = j < visible ? exp_or_zero(scale * (s[j] - most)) : 0.0f;
        part = part + s[j];
    }
    *max = most;
    *sum = *sum * factor + sum_lanes(part);
    return factor;
}

/* s := p keep of the keys from `key` on; y is rescaled. */
template <int COLUMNS, class T>
__device__ static inline void softmax_tile(const attention<T> &a, const head &h, int key,
                                           float (*s)[4], float (*y)[COLUMNS / 16], float *max,
                                           float *sum) {
    key += 4 * first_column<scores>();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int query = h.first + row_of<scores>(i);
        const float factor = softmax_row(s[i], query - key + 1, a.scale, max + i, sum + i);
        const quad keep = keep_of(a, h, query, key);
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = s[i][j] * keep.x[j];
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++)
            y[i][j] = y[i][j] * factor;
    }
}

template <int COLUMNS, class T>
__global__ void __launch_bounds__(scores::THREADS) forward_tile(attention<T> a) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head h;
    find_head(&h, a, COLUMNS, true);
    const matrix<T> q = rows_of(a, h, 0), k = rows_of(a, h, 1), v = rows_of(a, h, 2);
    float y[4][COLUMNS / 16], max[4], sum[4];
    int half = 0;
    clear<COLUMNS>(y);
    for (int i = 0; i < 4; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (int key = 0; key <= h.first; key += TILE) {
        float s[4][4];
        multiply_rows(s, q, k, h.first, key, shared, &half);
        softmax_tile<COLUMNS>(a, h, key, s, y, max, sum);
        store_transposed(tile, s);
        add_gemm<COLUMNS>(y, tile, v, key, h.column, shared, &half);
    }
    put_rows<COLUMNS>(a, h, a.y + h.y, width_of(a), false, y, sum);
    for (int i = 0; i < 4; i++) {
        const int row = h.first + row_of<scores>(i);
        if (blockIdx.y == 0 && first_column<scores>() == 0 && row < a.rows)
            a.lse[h.lse + row] = a.scale * max[i] + (float)log_of((double)sum[i]);
    }
}

/* --- backward --- */

/* A warp has a row of a head. */
template <class T> __global__ static void rows_delta(attention<T> a) {
    const int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    const int64_t line = i / a.rows, row = i % a.rows;
    const int64_t at = (line / a.heads * a.rows + row) * width_of(a) + line % a.heads * a.depth;
    float sum = 0.0f;
    if (i >= a.n * a.heads * a.rows) return;
    for (int d = threadIdx.x % WARP; d < a.depth; d += WARP)
        sum = fmaf(load(a.dy, at + d), load(a.y, at + d), sum);
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        sum = sum + __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % WARP == 0) a.delta[i] = sum;
}

/* s := p keep and dp := ds of queries and keys from `query` and `key` on. */
template <class T>
__device__ static inline void softmax_backward(const attention<T> &a, const head &h, int query,
                                               int key, float (*s)[4], float (*dp)[4]) {
    key += 4 * first_column<scores>();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = query + row_of<scores>(i);
        const bool inside = row < a.rows;
        const float lse = inside ? a.lse[h.lse + row] : 0.0f;
        const float delta = inside ? a.delta[h.lse + row] : 0.0f;
        const quad keep = keep_of(a, h, row, key);
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const bool visible = inside && key + j <= row;
            const float p = visible ? exp_or_zero(a.scale * s[i][j] - lse) : 0.0f;
            const float slope = a.scale * p * (keep.x[j] * dp[i][j] - delta);
            s[i][j] = p * keep.x[j];
            dp[i][j] = visible ? slope : 0.0f;
        }
    }
}

template <int COLUMNS, class T>
__global__ void __launch_bounds__(scores::THREADS) queries_tile(attention<T> a) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head h;
    find_head(&h, a, COLUMNS, true);
    const matrix<T> q = rows_of(a, h, 0), k = rows_of(a, h, 1), v = rows_of(a, h, 2);
    const matrix<T> dy = rows_of_dy(a, h);
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float dq[4][COLUMNS / 16];
    int half = 0;
    clear<COLUMNS>(dq);
    for (int key = 0; key <= h.first; key += TILE) {
        float s[4][4], dp[4][4];
        multiply_rows(s, q, k, h.first, key, shared, &half);
        multiply_rows(dp, dy, v, h.first, key, shared, &half);
        softmax_backward(a, h, h.first, key, s, dp);
        store_transposed(tile, dp);
        add_gemm<COLUMNS>(dq, tile, k, key, h.column, shared, &half);
    }
    put_rows<COLUMNS>(a, h, a.dqkv + h.qkv, 3 * width_of(a), a.add, dq, one);
}

template <int COLUMNS, class T>
__global__ void __launch_bounds__(scores::THREADS) keys_tile(attention<T> a) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head h;
    find_head(&h, a, COLUMNS, false);
    const matrix<T> q = rows_of(a, h, 0), k = rows_of(a, h, 1), v = rows_of(a, h, 2);
    const matrix<T> dy = rows_of_dy(a, h);
    const float one[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    float dk[4][COLUMNS / 16], dv[4][COLUMNS / 16];
    int half = 0;
    clear<COLUMNS>(dk);
    clear<COLUMNS>(dv);
    for (int query = h.first; query < a.rows; query += TILE) {
        float s[4][4], dp[4][4];
        multiply_rows(s, q, k, query, h.first, shared, &half);
        multiply_rows(dp, dy, v, query, h.first, shared, &half);
        softmax_backward(a, h, query, h.first, s, dp);
        store_tile(tile, s);
        add_gemm<COLUMNS>(dv, tile, dy, query, h.column, shared, &half);
        __syncthreads(); /* all have read the tile */
        store_tile(tile, dp);
        add_gemm<COLUMNS>(dk, tile, q, query, h.column, shared, &half);
    }
    const int64_t width = width_of(a);
    T *to = a.dqkv + h.qkv + width;
    put_rows<COLUMNS>(a, h, to, 3 * width, a.add, dk, one);
    put_rows<COLUMNS>(a, h, to + width, 3 * width, a.add, dv, one);
}

/* --- host --- */

template <class T>
static attention<T> attention_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_attributes *g = &spec->attributes;
    const int64_t depth = g->out / g->heads;
    attention<T> a = {};
    a.qkv = (const T *)args->x[0];
    a.y = (T *)args->y;
    a.lse = args->saved[0];
    a.dy = (const T *)args->dy;
    a.dqkv = (T *)args->dx[0];
    a.delta = (float *)args->workspace;
    a.add = adds(spec, 0);
    a.quads = depth % 4 == 0 && is_aligned(a.qkv) && is_aligned(a.dy);
    a.heads = (int)g->heads;
    a.rows = (int)g->rows;
    a.depth = (int)depth;
    a.n = spec->n;
    a.scale = (float)(1.0 / sqrt((double)depth));
    a.dropout = dropout_of(spec, args);
    return a;
}

template <class T>
static cudaError_t launch_tiles(void (*kernel)(attention<T>), int columns,
                                const attention<T> &a, cudaStream_t stream) {
    const int64_t tiles = ceil_div(a.rows, TILE) * a.n * a.heads;
    return launch(kernel, dim3((unsigned)tiles, (unsigned)ceil_div(a.depth, columns)),
                  dim3(scores::THREADS), stream, a);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    const attention<T> a = attention_of<T>(spec, args);
    if (a.depth <= NARROW) return launch_tiles(forward_tile<NARROW, T>, NARROW, a, stream);
    return launch_tiles(forward_tile<WIDE, T>, WIDE, a, stream);
}

template <class T>
static cudaError_t backward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                            cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    const attention<T> a = attention_of<T>(spec, args);
    const int64_t lines = a.n * a.heads * a.rows;
    CGP__TRY_CUDA(launch(rows_delta<T>, dim3((unsigned)ceil_div(lines, BLOCK / WARP)),
                         dim3(BLOCK), stream, a));
    if (a.depth <= NARROW) {
        CGP__TRY_CUDA(launch_tiles(queries_tile<NARROW, T>, NARROW, a, stream));
        return launch_tiles(keys_tile<NARROW, T>, NARROW, a, stream);
    }
    CGP__TRY_CUDA(launch_tiles(queries_tile<WIDE, T>, WIDE, a, stream));
    return launch_tiles(keys_tile<WIDE, T>, WIDE, a, stream);
}

/* delta */
static int64_t workspace(const cgp_kernel_spec *spec) {
    const cgp_op_attributes *g = &spec->attributes;
    if (spec->direction == CGP_OP_FORWARD) return 0;
    return spec->n * g->heads * g->rows * (int64_t)sizeof(float);
}

const cgp__cuda_op cgp__cuda_attention = {{BY_TYPE(forward), BY_TYPE(backward), NULL},
                                          workspace};
