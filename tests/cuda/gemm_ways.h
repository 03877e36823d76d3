/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_ways.h -- the cuda backend's GEMM, with a test's choice of tile shape and serial split-K. */
#ifndef CGP_TESTS_CUDA_GEMM_WAYS_H
#define CGP_TESTS_CUDA_GEMM_WAYS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GEMM_SHAPES = 5, GEMM_ROUNDED_SHAPES = 2 };

typedef struct gemm_case {
    int64_t m, n, k;
    /* a_along: a is [m, k], otherwise [k, m]. b_along: b is [n, k], otherwise [k, n]. b_along
     * requires a_along. */
    bool a_along, b_along;
    /* `bias` may be NULL. */
    const float *a, *b, *bias;
    bool add;
} gemm_case;

/* Return the number of ranges of k. `depth` gets the depth of every range but the last. */
int gemm_k_ranges(int64_t k, int64_t *depth);

/* Return the workspace size that the GEMM needs, in bytes. */
int64_t gemm_bytes(const gemm_case *given, bool rounded);

/* Set c [m, n] to a b + bias; with `add`, to c + a b + bias. `semaphores`: as many counters as a
 * device has, which are 0; NULL: without split-K. */
cudaError_t gemm_way(const gemm_case *given, int shape, int *semaphores, float *c, void *workspace,
                     cudaStream_t stream);
/* Do the same as gemm_way() with c in bf16. */
cudaError_t gemm_rounded_way(const gemm_case *given, int shape, int *semaphores, uint16_t *c,
                             void *workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
