/* SPDX-License-Identifier: Apache-2.0 */
/* attention_mma.cu -- FlashAttention-2 (Dao 2023, arXiv:2307.08691) in bf16 on tensor cores.
 * attention.cu has the formulas. Operands of an mma are bf16, so p * keep and ds are rounded to
 * bf16.
 *
 *     forward, dq    a warp has 16 queries; tiles of 64 keys pass through shared memory
 *     dk, dv         a warp has 16 keys; tiles of queries of each head in the group pass through it
 *
 * The kernel for dk and dv computes s^T = k q^T and dp^T = v dy^T, because the registers of p^T and
 * ds^T then have the layout of the next mma's operands.
 *
 * Sums run over blocks of 16 in ascending order. A sum runs over the depth for scores, over the
 * keys for y and dq, and over the heads and their queries for dk and dv. The hardware adds the
 * products within a block. For rowsum(p) of a tile, each of four lanes adds 16 keys, and then the
 * lanes are added as a tree.
 *
 * ptxas 13.0 reports no spills. Registers on sm_80, sm_90 and sm_100, and shared memory in KiB
 * (tests/cuda/test_cuda_nvcc.sh prints them):
 *
 *                    D = 64                 D = 128
 *     forward        168 168 168   36.2     206 206 232   68.2
 *     dq             157 161 168   36.2     202 206 214   68.2
 *     dk, dv         175 175 168   55.7     208 215 204   68.9 */
#include "backend/cuda/ops/attention_mma.cuh"

/* --- forward --- */

template <int D>
__global__ void __launch_bounds__(MMA_THREADS, BLOCKS<D>) forward_mma(attention<bf16> a) {
    DYNAMIC_SHARED(bf16, shared);
    __shared__ head<bf16> h;
    forward_rows<D> rows;
    find_head(&h, a, a.rows, 1, D, true);
    attend(a, h, end_key(a, h.first), shared, &rows);
    put_sums<D>(a.y + h.y_at, a.y_stride, h.first, a.rows, a.v.columns, false, a.y_vectors,
                rows.y, rows.sum);
    for (int i = 0; i < 2; i++) {
        const int row = h.first + warp_row() + lane() / 4 + 8 * i;
        if (lane() % 4 > 0 || row >= a.rows) continue;
        a.max[h.saved + row] = rows.max[i];
        a.log_sum[h.saved + row] = (float)log_of((double)rows.sum[i]);
    }
}

/* --- backward --- */

/* Saved numbers of a query, which backward reads. */
struct query_stats {
    float max, log_sum, delta;
};

__device__ static inline query_stats stats_of(const attention<bf16> &a, int64_t saved,
                                              int query) {
    if (query >= a.rows) return {0.0f, 0.0f, 0.0f};
    return {a.max[saved + query], a.log_sum[saved + query], a.delta[saved + query]};
}

/* Replace s by p * keep (a probability after dropout), and dp by ds. A masked s is -inf. */
__device__ static inline void softmax_backward(float *s, float *dp, float keep, float scale,
                                               const query_stats &of) {
    const float p = exp_or_zero(scale * (*s - of.max) - of.log_sum);
    *dp = scale * p * (keep * *dp - of.delta);
    *s = p * keep;
}

/* KEY_STEP: number of keys in a step of the kernel for dq. QUERY_TILE and QUERY_STEP: numbers of
 * queries in a tile and in a step of the kernel for dk and dv. The numbers are smaller for wide
 * heads, to save registers and shared memory. */
template <int D> constexpr int KEY_STEP = D == NARROW ? 32 : 16;
template <int D> constexpr int QUERY_TILE = D == NARROW ? 64 : 32;
template <int D> constexpr int QUERY_STEP = D == NARROW ? 32 : 16;

