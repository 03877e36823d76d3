/* SPDX-License-Identifier: Apache-2.0 */
/* multiply.cu -- y = x[0] x[1], element by element; dx[0] = dy x[1], dx[1] = dy x[0]. Saves nothing. y may be an x[k]. A dx[k] may be
 * dy, and both may be one: a thread loads an element before it stores it, and stores dx[1] before it adds dx[0] to it. */
#include "backend/cuda/map.cuh"

struct product_of {
    __device__ float operator()(float a, float b) const {
        return a * b;
    }
};

template <class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return map((T *)args->y, (const T *)args->x[0], (const T *)args->x[1], elements(spec),
               false, stream, product_of{});
}

/* A dx[k] that is NULL is not made. */
template <class T> struct factors {
    const T *x[2], *dy;
    T *dx[2];
    bool add[2];
};

/* N elements that lie together, from element N p on. */
template <class T, int N>
__device__ static inline void multiply_back(const factors<T> &f, int64_t p) {
    const pack<T, N> dy = ((const pack<T, N> *)f.dy)[p];
    const pack<T, N> x[2] = {((const pack<T, N> *)f.x[0])[p], ((const pack<T, N> *)f.x[1])[p]};
    for (int k = 1; k >= 0; k--) {
        if (!f.dx[k]) continue;
        pack<T, N> out;
        if (f.add[k]) out = ((const pack<T, N> *)f.dx[k])[p];
        for (int i = 0; i < N; i++)
            put(out.at, i, f.add[k], load(dy.at, i) * load(x[1 - k].at, i));
        ((pack<T, N> *)f.dx[k])[p] = out;
    }
}

/* `packed`: all are aligned. */
template <class T> __global__ void multiply_input(factors<T> f, int64_t n, bool packed) {
    constexpr int N = pack_of<T>;
    const int64_t packs = packed ? n / N : 0, rest = packs * N;
    FOR_EACH(p, packs) {
        multiply_back<T, N>(f, p);
    }
    FOR_EACH(i, n - rest) {
        multiply_back<T, 1>(f, rest + i);
    }
}

template <class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const int64_t n = elements(spec);
    factors<T> f = {{(const T *)args->x[0], (const T *)args->x[1]},
                    (const T *)args->dy,
                    {(T *)args->dx[0], (T *)args->dx[1]},
                    {adds(spec, 0), adds(spec, 1)}};
    const bool packed = is_aligned(f.dy) && is_aligned(f.x[0]) && is_aligned(f.x[1]) &&
                        is_aligned(f.dx[0]) && is_aligned(f.dx[1]);
    if (!f.dx[0] && !f.dx[1]) return cudaSuccess;
    return launch(multiply_input<T>, blocks_for(packed ? ceil_div(n, pack_of<T>) : n),
                  dim3(BLOCK), stream, f, n, packed);
}

const cgp__cuda_op cgp__cuda_multiply = {{BY_TYPE(forward), BY_TYPE(input), NULL}, NULL};
