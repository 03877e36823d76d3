/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ways.cu -- see gemm_ways.h. */
#include "gemm_ways.h"
#include "backend/cuda/gemm_mma.cuh"

using namespace gemm;

extern "C" int gemm_k_ranges(int64_t k, int64_t *depth) {
    *depth = even_depth(k);
    return even_k_ranges(k).count;
}

extern "C" int gemm_mma_k_ranges(int64_t k, bool of_rows, int64_t *depth) {
    const k_ranges ranges = of_rows ? mma_k_ranges_of_rows(k) : mma_k_ranges(k);
    *depth = ranges.depth;
    return ranges.count;
}

/* A way to compute a GEMM: tile shape, split-K, and the other arguments of a launch. */
struct way {
    int shape, *semaphores;
    void *workspace;
    cudaStream_t stream;
};

template <class A, class B>
static cudaError_t with_shape(const A &a, const B &b, const output<plain_rows, float> &c,
                              const k_ranges &k, const way &by) {
    if (by.shape == 0) return run_as<small_m>(a, b, c, k, by.semaphores, 1, by.stream);
    if (by.shape == 1) return run_as<small>(a, b, c, k, by.semaphores, 1, by.stream);
    if (by.shape == 2) return run_as<medium>(a, b, c, k, by.semaphores, 1, by.stream);
    if (by.shape == 4 && a.rows.vectors && b.rows.vectors)
        return run_as<wide>(a, b, c, k, by.semaphores, 1, by.stream);
    return run_as<large>(a, b, c, k, by.semaphores, 1, by.stream);
}

template <class A, class B, class T>
static cudaError_t with_mma_shape(const A &a, const B &b, const output<plain_rows, T> &c,
                                  const k_ranges &k, const way &by) {
    if (by.shape == 0)
        return run_mma_as<mma_small>(a, b, c, k, by.semaphores, 1, by.workspace, by.stream);
    return run_mma_as<mma_large>(a, b, c, k, by.semaphores, 1, by.workspace, by.stream);
}

template <class T> static output<plain_rows, T> output_for(const gemm_case *given, T *to) {
    output<plain_rows, T> c = output_of(to, given->m, given->n);
    c.bias = given->bias;
    c.add = given->add;
    return c;
}

extern "C" cudaError_t gemm_way(const gemm_case *given, int shape, int *semaphores, float *to,
                                cudaStream_t stream) {
    const int64_t m = given->m, n = given->n, k = given->k;
    const float *at_a = (const float *)given->a, *at_b = (const float *)given->b;
    const along_k<matrix<float>> a = {matrix_of(at_a, m, k, k)};
    const along_k<matrix<float>> b = {matrix_of(at_b, n, k, k)};
    const across_k<matrix<float>> a_across = {matrix_of(at_a, k, m, m)};
    const across_k<matrix<float>> b_across = {matrix_of(at_b, k, n, n)};
    const output<plain_rows, float> c = output_for(given, to);
    const k_ranges ranges = even_k_ranges(k);
    const way by = {shape, semaphores, NULL, stream};
    if (given->b_along) return with_shape(a, b, c, ranges, by);
    if (given->a_along) return with_shape(a, b_across, c, ranges, by);
    return with_shape(a_across, b_across, c, ranges, by);
}

template <class T>
static cudaError_t with_layout(const gemm_case *given, const output<plain_rows, T> &c,
                               const k_ranges &ranges, const way &by) {
    const int64_t m = given->m, n = given->n, k = given->k;
    const bf16 *at_a = (const bf16 *)given->a, *at_b = (const bf16 *)given->b;
    const along_k<matrix<bf16>> a = {matrix_of(at_a, m, k, k)};
    const along_k<matrix<bf16>> b = {matrix_of(at_b, n, k, k)};
    const across_k<matrix<bf16>> a_across = {matrix_of(at_a, k, m, m)};
    const across_k<matrix<bf16>> b_across = {matrix_of(at_b, k, n, n)};
    if (given->a_along)
        return given->b_along ? with_mma_shape(a, b, c, ranges, by)
                              : with_mma_shape(a, b_across, c, ranges, by);
    return given->b_along ? with_mma_shape(a_across, b, c, ranges, by)
                          : with_mma_shape(a_across, b_across, c, ranges, by);
}

extern "C" cudaError_t gemm_mma_way(const gemm_case *given, bool of_rows, int shape,
                                    int *semaphores, void *to, void *workspace,
                                    cudaStream_t stream) {
    const way by = {shape, semaphores, workspace, stream};
    if (of_rows)
        return with_layout(given, output_for(given, (float *)to), mma_k_ranges_of_rows(given->k),
                           by);
    return with_layout(given, output_for(given, (bf16 *)to), mma_k_ranges(given->k), by);
}
