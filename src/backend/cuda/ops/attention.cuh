/* SPDX-License-Identifier: Apache-2.0 */
/* attention.cuh -- tiles of FlashAttention (Dao et al. 2022, arXiv:2205.14135): 64 queries by 64
 * keys, with online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867). attention.cu and
 * cached_attention.cu use these tiles. */
#ifndef CGP_SRC_CUDA_ATTENTION_CUH
#define CGP_SRC_CUDA_ATTENTION_CUH

#include "backend/cuda/gemm.cuh"
#include "backend/cuda/math.cuh"
#include "backend/cuda/rng.cuh"
#include "backend/cuda/rows.cuh"

using namespace gemm;

/* Tile shape of scores. The threads of a row of scores are neighbours in a warp. With more
 * unrolling, the kernels for dk and dv would spill registers. */
typedef shape<64, 64, 16, 4, 4, 0, 16, 4> scores;
static_assert((int)scores::ACROSS == (int)LANES, "sums and maxima of a row are those of lanes");

/* Tile shapes with 16 queries, and with 16 keys, for use if tiles of 64 would leave SMs idle. All
 * shapes divide shared memory into the same halves. */
struct few_queries : shape<16, 64, 16, 4, 4, 0, 16, 4> {
    enum { QUADS = scores::QUADS };
};
struct few_keys : shape<64, 16, 16, 4, 4, 0, 4, 4> {
    enum { QUADS = scores::QUADS };
};

enum {
    TILE = 64,
    /* Size of a tile in shared memory, in quads. */
    TILE_QUADS = TILE * (TILE / 4 + 1),
    /* Columns per thread block, for narrow and wide heads. */
    NARROW = 64,
    WIDE = 128,
    WARP = 32
};

/* A matrix that is always read with bounds checks, because a path for interior tiles would need
 * more registers. */
template <class T> struct by_quads : matrix<T> {};

/* --- operands --- */

/* Operand q, k or v. `at` is the address of row 0 of the first head of the first sample. */
template <class T> struct operand {
    const T *at;
    /* NULL: no gradient is needed. */
    T *dx;
    /* Number of elements from one row to the next, and number of columns of a head. */
    int64_t stride;
    int columns;
    /* True: elements 0, 4, 8 ... of every row are aligned for load_four(). */
    bool quads;
    /* True: the length and the address of every row of `at`, or of `dx`, are multiples of 16
     * bytes. */
    bool vectors, dx_vectors;
    /* True: add to dx instead of overwriting it. */
    bool add;
};

/* Arguments of a launch. */
template <class T> struct attention {
    operand<T> q, k, v;
    /* Rows of y have as many columns as rows of v and are `y_stride` elements apart. */
    T *y;
    const T *dy;
    int64_t y_stride;
    bool dy_quads, dy_vectors, y_vectors;
    float *max, *log_sum, *delta;
    /* `group` query heads share a key/value head. `window` is 0 if there is no window. */
    int heads, group, rows, keys, window;
    bool causal;
    int64_t n;
    float scale;
    dropout_rule dropout;
};

/* One head of one sample, with the tile and columns that a thread block computes. The struct is in
 * shared memory to save registers. */
template <class T> struct head {
    int number, first, column;
    /* Offsets of row 0, in elements, in q, k, v and y. `saved` is the offset in max, log_sum and
     * delta. */
    int64_t q_at, k_at, v_at, y_at, saved;
    matrix<T> q, k, v, dy;
    dropout_mask mask;
};

template <class T>
__device__ static inline matrix<T> rows_of(const operand<T> &x, int64_t first, int rows) {
    return {x.at + first, x.stride, rows, x.columns, x.quads};
}