/* Apply softmax_backward() to a step of keys; rows of s and dp are queries. */
template <int N>
__device__ static inline void backward_queries(const attention<bf16> &a, const head<bf16> &h,
                                               int key, const query_stats (&of)[2],
                                               float (&s)[N][4], float (&dp)[N][4]) {
    const int query = h.first + warp_row() + lane() / 4;
    const bool interior = is_interior(a, h.first + warp_row(), key, N * MMA_N);
    if (!interior) set_masked(s, a, query, key, -INFINITY);
#pragma unroll
    for (int n = 0; n < N; n++) {
        float keep[4];
        factors_of(keep, a, h, query, key + n * MMA_N);
#pragma unroll
        for (int i = 0; i < 4; i++)
            softmax_backward(&s[n][i], &dp[n][i], keep[i], a.scale, of[i / 2]);
    }
    if (!interior) set_masked(dp, a, query, key, 0.0f); /* delta may be a NaN, so clear dp */
}

template <int D>
__global__ void __launch_bounds__(MMA_THREADS, BLOCKS<D>) queries_mma(attention<bf16> a) {
    enum { N = KEY_STEP<D> / MMA_N };
    DYNAMIC_SHARED(bf16, shared);
    __shared__ head<bf16> h;
    const float one[2] = {1.0f, 1.0f};
    const two_tiles<D> tiles = {shared};
    own_rows<D, true> q, dy;
    query_stats of[2];
    float dq[D / MMA_N][4];
    int half = 0;
    find_head(&h, a, a.rows, 1, D, true);
    clear_sums(dq);
    for (int i = 0; i < 2; i++)
        of[i] = stats_of(a, h.saved, h.first + warp_row() + lane() / 4 + 8 * i);
    load_rows<D, TILE>(tiles.k(1), h.q, a.q.vectors, h.first);
    load_rows<D, TILE>(tiles.v(1), h.dy, a.dy_vectors, h.first);
    load_keys(tiles, 0, a, h, begin_key(a, h.first));
    wait_for_copies<0>();
    __syncthreads();
    q.set(tiles.k(1));
    dy.set(tiles.v(1));
    const int end = end_key(a, h.first);
    for (int key = begin_key(a, h.first); key < end; key += TILE, half ^= 1) {
        wait_for_copies<0>();
        __syncthreads();
        if (key + TILE < end) load_keys(tiles, half ^ 1, a, h, key + TILE);
#pragma unroll 1
        for (int step = 0; step < TILE; step += KEY_STEP<D>) {
            float s[N][4], dp[N][4];
            score_rows<D>(s, q, tiles.k(half), step);
            score_rows<D>(dp, dy, tiles.v(half), step);
            backward_queries(a, h, key + step, of, s, dp);
            add_product<D>(dq, dp, tiles.k(half), step);
        }
    }
    put_sums<D>(a.q.dx + h.q_at, a.q.stride, h.first, a.rows, a.q.columns, a.q.add,
                a.q.dx_vectors, dq, one);
}

/* Return the dropout factors of queries `query` and query + 1 for keys `key` and key + 8, in the
 * order of a fragment. One call of the generator makes the random words of four neighbouring keys,
 * which belong to four lanes. Each of these lanes makes the words of one of four pairs (query,
 * group of keys), and then the lanes exchange words. */
__device__ static inline void transposed_factors_of(float (&factors)[4],
                                                    const attention<bf16> &a,
                                                    const head<bf16> &h, int number, int query,
                                                    int key) {
    const int own = key % 4; /* number of this lane's pair, which is also the index of its key in
                              * its group of keys */
#pragma unroll
    for (int i = 0; i < 4; i++)
        factors[i] = 1.0f;
    if (!a.dropout.on) return;
    const rng_words words = dropout_words(h.mask, (uint32_t)number * a.rows + query + own % 2,
                                          (uint32_t)(key + own / 2 * 8) / 4);
#pragma unroll
    for (int apart = 0; apart < 4; apart++) {
        const int other = own ^ apart;
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < 4; i++)
            word = i == other ? words.at[i] : word;
        if (apart > 0) word = __shfl_xor_sync(0xffffffffu, word, 4 * apart);
        const float factor = dropout_factor(h.mask, word);
#pragma unroll
        for (int i = 0; i < 4; i++)
            factors[i] = i == other ? factor : factors[i];
    }
}

