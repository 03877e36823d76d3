/* SPDX-License-Identifier: Apache-2.0 */
/* binary.cu -- elementwise ops of two inputs of the same shape. They save nothing.
 *
 *     multiply    y = x[0] x[1]       dx[0] = dy x[1]    dx[1] = dy x[0]
 *     subtract    y = x[0] - x[1]     dx[0] = dy         dx[1] = -dy
 *
 * y may share memory with an x[k]. A dx[k] may share dy's memory, and dx[0] and dx[1] may be the
 * same memory. A thread loads an element before it stores it, and stores dx[1] before it adds
 * dx[0]. */
#include "backend/cuda/map.cuh"

namespace op {

struct multiply {
    static constexpr bool reads_x = true;
    __device__ float operator()(float a, float b) const {
        return a * b;
    }
    /* Return dx[k]; `other` is the other input. */
    __device__ static float backward(int, float dy, float other) {
        return dy * other;
    }
};

struct subtract {
    static constexpr bool reads_x = false;
    __device__ float operator()(float a, float b) const {
        return a - b;
    }
    __device__ static float backward(int k, float dy, float) {
        return k == 0 ? dy : -dy;
    }
};

} // namespace op

template <class Op, class T>
static cudaError_t forward(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                           cudaStream_t stream) {
    return map((T *)args->y, (const T *)args->x[0], (const T *)args->x[1], elements(spec),
               false, stream, Op{});
}

/* Operands of backward. If backward does not read x, the pointers in x point to dy. A NULL dx[k] is
 * not computed. */
template <class T> struct gradients {
    const T *x[2], *dy;
    T *dx[2];
    bool add[2];
};

/* Compute both gradients of elements N p .. N p + N - 1. */
template <class Op, class T, int N>
__device__ static inline void make_both(const gradients<T> &g, int64_t p) {
    const pack<T, N> dy = ((const pack<T, N> *)g.dy)[p];
    const pack<T, N> x[2] = {((const pack<T, N> *)g.x[0])[p], ((const pack<T, N> *)g.x[1])[p]};
#pragma unroll
    for (int k = 1; k >= 0; k--) {
        pack<T, N> out;
        if (!g.dx[k]) continue;
        if (g.add[k]) out = ((const pack<T, N> *)g.dx[k])[p];
        for (int i = 0; i < N; i++)
            put(out.at, i, g.add[k], Op::backward(k, load(dy.at, i), load(x[1 - k].at, i)));
        ((pack<T, N> *)g.dx[k])[p] = out;
    }
}

/* `packed`: all operands are aligned to 16 bytes. */
template <class Op, class T>
__global__ void binary_input(gradients<T> g, int64_t n, bool packed) {
    constexpr int N = pack_of<T>;
    const int64_t packs = packed ? n / N : 0, rest = packs * N;
    FOR_EACH(p, packs) {
        make_both<Op, T, N>(g, p);
    }
    FOR_EACH(i, n - rest) {
        make_both<Op, T, 1>(g, rest + i);
    }
}

template <class Op, class T>
static cudaError_t input(const cgp_kernel_spec *spec, const cgp_kernel_args *args,
                         cudaStream_t stream) {
    const int64_t n = elements(spec);
    gradients<T> g = {};
    bool packed = is_aligned(args->dy);
    g.dy = (const T *)args->dy;
    for (int k = 0; k < 2; k++) {
        g.x[k] = Op::reads_x ? (const T *)args->x[k] : g.dy;
        g.dx[k] = (T *)args->dx[k];
        g.add[k] = adds(spec, k);
        packed = packed && is_aligned(g.x[k]) && is_aligned(g.dx[k]);
    }
    if (!g.dx[0] && !g.dx[1]) return cudaSuccess;
    return launch(binary_input<Op, T>, blocks_for(packed ? ceil_div(n, pack_of<T>) : n),
                  dim3(BLOCK), stream, g, n, packed);
}

#define OP(name)                                                                               \
    const cgp__cuda_op cgp__cuda_##name = {                                                    \
        {by_type<forward<op::name, float>, forward<op::name, bf16>>,                           \
         by_type<input<op::name, float>, input<op::name, bf16>>, NULL},                        \
        NULL};
OP(multiply)
OP(subtract)