/* Set `head` to head number `number` of a sample. Called by one thread. */
template <class T>
__device__ static inline void set_head(head<T> *h, const attention<T> &a, int64_t sample,
                                       int number) {
    const int kv = number / a.group;
    h->number = number;
    h->q_at = sample * a.rows * a.q.stride + (int64_t)number * a.q.columns;
    h->k_at = sample * a.keys * a.k.stride + (int64_t)kv * a.k.columns;
    h->v_at = sample * a.keys * a.v.stride + (int64_t)kv * a.v.columns;
    h->y_at = sample * a.rows * a.y_stride + (int64_t)number * a.v.columns;
    h->saved = (sample * a.heads + number) * a.rows;
    h->q = rows_of(a.q, h->q_at, a.rows);
    h->k = rows_of(a.k, h->k_at, a.keys);
    h->v = rows_of(a.v, h->v_at, a.keys);
    h->dy = {a.dy + h->y_at, a.y_stride, a.rows, a.v.columns, a.dy_quads};
}

/* Set the head and tile of a thread block. The grid covers the query heads 0, `step`, 2 * `step`,
 * ... A head has `length` rows, which are divided into tiles of `rows` rows. `reversed`: the last
 * tiles, which may have the most keys, run first. */
template <class T>
__device__ static inline void find_head(head<T> *h, const attention<T> &a, int length, int step,
                                        int columns, bool reversed, int rows = TILE) {
    const int64_t heads = a.heads / step, all = a.n * heads;
    const int64_t tile = blockIdx.x / all, index = blockIdx.x % all;
    const int64_t tiles = (length + rows - 1) / rows, sample = index / heads;
    if (threadIdx.x == 0) {
        set_head(h, a, sample, (int)(index % heads) * step);
        h->first = (int)(reversed ? tiles - 1 - tile : tile) * rows;
        h->column = (int)blockIdx.y * columns;
        if (a.dropout.on) h->mask = dropout_mask_of(a.dropout, sample);
    }
    __syncthreads();
}

/* Queries of the tile that begins at `query` attend to the key tiles that begin in [begin_key(),
 * end_key()). These key tiles are the same for all queries of an aligned block of 64. */
template <class T> __device__ static inline int begin_key(const attention<T> &a, int query) {
    const int first = query / TILE * TILE;
    return a.window > 0 && first >= a.window ? (first - a.window + 1) / TILE * TILE : 0;
}

template <class T> __device__ static inline int end_key(const attention<T> &a, int query) {
    return a.causal ? query + 1 : a.keys;
}

/* The query tiles that begin in [begin_query(), end_query()) attend to keys of the tile that begins
 * at `key`. These query tiles are the same for all keys of an aligned block of 64. */
template <class T> __device__ static inline int begin_query(const attention<T> &a, int key) {
    return a.causal ? key / TILE * TILE : 0;
}

template <class T> __device__ static inline int end_query(const attention<T> &a, int key) {
    const int64_t end = (int64_t)(key / TILE * TILE) + TILE - 1 + a.window;
    return a.window > 0 && end < a.rows ? (int)end : a.rows;
}

/* The keys to which a query attends, as indices begin .. end - 1 relative to `key`. */
struct seen {
    int begin, end;
};

template <class T>
__device__ static inline seen seen_from(const attention<T> &a, int query, int key) {
    const int end = (a.causal ? query + 1 : a.keys) - key;
    return {a.window > 0 ? end - a.window : 0, end};
}

/* --- tiles --- */

/* Compute s = x y^T for a tile of queries and keys. */
template <class S = scores, class T>
__device__ static inline void multiply_rows(float (*s)[4], const matrix<T> &x,
                                            const matrix<T> &y, int query, int key,
                                            quad *shared, int *half) {
    mainloop<S>(s, along_k<by_quads<T>>{{x}}, along_k<by_quads<T>>{{y}}, query, key, 0,
                x.columns, shared, half);
}

/* Store scores to shared memory as [query][key]. Rows are padded by a quad. */
template <class S> __device__ static inline void store_tile(quad *tile, const float (*s)[4]) {
#pragma unroll
    for (int i = 0; i < 4; i++)
        tile[row_of<S>(i) * (S::BN / 4 + 1) + first_column<S>()] = {
            {s[i][0], s[i][1], s[i][2], s[i][3]}};
}

