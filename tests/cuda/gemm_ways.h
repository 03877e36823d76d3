/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ways.h -- the cuda backend's GEMMs, with a test's choice of tile shape and split-K. */
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
    /* a_along: a is [m, k], otherwise [k, m]. b_along: b is [n, k], otherwise [k, n]. In f32
     * b_along requires a_along. */
    bool a_along, b_along;
    /* `bias` may be NULL. In bf16, a and b are uint16_t. */
    const void *a, *b;
    const float *bias;
    bool add;
} gemm_case;

/* Return the number of ranges of k. `depth` gets the depth of every range but the last. */
int gemm_k_ranges(int64_t k, int64_t *depth);

/* Do the same for a GEMM in bf16; of_rows: for a weight's gradient. */
int gemm_mma_k_ranges(int64_t k, bool of_rows, int64_t *depth);

/* Set c [m, n] to a b + bias; with `add`, to c + a b + bias. `semaphores`: as many counters as a
 * device has, which are 0; NULL: without split-K. */
cudaError_t gemm_way(const gemm_case *given, int shape, int *semaphores, float *c,
                     cudaStream_t stream);

/* Do the same in bf16. c is uint16_t, with partial sums [m, n] in `workspace`, or float if
 * of_rows. */
cudaError_t gemm_mma_way(const gemm_case *given, bool of_rows, int shape, int *semaphores, void *c,
                         void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