/* Set masked elements of a step of 8 N queries to a value. Rows g and g + 8 are keys `key` and
 * `key` + 8 of the tile. */
template <int N>
__device__ static inline void set_masked_keys(float (&x)[N][4], const attention<bf16> &a,
                                              const head<bf16> &h, int query, int key,
                                              float value) {
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = query + n * MMA_N + lane() % 4 * 2 + i % 2, at = key + i / 2 * 8;
            const seen sees = seen_from(a, row, h.first);
            if (row >= a.rows || at < sees.begin || at >= sees.end) x[n][i] = value;
        }
}

/* Return whether all queries `query` .. `query` + `queries` - 1 attend to all of the warp's
 * keys. */
__device__ static inline bool sees_all(const attention<bf16> &a, const head<bf16> &h, int query,
                                       int queries) {
    const int last = query + queries - 1;
    return last < a.rows && seen_from(a, query, h.first).end >= warp_row() + MMA_ROWS &&
           seen_from(a, last, h.first).begin <= warp_row();
}

/* Apply softmax_backward() to a step of queries; rows of s and dp are keys. */
template <int N>
__device__ static inline void backward_keys(const attention<bf16> &a, const head<bf16> &h,
                                            int number, int query, const query_stats *of,
                                            float (&s)[N][4], float (&dp)[N][4]) {
    const int key = warp_row() + lane() / 4;
    const bool interior = sees_all(a, h, query, N * MMA_N);
    if (!interior) set_masked_keys(s, a, h, query, key, -INFINITY);
#pragma unroll
    for (int n = 0; n < N; n++) {
        const int first = n * MMA_N + lane() % 4 * 2;
        float keep[4];
        transposed_factors_of(keep, a, h, number, query + first, h.first + key);
#pragma unroll
        for (int i = 0; i < 4; i++)
            softmax_backward(&s[n][i], &dp[n][i], keep[i], a.scale, of[first + i % 2]);
    }
    if (!interior) set_masked_keys(dp, a, h, query, key, 0.0f);
}

/* Shared memory of the kernel for dk and dv. */
template <int D> struct keys_shared {
    bf16 k[TILE_ELEMENTS<D>], v[TILE_ELEMENTS<D>];
    struct {
        bf16 q[QUERY_TILE<D> * ROW_STRIDE<D>], dy[QUERY_TILE<D> * ROW_STRIDE<D>];
        query_stats of[QUERY_TILE<D>];
    } halves[2];
};

/* Start to load queries of head `other` of the group. */
template <int D>
__device__ static inline void load_queries(keys_shared<D> *shared, int half,
                                           const attention<bf16> &a, const head<bf16> &h,
                                           int other, int query) {
    auto &to = shared->halves[half];
    matrix<bf16> q = h.q, dy = h.dy;
    q.at += other * a.q.columns;
    dy.at += other * a.v.columns;
    load_rows<D, QUERY_TILE<D>>(to.q, q, a.q.vectors, query);
    load_rows<D, QUERY_TILE<D>>(to.dy, dy, a.dy_vectors, query);
    commit_copies();
    const int row = (int)threadIdx.x;
    if (row < QUERY_TILE<D>)
        to.of[row] = stats_of(a, h.saved + (int64_t)other * a.rows, query + row);
}

/* Compute dv and dk. A thread computes the same elements of both. If dv and dk are the same
 * gradient, dv is written first. */
