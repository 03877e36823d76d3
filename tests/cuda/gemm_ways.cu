/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ways.cu -- see gemm_ways.h. */
#include "gemm_ways.h"
#include "backend/cuda/gemm.cuh"

using namespace gemm;

extern "C" int gemm_k_ranges(int64_t k, int64_t *depth) {
    *depth = even_depth(k);
    return even_k_ranges(k).count;
}

extern "C" int64_t gemm_bytes(const gemm_case *given, bool rounded) {
    return workspace_bytes(given->m, given->n, even_k_ranges(given->k).count,
                           rounded ? CGP_BF16 : CGP_F32);
}

template <class A, class B>
static cudaError_t with_shape(const A &a, const B &b, const gemm_case &given, int shape,
                              int *semaphores, bf16 *to, void *workspace, cudaStream_t stream) {
    output<plain_rows, bf16> c = output_of(to, given.m, given.n);
    const k_ranges k = even_k_ranges(given.k);
    c.bias = given.bias;
    c.add = given.add;
    if (shape == 0) return run_as<small_m>(a, b, c, k, semaphores, workspace, stream);
    return run_as<rounding>(a, b, c, k, semaphores, workspace, stream);
}

template <class A, class B>
static cudaError_t with_shape(const A &a, const B &b, const gemm_case &given, int shape,
                              int *semaphores, float *to, void *workspace,
                              cudaStream_t stream) {
    output<plain_rows, float> c = output_of(to, given.m, given.n);
    const k_ranges k = even_k_ranges(given.k);
    c.bias = given.bias;
    c.add = given.add;
    if (shape == 0) return run_as<small_m>(a, b, c, k, semaphores, workspace, stream);
    if (shape == 1) return run_as<small>(a, b, c, k, semaphores, workspace, stream);
    if (shape == 2) return run_as<medium>(a, b, c, k, semaphores, workspace, stream);
    if (shape == 4 && a.rows.quads && b.rows.quads)
        return run_as<wide>(a, b, c, k, semaphores, workspace, stream);
    return run_as<large>(a, b, c, k, semaphores, workspace, stream);
}

template <class T>
static cudaError_t with_layout(const gemm_case *given, int shape, int *semaphores, T *c,
                               void *workspace, cudaStream_t stream) {
    const int64_t m = given->m, n = given->n, k = given->k;
    const along_k<matrix<float>> a = {matrix_of(given->a, m, k, k)};
    const along_k<matrix<float>> b = {matrix_of(given->b, n, k, k)};
    const across_k<matrix<float>> a_across = {matrix_of(given->a, k, m, m)};
    const across_k<matrix<float>> b_across = {matrix_of(given->b, k, n, n)};
    if (given->b_along)
        return with_shape(a, b, *given, shape, semaphores, c, workspace, stream);
    if (given->a_along)
        return with_shape(a, b_across, *given, shape, semaphores, c, workspace, stream);
    return with_shape(a_across, b_across, *given, shape, semaphores, c, workspace, stream);
}

extern "C" cudaError_t gemm_way(const gemm_case *given, int shape, int *semaphores, float *c,
                                void *workspace, cudaStream_t stream) {
    return with_layout(given, shape, semaphores, c, workspace, stream);
}

extern "C" cudaError_t gemm_rounded_way(const gemm_case *given, int shape, int *semaphores,
                                        uint16_t *c, void *workspace, cudaStream_t stream) {
    return with_layout(given, shape, semaphores, c, workspace, stream);
}
