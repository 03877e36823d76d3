/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ways.h -- runs the cuda backend's GEMMs with a tile shape and a split-K that the test
 * chooses. */
#ifndef CGP_TESTS_CUDA_GEMM_WAYS_H
#define CGP_TESTS_CUDA_GEMM_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GEMM_SHAPES = 5, GEMM_MMA_SHAPES = 2 };

typedef struct gemm_case {
    int64_t m, n, k;
    /* `a` is stored as [m, k] if `a_along` is true, otherwise as [k, m]. `b` is stored as [n, k] if
     * `b_along` is true, otherwise as [k, n]. In f32, `b_along` requires `a_along`. */
    bool a_along, b_along;
    /* `bias` may be NULL. In bf16, the elements of `a` and `b` are uint16_t. */
    const void *a, *b;
    const float *bias;
    bool add;
} gemm_case;

/* Return the number of k ranges of a GEMM in f32. `depth` gets the length of every k range except
 * the last. */
int gemm_k_ranges(int64_t k, int64_t *depth);

/* Return the number of k ranges of a GEMM in bf16. `of_rows` is true for a weight's gradient.
 * `depth` gets the length of every k range except the last. */
int gemm_mma_k_ranges(int64_t k, bool of_rows, int64_t *depth);

/* Set c [m, n] to `a b + bias`. If `add` is true, set c to `c + a b + bias`. `semaphores` is an
 * array of zeroed counters, as long as a device's semaphore array. If `semaphores` is NULL, the
 * GEMM runs without split-K. */
cudaError_t gemm_way(const gemm_case *given, int shape, int *semaphores, float *c,
                     cudaStream_t stream);

/* Do the same as gemm_way(), in bf16. If `of_rows` is true, c is float. Otherwise c is uint16_t,
 * and partial sums [m, n] are in `workspace`. */
cudaError_t gemm_mma_way(const gemm_case *given, bool of_rows, int shape, int *semaphores, void *c,
                         void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