/* Store scores to shared memory as [key][query]. */
template <class S = scores>
__device__ static inline void store_transposed(quad *tile, const float (*s)[4]) {
#pragma unroll
    for (int j = 0; j < 4; j++)
        tile[(4 * first_column<S>() + j) * (S::BM / 4 + 1) + first_row<S>()] = {
            {s[0][j], s[1][j], s[2][j], s[3][j]}};
}

/* Add tile^T x to the S::BM rows of sums, for rows `first` .. `first` + 63 and COLUMNS columns of
 * x. Callers need no barrier after they have written the tile, because this function has a barrier
 * before it reads the tile. */
template <int COLUMNS, class S = scores, class T>
__device__ static inline void add_gemm(float (*sums)[COLUMNS / 16], const quad *tile,
                                       const matrix<T> &x, int first, int column, quad *shared,
                                       int *half) {
    enum { BK = S::BK, STRIDE = (COLUMNS + 4) / 4, TILE_STRIDE = S::BM / 4 + 1 };
    static_assert(BK * STRIDE <= S::QUADS, "shared memory is made for scores");
    panel<S::THREADS, COLUMNS, BK, false> of_x;
    of_x.read(across_k<by_quads<T>>{{x}}, column, first);
#pragma unroll 1
    for (int k = 0; k < TILE; k += BK, *half ^= 1) {
        quad *to = shared + *half * S::QUADS;
        of_x.write(to);
        __syncthreads();
        if (k + BK < TILE) of_x.read(across_k<by_quads<T>>{{x}}, column, first + k + BK);
        const quad *a = tile + k * TILE_STRIDE + first_row<S>();
        const quad *b = to + first_column<S>();
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

/* Set `to` to sums / divisors, or add the quotients. Rows are `stride` elements apart. */
template <int COLUMNS, class S = scores, class T>
__device__ static inline void put_rows(const head<T> &h, T *to, int64_t stride, int rows,
                                       int columns, bool add, const float (*sums)[COLUMNS / 16],
                                       const float *divisors) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int row = h.first + row_of<S>(i);
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++) {
            const int column = h.column + j / 4 * 64 + 4 * first_column<S>() + j % 4;
            if (row < rows && column < columns)
                put(to, row * stride + column, add, sums[i][j] / divisors[i]);
        }
    }
}

/* Return the dropout factors of four keys of a query. */
template <class T>
__device__ static inline quad keep_of(const attention<T> &a, const head<T> &h, int query,
                                      int key) {
    if (!a.dropout.on) return {{1.0f, 1.0f, 1.0f, 1.0f}};
    const dropout_mask &mask = h.mask;
    const rng_words words =
        dropout_words(mask, (uint32_t)h.number * a.rows + query, (uint32_t)key / 4);
    return {{dropout_factor(mask, words.at[0]), dropout_factor(mask, words.at[1]),
             dropout_factor(mask, words.at[2]), dropout_factor(mask, words.at[3])}};
}

/* --- forward --- */

/* Return the maximum over the 16 threads of a row of scores. */
__device__ static inline float row_max(float x) {
    for (int lanes = LANES / 2; lanes > 0; lanes /= 2)
        x = larger(__shfl_xor_sync(0xffffffffu, x, lanes), x);
    return x;
}

/* Replace s by p in a row of a tile. Return the factor that rescales the results of earlier
 * tiles. */
__device__ static inline float softmax_row(float *s, seen visible, float scale, float *max,
                                           float *sum) {
    float most = -INFINITY;
    for (int j = 0; j < 4; j++)
        most = larger(j >= visible.begin && j < visible.end ? s[j] : -INFINITY, most);
    most = larger(row_max(most), *max);
    /* `most` is -inf if the window of this query begins after all keys so far */
    const float factor = most == -INFINITY ? 1.0f : exp_or_zero(scale * (*max - most));
    float part = 0.0f;
    for (int j = 0; j < 4; j++) {
        const bool sees = j >= visible.begin && j < visible.end;
        s[j] = sees ? exp_or_zero(scale * (s[j] - most)) : 0.0f;
        part = part + s[j];
    }
    *max = most;
    *sum = *sum * factor + sum_lanes(part);
    return factor;
}

