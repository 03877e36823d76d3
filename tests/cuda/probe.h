/* SPDX-License-Identifier: Apache-2.0 */
/* probe.h -- find how a tensor core adds the products of an mma, by chosen operands (Fasi, Higham,
 * Mikaitis and Pranesh 2021, "Numerical behavior of NVIDIA tensor cores"). */
#ifndef CGP_TESTS_CUDA_PROBE_H
#define CGP_TESTS_CUDA_PROBE_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum probe_rounding { PROBE_TRUNCATE, PROBE_NEAREST, PROBE_OTHER } probe_rounding;

/* Parameters of the model in tests/fakes/cuda/tensor_core_model.h. */
typedef struct probe_result {
    /* Products that are added at once; 0: no such number. */
    int block;
    /* Bits below the last of the largest term; -1: no such number. */
    int extra;
    probe_rounding rounding;
    /* A product of significands of 2 or more has a larger exponent; the model has none such. */
    bool normalized;
    /* Sums of random operands, and how many of them have other bits than the model has. */
    int outputs, different;
} probe_result;

/* Set d [tiles, 16, 8] += a [tiles, 16, 16] b^T, b [tiles, 8, 16]: one mma a tile. All are in host
 * memory, a and b in bf16. */
cudaError_t probe_multiply(const uint16_t *a, const uint16_t *b, float *d, int tiles);
/* Probe the current device. */
cudaError_t probe_find(probe_result *result);

#ifdef __cplusplus
}
#endif
#endif
