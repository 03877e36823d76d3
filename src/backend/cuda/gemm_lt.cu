/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lt.cu -- kernels that make operands and compare results, for the test of cuBLASLt's
 * algorithms. */
#include "backend/cuda/gemm_lt.h"
#include "backend/cuda/cuda.cuh"

/* Return a pseudorandom value in [-1, 1) that depends only on `salt` and i. Magnitudes range from
 * 2^-7 to 1, so that additions round. */
__device__ static inline float number(uint32_t salt, int64_t i) {
    uint32_t x = (uint32_t)i * 0x9e3779b9u + (uint32_t)(i >> 32) + salt * 0x85ebca6bu;
    x = (x ^ (x >> 16)) * 0x7feb352du;
    x = (x ^ (x >> 15)) * 0x846ca68bu;
    x = x ^ (x >> 16);
    return ((float)(int)(x >> 8) * 0x1p-23f - 1.0f) / (float)(1 << x % 8);
}

/* Fill an operand of the test. If k is odd and above 1, the last element along k is zero. If k is
 * 1, an operand whose terms cancel has zeros at even indices along `outer`. */
template <class T>
__global__ static void fill(T *to, int64_t outer, int64_t k, bool across, bool cancels,
                            uint32_t salt) {
    const int64_t half = k / 2;
    FOR_EACH(i, outer * k) {
        const int64_t o = across ? i % outer : i / k, q = across ? i / outer : i % k;
        const bool second = half > 0 && q >= half;
        float x = q > 0 && q == 2 * half ? 0.0f : number(salt, o * k + (second ? q - half : q));
        if (cancels && outer > 1 && o % 2 == 0) x = half == 0 ? 0.0f : second ? -x : x;
        store(to, i, x);
    }
}

cudaError_t cgp__cuda_lt_fill(void *to, bool tf32, int64_t outer, int64_t k, bool across,
                              bool cancels, uint32_t salt, cudaStream_t stream) {
    if (tf32)
        return launch(fill<float>, blocks_for(outer * k), dim3(BLOCK), stream, (float *)to,
                      outer, k, across, cancels, salt);
    return launch(fill<bf16>, blocks_for(outer * k), dim3(BLOCK), stream, (bf16 *)to, outer, k,
                  across, cancels, salt);
}

__global__ static void compare(const bf16 *x, const bf16 *y, int64_t n, int32_t *failed) {
    FOR_EACH(i, n) {
        if (x[i] != y[i]) *failed = 1;
    }
}

cudaError_t cgp__cuda_lt_compare(const void *x, const void *y, int64_t bytes, int32_t *failed,
                                 cudaStream_t stream) {
    return launch(compare, blocks_for(bytes / 2), dim3(BLOCK), stream, (const bf16 *)x,
                  (const bf16 *)y, bytes / 2, failed);
}

__device__ static inline float load_c(cgp_dtype type, const void *c, int64_t at) {
    return type == CGP_BF16 ? load((const bf16 *)c, at) : load((const float *)c, at);
}

/* Check that a result is close to a plain sum. Terms are at most 1, so sums are below k. The error
 * of an addition may be 2^-22 k. If c is bf16, its error may be 2^-8 of its value. TF32 rounds or
 * truncates both factors of a term, so a term has an error of at most 2^-9 of its value. */
template <class T>
__global__ static void check_row(cgp__cuda_gemm_problem p, cgp__cuda_lt_operands o,
                                 const void *previous, int64_t row, int32_t *failed) {
    const T *a = (const T *)o.a, *b = (const T *)o.b;
    FOR_EACH(column, p.n) {
        const int64_t at = row * p.n + column;
        float sum = o.bias ? load((const T *)o.bias, column) : 0.0f, terms = 0.0f;
        if (previous) sum += load_c(p.type, previous, at);
        for (int64_t q = 0; q < p.k; q++) {
            const float x = load(a, p.a_across ? q * p.a_stride + row : row * p.a_stride + q);
            const float y = load(b, p.b_along ? column * p.k + q : q * p.n + column);
            sum = fmaf(x, y, sum);
            terms += fabsf(x * y);
        }
        const float c = load_c(p.type, o.c, at);
        const float rounding = p.tf32 ? 0x1p-9f * terms : 0x1p-7f * fabsf(sum);
        if (!(fabsf(c - sum) <= rounding + 0x1p-20f * (float)p.k)) *failed = 1;
    }
}

cudaError_t cgp__cuda_lt_check_row(const cgp__cuda_gemm_problem *problem,
                                   const cgp__cuda_lt_operands *operands, const void *previous,
                                   int64_t row, int32_t *failed, cudaStream_t stream) {
    return launch(problem->tf32 ? check_row<float> : check_row<bf16>, blocks_for(problem->n),
                  dim3(BLOCK), stream, *problem, *operands, previous, row, failed);
}
