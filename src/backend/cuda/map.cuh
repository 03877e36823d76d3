/* SPDX-License-Identifier: Apache-2.0 */
/* map.cuh -- elementwise loops, and copies. A loop sets `to[i]` to f(a[i], b[i]), or adds this
 * value to `to[i]`. `to` may alias `a` or `b`. */
#ifndef CGP_SRC_CUDA_MAP_CUH
#define CGP_SRC_CUDA_MAP_CUH

#include "backend/cuda/cuda.cuh"

/* n elements that a thread loads and stores together, with accesses of up to 16 bytes. */
template <class T, int n> struct alignas(n * sizeof(T) < 16 ? n * sizeof(T) : 16) pack {
    T at[n];
};

/* Number of elements per pack if operands have several types. A pack of the narrowest type fills 16
 * bytes. */
template <class... T> constexpr int pack_of = ((sizeof(T) == 2) || ...) ? 8 : 4;

static inline bool is_aligned(const void *at) {
    return (uintptr_t)at % 16 == 0;
}

/* F has a member `float operator()(float a, float b) const`. `packed`: `to`, `a` and `b` are
 * aligned to 16 bytes. */
template <class To, class A, class B, class F>
__global__ void map_kernel(To *to, const A *a, const B *b, int64_t n, bool add, bool packed,
                           F f) {
    constexpr int N = pack_of<To, A, B>;
    const int64_t packs = packed ? n / N : 0, rest = packs * N;
    FOR_EACH(p, packs) {
        const pack<A, N> in_a = ((const pack<A, N> *)a)[p];
        const pack<B, N> in_b = ((const pack<B, N> *)b)[p];
        pack<To, N> out;
        if (add) out = ((const pack<To, N> *)to)[p];
        for (int k = 0; k < N; k++)
            put(out.at, k, add, f(load(in_a.at, k), load(in_b.at, k)));
        ((pack<To, N> *)to)[p] = out;
    }
    FOR_EACH(i, n - rest) {
        const int64_t at = rest + i;
        put(to, at, add, f(load(a, at), load(b, at)));
    }
}

/* Enqueue an elementwise loop. If f does not use its second argument, pass `a` for `b`. */
template <class To, class A, class B, class F>
static cudaError_t map(To *to, const A *a, const B *b, int64_t n, bool add, cudaStream_t stream,
                       F f) {
    constexpr int N = pack_of<To, A, B>;
    const bool packed = is_aligned(to) && is_aligned(a) && is_aligned(b);
    if (n == 0) return cudaSuccess;
    return launch(map_kernel<To, A, B, F>, blocks_for(packed ? ceil_div(n, N) : n), dim3(BLOCK),
                  stream, to, a, b, n, add, packed, f);
}

struct first_of {
    __device__ float operator()(float a, float) const {
        return a;
    }
};

/* Copy `from` to `to`, or add `from` to `to`. A copy of a buffer to itself does nothing. */
template <class T>
static cudaError_t pass(T *to, const T *from, int64_t n, bool add, cudaStream_t stream) {
    if (add) return map(to, from, from, n, true, stream, first_of{});
    if (to == from || n == 0) return cudaSuccess;
    return copy_bytes(to, from, n * (int64_t)sizeof *to, stream);
}

/* Copy dy to dx[k], or add dy to dx[k], for an op whose gradient is dy itself. */
template <class T>
static cudaError_t pass_dy(const cgp_kernel_spec *spec, const cgp_kernel_args *args, int k,
                           cudaStream_t stream) {
    if (!args->dx[k]) return cudaSuccess;
    return pass((T *)args->dx[k], (const T *)args->dy, elements(spec), adds(spec, k), stream);
}

#endif