/* Replace s by p * keep in the tile whose first key is `key`, and rescale y. The factor `keep` is
 * the dropout factor. */
template <int COLUMNS, class S = scores, class T>
__device__ static inline void softmax_tile(const attention<T> &a, const head<T> &h, int key,
                                           float (*s)[4], float (*y)[COLUMNS / 16], float *max,
                                           float *sum) {
    key += 4 * first_column<S>();
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const int query = h.first + row_of<S>(i);
        const float factor =
            softmax_row(s[i], seen_from(a, query, key), a.scale, max + i, sum + i);
        const quad keep = keep_of(a, h, query, key);
#pragma unroll
        for (int j = 0; j < 4; j++)
            s[i][j] = s[i][j] * keep.x[j];
#pragma unroll
        for (int j = 0; j < COLUMNS / 16; j++)
            y[i][j] = y[i][j] * factor;
    }
}

/* --- host --- */

/* Return whether the rows of heads, which are `stride` elements apart, consist of aligned vectors
 * of 16 bytes. */
template <class T>
static inline bool are_vectors(const T *at, int64_t stride, int64_t columns) {
    const int64_t elements = 16 / (int64_t)sizeof(T);
    return (uintptr_t)at % 16 == 0 && stride % elements == 0 && columns % elements == 0;
}

/* Return operand `part`, where 0 is q, 1 is k and 2 is v. If fused, one input has the columns of q,
 * k and v, in this order. */
template <class T>
static operand<T> operand_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int part,
                             int64_t stride, int64_t columns) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int input = g->fused ? 0 : part;
    const int64_t before = g->fused ? part * g->out : 0;
    operand<T> x = {};
    x.at = (const T *)args->x[input] + before;
    if (args->dx[input]) x.dx = (T *)args->dx[input] + before;
    x.stride = stride;
    x.columns = (int)columns;
    x.quads = columns % 4 == 0 && is_aligned(x.at);
    x.vectors = are_vectors(x.at, stride, columns);
    x.dx_vectors = are_vectors(x.dx, stride, columns);
    x.add = adds(spec, input);
    return x;
}

template <class T>
static attention<T> attention_of(const cgp_kernel_spec *spec, const cgp_kernel_args *args) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int64_t depth = (g->fused ? g->out : g->in) / g->heads, width = g->out / g->heads;
    const int64_t row = 3 * g->out; /* distance of rows if q, k and v are fused */
    attention<T> a = {};
    a.q = operand_of<T>(spec, args, 0, g->fused ? row : g->in, depth);
    a.k = operand_of<T>(spec, args, 1, g->fused ? row : g->kv_heads * depth, depth);
    a.v = operand_of<T>(spec, args, 2, g->fused ? row : g->kv_heads * width, width);
    a.y = (T *)args->y;
    a.dy = (const T *)args->dy;
    a.y_stride = g->out;
    a.dy_quads = width % 4 == 0 && is_aligned(a.dy);
    a.dy_vectors = are_vectors(a.dy, a.y_stride, width);
    a.y_vectors = are_vectors(a.y, a.y_stride, width);
    a.max = args->saved[0];
    a.log_sum = args->saved[1];
    a.delta = (float *)args->workspace;
    a.heads = (int)g->heads;
    a.group = (int)(g->heads / g->kv_heads);
    a.rows = (int)g->rows;
    a.keys = (int)g->keys;
    a.window = (int)g->window;
    a.causal = g->causal != 0;
    a.n = spec->n;
    a.scale = g->scale;
    a.dropout = dropout_of(spec, args);
    return a;
}

#endif
