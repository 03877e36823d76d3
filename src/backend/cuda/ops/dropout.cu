/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.cu -- DROPOUT (Srivastava et al. 2014) and DROPOUT2D (spatial dropout, Tompson et al.
 * 2015): y = x mask, dx = dy mask. Outside training, both ops copy x to y, or do nothing if x and y
 * share memory.
 *
 * The mask is recomputed, not saved. One call of the generator makes four random words. These are
 * enough for a quad, which is four elements of DROPOUT or four channels of DROPOUT2D. The output y
 * may share x's memory. */
#include "backend/cuda/map.cuh"
#include "backend/cuda/rng.cuh"

/* Multiply the first `count` elements of the quad at `at` by their factors. A dropped element is 0
 * even if x is not finite. */
template <class T>
__device__ static inline void apply(T *to, const T *from, int64_t at, int64_t count, bool add,
                                    const dropout_mask &mask, const rng_words &words) {
    for (int k = 0; k < 4; k++) {
        if (k >= count) break;
        const bool kept = words.at[k] >= mask.threshold;
        put(to, at + k, add, kept ? load(from, at + k) * mask.scale : 0.0f);
    }
}

/* Multiply a full, aligned quad by its factors. */
template <class T>
__device__ static inline void apply_packed(T *to, const T *from, int64_t at, bool add,
                                           const dropout_mask &mask, const rng_words &words) {
    const pack<T, 4> in = *(const pack<T, 4> *)(from + at);
    pack<T, 4> out = in;
    if (add) out = *(const pack<T, 4> *)(to + at);
    apply(out.at, in.at, 0, 4, add, mask, words);
    *(pack<T, 4> *)(to + at) = out;
}

template <class T>
__global__ void dropout_elements(T *to, const T *from, int64_t n, int64_t size, bool add,
                                 bool packed, dropout_rule rule) {
    for (int64_t sample = blockIdx.y; sample < n; sample += gridDim.y) {
        const dropout_mask mask = dropout_mask_of(rule, sample);
        FOR_EACH(quad, (size + 3) / 4) {
            const rng_words words = dropout_words(mask, 0, (uint32_t)quad);
            const int64_t at = sample * size + 4 * quad;
            if (packed)
                apply_packed(to, from, at, add, mask, words);
            else
                apply(to, from, at, size - 4 * quad, add, mask, words);
        }
    }
}

/* Apply DROPOUT2D. A thread owns a quad of channels, and handles the rows that are `step` apart. */
template <class T>
__global__ void dropout_channels(T *to, const T *from, int64_t n, int64_t rows, int64_t width,
                                 bool add, bool packed, dropout_rule rule) {
    const int64_t quads = (width + 3) / 4, step = (int64_t)gridDim.x * blockDim.x / quads;
    const int64_t thread = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const int64_t quad = thread % quads, first = thread / quads;
    for (int64_t sample = blockIdx.y; sample < n && first < step; sample += gridDim.y) {
        const dropout_mask mask = dropout_mask_of(rule, sample);
        const rng_words words = dropout_words(mask, 0, (uint32_t)quad);
        for (int64_t row = first; row < rows; row += step) {
            const int64_t at = (sample * rows + row) * width + 4 * quad;
            if (packed)
                apply_packed(to, from, at, add, mask, words);
            else
                apply(to, from, at, width - 4 * quad, add, mask, words);
        }
    }
}

/* Return a grid that gives each thread `each` quads of a sample, but has at least `least`
 * threads. */
static dim3 grid_of(int64_t quads, int64_t each, int64_t least, int64_t n) {
    const int64_t blocks = ceil_div(ceil_div(quads, each), BLOCK);
    const int64_t minimum = ceil_div(least, BLOCK);
    return dim3((unsigned)(blocks > minimum ? blocks : minimum),
                (unsigned)(n < 65535 ? n : 65535));
}

template <class T>
static cudaError_t run(const cgp_kernel_spec *spec, const cgp_kernel_args *args, T *to,
                       const T *from, bool add, cudaStream_t stream) {
    const int64_t n = spec->n, rows = spec->attributes.rows, width = spec->attributes.out;
    const dropout_rule rule = dropout_of(spec, args);
    const bool aligned = is_aligned(to) && is_aligned(from);
    if (!rule.on) return pass(to, from, elements(spec), add, stream);
    if (spec->op == CGP_OP_DROPOUT2D) {
        const int64_t quads = ceil_div(width, 4);
        return launch(dropout_channels<T>, grid_of(rows * quads, 4, quads, n), dim3(BLOCK),
                      stream, to, from, n, rows, width, add, aligned && width % 4 == 0, rule);
    }
    const int64_t size = rows * width;
    return launch(dropout_elements<T>, grid_of(ceil_div(size, 4), 4, 1, n), dim3(BLOCK), stream,
                  to, from, n, size, add, aligned && size % 4 == 0, rule);
}

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return run(spec, args, (T *)args->y, (const T *)args->x[0], false, stream);
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    if (!args->dx[0]) return cudaSuccess;
    return run(spec, args, (T *)args->dx[0], (const T *)args->dy, adds(spec, 0), stream);
}

const cgp__cuda_op cgp__cuda_dropout = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
const cgp__cuda_op cgp__cuda_dropout2d = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
