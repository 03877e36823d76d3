/* SPDX-License-Identifier: Apache-2.0 */
/* cached_attention.cu -- attention with a KV cache: queries at given positions attend to cached
 * keys and values.
 *
 * A thread block computes one head of consecutive samples whose positions are consecutive and lie
 * in the same block of 64. These samples correspond to rows of a tile in attention.cu, and their
 * results are bit-identical to the results of attention.cu. The thread block of the first sample
 * finds the other samples; the thread blocks of those samples return immediately. */
#include "backend/cuda/ops/attention_mma.cuh"

/* Write rows of k and v [n, columns] to their positions in the cache. One thread owns a column, so
 * that the last of several rows with equal positions stays. */
template <class T>
__global__ static void write_cache(T *keys, const T *k, int64_t k_columns, T *values,
                                   const T *v, int64_t v_columns, const int32_t *positions,
                                   int64_t n) {
    FOR_EACH(c, k_columns + v_columns) {
        for (int64_t i = 0; i < n; i++) {
            if (c < k_columns)
                keys[positions[i] * k_columns + c] = k[i * k_columns + c];
            else
                values[positions[i] * v_columns + c - k_columns] =
                    v[i * v_columns + c - k_columns];
        }
    }
}

/* Return whether sample i is the next row of the previous sample's tile. */
__device__ static inline bool follows(const int32_t *positions, int64_t i) {
    return i > 0 && positions[i] == positions[i - 1] + 1 && positions[i] % TILE != 0;
}

/* Set `h` to head `number` for the tile of samples that begins at `sample`. Row t of q and y
 * belongs to position t. */
template <class T>
__device__ static inline void set_cached_head(head<T> *h, int *rows, const attention<T> &a,
                                              const int32_t *positions, int64_t sample,
                                              int number) {
    const int64_t first = positions[sample], before = sample - first;
    int64_t end = sample + 1;
    while (end < a.n && follows(positions, end))
        end++;
    const int64_t kv = number / a.group;
    *rows = (int)(end - before);
    h->number = number;
    h->first = (int)first;
    h->y_at = before * a.y_stride + (int64_t)number * a.v.columns;
    h->q = rows_of(a.q, before * a.q.stride + (int64_t)number * a.q.columns, *rows);
    h->k = rows_of(a.k, kv * a.k.columns, *rows);
    h->v = rows_of(a.v, kv * a.v.columns, *rows);
}

template <int COLUMNS, class T>
__global__ void __launch_bounds__(scores::THREADS)
    cached_tile(attention<T> a, const int32_t *positions) {
    __shared__ quad shared[2 * scores::QUADS], tile[TILE_QUADS];
    __shared__ head<T> h;
    __shared__ int rows;
    const int64_t sample = blockIdx.x / a.heads;
    if (follows(positions, sample)) return;
    if (threadIdx.x == 0) {
        set_cached_head(&h, &rows, a, positions, sample, (int)(blockIdx.x % a.heads));
        h.column = (int)blockIdx.y * COLUMNS;
    }
    __syncthreads();
    float y[4][COLUMNS / 16], max[4], sum[4];
    int half = 0;
    clear<COLUMNS>(y);
    for (int i = 0; i < 4; i++) {
        max[i] = -INFINITY;
        sum[i] = 0.0f;
    }
    for (int key = begin_key(a, h.first); key < rows; key += TILE) {
        float s[4][4];
        multiply_rows(s, h.q, h.k, h.first, key, shared, &half);
        softmax_tile<COLUMNS>(a, h, key, s, y, max, sum);
        store_transposed(tile, s);
        add_gemm<COLUMNS>(y, tile, h.v, key, h.column, shared, &half);
    }
    put_rows<COLUMNS>(h, a.y + h.y_at, a.y_stride, rows, a.v.columns, false, y, sum);
}

/* Like cached_tile(), but on tensor cores. */
template <int D>
__global__ void __launch_bounds__(MMA_THREADS, BLOCKS<D>)
    cached_mma(attention<bf16> a, const int32_t *positions) {
    DYNAMIC_SHARED(bf16, shared);
    __shared__ head<bf16> h;
    __shared__ int rows;
    forward_rows<D> of;
    const int64_t sample = blockIdx.x / a.heads;
    if (follows(positions, sample)) return;
    if (threadIdx.x == 0)
        set_cached_head(&h, &rows, a, positions, sample, (int)(blockIdx.x % a.heads));
    __syncthreads();
    attend(a, h, rows, shared, &of);
    put_sums<D>(a.y + h.y_at, a.y_stride, h.first, rows, a.v.columns, false, a.y_vectors, of.y,
                of.sum);
}

/* --- host --- */

static_assert(bytes_of_tiles<64>() == 36864, "dynamic shared memory of cached_mma<64>");
static_assert(bytes_of_tiles<128>() == 69632, "dynamic shared memory of cached_mma<128>");

template <int D>
static cudaError_t run_mma(const attention<bf16> &a, const int32_t *positions,
                           cudaStream_t stream) {
    return launch_shared(cached_mma<D>, dim3((unsigned)(a.n * a.heads)), dim3(MMA_THREADS),
                         bytes_of_tiles<D>(), stream, a, positions);
}

template <int COLUMNS, class T>
static cudaError_t run_cached(const attention<T> &a, const int32_t *positions,
                              cudaStream_t stream) {
    return launch(cached_tile<COLUMNS, T>,
                  dim3((unsigned)(a.n * a.heads), (unsigned)ceil_div(a.v.columns, COLUMNS)),
                  dim3(scores::THREADS), stream, a, positions);
}

template <class T>
static cudaError_t cached_forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                                  cudaStream_t stream) {
    const cgp_op_attention *g = cgp_spec_attention(spec);
    const int32_t *positions = (const int32_t *)args->x[3];
    attention<T> a = attention_of<T>(spec, args);
    T *const keys = (T *)args->state[0], *const values = keys + g->keys * a.k.stride;
    CGP__TRY_CUDA_ERROR(launch(write_cache<T>, blocks_for(a.k.stride + a.v.stride), dim3(BLOCK),
                               stream, keys, a.k.at, a.k.stride, values, a.v.at, a.v.stride,
                               positions, a.n));
    a.k.at = keys;
    a.v.at = values;
    a.k.quads = a.k.columns % 4 == 0 && is_aligned(keys);
    a.v.quads = a.v.columns % 4 == 0 && is_aligned(values);
    a.k.vectors = are_vectors(keys, a.k.stride, a.k.columns);
    a.v.vectors = are_vectors(values, a.v.stride, a.v.columns);
    if constexpr (is_rounded<T>)
        if (uses_mma(a))
            return is_narrow(a) ? run_mma<NARROW>(a, positions, stream)
                                : run_mma<WIDE>(a, positions, stream);
    return a.v.columns <= NARROW ? run_cached<NARROW>(a, positions, stream)
                                 : run_cached<WIDE>(a, positions, stream);
}

const cgp__cuda_op cgp__cuda_cached_attention = {{BY_TYPE(cached_forward), NULL, NULL}, NULL};