template <int D> __global__ void __launch_bounds__(MMA_THREADS) keys_mma(attention<bf16> a) {
    enum { N = QUERY_STEP<D> / MMA_N };
    DYNAMIC_SHARED(keys_shared<D>, shared);
    __shared__ head<bf16> h;
    const float one[2] = {1.0f, 1.0f};
    own_rows<D, D == NARROW> k, v;
    float dk[D / MMA_N][4], dv[D / MMA_N][4];
    find_head(&h, a, a.keys, a.group, D, false);
    clear_sums(dk);
    clear_sums(dv);
    const int begin = begin_query(a, h.first), end = end_query(a, h.first);
    int half = 0, other = 0, query = begin;
    load_rows<D, TILE>(shared->k, h.k, a.k.vectors, h.first);
    load_rows<D, TILE>(shared->v, h.v, a.v.vectors, h.first);
    load_queries(shared, 0, a, h, other, query);
    wait_for_copies<0>();
    __syncthreads();
    k.set(shared->k);
    v.set(shared->v);
    while (other < a.group) {
        const bool last = query + QUERY_TILE<D> >= end;
        const int next = last ? begin : query + QUERY_TILE<D>, next_other = other + last;
        wait_for_copies<0>();
        __syncthreads();
        if (next_other < a.group) load_queries(shared, half ^ 1, a, h, next_other, next);
        const auto &from = shared->halves[half];
#pragma unroll 1
        for (int step = 0; step < QUERY_TILE<D>; step += QUERY_STEP<D>) {
            float s[N][4], dp[N][4];
            score_rows<D>(s, k, from.q, step);
            score_rows<D>(dp, v, from.dy, step);
            backward_keys(a, h, h.number + other, query + step, from.of + step, s, dp);
            add_product<D>(dv, s, from.dy, step);
            add_product<D>(dk, dp, from.q, step);
        }
        query = next;
        other = next_other;
        half ^= 1;
    }
    if (a.v.dx)
        put_sums<D>(a.v.dx + h.v_at, a.v.stride, h.first, a.keys, a.v.columns, a.v.add,
                    a.v.dx_vectors, dv, one);
    if (a.k.dx)
        put_sums<D>(a.k.dx + h.k_at, a.k.stride, h.first, a.keys, a.k.columns, a.k.add,
                    a.k.dx_vectors, dk, one);
}

/* --- host --- */

static_assert(bytes_of_tiles<64>() == 36864, "dynamic shared memory of forward_mma<64>");
static_assert(bytes_of_tiles<128>() == 69632, "dynamic shared memory of forward_mma<128>");
static_assert(bytes_of_tiles<64>() == 36864, "dynamic shared memory of queries_mma<64>");
static_assert(bytes_of_tiles<128>() == 69632, "dynamic shared memory of queries_mma<128>");
static_assert(sizeof(keys_shared<64>) == 56832, "dynamic shared memory of keys_mma<64>");
static_assert(sizeof(keys_shared<128>) == 70400, "dynamic shared memory of keys_mma<128>");

/* Divide the `rows` rows of each of `heads` heads into tiles, and launch one thread block for each
 * tile. */
static cudaError_t launch_tiles(void (*kernel)(attention<bf16>), int64_t rows, int64_t heads,
                                int64_t bytes, const attention<bf16> &a, cudaStream_t stream) {
    const int64_t tiles = ceil_div(rows, TILE) * a.n * heads;
    return launch_shared(kernel, dim3((unsigned)tiles), dim3(MMA_THREADS), bytes, stream, a);
}

template <int D> static cudaError_t forward(const attention<bf16> &a, cudaStream_t stream) {
    return launch_tiles(forward_mma<D>, a.rows, a.heads, bytes_of_tiles<D>(), a, stream);
}

template <int D> static cudaError_t backward(const attention<bf16> &a, cudaStream_t stream) {
    if (a.k.dx || a.v.dx)
        CGP__TRY_CUDA_ERROR(launch_tiles(keys_mma<D>, a.keys, a.heads / a.group,
                                         sizeof(keys_shared<D>), a, stream));
    if (!a.q.dx) return cudaSuccess;
    return launch_tiles(queries_mma<D>, a.rows, a.heads, bytes_of_tiles<D>(), a, stream);
}

cudaError_t cgp__cuda_attention_forward(const attention<bf16> &a, cudaStream_t stream) {
    return is_narrow(a) ? forward<NARROW>(a, stream) : forward<WIDE>(a, stream);
}

cudaError_t cgp__cuda_attention_backward(const attention<bf16> &a, cudaStream_t stream) {
    return is_narrow(a) ? backward<NARROW>(a, stream) : backward<WIDE>(a, stream);
}
